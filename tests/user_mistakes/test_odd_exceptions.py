"""Exceptions whose text cannot be made are named all the same, with the user's line."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

from topo import BasicBolt, IterableSpout, PrintBolt, TopologyBuilder, TwoPhaseSink, WatermarkStrategy
from topo.api.topology import Topology
from topo.testing import TopologyTest
from topo.user_code.load import CodeError, load_topology

UNREADABLE = "Odd: (its text cannot be read: AttributeError)"


class Odd(Exception):
    def __str__(self) -> str:
        return str(self.lost)  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return self.__str__()


class Money:
    pass


class Make(BasicBolt):
    outputs = ("money",)

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit((Money(),))


class Publish(TwoPhaseSink):
    """Cannot publish at first."""

    published: ClassVar[list[Any]] = []
    has_raised = False

    def write(self, tup: Any) -> None:
        self.rows = tup["n"]

    def pre_commit(self) -> Any:
        return self.rows

    def commit(self, token: Any) -> None:
        if not self.has_raised:
            self.has_raised = True
            raise Odd
        self.published.append(token)

    def abort(self, token: Any) -> None:
        pass


def odd(*_: Any) -> Any:
    raise Odd


def unwritable(write: Any, read: Any) -> Topology:
    builder = TopologyBuilder("odd").config(attempts=1).register_type(Money, 40, encode=write, decode=read)
    builder.set_spout("numbers", IterableSpout([1], fields=("n",)))
    builder.set_bolt("make", Make()).shuffle_grouping("numbers")
    builder.set_bolt("print", PrintBolt()).shuffle_grouping("make")
    return builder.build()


def untimed() -> Topology:
    builder = TopologyBuilder("odd").config(attempts=1)
    strategy = WatermarkStrategy.bounded_out_of_orderness("1s", timestamp=odd)
    builder.set_spout("numbers", IterableSpout([1], fields=("n",)), watermarks=strategy)
    builder.set_bolt("print", PrintBolt()).shuffle_grouping("numbers")
    return builder.build()


@pytest.mark.parametrize(
    "topology",
    [lambda: unwritable(odd, odd), lambda: unwritable(lambda _: b"", odd), untimed],
    ids=["encode", "decode", "timestamp"],
)
def test_a_function_of_the_user_that_raises_one_is_named_by_its_class(topology: Any) -> None:
    test = TopologyTest(topology)
    test.run()
    (error,) = test.errors()
    assert UNREADABLE in error.message


@pytest.mark.parametrize("place", ["", "    "], ids=["import", "build"])
def test_a_file_that_raises_one_is_refused_with_its_line(tmp_path: Path, place: str) -> None:
    file = tmp_path / "odd.py"
    odd = "class Odd(Exception):\n    def __str__(self):\n        return self.lost\n"
    file.write_text(f"{odd}def topology():\n    pass\n{place}raise Odd\n")
    with pytest.raises(CodeError) as refused:
        load_topology(str(file))
    assert f"failed: {UNREADABLE} ({file}, line 6)" in str(refused.value)


def test_a_sink_that_raises_one_publishes_later() -> None:
    builder = TopologyBuilder("odd").config(delivery="at_least_once", attempts=1)
    builder.set_spout("numbers", IterableSpout([7], fields=("n",)))
    builder.set_bolt("publish", Publish()).shuffle_grouping("numbers")
    Publish.published.clear()
    test = TopologyTest(builder.build())
    test.run()
    assert Publish.published == [7]
    assert [error.message for error in test.errors()] == [UNREADABLE.partition(": ")[2]]
