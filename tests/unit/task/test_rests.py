"""What arrives may lie unread for a moment in a worker that has gone idle, so that one turn takes it together with other work."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tasks.components import Scripted
from tests.tasks.solo import Solo
from tests.unit.task.spouts import spouting
from tests.unit.worker.hosted import LINES, Hosted, word_count
from topo.task.events import Idle
from topo.task.limits import LONG_REST_S


def rest_of(task: Solo) -> float | None:
    """How long the task rests in a worker without others that has gone idle."""
    now = task.clock.now
    next_turn = task.task.next_deadline(now)
    assert next_turn is not None
    return None if task.task.rest is None else task.task.rest(now, next_turn)


def silent(seconds: float) -> Any:
    def step(collector: Any) -> None:
        collector.emit(("a",), message_id=1)
        collector.nothing_before(seconds)

    return step


@pytest.mark.parametrize(("seconds", "expected"), [(0.001, 0.001), (2 * LONG_REST_S, 0.0)])
def test_verdicts_lie_unread_until_the_spout_is_asked_if_that_is_soon(seconds: float, expected: float) -> None:
    _, task = spouting(silent(seconds))
    task.turn()
    task.handle(Idle(ids_may_wait=True))
    assert rest_of(task) == pytest.approx(expected)


def test_a_spout_whose_frames_wait_for_room_reads_confirmations_at_once() -> None:
    _, task = spouting(*[silent(0.001)] * 3, edge_window=1, batch_size=1)
    for _ in range(3):
        task.turn()
        task.clock.now += 0.001
    task.turn()
    assert task.task.outbound.outbox.waiting
    assert rest_of(task) == 0.0


def test_a_spout_that_may_emit_no_more_reads_verdicts_at_once() -> None:
    _, task = spouting(lambda collector: [collector.emit(("a",), message_id=one) for one in range(1024)], max_spout_pending=1024)
    while task.task.has_work:
        task.turn()
    task.handle(Idle(ids_may_wait=True))
    assert task.task.runner._source.room == 0
    assert rest_of(task) == 0.0


def test_a_spout_that_may_have_few_messages_in_flight_does_not_rest() -> None:
    _, task = spouting(silent(0.001), max_spout_pending=1000)
    task.turn()
    assert rest_of(task) is None


@pytest.mark.parametrize("share", [0.5, 2.0])
def test_an_acker_rests_up_to_the_next_turn(share: float) -> None:
    hosted = Hosted(word_count(Scripted(LINES))[0])
    acker = next(task for task in hosted.worker.tasks.values() if task.id in hosted.plan.ackers)
    assert acker.rest is not None
    assert acker.rest(1.0, 1.0 + share * LONG_REST_S) == pytest.approx(min(share, 1.0) * LONG_REST_S)


def test_a_worker_with_a_bolt_reads_at_once() -> None:
    hosted = Hosted(word_count(Scripted(LINES))[0])
    now = hosted.clock.now
    assert hosted.worker.rest_s(now, now + 0.001) == 0.0
