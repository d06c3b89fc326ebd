"""The collector of a spout of column batches: it makes a tuple of each batch, for the collector of any spout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from topo.api.column_batch import ColumnsLike, batch_of
from topo.api.spout import Spout, SpoutCollector
from topo.api.streams import DEFAULT_STREAM, StreamDeclaration
from topo.errors import EmitError


class BatchMessages:
    """Takes the batches of one spout.

    Args:
        inner: takes a tuple for each.
        component: the spout's id.
        streams: its outputs.
    """

    def __init__(self, inner: SpoutCollector, component: str, streams: Sequence[StreamDeclaration]) -> None:
        self._inner = inner
        self._component = component
        self._fields = {stream.name: stream.fields for stream in streams}
        self.emit_watermark = inner.emit_watermark
        self.mark_idle = inner.mark_idle
        self.nothing_before = inner.nothing_before
        self.end_of_input = inner.end_of_input
        self.report_error = inner.report_error

    def emit_batch(
        self, columns: ColumnsLike, message_id: Any = None, stream: str = DEFAULT_STREAM, timestamps: Any = None
    ) -> None:
        """Emit one batch under a position."""
        who = f"component {self._component!r}, stream {stream!r}:"
        batch = batch_of(columns, self._fields[stream], timestamps, who) if stream in self._fields else None
        if batch is not None and not len(batch):
            raise EmitError(f"{who} emitted a batch without rows; emit nothing, the position of the next batch covers it")
        # The collector refuses a stream that is not declared.
        self._inner.emit((batch,), message_id, stream)


def given_collector(spout: Spout, inner: SpoutCollector, component: str, streams: Sequence[StreamDeclaration]) -> Any:
    """Return the collector that a spout is given, on top of the collector of its task."""
    return BatchMessages(inner, component, streams) if getattr(spout, "emits_batches", False) else inner
