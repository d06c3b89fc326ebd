"""State with a value that no checkpoint can store: the first checkpoint fails the run, with component, key, type and place"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from topo import IterableSpout, ProcessBolt, StatefulBolt, TopologyBuilder
from topo.master.outcome import OutcomeKind
from topo.streams import AT_END, KeyedProcess, KeyedValue, StreamBuilder, StreamContext, StreamOutput
from topo.testing import TopologyTest

VALUES = pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: deque([1]), "cannot be stored: deque: topo carries"),
        (lambda: {"inside": deque([1])}, "cannot be stored: deque: topo carries"),
        (threading.Lock, "lock"),
    ],
    ids=["deque", "part", "lock"],
)


def failed(topology: Any, component: str, sources: dict[str, list[Any]] | None = None) -> list[tuple[str, str]]:
    """The errors of a run that has failed, which are all of the component, with the file of each."""
    test = TopologyTest(topology, sources=sources, checkpoint_interval="1s")
    with pytest.raises(AssertionError, match=rf"no checkpoint can be taken: task \d+ \({component}\)"):
        test.run()
    assert test.outcome is not None and (test.outcome.kind, test.outcome.exit_code) == (OutcomeKind.CRASHED, 1)
    assert test.status()["checkpoints"]["failed"] == 1, "the first failure is the last: the next would fail alike"
    return [(error.message, (error.file or "").rpartition("/")[2]) for error in test.errors() if error.component == component]


class Keeps(ProcessBolt):
    outputs = ("n",)

    def __init__(self, make: Callable[[], Any]) -> None:
        super().__init__("n")
        self.make = make

    def open(self, context: Any) -> None:
        self.thing = context.state.value("thing")

    def process(self, tup: Any, context: Any, collector: Any) -> None:
        self.thing.set(self.make() if tup["n"] == 3 else tup["n"])


@VALUES
def test_a_value_of_a_process_bolt_fails_the_run(make: Callable[[], Any], why: str) -> None:
    """The third record sets state to a deque, to a dict with one in it, or to a lock."""
    builder = TopologyBuilder("keeping")
    builder.set_spout("numbers", IterableSpout(range(5), fields=("n",)))
    builder.set_bolt("keeps", Keeps(make)).fields_grouping("numbers", "n")
    ((message, file),) = failed(builder.build(), "keeps")
    assert message.startswith("state 'thing' of key 3 cannot be stored: ") and why in message
    assert file == "test_unstorable_state.py"


class Counts(StatefulBolt):
    key: Any = "n"

    def __init__(self, make: Callable[[], Any], state: Callable[[dict[Any, Any]], Any]) -> None:
        self.make, self.state = make, state

    def prepare(self, context: Any) -> None:
        self.seen: dict[Any, Any] = {}

    def execute(self, tup: Any, collector: Any) -> None:
        self.seen[tup["n"]] = self.make() if tup["n"] == 3 else 1

    def snapshot(self) -> Any:
        return self.state(self.seen)

    def restore(self, state: Any) -> None:
        self.seen = dict(state or {})


def counting(make: Callable[[], Any], state: Callable[[dict[Any, Any]], Any] = dict) -> TopologyBuilder:
    builder = TopologyBuilder("counting")
    builder.set_spout("numbers", IterableSpout(range(5), fields=("n",)))
    builder.set_bolt("counts", Counts(make, state)).fields_grouping("numbers", "n")
    return builder


@VALUES
def test_a_value_of_a_stateful_bolt_fails_the_run(make: Callable[[], Any], why: str) -> None:
    """`snapshot` returns a dict with a deque under one key."""
    ((message, file),) = failed(counting(make).build(), "counts")
    assert " of key 3" in message and why in message
    assert file == "test_unstorable_state.py"


def test_state_by_key_that_is_no_dict_fails_the_run() -> None:
    """A StatefulBolt with a key returns a list from `snapshot`."""
    ((message, file),) = failed(counting(lambda: 1, list).build(), "counts")
    assert "returns a dict by key; got a list" in message
    assert file == "test_unstorable_state.py"


@VALUES
def test_a_later_result_of_a_fold_fails_the_run(make: Callable[[], Any], why: str) -> None:
    """The first result of `fold` can be stored, and the third cannot."""
    flow = StreamBuilder("folding")
    numbers = flow.from_iterable(range(5)).key_by(lambda n: n)
    kept = numbers.fold(0, lambda _kept, n: make() if n == 3 else n, emit=AT_END, name="kept")
    kept.map(lambda _value: 1).values().to(print)
    errors = [(message, file) for message, file in failed(flow, "kept") if " of key 3" in message]
    assert len(errors) == 1
    assert why in errors[0][0] and errors[0][1] == "test_unstorable_state.py"


class Remembers(KeyedProcess[int, int, int]):
    last = KeyedValue(object)

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make

    def process(self, record: int, context: StreamContext[int], out: StreamOutput[int]) -> None:
        self.last.set(self.make() if record == 3 else record)


@VALUES
def test_a_value_of_a_keyed_process_fails_the_run(make: Callable[[], Any], why: str) -> None:
    """`KeyedValue.set` is given a deque."""
    flow = StreamBuilder("remembering")
    flow.from_iterable(range(5)).key_by(lambda n: n).process(Remembers(make), name="remembers").values().to(print)
    ((message, file),) = failed(flow, "remembers")
    assert message.startswith("state 'last' of key 3 cannot be stored: ") and why in message
    assert file == "test_unstorable_state.py"
