"""The watermarks of a spout's partitions: a generator for each, combined as the least of those that are not idle."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from topo.operators.time.clock import MIN_TIMESTAMP
from topo.operators.time.watermarks import WatermarkMultiplexer, WatermarkOutput, WatermarkSource

_partition_of = itemgetter(0)


class PartitionWatermarks:
    """The generators of the partitions of one task.

    A partition counts from when it is expected: the others do not pass it while it waits to be read. Without a watermark it holds
    the combined one back until its generator makes one or is idle. Without a partition the output is idle.

    Args:
        make: returns a generator.
        output: takes the combined watermark.
        advances_when_idle: whether event time advances while all partitions are idle.
    """

    def __init__(self, make: Callable[[], WatermarkSource], output: WatermarkOutput, *, advances_when_idle: bool = False) -> None:
        self._make = make
        self._advances_when_idle = advances_when_idle
        self._output = output
        self._combined = WatermarkMultiplexer(output)
        self._generators: dict[str, WatermarkSource] = {}

    def expect(self, name: str, watermark: int | None) -> None:
        """Add a partition, with the watermark that it has in a checkpoint. All are added before the first one begins."""
        self._combined.register(name)
        self._generators[name] = self._make()
        if watermark is not None:
            self._combined.deferred(name).watermark(watermark)

    def begin(self) -> None:
        """An expected partition is read from here on."""
        self._output.mark_active()
        self._combined.on_periodic_emit()

    def ask(self, name: str) -> None:
        """Ask the generator of one partition, then combine."""
        if name in self._generators:
            self._generators[name].on_periodic_emit(self._combined.deferred(name))
            self._combine()

    def end(self, name: str) -> None:
        """Remove a partition; the others are combined at once, not at the next row."""
        if self._combined.unregister(name):
            del self._generators[name]
            if self._generators:
                self._combine()
            else:
                self._output.mark_idle()

    def on_rows(self, ids: Iterable[Any], rows: Sequence[Any], stamps: Sequence[int]) -> None:
        """Show rows with timestamps and their message ids, whose first part is the partition."""
        first = 0
        for name, run in groupby(ids, _partition_of):
            last = first + len(list(run))
            self._generators[name].on_events(rows[first:last], stamps[first:last], self._combined.immediate(name))
            first = last

    def on_row(self, name: str, row: Any, stamp: int) -> None:
        """Show one row."""
        self._generators[name].on_event(row, stamp, self._combined.immediate(name))

    def on_periodic_emit(self) -> None:
        """Ask all generators, then combine."""
        for name, generator in self._generators.items():
            generator.on_periodic_emit(self._combined.deferred(name))
        if self._generators:
            self._combine()

    def _combine(self) -> None:
        if not self._combined.is_idle:
            # A partition behind the others after its idleness is waited for, too.
            self._output.mark_active()
        elif self._advances_when_idle:
            self._output.watermark(min(self._combined.watermarks.values()))
        self._combined.on_periodic_emit()

    @property
    def reached(self) -> dict[str, int]:
        """The watermarks of the partitions that have one."""
        return {str(name): mark for name, mark in self._combined.watermarks.items() if mark > MIN_TIMESTAMP}

    def ahead(self, by_ms: int) -> frozenset[str]:
        """Return the partitions that are ahead of the least watermark of those that count by more than `by_ms`."""
        reached, idle = self.reached, self._combined.idle
        counting = [mark for name, mark in reached.items() if name not in idle]
        if not counting:
            return frozenset()
        bound = min(counting) + by_ms
        return frozenset(name for name, mark in reached.items() if mark > bound)
