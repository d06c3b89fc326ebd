"""The positions of a `RetryingSpout`: which prefix is committed, when it is reported, and which ids are refused."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import pytest

from tests.tasks.components import Replaying, Sink, chain
from tests.tasks.environment import CODEC
from tests.tasks.solo import Solo
from tests.unit.task.spouts import positions, replaying
from topo.builder import TopologyBuilder
from topo.ids import Epoch
from topo.task.guarantees.tracked_source import TrackedSource
from topo.task.task import Task
from topo.wire.control import Close, PositionReport
from topo.wire.frames import FrameKind


def test_only_the_contiguous_prefix_is_committed() -> None:
    _, task = replaying(*range(5))
    task.run()
    task.verdict(FrameKind.ACKED, 1, 2)
    task.wait(1.0)
    assert positions(task) == []
    task.verdict(FrameKind.ACKED, 0)
    task.wait(1.0)
    assert positions(task) == [2]
    task.verdict(FrameKind.ACKED, 4, 3)
    task.wait(1.0)
    assert positions(task) == [2, 4]


def test_over_several_streams_the_prefix_by_order_of_emission_is_committed() -> None:
    class Forking(Replaying):
        outputs = {"odd": ("value",), "even": ("value",)}

    def emit(collector: Any) -> None:
        for number in range(1, 6):
            collector.emit((number,), message_id=number, stream="odd" if number % 2 else "even")

    builder = TopologyBuilder("forks")
    builder.set_spout("a", Forking([emit], ends=False))
    builder.set_bolt("b", Sink()).shuffle_grouping("a", stream="odd").shuffle_grouping("a", stream="even")
    task = Solo(builder.build(), "a")
    task.run()
    task.verdict(FrameKind.ACKED, 1, 3, 5)
    task.wait(1.0)
    assert positions(task) == [1], "2 is not done: a restart has to read it again"
    task.verdict(FrameKind.ACKED, 2, 4)
    task.wait(1.0)
    assert positions(task) == [1, 5]


def test_positions_are_reported_at_most_twice_a_second() -> None:
    _, task = replaying(*range(100))
    task.run()
    for position in range(100):
        task.verdict(FrameKind.ACKED, position)
        task.wait(0.02)
    assert 3 <= len(positions(task)) <= 5
    task.wait(1.0)
    assert positions(task)[-1] == 99


def test_an_unchanged_position_is_not_reported_again() -> None:
    _, task = replaying("x")
    task.run()
    task.verdict(FrameKind.ACKED, "x")
    task.wait(100.0)
    assert positions(task) == ["x"]


def test_the_last_position_is_reported_before_the_spout_is_closed() -> None:
    _, task = replaying("x", "y")
    task.run()
    task.verdict(FrameKind.ACKED, "x")
    task.verdict(FrameKind.ACKED, "y")
    task.handle(Close(Epoch(1)))
    assert positions(task)[-1] == "y"


def test_a_restarted_spout_does_not_report_the_position_that_it_was_given() -> None:
    task = Solo(chain(Replaying(ends=False), Sink()), "a", committed=CODEC.pack_value(7))
    task.wait(10.0)
    assert task.messages(PositionReport) == []


class Colour(IntEnum):
    RED = 1


@pytest.mark.parametrize("position", [1 + 2j, object, (1, 2j)])
def test_a_position_that_cannot_be_stored_is_refused_alone(position: Any) -> None:
    spout, task = replaying(lambda c: c.emit(("v",), position), lambda c: c.emit(("w",), Colour.RED), lambda c: c.emit(("x",), 2))
    task.run()
    task.verdict(FrameKind.ACKED, "w", "x")
    task.wait(100.0)
    assert spout.acked == [1, 2] and positions(task)[-1] == 2
    (error,) = task.errors()
    assert f"emitted with message id {position!r}" in error and "cannot be stored as it is" in error
    assert task.task.counters.refused == 1


def test_a_message_without_readers_moves_the_position() -> None:
    builder = TopologyBuilder("unread")
    builder.set_spout("a", Replaying(["x"], ends=False))
    task = Solo(builder.build(), "a")
    task.wait(1.0)
    assert positions(task) == ["x"]


def test_positions_are_found_by_the_roots_of_their_messages() -> None:
    _, task = replaying("x", "y")
    task.run()
    root = task.root_of("y")
    assert isinstance(task.task, Task) and isinstance(task.task.guarantee, TrackedSource)
    positions_of = task.task.guarantee.positions_of
    assert CODEC.unpack_value(positions_of([root, 12345])) == ("y",)
    assert positions_of([12345]) == b""


@pytest.mark.parametrize(("ids", "refused"), [((5, 5), 5), ((5, 3), 3), ((("b", 1), ("a", 2)), ("a", 2))])
def test_a_position_that_is_not_later_than_the_one_before_is_refused(ids: tuple[Any, Any], refused: Any) -> None:
    first, second = ids
    spout, task = replaying(lambda c: c.emit(("v",), first))
    task.run()
    task.verdict(FrameKind.ACKED, "v")
    spout.steps.append(lambda c: c.emit(("w",), second))
    task.wait(0.1)
    assert task.values() == ["v"] and spout.acked == [first]
    (error,) = task.errors()
    assert f"emitted at position {refused!r} after {first!r}" in error and "each later than the one before" in error
    assert (task.task.counters.refused, task.task.counters.emitted) == (1, 2)
