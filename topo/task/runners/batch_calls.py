"""Calls of a batching bolt, and the acks of their inputs; the same in a task and in a test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from topo.api.batch_bolt import BatchBolt
from topo.api.bolt import Anchors, Collector
from topo.api.streams import DEFAULT_STREAM
from topo.api.tuples import Tuple
from topo.emission.collectors import BoltCollector, TrackedTuple, TupleState
from topo.errors import UserError
from topo.operators.state.deep_copy import all_stay, independent


class GatheredCalls(Protocol):
    """Calls of a bolt for several inputs at once.

    Attributes:
        collector: given to the bolt.
    """

    collector: Any

    def call(self, values: Sequence[TrackedTuple]) -> None:
        """Call the bolt for inputs, and ack those that the call has not failed. A call that raises has no effect."""

    def error_of(self, tup: TrackedTuple) -> BaseException | None:
        """Return the error with which the last call has failed an input; None if it gave none."""


class TaskBatchCollector:
    """What a batching bolt emits with: the collector of a `Bolt` without acks, which keeps why inputs were failed."""

    def __init__(self, inner: Collector) -> None:
        self._inner = inner
        self.report_error = inner.report_error
        self.errors: dict[int, BaseException] = {}
        """Why inputs were failed in the call at hand, by identity."""

    def emit(self, values: Sequence[Any], anchors: Anchors, stream: str = DEFAULT_STREAM, timestamp: int | None = None) -> None:
        """Emit one tuple, anchored on inputs of the batch."""
        self._inner.emit(values, anchors, stream, timestamp)

    def emit_direct(
        self,
        task: int,
        values: Sequence[Any],
        anchors: Anchors,
        stream: str = DEFAULT_STREAM,
        timestamp: int | None = None,
    ) -> None:
        """Emit one tuple of a direct stream to the task with that id."""
        self._inner.emit_direct(task, values, anchors, stream, timestamp)

    def fail(self, tup: Tuple, error: BaseException | None = None) -> None:
        """Fail one input of the batch."""
        self._inner.fail(tup)
        if error is not None:
            self.errors[id(tup)] = error


class BatchCalls:
    """Calls one batching bolt.

    Args:
        bolt: the user's.
        collector: takes what a call emits, acks and fails.
        most: rows that one call may emit.
        given: the collector that the bolt gets, if it is another one.

    Attributes:
        collector: given to the bolt.
    """

    def __init__(self, bolt: BatchBolt, collector: BoltCollector, most: int, given: Collector | None = None) -> None:
        self.collector = TaskBatchCollector(given if given is not None else collector)
        self._bolt = bolt
        self._inner = collector
        self._most = most

    def call(self, values: Sequence[TrackedTuple]) -> None:
        """Call the user for a batch, and ack the inputs that the call has not failed. A call that raises has no effect.

        Values that the call changed in place are what they were again in inputs that it has not processed.
        """
        inner = self._inner
        mark = inner.mark()
        rows = [tup.values for tup in values]
        arrived = [] if all_stay(rows) else independent(rows)
        self.collector.errors.clear()
        try:
            returned: object = self._bolt.execute_batch(values, self.collector)
            if returned is not None:
                kind, what = type(self._bolt).__name__, type(returned).__name__
                raise UserError(
                    f"execute_batch of {kind} returned a {what}, which is not used; emit each row with "
                    "collector.emit(values, tup)"
                )
            inner.check_emitted(inner.count() - mark.emitted, self._most)
        except Exception:
            inner.rewind(mark)
            for tup, row in zip(values, arrived, strict=False):
                tup.values = row
            raise
        for tup, row in zip(values, arrived, strict=False):
            if tup.state == TupleState.FAILED:
                tup.values = row
        for tup in values:
            if tup.state == TupleState.OPEN:
                inner.ack(tup)

    def error_of(self, tup: TrackedTuple) -> BaseException | None:
        """Return the error with which the last call has failed an input; None if it gave none."""
        return self.collector.errors.get(id(tup))
