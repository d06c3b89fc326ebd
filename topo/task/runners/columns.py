"""Column bolts as a task: each call is given a batch of columns.

A batch that arrives as one tuple is ready at once, and alone. Tuples of other components are gathered by stream, as those of a
batching bolt (`topo.task.runners.batch`); a call for them is given their rows as columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from topo.api.column_batch import ColumnBatch, ColumnsLike, batch_of, batch_of_rows
from topo.api.columns import ColumnBolt, StatefulColumnBolt
from topo.api.streams import DEFAULT_STREAM, StreamDeclaration
from topo.checkpoint.alignment import Snapshot
from topo.emission.collectors import BoltCollector, TrackedTuple
from topo.errors import UnsupportedValueError
from topo.operators.state.handles import KeyContext
from topo.task.batch import Batch
from topo.task.guarantees.inputs import InputGuarantee
from topo.task.operator_output import OperatorOutput
from topo.task.parts import TaskParts
from topo.task.runners.batch import BatchKind
from topo.task.runners.batch_calls import GatheredCalls
from topo.task.user_state import restore_user, snapshot_user
from topo.user_errors import call_for_effect


class TaskColumnCollector:
    """Makes tuples of the batches that a bolt emits, anchored on all inputs of the call at hand."""

    def __init__(self, inner: BoltCollector, streams: Sequence[StreamDeclaration], given: Any = None) -> None:
        self._emit = (inner if given is None else given).emit
        self.report_error = inner.report_error
        self._component = inner.component
        self._fields = {stream.name: stream.fields for stream in streams}
        self.anchors: tuple[TrackedTuple, ...] = ()

    def emit_batch(self, columns: ColumnsLike, stream: str = DEFAULT_STREAM, timestamps: Any = None) -> None:
        """Emit one batch; nothing is sent of a batch without rows."""
        who = f"component {self._component!r}, stream {stream!r}:"
        batch = batch_of(columns, self._fields.get(stream, ()), timestamps, who) if stream in self._fields else None
        if batch is None or len(batch):
            self._emit((batch,), self.anchors, stream)


class ColumnCalls:
    """Calls one column bolt.

    Args:
        bolt: the user's.
        collector: takes what a call emits, and acks.
        streams: of the bolt.
        most: batches that one call may emit.
        given: takes the batches in place of the collector, if it is another one.

    Attributes:
        collector: given to the bolt.
    """

    def __init__(
        self, bolt: ColumnBolt, collector: BoltCollector, streams: Sequence[StreamDeclaration], most: int, given: Any = None
    ) -> None:
        self.collector = TaskColumnCollector(collector, streams, given)
        self._bolt = bolt
        self._inner = collector
        self._most = most

    def call(self, values: Sequence[TrackedTuple]) -> None:
        """Call the user for inputs of one stream, and ack them. A call that raises has no effect."""
        inner = self._inner
        mark = inner.mark()
        self.collector.anchors = tuple(values)
        try:
            call_for_effect(self._bolt.execute_batch, self._batch(values), self.collector)
            inner.check_emitted(inner.count() - mark.emitted, self._most)
        except Exception:
            inner.rewind(mark)
            raise
        finally:
            self.collector.anchors = ()
        for tup in values:
            inner.ack(tup)

    def error_of(self, tup: TrackedTuple) -> BaseException | None:
        return None

    def _batch(self, values: Sequence[TrackedTuple]) -> ColumnBatch:
        origin = values[0].origin
        if origin.columnar:
            batch: ColumnBatch = values[0].values[0]
        else:
            batch = batch_of_rows(origin.fields, [tup.values for tup in values], [tup.timestamp for tup in values])
        try:
            batch = batch.in_form(self._bolt.columns)
        except UnsupportedValueError as error:
            raise UnsupportedValueError(f"a batch from {origin.component!r}: {error}") from error
        batch.origin = origin
        return batch


class ColumnKind(BatchKind):
    """A `ColumnBolt`."""

    bolt: ColumnBolt

    def __init__(
        self, parts: TaskParts, bolt: ColumnBolt, guarantee: InputGuarantee, output: OperatorOutput, calls: GatheredCalls
    ) -> None:
        super().__init__(parts, bolt, guarantee, output, calls)
        if type(bolt).on_watermark is not ColumnBolt.on_watermark:
            output.before_watermark = self._on_watermark
        self._group_of = KeyContext(parts.state.plan.component(parts.state.component_id).max_parallelism).group_of

    def run(self, batch: Batch, first: int, last: int, now: float) -> None:
        """Gather tuples until a batch is ready; a batch of columns is one."""
        if batch.origin.columnar:
            batch.runs_singly = True
        super().run(batch, first, last, now)

    def _on_watermark(self, watermark: int) -> None:
        call = partial(call_for_effect, self.bolt.on_watermark, watermark, self._batch_calls.collector)
        self.calls.run(call, self._state.now, "a watermark", self._config.max_task_emit)

    def _keys(self, batch: Batch, first: int, last: int) -> Sequence[Any]:
        # Tuples of one batch have the same fields.
        return [(batch.origin.component, batch.origin.stream)] * (last - first)

    def restore(self, parts: list[Snapshot]) -> None:
        """Give a stateful bolt the state of a checkpoint; without parts, that of the beginning."""
        super().restore(parts)
        if isinstance(self.bolt, StatefulColumnBolt):
            restore_user(self._state.component_id, self.bolt, self._parts.snapshots.store, parts)

    def snapshot(self, checkpoint: int) -> Snapshot:
        """Return the state of a stateful bolt; no input is held at a barrier."""
        if not isinstance(self.bolt, StatefulColumnBolt):
            return super().snapshot(checkpoint)
        return snapshot_user(self._state.component_id, self.bolt, self._parts.snapshots.store, self._group_of)
