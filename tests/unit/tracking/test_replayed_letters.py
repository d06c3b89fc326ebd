"""Dead letters that a spout task emits again, and is sent once more by the master."""

from __future__ import annotations

from typing import Any

from tests.tasks.components import Replaying, Sink, chain
from tests.tasks.environment import CODEC
from tests.tasks.solo import Solo
from topo.tracking.dead_letter_reports import DeadLetterReports
from topo.tracking.replayed_letters import ReplayedLetters
from topo.tracking.retries import RetryBook
from topo.tracking.spout_task import SentRow
from topo.wire.control import LettersReplayed, LetterToReplay


def test_a_dead_letter_that_failed_is_emitted_again_only_when_it_is_asked_for_again() -> None:
    # The master may have sent it once more before the report of the failure came.
    task = Solo(chain(Replaying([], ends=False), Sink()), "a")
    state, reports = task.task.state, task.task.reports
    book: RetryBook[Any, SentRow] = RetryBook(1)
    replayed = ReplayedLetters(state, reports, CODEC, book, DeadLetterReports(state, reports, CODEC, lambda message: message))
    values = CODEC.pack_value(tuple(range(len(state.streams[0].fields))))

    def emitted(asked: int) -> list[Any]:
        replayed.take([LetterToReplay(8, state.streams[0].name, None, values, asked)], is_retrying=True)
        return [message for message, _ in book.due(0.0, 0)]

    (message,) = emitted(asked=1)
    given_up = book.failed(message, "boom", 0.0)
    assert given_up is not None
    replayed.failed(given_up, 0)
    assert emitted(asked=1) == []
    task.run()
    assert [[one.errors for one in report.failed] for report in task.messages(LettersReplayed)] == [[["boom"]], [["boom"]]]

    assert emitted(asked=2) == [message]
    replayed.completed([message])
    assert emitted(asked=2) == []
