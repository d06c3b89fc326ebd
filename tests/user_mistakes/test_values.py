"""Mistakes with values: what cannot travel, and what cannot be read where it arrives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from topo import BasicBolt, BasicCollector, IterableSpout, PrintBolt, ProcessBolt, TopologyBuilder, Tuple
from topo.launch.local_cluster import LocalCluster
from topo.master.outcome import Outcome, OutcomeKind
from topo.testing import ADVANCE, CRASH, END, TopologyTest, run_bolt
from topo.testing.fixtures import local_cluster

__all__ = ["local_cluster"]


class Keeps(ProcessBolt):
    """Keeps a list of its numbers, and emits its length."""

    outputs = ("seen",)

    def __init__(self, read: Callable[[Any], Any]) -> None:
        super().__init__("n")
        self.read = read

    def open(self, context: Any) -> None:
        self.kept = context.state.value("kept")

    def process(self, tup: Any, context: Any, collector: Any) -> None:
        kept = self.read(self.kept.get() or [])
        kept.append(tup["n"])
        self.kept.set(kept)
        collector.emit((len(kept),))


@pytest.mark.parametrize(("read", "seen"), [(list, [1, 2, 3]), (lambda kept: kept, [1, 2])], ids=["list", "as it comes"])
def test_a_list_in_state_is_a_tuple_after_a_restore(read: Callable[[Any], Any], seen: list[int]) -> None:
    """The user appends to a list in state, which works until the first crash behind a checkpoint."""
    builder = TopologyBuilder("keeping").config(checkpoint_interval="100ms", attempts=1)
    builder.set_spout("numbers", IterableSpout([], fields=("n",)))
    builder.set_bolt("keeps", Keeps(read)).fields_grouping("numbers", "n")
    test = TopologyTest(builder.build(), sources={"numbers": [7, 7, ADVANCE("1s"), CRASH("keeps"), 7, END]})
    test.run()
    assert test.emitted("keeps") == [(one,) for one in seen]
    assert ["'tuple' object has no attribute 'append'" in dead.why for dead in test.dead_letters()] == [True] * (3 - len(seen))


MONEY = """
from topo import BasicBolt, IterableSpout, JsonLinesSink, TopologyBuilder

class Money:
    def __init__(self, cents):
        self.cents = cents

def read(data):
    if data == b"500":
        raise ValueError("this one has no money")
    return Money(int(data))

class Pay(BasicBolt):
    outputs = ("money",)
    def execute(self, tup, collector):
        collector.emit((Money(tup[0]),))

class Count(BasicBolt):
    outputs = ("cents",)
    def execute(self, tup, collector):
        collector.emit((tup[0].cents,))

def topology():
    builder = TopologyBuilder("money")
    builder.register_type(Money, 40, lambda money: str(money.cents).encode(), read)
    builder.set_spout("numbers", IterableSpout(list(range(1000))))
    builder.set_bolt("pay", Pay()).shuffle_grouping("numbers")
    builder.set_bolt("count", Count()).shuffle_grouping("pay")
    builder.set_bolt("out", JsonLinesSink("{out}")).shuffle_grouping("count")
    return builder.build()
"""


def run(cluster: LocalCluster, folder: Path, **settings: object) -> tuple[Outcome, int]:
    """Run the topology; return how it ended and how many rows came out."""
    file = folder / "money.py"
    file.write_text(MONEY.replace("{out}", str(folder / "out.jsonl")))
    running = cluster.submit(str(file), settings={"workers": 4, **settings})
    outcome = running.wait(timeout_s=60)
    return outcome, sum(len(part.read_text().splitlines()) for part in folder.glob("out*") if part.is_file())


@pytest.mark.integration
@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_a_serializer_that_cannot_read_one_value_costs_one_dead_letter(
    local_cluster: LocalCluster, tmp_path: Path, delivery: str
) -> None:
    """The user's `decode` raises for one value of a thousand: the others arrive, and that one is a dead letter, exit code 1."""
    outcome, rows = run(local_cluster, tmp_path, delivery=delivery)
    assert (outcome.kind, outcome.dead_letters, outcome.exit_code) == (OutcomeKind.DEAD_LETTERS, 1, 1)
    assert rows == 999


@pytest.mark.integration
def test_a_serializer_that_cannot_read_one_value_is_told_at_most_once_too(local_cluster: LocalCluster, tmp_path: Path) -> None:
    """Untracked, the row is lost, as `at_most_once` allows, and the run reports it."""
    outcome, rows = run(local_cluster, tmp_path, delivery="at_most_once")
    assert (outcome.reason, rows) == (
        "every source has ended; nothing was tracked (ackers=0), and 1 tuple failed and was lost; see `topo errors`",
        999,
    )


