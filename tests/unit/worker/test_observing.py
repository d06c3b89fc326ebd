"""Observations of a worker: the rows of a tap, its bounds, secrets, and the end of all when their time is up."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest

from topo.api.column_batch import ColumnBatch
from topo.ids import TaskId
from topo.wire import control
from topo.worker.log_levels import LogLevels
from topo.worker.observing import MOST_BYTES, Observing
from topo.worker.tap import SECRET, TapReader, short

TASK = TaskId(3)
FIELDS = ("word", "count")
ROWS = [("a", number) for number in range(100)]


class Time:
    now = 100.0
    step = 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


def reader(time: Time, secret: Iterable[str] = (), **spec: Any) -> TapReader:
    return TapReader(1, {"rate": 5.0} | spec, frozenset(secret), {TASK: 0}, time, lambda: 7)


def test_a_tap_shows_no_more_than_its_rate_and_counts_all(time: Time) -> None:
    tap = reader(time)
    look = tap.of(TASK)
    for _ in range(20):
        time.now += 0.1
        look("default", FIELDS, ROWS)
    (report,) = tap.reports()
    assert report.seen == 2000
    assert 9 <= len(report.rows) <= 11
    assert report.rows[0] == {"at_ms": 7, "task": TASK, "index": 0, "stream": "default", "fields": {"word": "a", "count": 0}}
    assert tap.reports() == []


def test_a_condition_chooses_among_all_rows_of_a_small_batch(time: Time) -> None:
    tap = reader(time, where="count == 77", rate=100.0)
    tap.of(TASK)("default", FIELDS, ROWS)
    (report,) = tap.reports()
    assert [row["fields"]["count"] for row in report.rows] == [77]
    assert (report.seen, report.looked, report.matched, report.problem) == (100, 100, 1, "")


def test_looking_takes_no_more_than_its_share_of_time(time: Time) -> None:
    time.step = 0.001
    tap = reader(time, where="count >= 0")
    for _ in range(10):
        tap.of(TASK)("default", FIELDS, ROWS)
    (report,) = tap.reports()
    assert report.seen == 1000
    assert report.looked < 20


def test_secret_values_are_not_shown_and_long_ones_are_cut(time: Time) -> None:
    tap = reader(time, secret=["word"])
    tap.of(TASK)("default", FIELDS, [("hidden", "x" * 1000)])
    (report,) = tap.reports()
    fields = report.rows[0]["fields"]
    assert fields["word"] == SECRET
    assert len(fields["count"]) == 200


@pytest.mark.parametrize(
    "value", [1 << 80, float("nan"), float("inf"), b"\xff" * 999, ["a"] * 999, object(), {"a": [1]}, "\udc80"]
)
def test_every_value_can_be_sent(value: Any) -> None:
    assert len(control.encode({"value": short(value)})) < 1000


def test_an_integer_that_has_too_many_digits_to_be_shown_has_a_text() -> None:
    for value in (10**5000, (1, 10**5000)):
        assert short(value).startswith("(Exceeds the limit (4300 digits)")


def test_rows_of_batches_of_columns_are_shown_as_rows(time: Time) -> None:
    tap = reader(time, where="count == 12", rate=100.0)
    batches = [(ColumnBatch(FIELDS, [["a"] * 10, list(range(first, first + 10))], is_arrow=False),) for first in range(0, 30, 10)]
    tap.of(TASK)("default", FIELDS, batches)
    (report,) = tap.reports()
    assert report.seen == 30
    assert [row["fields"] for row in report.rows] == [{"word": "a", "count": 12}]


def test_values_of_arrow_are_shown_as_a_bolt_gets_them_and_those_that_none_could_get_as_text(time: Time) -> None:
    columns = {"word": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())), "count": pa.array([1], pa.timestamp("ns"))}
    tap = reader(time, where="word['a'] == 1")
    tap.of(TASK)("default", FIELDS, [(ColumnBatch.of(columns),)])
    (report,) = tap.reports()
    assert report.problem == ""
    assert [row["fields"] for row in report.rows] == [{"word": "{'a': 1}", "count": "1970-01-01 00:00:00.000000001"}]


def test_a_tap_disturbs_no_task(time: Time) -> None:
    class Odd:
        def __gt__(self, other: object) -> bool:
            raise RuntimeError("odd")

        def __repr__(self) -> str:
            raise RuntimeError("odd")

    tap = reader(time, where="count > 1")
    tap.of(TASK)("default", FIELDS, [("a", Odd())])
    assert tap.reports()[0].problem == "count > 1: RuntimeError: odd"
    plain = reader(time)
    plain.of(TASK)("default", FIELDS, [("a", Odd())])
    assert plain.reports()[0].rows[0]["fields"]["word"] == "a"
    plain.of(TASK)("default", FIELDS, [("a",)])


class Endless:
    """An observation with more rows than may be sent."""

    has_ended = False

    def reports(self) -> list[control.Observed]:
        return [control.Observed(1, TASK, rows=[{"value": "x" * 1000}] * 200)]

    def end(self) -> None:
        self.has_ended = True


def observe(number: int = 1, kind: str = "endless", for_s: float = 1.0, **spec: Any) -> control.Observe:
    return control.Observe(number, kind, [TASK], spec, for_s)


def test_rows_beyond_the_bound_of_an_interval_are_dropped_and_counted() -> None:
    observing = Observing({"endless": lambda message: Endless()})
    observing.take(observe(), 0.0)
    (report,) = observing.due(0.0)
    assert len(report.rows) + report.dropped == 200
    assert sum(len(control.encode(row)) for row in report.rows) <= MOST_BYTES
    assert observing.due(0.1) == []
    assert observing.next_deadline() == 0.25


@pytest.mark.parametrize("how", ["time", "message", "close"])
def test_an_observation_ends(how: str) -> None:
    watched = Endless()
    observing = Observing({"endless": lambda message: watched})
    observing.take(observe(), 0.0)
    observing.due(0.9)
    assert not watched.has_ended
    if how == "time":
        observing.due(1.2)
    elif how == "message":
        observing.take(control.Unobserve(1), 0.0)
    else:
        observing.close()
    assert watched.has_ended
    if how != "time":
        # Its last rows are still sent.
        assert observing.due(1.3)
    assert observing.is_idle and observing.next_deadline() is None


def test_an_observation_that_cannot_begin_reports_why_and_ends_nothing() -> None:
    observing = Observing({})
    observing.take(observe(kind="profile"), 0.0)
    assert observing.due(0.0) == [control.Observed(1, TASK, problem="'profile'")]
    assert observing.is_idle


def test_the_last_change_of_a_log_level_counts_and_none_is_left_behind() -> None:
    logger, levels = logging.getLogger("tests.observing"), LogLevels()
    logger.setLevel(logging.ERROR)
    first = levels.begin(observe(1, levels={"tests.observing": "DEBUG"}))
    second = levels.begin(observe(2, levels={"tests.observing": "WARNING"}))
    assert logger.level == logging.WARNING
    first.end()
    assert logger.level == logging.WARNING
    second.end()
    assert logger.level == logging.ERROR
