"""Windows as a task. `WindowCalls` decide the consequences of a call that raises, and follow firings where they are roots."""

from __future__ import annotations

from topo.api.operator_bolts import WindowBolt
from topo.api.tuples import Origin
from topo.checkpoint.alignment import Snapshot
from topo.hot import Row
from topo.operators.bolt_operators import window_operator_of
from topo.operators.windows.column_windows import ColumnWindows
from topo.operators.windows.operator import WindowOperator
from topo.task.batch import Batch
from topo.task.guarantees.inputs import InputGuarantee
from topo.task.operator_output import OperatorOutput
from topo.task.parts import TaskParts
from topo.task.runners.input_end import InputEnd
from topo.task.runners.operator import OperatorKind
from topo.task.window_calls import ElementCalls, TimerCall, WindowCalls


class WindowKind(OperatorKind):
    """A `WindowBolt`.

    Args:
        guarantee: of its inputs.
        calls: decide the consequences of a call that raises.
        output: of the operator.
        end: of the input.
        takes_columns: its windows take batches of columns whole.
    """

    _operator: WindowOperator

    def __init__(
        self,
        parts: TaskParts,
        bolt: WindowBolt,
        guarantee: InputGuarantee,
        calls: WindowCalls,
        output: OperatorOutput,
        end: InputEnd,
        *,
        takes_columns: bool,
    ) -> None:
        self.bolt = bolt
        self._window_calls = calls
        self._end = end
        self._takes_columns = takes_columns
        self._columns: ColumnWindows | None = None
        plan = parts.state.plan
        declared = plan.inputs_of(parts.state.component_id)
        self._origins = [Origin(one.source, 0, one.stream, plan.fields(one.source, one.stream)) for one in declared]
        super().__init__(parts, guarantee, output, renews=True)

    def _make_operator(self) -> WindowOperator:
        operator = window_operator_of(self.bolt, self._origins, lambda size: self._env.ids.roots(1)[0] % size)
        operator.scope = self._window_calls.scope
        if self._takes_columns:
            assert self.bolt.aggregate is not None
            fields = self._origins[0].fields
            keys = [fields.index(name) for name in self.bolt.key]
            self._columns = ColumnWindows(operator, self.bolt.aggregate.bind(fields), keys, self._own_key)
        return operator

    def run(self, batch: Batch, first: int, last: int, now: float) -> None:
        """Put elements into their windows, and settle."""
        begin, windows, counters = first, self._operator, self._state.counters
        if self._end.is_reached:
            windows.goes_on()
        while first < last:
            calls = self._calls_of(batch, first, last)
            self._window_calls.take(calls, now)
            counters.late += windows.late_elements
            counters.late_dropped += windows.late_dropped
            windows.late_elements = windows.late_dropped = 0
            first += calls.position + 1
            if calls.is_cut:
                break
        batch.done = first
        if self._end.is_reached:
            self.end_of_input()
        self._window_calls.taken(batch, begin, first, now)

    def _calls_of(self, batch: Batch, first: int, last: int) -> ElementCalls:
        if self._columns is not None:
            return ElementCalls(self._columns, batch, first, last, (), (), _batches_of)
        keys, stamps = self._keys(batch, first, last), batch.stamps_of(first, last) or [None] * (last - first)
        return ElementCalls(self._operator, batch, first, last, keys, stamps, self._rows)

    def snapshot(self, checkpoint: int) -> Snapshot:
        """Return the state of the operator."""
        if self._columns is not None:
            self._columns.flush()
            snapshot = super().snapshot(checkpoint)
            return Snapshot(self._columns.added_to(snapshot.keyed), snapshot.values)
        return super().snapshot(checkpoint)

    def _take_watermark(self, watermark: int, now: float) -> None:
        if self._columns is not None:
            self._columns.rise(watermark)
        super()._take_watermark(watermark, now)

    def end_clock(self, now: float) -> bool:
        """Fire the windows that wait for the clock; False if the brake has left some: to be called again."""
        self._brake.is_on = False
        self._fire_timers(self._operator.end_clock, now)
        return not self._operator.is_behind

    def end_of_input(self) -> None:
        """Fire all windows."""
        if self._columns is not None:
            self._columns.rise(self._operator.timer_service.current_watermark)
        self._fire_timers(self._operator.end_of_input, self._state.now)

    def _call_raised(self, error: Exception, now: float) -> None:
        timer = self._operator.timer
        self._window_calls.timer_raised(None if timer is None else TimerCall(self._operator, timer), error, now)

    def _fired(self) -> int:
        return self._operator.fired

    def levels(self) -> dict[str, float]:
        """Return the number of timers, of entries of the state, and of windows with contents."""
        if not self._is_set_up:
            return super().levels()
        more = 0 if self._columns is None else self._columns.open_panes
        return super().levels() | {"open_windows": float(self._operator.open_panes + more)}


def _batches_of(batch: Batch, first: int, last: int) -> list[Row]:
    return batch.rows[first:last]
