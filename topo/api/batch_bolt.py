"""Batching bolts: several tuples for each call, up to a number or a time limit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

from msgspec import Struct

from topo.api.bolt import Anchors
from topo.api.context import TaskContext
from topo.api.durations import duration_ms
from topo.api.operator_bolts import Key, OperatorBolt
from topo.api.streams import DEFAULT_STREAM
from topo.api.tuples import Tuple
from topo.api.windows import Duration
from topo.errors import ConfigError

MAX_BATCH = 65_535
"""As many messages as one emitted tuple can descend from."""


class BatchSettings(Struct, frozen=True):
    """When a batch is full.

    Attributes:
        size: tuples in a batch at most.
        wait_ms: milliseconds from the first tuple of a batch to its call at most.
    """

    size: int
    wait_ms: int

    def __post_init__(self) -> None:
        if type(self.size) is not int or not 1 <= self.size <= MAX_BATCH:
            raise ConfigError(f"size={self.size!r} must be a whole number from 1 to {MAX_BATCH}")
        if self.wait_ms < 1:
            raise ConfigError(f"wait={self.wait_ms} ms must be at least 1 ms; for no wait at all give size=1")


class BatchCollector(Protocol):
    """The collector of a `BatchBolt`. It is valid during the call that it was given to."""

    def emit(self, values: Sequence[Any], anchors: Anchors, stream: str = DEFAULT_STREAM, timestamp: int | None = None) -> None:
        """Emit one tuple.

        Args:
            values: one value for each field of the stream.
            anchors: the tuple of the batch it descends from, several of them, or all (`tuples`); their messages are acked only
                when this tuple is. None: it is not tracked.
            stream: one of the declared streams.
            timestamp: event time in milliseconds since the epoch. None: the timestamp of the (first) anchor.

        Raises:
            EmitError: the stream is not declared or is a direct one, or the number of values is wrong.
            TupleStateError: an anchor was failed before.
        """

    def emit_direct(
        self, task: int, values: Sequence[Any], anchors: Anchors, stream: str = DEFAULT_STREAM, timestamp: int | None = None
    ) -> None:
        """Emit one tuple of a direct stream to the task with that id, which must have a direct grouping on it."""

    def fail(self, tup: Tuple, error: BaseException | None = None) -> None:
        """Fail one tuple of the batch; the others are acked when the call returns.

        Args:
            tup: one of the batch.
            error: why; it is shown with the message's dead letter.

        Raises:
            TupleStateError: the tuple was failed before.
        """

    def report_error(self, error: BaseException) -> None:
        """Show an error in `topo errors`. Nothing fails by it."""


class BatchBolt(OperatorBolt, ABC):
    """A bolt that is given its inputs in batches: for bulk inserts, and for models that score many rows in one call.

        class Score(BatchBolt):
            outputs = ("id", "score")

            def __init__(self):
                super().__init__(size=256, wait="50ms")

            def execute_batch(self, tuples, collector):
                for tup, score in zip(tuples, self.model.predict([tup["features"] for tup in tuples])):
                    collector.emit((tup["id"], score), tup)

    A batch is handed over when it has `size` tuples, `wait` after its first tuple, at the end of the input, and with
    `exactly_once` at each checkpoint, so that no checkpoint has a batch that is half full. Every tuple of the batch is acked when
    the call returns, unless the call has failed it with `collector.fail`.

    A call that raises is undone. Each half of its batch is then a separate batch, and so on, until the tuples are found that
    raise when they are alone: these fail, the others are processed. So what a call writes elsewhere is written again for some
    tuples: make it idempotent (an upsert), or one transaction that is rolled back.

    The order of calls: `prepare`; `execute_batch`; `on_reset` after a recovery, when the open batches are dropped since their
    tuples are replayed; `end_of_input` after the last batch; `cleanup` at an orderly end.

    Args:
        size: tuples in a batch at most. With fewer tuples in flight (`max_spout_pending`) batches wait for `wait`.
        wait: the longest that a tuple waits for its batch, such as "50ms". Must be below `message_timeout`.
        key: the field or fields that all tuples of a batch have in common, the same as the grouping's; None: any tuples.

    Raises:
        ConfigError: an argument cannot be used.
    """

    settings = BatchSettings(size=100, wait_ms=100)
    """Of a subclass that does not call `__init__`."""

    def __init__(self, size: int = 100, wait: Duration = "100ms", key: Key = None) -> None:
        self.settings = BatchSettings(size, duration_ms(wait))
        self._set_key(key)

    def prepare(self, context: TaskContext) -> None:
        """Called once in each process, before the first batch: create heavy resources here."""

    @abstractmethod
    def execute_batch(self, tuples: Sequence[Tuple], collector: BatchCollector) -> None:
        """Process a batch of 1 to `size` tuples, in the order of their arrival. Must return well within `progress_timeout`."""

    def end_of_input(self, collector: BatchCollector) -> None:
        """Called when all inputs have ended, after the last batch: emit the remaining results, with `anchors=None`.

        Called at most once in each epoch. Replays can follow, and are processed as ever.
        """

    def on_reset(self) -> None:
        """Called after a lost process has been replaced, before the replays come."""

    def cleanup(self) -> None:
        """Called at an orderly end: release what `prepare` took."""
