"""The figures of every task over all its lives, from heartbeats.

A heartbeat carries what a task has counted since its process started. When the process is lost, its last counts are kept and
those of the next life are added to them; so counts are exact but for what a killed process counted after its last heartbeat.
Rates and shares are those of the last WINDOW_S of the present life.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from topo.api.metrics import HistogramSnapshot, MetricsSnapshot
from topo.ids import TaskId
from topo.wire.control import Statistics

WINDOW_S = 10.0

N = TypeVar("N", int, float, int | float)


class UserFigures(msgspec.Struct, frozen=True):
    """What user code counts in a task."""

    metrics: MetricsSnapshot = MetricsSnapshot()


class TaskFigures(msgspec.Struct, frozen=True):
    """What one life of a task has counted: `topo.wire.statistics.TaskStatistics` as it arrives."""

    counters: dict[str, int | float] = {}
    levels: dict[str, float] = {}
    latencies: dict[str, HistogramSnapshot] = {}
    user: UserFigures = UserFigures()

    def after(self, earlier: TaskFigures) -> TaskFigures:
        """Return the figures of an earlier life and this one together; levels are this one's, a gauge the last one set."""
        mine, theirs = self.user.metrics, earlier.user.metrics
        metrics = MetricsSnapshot(
            _added(theirs.counters, mine.counters), {**theirs.gauges, **mine.gauges}, _merged(theirs.histograms, mine.histograms)
        )
        return TaskFigures(
            _added(earlier.counters, self.counters), self.levels, _merged(earlier.latencies, self.latencies), UserFigures(metrics)
        )

    def beside(self, other: TaskFigures) -> TaskFigures:
        """Return the figures of two tasks together; levels and gauges add up, too, but for those of event time."""
        metrics = self.user.metrics
        joined = self.after(other)
        gauges = _added(metrics.gauges, other.user.metrics.gauges)
        user = MetricsSnapshot(joined.user.metrics.counters, gauges, joined.user.metrics.histograms)
        return TaskFigures(joined.counters, _levels(other.levels, self.levels), joined.latencies, UserFigures(user))


_NONE = TaskFigures()
_NOT_FINAL = ("finally_failed", "unaccounted")
WAIT = "queue_s"
"""The level of how long tuples wait before a bolt."""
EVENT_TIME = ("watermark_ms", "watermark_lag_s", "held_back_by")
"""Levels of event time: the watermark, how far it is behind the clock, and the task that its next step waits for."""


@dataclass(slots=True)
class _TaskBook:
    lost: TaskFigures = _NONE
    live: TaskFigures = _NONE
    samples: deque[tuple[float, Mapping[str, int | float]]] = field(default_factory=deque)


class TopologyStatistics:
    """The figures of all tasks.

    Attributes:
        unreadable: heartbeats whose figures were not figures.
    """

    def __init__(self, tasks: Iterable[TaskId]) -> None:
        self._books = {task: _TaskBook() for task in tasks}
        self.unreadable = 0

    def add(self, tasks: Mapping[TaskId, Statistics], now: float) -> None:
        """Take the figures of a heartbeat; the caller has seen to it that the tasks are the sender's."""
        for task, statistics in tasks.items():
            try:
                live = msgspec.convert(statistics, TaskFigures, from_attributes=True)
            except msgspec.ValidationError:
                self.unreadable += 1
                continue
            book = self._books[task]
            book.live = live
            book.samples.append((now, live.counters))
            # One sample older than the window stays, so that the window is full.
            while len(book.samples) > 2 and book.samples[1][0] <= now - WINDOW_S:
                book.samples.popleft()

    def lost(self, tasks: Iterable[TaskId]) -> None:
        """The process of these tasks is gone: what comes next counts from zero.

        What had failed or was open there is for its source to deliver again, so nothing of it is final.
        """
        for task in tasks:
            live = self._books[task].live
            counters = {name: 0 if name in _NOT_FINAL else count for name, count in live.counters.items()}
            self._books[task].live = replace(live, counters=counters)
        self.ended(tasks)

    def ended(self, tasks: Iterable[TaskId]) -> None:
        """The process of these tasks has ended in its time: its counts are kept."""
        for task in tasks:
            book = self._books[task]
            book.lost, book.live = book.live.after(book.lost), _NONE
            book.samples.clear()

    def of(self, task: TaskId) -> TaskFigures:
        book = self._books[task]
        return book.live.after(book.lost)

    def together(self, tasks: Iterable[TaskId]) -> TaskFigures:
        total = _NONE
        for task in tasks:
            total = self.of(task).beside(total)
        return total

    def rate(self, task: TaskId, counter: str) -> float:
        """Return how much a counter grew each second, lately; 0 before the second heartbeat of a life."""
        samples = self._books[task].samples
        if len(samples) < 2:
            return 0.0
        (began, first), (ended, last) = samples[0], samples[-1]
        seconds = ended - began
        return (last.get(counter, 0) - first.get(counter, 0)) / seconds if seconds > 0 else 0.0


def _added(first: Mapping[str, N], second: Mapping[str, N]) -> dict[str, N]:
    return {name: second[name] if name not in first else first[name] + second.get(name, 0) for name in {**first, **second}}


def _levels(first: Mapping[str, float], second: Mapping[str, float]) -> dict[str, float]:
    """Levels add up; event time is that of the task that is behind, the wait before a bolt that of the task with the longest."""
    joined = _added(first, second)
    if WAIT in joined:
        joined[WAIT] = max(levels.get(WAIT, 0.0) for levels in (first, second))
    both = [levels for levels in (first, second) if EVENT_TIME[0] in levels]
    if both:
        behind = min(both, key=lambda levels: levels[EVENT_TIME[0]])
        for name in EVENT_TIME:
            joined.pop(name, None)
            if name in behind:
                joined[name] = behind[name]
    return joined


def _merged(first: Mapping[str, HistogramSnapshot], second: Mapping[str, HistogramSnapshot]) -> dict[str, HistogramSnapshot]:
    empty = HistogramSnapshot()
    return {name: first.get(name, empty).merged(second.get(name, empty)) for name in {**first, **second}}
