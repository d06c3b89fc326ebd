"""Ids for ackers wait for others when a task is idle; rows do not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tasks.bolts import Plain
from tests.tasks.components import Scripted, chain
from tests.tasks.solo import Solo
from tests.unit.task.spouts import spouting
from topo.ids import TaskId
from topo.task.events import Idle
from topo.wire.frames import FrameKind

INTERVAL_S = 0.005
WAITING = Idle(ids_may_wait=True)


def relay(**settings: Any) -> Solo:
    bolt = Plain(lambda tup, collector: collector.emit(tup.values), ("value",))
    task = Solo(chain(Scripted(ends=False), bolt, Plain(lambda tup, collector: None, ()), **settings), "b")
    return task


def test_acks_of_an_idle_bolt_wait_for_the_interval_and_rows_do_not() -> None:
    task = relay()
    task.feed("a")
    task.turn()
    task.handle(WAITING)
    assert task.values() == ["a"] and task.frames(FrameKind.ACK) == []
    due = task.task.next_deadline(task.clock.now)
    assert due is not None and due <= task.clock.now + INTERVAL_S
    task.feed("b")
    task.turn()
    task.handle(WAITING)
    task.clock.now = due
    task.turn()
    (acks,) = task.frames(FrameKind.ACK)
    assert acks.count == 2


@pytest.mark.parametrize(("share", "is_sent"), [(0.7, False), (0.8, True)])
def test_ids_leave_with_a_turn_shortly_before_their_time(share: float, is_sent: bool) -> None:
    task = relay()
    _, spout = spouting("a", None)
    task.feed("a")
    for one, kind in ((task, FrameKind.ACK), (spout, FrameKind.INIT)):
        one.turn()
        one.handle(WAITING)
        one.clock.now += share * INTERVAL_S
        one.turn()
        assert len(one.frames(kind)) == is_sent


def test_rows_of_a_busy_spout_leave_soon_when_it_has_no_more_for_now() -> None:
    _, task = spouting("a", None, None, batch_size=2)
    task.turn()
    assert task.values() == []
    task.clock.now += 0.2 * INTERVAL_S
    task.turn()
    assert task.values() == ["a"] and task.frames(FrameKind.INIT) == []
    task.clock.now += INTERVAL_S
    task.turn()
    assert len(task.roots(FrameKind.INIT)) == 1


def test_a_failure_does_not_wait() -> None:
    def fail(tup: Any, collector: Any) -> None:
        raise ValueError("no")

    task = Solo(chain(Scripted(ends=False), Plain(fail, ())), "b")
    task.feed("a")
    task.turn()
    task.handle(WAITING)
    assert [frame.count for frame in task.frames(FrameKind.FAIL)] == [1]


def test_inits_of_an_idle_spout_wait_for_the_interval_and_rows_do_not() -> None:
    _, task = spouting("a", None)
    task.turn()
    task.handle(WAITING)
    assert task.values() == ["a"] and task.frames(FrameKind.INIT) == []
    task.clock.now += INTERVAL_S
    task.turn()
    assert len(task.roots(FrameKind.INIT)) == 1


@pytest.mark.parametrize(("limit", "is_sent"), [(1023, True), (1024, False)])
def test_ids_do_not_wait_where_few_messages_may_be_in_flight(limit: int, is_sent: bool) -> None:
    _, task = spouting("a", None, max_spout_pending=limit)
    task.turn()
    task.handle(WAITING)
    assert len(task.frames(FrameKind.INIT)) == is_sent
    bolt = relay(max_spout_pending=limit)
    bolt.feed("a")
    bolt.turn()
    bolt.handle(WAITING)
    assert len(bolt.frames(FrameKind.ACK)) == is_sent


def test_ids_of_an_ended_spout_do_not_wait() -> None:
    _, task = spouting("a", ends=True)
    for _ in range(3):
        task.turn()
    task.handle(WAITING)
    assert len(task.roots(FrameKind.INIT)) == 1


@pytest.mark.parametrize("tasks", [1, 3])
def test_rows_of_a_busy_worker_wait_for_the_interval_once_for_each_task(tasks: int) -> None:
    task = relay(ackers=0)
    task.local = frozenset(map(TaskId, [task.id, *range(10, 9 + tasks)]))
    task.adopt(2)
    task.open_inputs()
    task.feed("a")
    task.turn()
    due = task.task.outbound.deadlines()[0]
    assert due == pytest.approx(task.clock.now + tasks * INTERVAL_S)
    task.clock.now = due - 0.001
    task.turn()
    assert task.values() == []
    task.clock.now = due
    task.turn()
    assert task.values() == ["a"]


def test_a_worker_that_leaves_sends_all_ids() -> None:
    task = relay()
    task.feed("a")
    task.turn()
    task.handle(Idle())
    assert len(task.frames(FrameKind.ACK)) == 1