ORDERS = """
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from uuid import UUID
from topo import BasicBolt, IterableSpout, JsonLinesSink, TopologyBuilder

class Status(Enum):
    NEW = 1
    PAID = 2

@dataclass
class Order:
    number: int
    status: Status
    lines: list = field(default_factory=list)

class Make(BasicBolt):
    outputs = ("order", "tags", "id")
    def execute(self, tup, collector):
        pass
        collector.emit((Order(tup[0], Status.NEW, [Decimal("1.5")]), {{tup[0], "new"}}, UUID(int=tup[0])))

class Check(BasicBolt):
    outputs = ("number",)
    def execute(self, tup, collector):
        order, tags, id = tup.values
        assert order == Order(order.number, Status.NEW, [Decimal("1.5")]) and order.status is Status.NEW, order
        assert tags == {{order.number, "new"}} and id == UUID(int=order.number)
        collector.emit((order.number,))

def topology():
    builder = TopologyBuilder("orders").config(workers=4, attempts=1)
    builder.set_spout("numbers", IterableSpout(list(range(20))))
    builder.set_bolt("make", Make()).shuffle_grouping("numbers")
    builder.set_bolt("check", Check()).shuffle_grouping("make")
    builder.set_bolt("out", JsonLinesSink("{out}")).shuffle_grouping("check")
    return builder.build()
"""


@pytest.mark.integration
@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_dataclasses_enums_and_sets_of_the_topology_file_travel_between_processes(
    local_cluster: LocalCluster, tmp_path: Path, delivery: str
) -> None:
    """The user emits values as they are: a dataclass with an enum, a set, a UUID, without a registration."""
    file = tmp_path / "orders.py"
    file.write_text(ORDERS.format(out=tmp_path / "out.jsonl"))
    running = local_cluster.submit(str(file), settings={"delivery": delivery})
    outcome = running.wait(timeout_s=60)
    assert outcome.kind is OutcomeKind.DONE, running.errors()
    assert sum(len(part.read_text().splitlines()) for part in tmp_path.glob("out*") if part.is_file()) == 20


class EmitsLocal(BasicBolt):
    """Defines its dataclass where it needs it."""

    outputs = ("order",)

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        @dataclass
        class Order:
            number: int

        collector.emit((Order(tup[0]),))


def test_a_dataclass_inside_a_function_is_refused_with_the_way_out() -> None:
    """The user defines the dataclass in `execute`: no receiver could find it."""
    run = run_bolt(EmitsLocal(), [(1,)], fields=("number",))
    assert run.failed == [0]
    shown = str(run.errors[0])
    assert "component 'bolt', stream 'default', field 'order'" in shown
    assert "it is defined inside a function, so no other process finds it; move it to the top level of its module" in shown


class EmitsGenerator(BasicBolt):
    """Emits a generator."""

    outputs = ("words",)

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        collector.emit(((word for word in ["a"]),))


def test_a_generator_is_refused_as_a_value() -> None:
    """The user forgets to make a list of a generator."""
    run = run_bolt(EmitsGenerator(), [(0,)], fields=("number",))
    assert "field 'words'" in str(run.errors[0]) and "generator" in str(run.errors[0])


class Doubled(BasicBolt):
    outputs = ("value",)

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        collector.emit((type(tup["value"])(2 * tup["value"].number),))


def number_of(value: Any) -> bytes:
    return str(value.number).encode()


def test_more_than_ninety_six_own_types_can_be_registered() -> None:
    """A topology registers two hundred classes, each under a separate code."""

    class Numbered:
        def __init__(self, number: int) -> None:
            self.number = number

    kinds = [type(f"Kind{number}", (Numbered,), {}) for number in range(200)]
    builder = TopologyBuilder("kinds")
    for place, kind in enumerate(kinds):
        builder.register_type(kind, 32 + place, number_of, lambda data, kind=kind: kind(int(data)))  # type: ignore[misc]
    builder.set_spout("values", IterableSpout([kind(number) for number, kind in enumerate(kinds)], fields=("value",)))
    builder.set_bolt("doubled", Doubled()).shuffle_grouping("values")
    test = TopologyTest(builder.build())
    test.run()
    assert sorted(value.number for (value,) in test.emitted("doubled")) == list(range(0, 400, 2))
    test.assert_all_acked()


@pytest.mark.parametrize(
    ("value", "problem"),
    [("\ud800", "holds a lone surrogate"), ("x" * 16_000_000, "at most 15728589 are carried")],
    ids=["surrogate", "long"],
)
def test_a_value_that_passes_within_one_worker_alone(value: str, problem: str) -> None:
    """Tasks of one worker hand texts over in memory, two workers cannot: a test refuses them, as two workers do."""
    builder = TopologyBuilder("texts")
    builder.set_spout("texts", IterableSpout([value], fields=("text",)))
    builder.set_bolt("print", PrintBolt()).shuffle_grouping("texts")
    test = TopologyTest(builder.build())
    test.run()
    assert [problem in error.message for error in test.errors()] == [True]
