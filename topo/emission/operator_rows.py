"""The results of an operator: rows as the stream carries them, one by one or in batches of columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from topo.api.column_batch import ColumnBatch, batch_of_rows, rows_with_stamps
from topo.api.streams import DEFAULT_STREAM
from topo.emission.collectors import BoltCollector, TrackedTuple
from topo.errors import EmitError, UnsupportedValueError


class OperatorRows:
    """Emits for one operator, on the current anchors of its collector.

    Args:
        collector: takes the rows.
    """

    def __init__(self, collector: BoltCollector) -> None:
        self._collector = collector
        declared = [stream.declaration for stream in collector.streams]
        self._columnar = {stream.name: stream.fields for stream in declared if stream.columnar}
        """Streams of batches, with their fields."""
        self._is_columnar = DEFAULT_STREAM in self._columnar

    def emit(self, row: Any, timestamp: int | None) -> None:
        """Emit one result."""
        if self._is_columnar:
            self._emit_batch([row], timestamp)
        else:
            self._collector.emit_stamped(row, timestamp)

    def emit_together(self, rows: Sequence[Any] | ColumnBatch, timestamp: int) -> bool:
        """Emit results at once, rows or columns; False, and none is emitted, if they have to be emitted one by one."""
        collector = self._collector
        if not len(rows):
            return True
        if not self._is_columnar:
            return collector.put_rows(rows.rows() if isinstance(rows, ColumnBatch) else rows, timestamp)
        mark = collector.mark()
        try:
            self._emit_batch(rows, timestamp)
        except (EmitError, UnsupportedValueError):
            collector.rewind(mark)
            return False
        return True

    def emit_late(self, batch: ColumnBatch, stream: str, anchors: tuple[TrackedTuple, ...]) -> None:
        """Emit rows that came in a batch on another stream."""
        if stream in self._columnar:
            self._collector.emit((batch,), anchors, stream)
            return
        for row, stamp in rows_with_stamps(batch):
            self._collector.emit(row, anchors, stream, stamp)

    def _emit_batch(self, rows: Sequence[Any] | ColumnBatch, timestamp: int | None) -> None:
        fields = self._columnar[DEFAULT_STREAM]
        if isinstance(rows, ColumnBatch):
            batch = ColumnBatch(fields, rows.columns, rows.timestamps, is_arrow=rows.is_arrow)
        else:
            batch = batch_of_rows(fields, rows, [timestamp] * len(rows))
        self._collector.emit((batch,), self._collector.current)
