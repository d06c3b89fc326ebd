"""The attempts that a dead letter explains."""

from __future__ import annotations

from tests.money import Money, codec_with, refuse_zero
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


def test_a_message_that_its_decoder_refuses_is_reported_and_can_be_emitted_again() -> None:
    """The decoder may be the reason that it has failed, and be mended since."""
    _, task = started()
    codec = codec_with(refuse_zero)
    reports = DeadLetterReports(task.task.state, task.task.reports, codec, lambda message: message)
    report = reports.report(GivenUpMessage(1, SentRow((Money(0),), 0, None, None), "boom", 3), 1, root=99)
    assert (report.values, report.fixed) == (codec.pack_value((Money(0),)), "")


def test_a_message_whose_values_cannot_be_carried_has_their_text() -> None:
    reports, _ = started()
    report = reports.report(GivenUpMessage(1, SentRow((object,), 0, None, None), "boom", 3), 1, root=99)
    assert CODEC.unpack_value(report.values) == "(<class 'object'>,)"
    assert report.fixed == "its values cannot be carried, so it has their text alone"
