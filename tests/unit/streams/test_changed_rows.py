"""Functions of joins, and operators behind a process, may change the dicts that they are given: state keeps its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from topo.streams import Change, KeyedProcess, KeyedStream, KeyedValue, StreamContext, StreamOutput
from topo.testing import StreamTest

Row = dict[str, Any]


def counted(_left: Row, row: Row) -> int:
    row["seen"] = row.get("seen", 0) + 1
    return int(row["seen"])


JOINS: dict[str, Callable[[KeyedStream[int, Row], KeyedStream[int, Row]], Any]] = {
    "table": lambda left, right: left.join_table(right.latest(), counted),
    "as_of": lambda left, right: left.join_table(right.latest(), counted, as_of=True),
    "interval": lambda left, right: left.interval_join(right, counted, before="1s", after="1s"),
}


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
@pytest.mark.parametrize("join", JOINS)
def test_a_join_gives_each_call_its_own_row(join: str, delivery: str) -> None:
    with StreamTest(delivery=delivery) as test:
        left, right = test.source(Row, "left"), test.source(Row, "right")
        seen = test.collect(JOINS[join](left.stream.key_by(lambda _row: 0), right.stream.key_by(lambda _row: 0)).values())
        right.send({"row": 1}, at=0)
        left.send({"order": 1}, {"order": 2}, {"order": 3}, at=1)
        right.end()
        left.end()
        assert seen.take() == [1, 1, 1]


def emptied(row: Row) -> int:
    size = len(row)
    row.clear()
    return size


class Gathered(KeyedProcess[int, int, Row]):
    numbers = KeyedValue(dict)

    def process(self, record: int, context: StreamContext[int], out: StreamOutput[Row]) -> None:
        numbers = self.numbers.get() or {}
        numbers[record] = True
        self.numbers.set(numbers)
        out.emit(numbers)


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_operators_behind_a_process_change_none_of_its_state(delivery: str) -> None:
    with StreamTest(delivery=delivery) as test:
        source = test.source(int)
        sizes = source.stream.key_by(lambda _number: 0).process(Gathered()).values().map(emptied)
        seen = test.collect(sizes)
        source.send(1, 2, 3)
        assert seen.take() == [1, 2, 3]


def old_size(change: Change[Row]) -> int:
    assert change.new is not None
    change.new.clear()
    return len(change.old or ())


def test_operators_behind_changes_change_none_of_the_rows() -> None:
    with StreamTest() as test:
        source = test.source(Row)
        seen = test.collect(source.stream.key_by(lambda _row: 0).latest().changes().values().map(old_size))
        source.send({"a": 1}, {"a": 1, "b": 2})
        assert seen.take() == [0, 1]
