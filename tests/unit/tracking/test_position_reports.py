"""The reports of a spout with partitions to the master: how many, and before which rows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.tasks.environment import CODEC
from topo.api.partition_values import Partition
from topo.tracking.position_reports import MOST_BYTES, PositionReports
from topo.tracking.retries import RetryBook

A = Partition("a")


class Spout:
    """The book and the reports of a spout task without the task."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        """The positions of each report, by partition."""
        self.errors: list[Exception] = []
        self.book: RetryBook[Any, Any] = RetryBook()
        task: Any = SimpleNamespace(id=1, epoch=1, component_id="spout")
        self.reports = PositionReports(task, self, CODEC, self.book, lambda _positions: None)
        self.reports.restore(None, None)
        self.reports.partitions.found()

    def to_master(self, report: Any) -> None:
        self.sent.append({name: kept[2] for name, kept in CODEC.unpack_value(report.position).items()})

    def user_error(self, error: Exception, now: float) -> None:
        self.errors.append(error)

    def emit(self, *messages: tuple[str, int]) -> None:
        self.reports.emitted(messages)
        self.book.emitted(messages, messages)

    def done(self, *messages: tuple[str, int]) -> None:
        self.book.done(messages)
        self.reports.advance()


def test_one_report_has_all_partitions_that_begin_together_and_goes_before_their_rows() -> None:
    spout = Spout()
    for number in range(1_000):
        spout.reports.begin_partition(Partition(f"p{number}"), number, 5.0)
    assert spout.sent == []
    spout.emit(("p7", 8))
    spout.emit(("p7", 9))
    (begins,) = spout.sent
    assert begins == {f"p{number}": number for number in range(1_000)}


def test_partitions_without_rows_are_reported_in_the_next_turn() -> None:
    spout = Spout()
    spout.reports.send(5.0)
    spout.reports.begin_partition(A, 4, 5.1)
    assert spout.reports.deadline == 5.1
    spout.reports.send(5.1)
    assert spout.sent == [{}, {"a": 4}]


def test_a_partition_is_forgotten_while_messages_of_it_are_open() -> None:
    spout = Spout()
    spout.reports.begin_partition(A, None, 5.0)
    spout.emit(("a", 1), ("a", 2))
    spout.done(("a", 1))
    spout.reports.forget_partition("a")
    spout.reports.send(6.0)
    assert spout.sent == [{"a": None}, {}]
    spout.done(("a", 2))
    spout.reports.send(7.0)
    assert spout.sent == [{"a": None}, {}]


def test_a_partition_that_returns_is_new_whatever_is_open_of_the_one_before() -> None:
    spout = Spout()
    spout.reports.begin_partition(A, None, 5.0)
    spout.emit(("a", 6), ("a", 7))
    spout.done(("a", 6))
    spout.reports.send(6.0)
    spout.reports.forget_partition("a")
    spout.reports.begin_partition(A, None, 6.1)
    spout.emit(("a", 1))
    spout.done(("a", 7))
    spout.reports.send(8.0, at_once=True)
    assert spout.sent == [{"a": None}, {"a": 6}, {"a": None}]
    spout.done(("a", 1))
    spout.reports.send(9.0)
    assert spout.sent[-1] == {"a": 1}


def test_positions_that_no_message_could_carry_are_an_error_and_no_report() -> None:
    spout = Spout()
    spout.reports.begin_partition(A, None, 5.0)
    spout.reports.send(5.0)
    spout.emit(("a", "x" * MOST_BYTES))
    spout.done(("a", "x" * MOST_BYTES))
    spout.reports.send(6.0)
    (error,) = spout.errors
    assert "its positions take 15." in str(error) and spout.sent == [{"a": None}]
    spout.emit(("a", "y"))
    spout.done(("a", "y"))
    assert spout.reports.deadline == pytest.approx(6.0 + 15, abs=0.1), "they are not packed again and again"
    spout.reports.send(30.0)
    assert spout.sent[1:] == [{"a": "y"}] and len(spout.errors) == 1
