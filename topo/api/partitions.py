"""Spouts that read partitions: parts of a source that are read each in its own order, such as files or parts of a topic.

The engine keeps a position and a watermark for each partition, not for each task: so one task reads many, new ones are found
while the topology runs, and tasks of another parallelism continue where those before them have stopped.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any, Literal

from topo.api.context import TaskContext
from topo.api.durations import duration_ms
from topo.api.generator_reader import GeneratorReader, Yielded
from topo.api.partition_loop import PartitionLoop
from topo.api.partition_values import Partition, PartitionReader, StoredPartitions
from topo.api.spout import Spout, SpoutCollector
from topo.errors import ConfigError, TopoInternalError


class PartitionedSpout(Spout):
    """A source of partitions. Define `partitions`, and either `read` or `reader`.

    `read` returns the rows of one partition, mostly as a generator: the short way. `reader` returns one object that reads all
    partitions of a task: for clients that serve many over one connection.

    A partition is read by one task: that with the index `(crc32(group) + number) % parallelism`, or a hash of the name modulo the
    parallelism for partitions without a number. So partitions of one group are spread evenly, and each task finds its own by
    itself.

    Messages that fail are replayed as those of a `RetryingSpout`. Stored is, for each partition, the position up to which
    everything is done, or that of the checkpoint. Tasks of another parallelism continue from there, in each delivery mode.

    Attributes:
        discovery_interval: how often `partitions` is called again; None: once, and the input ends when all partitions have ended.
        max_drift: partitions whose watermark is further ahead of the least one than this are paused, so that reading a backlog
            does not fill windows with the future; None: none is. Needs a watermark strategy.
        on_bad_record: "dead_letter": a record that cannot be decoded becomes one, and reading continues; "fail": its
            partition stands still and the error is reported again and again; "drop": it is only counted.
        on_lost: "fail": where the source no longer has the records behind the position, the partition stands still and the
            error is reported again and again; "skip": it is reported once, and reading continues.
        batch_size: the most rows of one call of `poll`.
        lag_metric: the name of the gauge of the reader's `lag`; "lag_bytes" and so on where it does not count records.
    """

    discovery_interval: str | timedelta | None = "10s"
    max_drift: str | timedelta | None = None
    on_bad_record: Literal["dead_letter", "fail", "drop"] = "dead_letter"
    on_lost: Literal["fail", "skip"] = "fail"
    batch_size: int = 1000
    lag_metric: str = "lag"
    _loop: PartitionLoop | None = None

    # -- to be defined -------------------------------------------------------------------------------------------------------

    @abstractmethod
    def partitions(self) -> Iterable[Partition | str]:
        """Return all partitions that the source has now, those of other tasks included.

        Called in each task when it opens and every `discovery_interval`, on a helper thread: it may block, and shares with
        the other methods only thread-safe objects. A partition that two calls in a row leave out is released, with a row
        in `topo errors`; its position is kept. An exception is reported, and the call repeated after a wait.
        """

    def read(self, partition: Partition, position: Any) -> Iterator[Yielded]:
        """Yield the rows of a partition behind a position; None: from where `begin` has it begin.

        Yields `SourceRow(values, position)`; `SourceRows(values, positions)` for many at once, which is faster;
        `BadRecord(record, position, error)` for a record that cannot be decoded; and None, or no rows, when there is nothing for
        now. Returning is the end of the partition. It must not block. When it raises, the error is reported, and it is called
        again after a wait, behind the last row.
        """
        raise TopoInternalError(f"{type(self).__name__} has a reader")

    def begin(self, partition: Partition, found_later: bool) -> Any:
        """Return the position behind which `read` is to begin in a new partition; None: at the beginning of the partition.

        `found_later`: the topology has read before the partition was found, so that its first rows count in any case.
        """
        return None

    def committed(self, positions: Mapping[str, Any]) -> None:
        """Called with positions, by partition, when everything up to them is done: processed or given up, or covered by a
        complete checkpoint. For sources that want to know."""

    def reader(self, context: TaskContext) -> PartitionReader:
        """Return the reader of a task. Called by `open`."""
        return GeneratorReader(self.read, self.begin, self.committed)

    # -- called by the engine ------------------------------------------------------------------------------------------------

    def open(self, context: TaskContext, collector: SpoutCollector) -> None:
        """Make the reader. A subclass that overrides it calls it as well.

        Raises:
            ConfigError: a setting of the class cannot be used.
        """
        for name, allowed in {"on_bad_record": ("dead_letter", "fail", "drop"), "on_lost": ("fail", "skip")}.items():
            if getattr(self, name) not in allowed:
                raise ConfigError(f"{type(self).__name__}.{name} is {getattr(self, name)!r}; give one of {', '.join(allowed)}")
        if type(self).read is PartitionedSpout.read and type(self).reader is PartitionedSpout.reader:
            raise ConfigError(f"{type(self).__name__} defines neither read nor reader; define one of them")
        interval_s = None if self.discovery_interval is None else duration_ms(self.discovery_interval) / 1000
        stored: StoredPartitions | None = context.committed_position
        taker: Any = collector
        self._loop = PartitionLoop(self, self.reader(context), interval_s, context, taker, stored)

    def next_tuple(self) -> None:
        """Emit the rows that have come."""
        self._running.step()

    def restart(self, stored: StoredPartitions | None) -> None:
        """Go back to what a checkpoint has, or to the beginning, with the reader that there is."""
        self._running.restart(stored)

    def set_ahead(self, names: Collection[str]) -> None:
        """Pause the partitions that are further ahead than `max_drift`, and let the others continue."""
        self._running.set_ahead(names)

    def on_committed(self, positions: Mapping[str, Any]) -> None:
        """Pass positions on to the reader. Restored behind the end of its input, the spout is not open and has none."""
        if self._loop is not None:
            self._loop.committed(positions)

    @property
    def is_endless(self) -> bool:
        """Whether new partitions are looked for without an end."""
        return self.discovery_interval is not None

    @property
    def max_drift_ms(self) -> int | None:
        """`max_drift` in milliseconds."""
        return None if self.max_drift is None else duration_ms(self.max_drift)

    @property
    def _running(self) -> PartitionLoop:
        if self._loop is None:
            raise TopoInternalError(f"{type(self).__name__} is not open; an `open` of a subclass has to call super().open(...)")
        return self._loop

    def close(self) -> None:
        """Close the reader."""
        if self._loop is not None:
            self._loop.close()
