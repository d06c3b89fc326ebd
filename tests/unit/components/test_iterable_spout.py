from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.components.drive import drain, opened
from topo import IterableSpout


def test_items_are_values_of_the_one_field_and_their_index_is_the_position() -> None:
    collector = opened(spout := IterableSpout(["a", ("b", "c")]))
    assert drain(spout, collector) == [(("a",), 0), ((("b", "c"),), 1)]
    assert collector.ended


def test_with_several_fields_an_item_has_a_value_for_each() -> None:
    spout = IterableSpout([("a", 1), ["b", 2]], fields=("name", "number"))
    assert drain(spout, opened(spout)) == [(("a", 1), 0), (("b", 2), 1)]
    assert spout.outputs == ("name", "number")


@pytest.mark.parametrize("tasks", [1, 2, 3, 7])
def test_tasks_share_the_items(tasks: int) -> None:
    emitted = []
    for index in range(tasks):
        spout = IterableSpout(range(10))
        emitted += drain(spout, opened(spout, index=index, parallelism=tasks))
    assert sorted(emitted) == [((number,), number) for number in range(10)]


@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize("done", range(10))
def test_it_continues_after_the_committed_position(tasks: int, done: int) -> None:
    spout = IterableSpout(range(10))
    again = drain(spout, opened(spout, index=done % tasks, parallelism=tasks, committed=done))
    assert [position for _, position in again] == list(range(done + tasks, 10, tasks))


def test_a_function_makes_the_items_anew() -> None:
    def items() -> Iterator[int]:
        yield from range(3)

    spout = IterableSpout(items)
    assert drain(spout, opened(spout)) == drain(spout, opened(spout))


def test_one_call_emits_one_item_so_that_an_endless_source_can_be_paused() -> None:
    def endless() -> Iterator[int]:
        number = 0
        while True:
            yield number
            number += 1

    spout = IterableSpout(endless)
    collector = opened(spout)
    for _ in range(5):
        spout.next_tuple()
    assert collector.streams[0].rows == [(0,), (1,), (2,), (3,), (4,)]


def test_a_source_that_raises_has_not_ended() -> None:
    def broken() -> Iterator[Any]:
        yield 1
        raise OSError("disk on fire")

    spout = IterableSpout(broken)
    collector = opened(spout)
    spout.next_tuple()
    for _ in range(3):
        with pytest.raises(OSError, match="disk on fire"):
            spout.next_tuple()
    assert not collector.ended
