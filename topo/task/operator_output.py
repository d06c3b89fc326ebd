"""The output of an operator: rows with the anchors of the moment, and event time behind them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from topo.api.column_batch import ColumnBatch
from topo.emission.collectors import BoltCollector, TrackedTuple
from topo.emission.operator_rows import OperatorRows
from topo.task.bolt_output import BoltOutput
from topo.task.guarantees.inputs import InputGuarantee
from topo.task.state import TaskState


class OperatorOutput:
    """Takes the output of one operator.

    Args:
        state: of the task.
        collector: takes its rows.
        out: takes its event time, unless the task has a watermark strategy.
        guarantee: routes the rows that event time is behind.
        side_anchors: returns the anchors of a row on another stream, where these differ.

    Attributes:
        collector: the same.
        before_watermark: called with each watermark before it is passed on; None where nothing acts on it.
    """

    before_watermark: Callable[[int], object] | None = None

    def __init__(
        self,
        state: TaskState,
        collector: BoltCollector,
        out: BoltOutput,
        guarantee: InputGuarantee,
        side_anchors: Callable[[str], tuple[TrackedTuple, ...]] | None = None,
    ) -> None:
        self.collector = collector
        self._state = state
        self._out = out
        self._guarantee = guarantee
        self._side_anchors = side_anchors
        self._rows = OperatorRows(collector)

    def emit(self, value: Any, timestamp: int | None) -> None:
        """Emit one element."""
        self._rows.emit(value, timestamp)

    def side(self, stream: str, value: Any, timestamp: int | None) -> None:
        """Emit one element on another stream, or the rows of a batch of columns."""
        anchors = self.collector.current if self._side_anchors is None else self._side_anchors(stream)
        if isinstance(value, ColumnBatch):
            self._rows.emit_late(value, stream, anchors)
        else:
            self.collector.emit(value, anchors, stream, timestamp)

    def watermark(self, timestamp: int) -> None:
        """Pass a watermark on."""
        self._settle()
        if self.before_watermark is not None:
            self.before_watermark(timestamp)
        self._out.on_watermark(timestamp)

    def mark_idle(self) -> None:
        """Pass on that the input is idle."""
        self._settle()
        self._out.on_input_idle(True)

    def mark_active(self) -> None:
        """Pass on that the input is active again."""
        self._settle()
        self._out.on_input_idle(False)

    def _settle(self) -> None:
        self._guarantee.settle_calls(self.collector, self._state.now)
