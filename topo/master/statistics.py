"""The figures of every task over all its lives, from heartbeats, and the sums of every component.

A heartbeat carries what a task has counted since its process started. When the process is lost, its last counts are kept and
those of the next life are added to them; so counts are exact but for what a killed process counted after its last heartbeat.
Rates and shares of a task are those of the last WINDOW_S of its present life; those of a component are of a window of its sums.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from topo.ids import TaskId
from topo.master.process_costs import ProcessCosts
from topo.master.sums import ComponentSums
from topo.master.task_figures import NO_FIGURES, TaskFigures, joined_levels, known_gauges
from topo.master.windows import Sample, SampleRing, Span, sample_of
from topo.wire.control import Statistics

WINDOW_S = 10.0
SILENT_BEATS = 3.0
"""After this many heartbeat intervals without figures a rate counts the time in which nothing has come."""
_NOT_FINAL = ("finally_failed", "unaccounted")
_NOTHING = Sample(0.0, {}, {}, {})


class _TaskSample(NamedTuple):
    at: float
    counters: Mapping[str, int | float]
    execute_s: float
    """Time in `execute`, as its latency counts it, and of how many tuples."""
    execute_count: int


@dataclass(slots=True)
class _TaskBook:
    component: str
    lost: TaskFigures = NO_FIGURES
    live: TaskFigures = NO_FIGURES
    samples: deque[_TaskSample] = field(default_factory=deque)


@dataclass(slots=True)
class _ComponentBook:
    tasks: list[TaskId] = field(default_factory=list)
    sums: ComponentSums = field(default_factory=ComponentSums)
    ring: SampleRing = field(default_factory=SampleRing)
    first_at: float = 0.0
    last_at: float | None = None
    """When figures of any of its tasks have come last; None before."""


class TopologyStatistics:
    """The figures of all tasks.

    Args:
        tasks: the component of each task.
        heartbeat_s: the interval of heartbeats.

    Attributes:
        unreadable: heartbeats whose figures were not figures.
        processes: the cost of the workers' processes.
        lost_errors: by task: errors of lives whose process was lost. How much these lives have done is not known to the end.
    """

    def __init__(self, tasks: Mapping[TaskId, str], heartbeat_s: float = 1.0) -> None:
        self._books = {task: _TaskBook(component) for task, component in tasks.items()}
        self._components: dict[str, _ComponentBook] = {}
        for task, component in tasks.items():
            self._components.setdefault(component, _ComponentBook()).tasks.append(task)
        self.processes = ProcessCosts()
        self._silent_s = SILENT_BEATS * heartbeat_s
        self.unreadable = 0
        self.lost_errors: Counter[TaskId] = Counter()

    def add(self, tasks: Mapping[TaskId, Statistics], now: float) -> None:
        """Take the figures of a heartbeat; the caller has seen to it that the tasks are the sender's."""
        touched = set()
        for task, statistics in tasks.items():
            try:
                live = msgspec.convert(statistics, TaskFigures, from_attributes=True)
            except msgspec.ValidationError:
                self.unreadable += 1
                continue
            book = self._books[task]
            self._components[book.component].sums.move(book.live, live)
            touched.add(book.component)
            book.live = live
            execute = live.latencies.get("execute")
            timed = (0.0, 0) if execute is None else (execute.total, execute.count)
            book.samples.append(_TaskSample(now, live.counters, *timed))
            # One sample older than the window stays, so that the window is full.
            while len(book.samples) > 2 and book.samples[1].at <= now - WINDOW_S:
                book.samples.popleft()
        for name in touched:
            component = self._components[name]
            if component.last_at is None:
                component.first_at = now
            component.last_at = now
            if component.ring.is_due(now):
                component.ring.add(sample_of(component.sums, now))

    def lost(self, tasks: Iterable[TaskId]) -> None:
        """The process of these tasks is gone: what comes next counts from zero.

        What had failed or was open there is for its source to deliver again, so nothing of it is final.
        """
        for task in tasks:
            book = self._books[task]
            self.lost_errors[task] += int(book.live.counters.get("errors", 0))
            counters = {name: 0 if name in _NOT_FINAL else count for name, count in book.live.counters.items()}
            live = replace(book.live, counters=counters)
            self._components[book.component].sums.move(book.live, live)
            book.live = live
        self.ended(tasks)

    def ended(self, tasks: Iterable[TaskId]) -> None:
        """The process of these tasks has ended in its time: its counts are kept."""
        for task in tasks:
            book = self._books[task]
            book.lost, book.live = book.live.after(book.lost), NO_FIGURES
            book.samples.clear()

    # -- tasks -----------------------------------------------------------------------------------------------------------

    def of(self, task: TaskId) -> TaskFigures:
        book = self._books[task]
        return book.live.after(book.lost)

    def together(self, tasks: Iterable[TaskId]) -> TaskFigures:
        total = NO_FIGURES
        for task in tasks:
            total = self.of(task).beside(total)
        return total

    def rate(self, task: TaskId, counter: str) -> float:
        """Return how much a counter grew each second, lately; 0 before the second heartbeat of a life."""
        samples = self._books[task].samples
        if len(samples) < 2:
            return 0.0
        first, last = samples[0], samples[-1]
        seconds = last.at - first.at
        return (last.counters.get(counter, 0) - first.counters.get(counter, 0)) / seconds if seconds > 0 else 0.0

    def capacity(self, task: TaskId) -> float:
        """Return the share of time that a task needs to execute its input, lately; 0 before the second heartbeat of a life."""
        samples = self._books[task].samples
        if len(samples) < 2:
            return 0.0
        first, last = samples[0], samples[-1]
        if not last.execute_count:
            return self.rate(task, "busy_s")
        timed = last.execute_count - first.execute_count
        mean_s = (last.execute_s - first.execute_s) / timed if timed else last.execute_s / last.execute_count
        return self.rate(task, "executed") * mean_s

    # -- components ------------------------------------------------------------------------------------------------------

    def sums(self, component: str) -> ComponentSums:
        return self._components[component].sums

    def counter(self, component: str, name: str) -> int | float:
        """Return a counter of all tasks of a component together."""
        return self._components[component].sums.counters.get(name, 0)

    def levels(self, component: str) -> dict[str, float]:
        """Return the levels of the tasks of a component together, from their last heartbeats."""
        total: dict[str, float] = {}
        for task in self._components[component].tasks:
            if levels := self._books[task].live.levels:
                total = joined_levels(total, levels) if total else dict(levels)
        return total

    def gauges(self, component: str) -> dict[str, float]:
        """Return the gauges of user code, those of all tasks of a component added up; without those that are NaN: not known."""
        total: dict[str, float] = {}
        for task in self._components[component].tasks:
            book = self._books[task]
            for name, value in {**book.lost.user.metrics.gauges, **book.live.user.metrics.gauges}.items():
                total[name] = total.get(name, 0.0) + value
        return known_gauges(total)

    def in_front(self, component: str) -> dict[str, int]:
        """Return the tuples of a component that are in front of each component that reads it."""
        total: dict[str, int] = {}
        for task in self._components[component].tasks:
            for target, figures in self._books[task].live.edges.items():
                total[target] = total.get(target, 0) + figures.in_front
        return total

    def watermarks(self, component: str) -> dict[str, int]:
        """Return the watermark of the input from each component that the tasks of a component wait for: the least of them."""
        found: dict[str, int] = {}
        for task in self._components[component].tasks:
            for source, watermark in self._books[task].live.watermarks.items():
                found[source] = min(watermark, found.get(source, watermark))
        return found

    def span(self, component: str, now: float, window_s: float | None = WINDOW_S) -> Span:
        """Return what a component has counted in the last `window_s` seconds; None: since its first figures."""
        book = self._components[component]
        if book.last_at is None:
            return Span(_NOTHING, _NOTHING, 0.0)
        until = self._until(book.last_at, now)
        if window_s is None:
            first: Sample | None = _NOTHING._replace(at=book.first_at)
        else:
            first = book.ring.before(until - window_s)
        assert first is not None
        return Span(first, sample_of(book.sums, book.last_at), until)

    def growth(self, component: str, now: float, counters: Iterable[str], window_s: float) -> dict[str, float]:
        """Return, of some counters, those that have grown in a window, and by how much a second."""
        book = self._components[component]
        if book.last_at is None:
            return {}
        until = self._until(book.last_at, now)
        first = book.ring.before(until - window_s)
        assert first is not None
        grown = {name: book.sums.counters.get(name, 0) - first.counters.get(name, 0) for name in counters}
        return {name: more / (until - first.at) for name, more in grown.items() if more > 0 and until > first.at}

    def _until(self, last_at: float, now: float) -> float:
        """A component of one task counts from heartbeat to heartbeat, which is exact; one without figures has stood still."""
        return last_at if now - last_at < self._silent_s else now

    def validate(self) -> None:
        """Assert that the sums are those of all tasks."""
        for component, book in self._components.items():
            whole, sums = self.together(book.tasks), book.sums
            for name, value in whole.counters.items():
                assert abs(value - sums.counters.get(name, 0)) < 1e-6 * (1 + abs(value)), (component, name)
            for name, histogram in whole.latencies.items():
                assert histogram.counts == sums.latencies[name].snapshot().counts, (component, name)
            for target, figures in whole.edges.items():
                assert figures.sent == sums.edges[target].sent, (component, target)
