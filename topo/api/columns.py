"""Spouts and bolts whose tuple is a batch of columns: many rows, one message, one call, one ack."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Protocol

from topo.api.batch_bolt import BatchSettings
from topo.api.column_batch import LISTS, ColumnBatch, ColumnsLike
from topo.api.context import TaskContext
from topo.api.durations import duration_ms
from topo.api.operator_bolts import Key, OperatorBolt
from topo.api.spout import RetryingSpout, SourceSignals
from topo.api.streams import DEFAULT_STREAM
from topo.api.windows import Duration

MAX_PENDING_BATCHES = 64
"""`max_spout_pending` of a spout of batches where the user sets none: the engine keeps the values of as many batches."""


class ColumnSpoutCollector(SourceSignals, Protocol):
    """The collector of a `ColumnSpout`."""

    def emit_batch(
        self, columns: ColumnsLike, message_id: Any = None, stream: str = DEFAULT_STREAM, timestamps: Any = None
    ) -> None:
        """Emit one batch: one message, which is acked, failed and replayed as a whole.

        Args:
            columns: a mapping of each field to a list, an Arrow array or a numpy array; or a `pyarrow.RecordBatch` or a
                `pyarrow.Table` with these columns. One Arrow or numpy column makes them all Arrow arrays.
            message_id: the position of the batch in the source, as of a `RetryingSpout`.
            stream: one of the declared streams.
            timestamps: event time of each row: whole milliseconds since the epoch, or an Arrow array of timestamps. None: the
                rows have none, unless a watermark strategy reads them from a column.

        Raises:
            EmitError: the columns are not those of the stream or differ in length, there is no row, or there is no such stream.
            UnsupportedValueError: a column cannot be carried.
        """


class ColumnCollector(Protocol):
    """The collector of a `ColumnBolt`. It is valid during the call that it was given to."""

    def emit_batch(self, columns: ColumnsLike, stream: str = DEFAULT_STREAM, timestamps: Any = None) -> None:
        """Emit one batch, anchored on all inputs of the call; a batch without rows is not sent.

        Args:
            columns, stream, timestamps: as of a `ColumnSpoutCollector`. Timestamps of the input are not passed on by themselves,
                because rows may have been dropped or multiplied: give `timestamps=batch.timestamps` where they have not.

        Raises:
            EmitError, UnsupportedValueError: as of a `ColumnSpoutCollector`.
        """

    def report_error(self, error: BaseException) -> None:
        """Show an error in `topo errors`. Nothing fails by it."""


class ColumnSpout(RetryingSpout):
    """A source that emits batches of columns. A message is a batch: `max_spout_pending` and positions count batches.

        class Lines(ColumnSpout):
            outputs = ("line",)

            def open(self, context, collector):
                self.collector = collector
                self.next = 0 if context.committed_position is None else context.committed_position + 1

            def next_batch(self):
                self.collector.emit_batch({"line": read_block(self.next)}, self.next)
                self.next += 1

    A batch that fails is replayed as a `RetryingSpout` replays a message, and becomes one dead letter. The engine keeps batches
    until they are acked, so `max_spout_pending` is 64 unless it is set for this component.
    """

    emits_batches: ClassVar[bool] = True
    component_settings = {"max_spout_pending": MAX_PENDING_BATCHES}

    def open(self, context: TaskContext, collector: ColumnSpoutCollector) -> None:  # type: ignore[override]
        """Called once in each process, before everything else: connect to the source, keep the collector.

        Continue after `context.committed_position` when that is not None.
        """

    @abstractmethod
    def next_batch(self) -> None:
        """Emit the next batch, if there is one, and return soon; called as `next_tuple` of a `Spout`."""

    def next_tuple(self) -> None:
        """Call `next_batch`."""
        return self.next_batch()


class ColumnBolt(OperatorBolt, ABC):
    """A bolt that is given a batch of columns in each call, and emits batches.

        class Words(ColumnBolt):
            outputs = ("word",)
            columns = "arrow"

            def execute_batch(self, batch, collector):
                words = pyarrow.compute.split_pattern(batch["line"], " ").flatten()
                collector.emit_batch({"word": words})

    A batch of a `ColumnSpout` or `ColumnBolt` is one input: it is acked when the call returns. Tuples of other components are
    gathered into batches, one for each stream: of `size` tuples, or of those that have come `wait` after the first. They are
    acked together when the call returns. When such a call raises, each half of its tuples is tried as a batch, until the tuples
    are found that raise alone; a batch that came as one fails as one.

    The order of calls is that of a `BatchBolt`, with `on_watermark` between those of `execute_batch`.

    Attributes:
        columns: "lists" or "arrow": the form of the columns that `execute_batch` is given. "arrow" needs pyarrow.

    Args:
        size: tuples of other components in a batch at most.
        wait: the longest that such a tuple waits for its batch. Must be below `message_timeout`.

    Raises:
        ConfigError: an argument cannot be used.
    """

    emits_batches: ClassVar[bool] = True
    columns: ClassVar[str] = LISTS
    settings = BatchSettings(size=1024, wait_ms=10)
    """Of a subclass that does not call `__init__`."""

    def __init__(self, size: int = 1024, wait: Duration = "10ms") -> None:
        self.settings = BatchSettings(size, duration_ms(wait))

    def prepare(self, context: TaskContext) -> None:
        """Called once in each process, before the first batch: create heavy resources here."""

    @abstractmethod
    def execute_batch(self, batch: ColumnBatch, collector: ColumnCollector) -> None:
        """Process a batch of at least one row. Raise any exception to fail it; its output is then discarded."""

    def on_watermark(self, watermark: int, collector: ColumnCollector) -> None:
        """Called when event time has advanced, behind the batches before it: emit the results that are complete.

        Results go ahead of the watermark, and are not tracked: make them of the state of a `StatefulColumnBolt`, with
        `exactly_once`. A call that raises is repeated there; in other modes its results are lost, and the run reports it.

        Args:
            watermark: no row with a timestamp up to it follows, replays aside; in milliseconds since the epoch. After the last
                batch it is the greatest 64-bit integer.
            collector: takes the results.
        """

    def end_of_input(self, collector: ColumnCollector) -> None:
        """Called when all inputs have ended, after the last batch: emit the remaining results, which are not tracked.

        Called at most once in each epoch. Replays can follow, and are processed as ever.
        """

    def on_reset(self) -> None:
        """Called after a lost process has been replaced, before the replays come."""

    def cleanup(self) -> None:
        """Called at an orderly end: release what `prepare` took."""


class StatefulColumnBolt(ColumnBolt):
    """A `ColumnBolt` whose state is part of the checkpoints of an `exactly_once` topology, as that of a `StatefulBolt`.

    A call that raises is repeated, and its state is not undone: change state as the last step of `execute_batch`.

    Args:
        key: field or fields that the state goes by, those of its fields grouping. With it `snapshot` returns a dict by key (by
            tuple of keys for several), which is split by key groups, so that the parallelism can be changed. None: the state of a
            task is one thing, and the parallelism has to stay.
        size, wait: as of a `ColumnBolt`.
    """

    def __init__(self, key: Key = None, size: int = 1024, wait: Duration = "10ms") -> None:
        super().__init__(size, wait)
        self._set_key(key)

    @abstractmethod
    def snapshot(self) -> Any:
        """Return all that has to be remembered, as values that a tuple could carry. It is encoded before the next call."""

    @abstractmethod
    def restore(self, state: Any) -> None:
        """Take the state that `snapshot` returned, sequences as tuples; None: begin with nothing.

        Called after `prepare`, when there is something to restore; and in a surviving process, at every recovery, before
        `on_reset`.
        """
