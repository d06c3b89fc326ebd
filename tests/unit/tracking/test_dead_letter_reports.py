"""The attempts that a dead letter explains."""

from __future__ import annotations

from tests.tasks.components import Replaying, Sink, chain
from tests.tasks.environment import CODEC
from tests.tasks.solo import Solo
from topo.tracking.dead_letter_reports import MOST_ATTEMPTS, DeadLetterReports
from topo.tracking.retries import GivenUpMessage
from topo.tracking.spout_task import SentRow
from topo.wire.control import DeadLetter


def give_up(reports: DeadLetterReports, task: Solo) -> list[tuple[str, int]]:
    """Give message 1 up; return the earlier attempts in its dead letter."""
    reports.give_up(GivenUpMessage(1, SentRow(("x",), 0, None, None), "boom", 3), root=99)
    task.run()
    return list(task.messages(DeadLetter)[-1].earlier)


def started() -> tuple[DeadLetterReports, Solo]:
    task = Solo(chain(Replaying([], ends=False), Sink()), "a")
    return DeadLetterReports(task.task.state, task.task.reports, CODEC, lambda message: message), task


def test_a_dead_letter_explains_the_last_attempts_before_its_own() -> None:
    reports, task = started()
    for root in range(MOST_ATTEMPTS + 2):
        reports.attempt_failed(1, "boom", root)
    assert give_up(reports, task) == [("boom", root) for root in range(2, MOST_ATTEMPTS + 2)]


def test_attempts_of_a_message_that_is_acked_are_forgotten() -> None:
    reports, task = started()
    reports.attempt_failed(1, "boom", 7)
    reports.done([1])
    assert give_up(reports, task) == []
