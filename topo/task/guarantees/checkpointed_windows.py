"""Windows that are in the checkpoints: no input is tracked, and a call that raises is undone and repeated in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from topo.emission.collectors import BoltCollector
from topo.emission.operator_rows import OperatorRows
from topo.errors import TopoInternalError
from topo.operators.windows.scope import NoWindowScope
from topo.task.batch import Batch
from topo.task.guarantees.checkpointed import CheckpointedInputs
from topo.task.parts import TaskParts
from topo.task.window_calls import ElementCalls, TimerCall


class CoveredScope(NoWindowScope):
    """The scope of a window operator in a topology with checkpoints, which cover its inputs: no pane is followed.

    Windows that fire as a whole emit the results of their panes together.

    Args:
        collector: takes them.
    """

    def __init__(self, collector: BoltCollector) -> None:
        self._rows = OperatorRows(collector)

    def fired_whole(self, keys: Sequence[Any], window: Any, rows: Sequence[Any], ends: Sequence[int], timestamp: int) -> bool:
        """Emit the only results of panes together; False if they have to be emitted one by one."""
        return self._rows.emit_together(rows, timestamp)


class CheckpointedWindows:
    """The windows of one task in a topology with checkpoints.

    Args:
        parts: of the task.
        inputs: their guarantee.
        collector: takes the rows of the operator.

    Attributes:
        scope: of the operator.
    """

    def __init__(self, parts: TaskParts, inputs: CheckpointedInputs, collector: BoltCollector) -> None:
        self._counters = parts.state.counters
        self._reports = parts.reports
        self._inputs = inputs
        self._collector = collector
        self.scope = CoveredScope(collector)
        self._errors: list[Exception] = []
        """Final errors of the elements of a batch; reported when the results of the others are out."""

    def take(self, calls: ElementCalls, now: float) -> None:
        """Make the calls for a slice, up to the first that raises; its element becomes a dead letter after all attempts."""
        try:
            calls.make()
        except TopoInternalError:
            raise
        except Exception as error:
            final = self._inputs.raised(error, calls.repeat, calls.undo)
            if final is not None:
                self._errors.append(final)
                self._inputs.give_up(calls.subject, final)

    def taken(self, batch: Batch, first: int, last: int, now: float) -> None:
        """Route the results of a slice, count its inputs, and report the errors among them."""
        self._inputs.settle_calls(self._collector, now)
        errors, self._errors = self._errors, []
        self._counters.acked += last - first - len(errors)
        for error in errors:
            self._reports.user_error(error, now)

    def timer_raised(self, call: TimerCall | None, error: Exception, now: float) -> None:
        """Repeat the call for a timer; the contents of its window become a dead letter after all attempts."""
        if call is None:
            self._reports.user_error(error, now)
            return
        final = self._inputs.raised(error, call.repeat, call.undo)
        if final is None:
            return
        self._inputs.give_up(call.subject, final)
        try:
            call.skip()
        except Exception as raised:
            self._reports.record(raised, now)
        self._reports.user_error(final, now)
