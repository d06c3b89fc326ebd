"""The observations of one worker: taps, traces, profiles and log levels that operators have asked for, until their time is up.

The worker forgets an observation when its time is up, with or without the master; the master ends those that are not asked for
any more. All together send at most 64 KiB each 250 ms; the rest is dropped and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import msgspec
from msgspec import Struct

from topo.ids import TaskId
from topo.plan.physical import PhysicalPlan
from topo.task.taps import Tap
from topo.task.task import Task
from topo.wire import control
from topo.worker.tap import TapReader

INTERVAL_S = 0.25
MOST_BYTES = 64 * 1024
"""Of rows in one interval."""


class Watching(Protocol):
    """One kind of observation at work."""

    def reports(self) -> list[control.Observed]:
        """Return what there was since the last call."""

    def end(self) -> None:
        """Leave the worker as it was."""


Begin = Callable[[control.Observe], Watching]


@dataclass(slots=True)
class _Active:
    watch: Watching
    until: float


class Observing:
    """The observations of one worker.

    Args:
        kinds: begin an observation, by kind.
    """

    def __init__(self, kinds: Mapping[str, Begin]) -> None:
        self._kinds = kinds
        self._active: dict[int, _Active] = {}
        self._left: list[control.Observed] = []
        """Reports of observations that have ended, or could not begin."""
        self._due_at = 0.0

    @property
    def is_idle(self) -> bool:
        return not self._active and not self._left

    def next_deadline(self) -> float | None:
        """When `due` wants to be called; None while there is none."""
        return None if self.is_idle else self._due_at

    def take(self, message: control.FromMaster, now: float) -> None:
        """Begin or end an observation; other messages are none of ours."""
        if isinstance(message, control.Unobserve):
            self._end(message.id)
        elif isinstance(message, control.Observe) and message.id not in self._active:
            try:
                self._active[message.id] = _Active(self._kinds[message.kind](message), now + message.for_s)
            except Exception as error:
                # An observation must not end the worker.
                why = str(error) or type(error).__name__
                self._left.append(control.Observed(message.id, message.tasks[0], problem=why))
            self._due_at = now

    def due(self, now: float) -> list[control.Observed]:
        """Return the reports of an interval that is over, and end the observations whose time is up."""
        if self.is_idle or now < self._due_at:
            return []
        self._due_at = now + INTERVAL_S
        for number in [number for number, active in self._active.items() if now >= active.until]:
            self._end(number)
        reports, self._left = self._left, []
        for active in self._active.values():
            reports += active.watch.reports()
        return _bounded(reports)

    def close(self) -> None:
        """End all."""
        for number in list(self._active):
            self._end(number)

    def _end(self, number: int) -> None:
        if (active := self._active.pop(number, None)) is not None:
            active.watch.end()
            self._left += active.watch.reports()


def _bounded(reports: list[control.Observed]) -> list[control.Observed]:
    """Return the reports of one interval without the rows that are too much."""
    room, bounded = MOST_BYTES, []
    for report in reports:
        kept = []
        for row in report.rows:
            room -= len(control.encode(row))
            if room >= 0:
                kept.append(row)
        dropped = report.dropped + len(report.rows) - len(kept)
        bounded.append(msgspec.structs.replace(report, rows=kept, dropped=dropped))
    return bounded


class TaskTaps:
    """Puts taps into the tasks of a worker, and takes them out again.

    Args:
        tasks: of the worker.
        plan: knows the secret fields.
    """

    def __init__(
        self, tasks: Mapping[TaskId, Task], plan: PhysicalPlan, clock: Callable[[], float], wall_ms: Callable[[], int]
    ) -> None:
        self._tasks = tasks
        self._plan = plan
        self._clock = clock
        self._wall_ms = wall_ms
        self._taps: dict[tuple[TaskId, str], dict[int, Tap]] = {}

    def begin(self, message: control.Observe) -> Watching:
        """Tap the tasks that an Observe names; `spec["direction"]` is "out" or "in"."""
        mine = [task for task in message.tasks if task in self._tasks]
        indexes = {task: self._plan.task(task).index for task in mine}
        reader = TapReader(message.id, message.spec, self._plan.secret_fields, indexes, self._clock, self._wall_ms)
        places = [(task, "taken" if message.spec["direction"] == "in" else "out") for task in mine]
        for task, place in places:
            self._taps.setdefault((task, place), {})[message.id] = reader.of(task)
            self._install(task, place)
        return _TapWatch(reader, lambda: self._remove(message.id, places))

    def _remove(self, number: int, places: list[tuple[TaskId, str]]) -> None:
        for task, place in places:
            self._taps[task, place].pop(number, None)
            self._install(task, place)

    def _install(self, task: TaskId, place: str) -> None:
        taps = list(self._taps[task, place].values())

        def each(*shown: object) -> None:
            for tap in taps:
                tap(*shown)  # type: ignore[arg-type]

        setattr(self._tasks[task].taps, place, None if not taps else taps[0] if len(taps) == 1 else each)


class _TapWatch(Struct, frozen=True):
    reader: TapReader
    remove: Callable[[], None]

    def reports(self) -> list[control.Observed]:
        return self.reader.reports()

    def end(self) -> None:
        self.remove()
