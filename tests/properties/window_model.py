"""Windows the naive way: a list of panes that is searched from end to end at every step, with its timers in plain sets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Assign = Callable[[int], list[tuple[int, int]]]
START_OF_TIME = -(2**63)
END_OF_TIME = 2**63 - 1


@dataclass
class Pane:
    """A key's window with all that was put into it and not purged."""

    key: str
    start: int
    end: int
    contents: list[Any] = field(default_factory=list)
    timers: set[int] = field(default_factory=set)
    count: int = 0
    next_fire: int | None = None

    @property
    def last(self) -> int:
        return self.end - 1


@dataclass
class Naive:
    """The work of the window operator, step by step.

    Attributes:
        assign: the windows of a time, as bounds.
        is_merging: whether windows of a key that overlap or touch become one.
        is_event_time: whether `time` is the watermark (else the clock).
        lateness: in milliseconds; event time only.
        trigger: "time", "never", ("count", n), ("purging count", n) or ("continuous", interval).
    """

    assign: Assign
    is_merging: bool
    is_event_time: bool
    lateness: int
    trigger: Any
    time: int = START_OF_TIME
    panes: list[Pane] = field(default_factory=list)
    out: list[Any] = field(default_factory=list)

    def element(self, key: str, value: Any, timestamp: int) -> list[Any]:
        """Return what an element causes: (key, start, end, contents sorted) of each firing, ("late", value) if it is too late."""
        self.out = []
        skipped = True
        for start, end in self.assign(timestamp if self.is_event_time else self.time):
            pane = self.pane(key, start, end)
            if self.is_event_time and self.cleanup(pane) <= self.time:
                continue
            skipped = False
            if pane not in self.panes:
                self.panes.append(pane)
            pane.contents.append(value)
            self.on_element(pane, timestamp)
            pane.timers.add(self.cleanup(pane))
        if skipped and self.is_event_time and timestamp + self.lateness <= self.time:
            self.out.append(("late", value))
        return self.out

    def advance(self, time: int) -> list[Any]:
        """Return what reaching a watermark (or a moment of the clock) causes."""
        self.out = []
        self.time = time
        over = time if self.is_event_time else time - 1  # a watermark is over, the millisecond that a clock shows is not
        while due := [
            (min(pane.timers), number) for number, pane in enumerate(self.panes) if pane.timers and min(pane.timers) <= over
        ]:
            at, number = min(due)
            pane = self.panes[number]
            pane.timers.remove(at)
            self.on_timer(pane, at)
            if at == self.cleanup(pane):
                self.panes.remove(pane)
        return self.out

    def cleanup(self, pane: Pane) -> int:
        return min(pane.last + self.lateness, END_OF_TIME) if self.is_event_time else pane.last

    def pane(self, key: str, start: int, end: int) -> Pane:
        same_key = [pane for pane in self.panes if pane.key == key]
        if not self.is_merging:
            return next((pane for pane in same_key if (pane.start, pane.end) == (start, end)), Pane(key, start, end))
        met = [pane for pane in same_key if pane.start <= end and start <= pane.end]
        if not met:
            return Pane(key, start, end)
        bounds = min(start, *(pane.start for pane in met)), max(end, *(pane.end for pane in met))
        if len(met) == 1 and bounds == (met[0].start, met[0].end):
            return met[0]
        merged = Pane(key, *bounds, [value for pane in met for value in pane.contents])
        merged.count = sum(pane.count for pane in met)
        merged.next_fire = min((pane.next_fire for pane in met if pane.next_fire is not None), default=None)
        if merged.next_fire is not None:
            merged.timers.add(merged.next_fire)
        for pane in met:
            self.panes.remove(pane)
        self.panes.append(merged)
        return merged

    def on_element(self, pane: Pane, timestamp: int) -> None:
        kind, number = self.trigger if isinstance(self.trigger, tuple) else (self.trigger, 0)
        if kind in ("count", "purging count"):
            pane.count += 1
            if pane.count >= number:
                pane.count = 0
                self.fire(pane)
        if kind in ("time", "continuous"):
            if self.is_event_time and pane.last <= self.time:
                self.fire(pane)
                return
            if kind == "time" or self.is_event_time:
                pane.timers.add(pane.last)
        if kind == "continuous" and pane.next_fire is None:
            since = timestamp if self.is_event_time else self.time
            pane.next_fire = min(int(since / number) * number + number, pane.last)
            pane.timers.add(pane.next_fire)

    def on_timer(self, pane: Pane, at: int) -> None:
        kind, number = self.trigger if isinstance(self.trigger, tuple) else (self.trigger, 0)
        if kind == "time" and at == pane.last:
            self.fire(pane)
        elif kind == "continuous" and at == pane.last:
            if self.is_event_time or at == pane.next_fire:
                self.fire(pane)
        elif kind == "continuous" and at == pane.next_fire:
            pane.next_fire = min(at + number, pane.last)
            pane.timers.add(pane.next_fire)
            self.fire(pane)

    def fire(self, pane: Pane) -> None:
        if pane.contents:
            self.out.append((pane.key, pane.start, pane.end, tuple(sorted(pane.contents))))
        if isinstance(self.trigger, tuple) and self.trigger[0] == "purging count":
            pane.contents.clear()
