"""Windows as a task. `WindowCalls` decide the consequences of a call that raises, and follow firings where they are roots."""

from __future__ import annotations

from collections.abc import Sequence

from topo.api.operator_bolts import WindowBolt
from topo.api.tuples import Origin
from topo.operators.bolt_operators import window_operator_of
from topo.operators.windows.operator import WindowOperator
from topo.task.batch import Batch
from topo.task.guarantees.inputs import InputGuarantee
from topo.task.operator_output import OperatorOutput
from topo.task.parts import TaskParts
from topo.task.runners.input_end import InputEnd
from topo.task.runners.operator import OperatorKind
from topo.task.window_calls import ElementCalls, TimerCall, WindowCalls


class WindowKind(OperatorKind):
    """A `WindowBolt`."""

    _operator: WindowOperator

    def __init__(
        self,
        parts: TaskParts,
        bolt: WindowBolt,
        guarantee: InputGuarantee,
        calls: WindowCalls,
        output: OperatorOutput,
        end: InputEnd,
    ) -> None:
        self.bolt = bolt
        self._window_calls = calls
        self._end = end
        plan = parts.state.plan
        declared = plan.inputs_of(parts.state.component_id)
        self._origins = [Origin(one.source, 0, one.stream, plan.fields(one.source, one.stream)) for one in declared]
        super().__init__(parts, guarantee, output, renews=True)

    def _make_operator(self) -> WindowOperator:
        operator = window_operator_of(self.bolt, self._origins, lambda size: self._env.ids.roots(1)[0] % size)
        operator.scope = self._window_calls.scope
        return operator

    def run(self, batch: Batch, first: int, last: int, now: float) -> None:
        """Put elements into their windows, and settle."""
        begin, windows, counters = first, self._operator, self._state.counters
        if self._end.is_reached:
            windows.goes_on()
        while first < last:
            keys, stamps = self._keys(batch, first, last), _stamps_of(batch, first, last)
            calls = ElementCalls(windows, batch, first, last, keys, stamps, self._rows)
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

    def end_clock(self, now: float) -> bool:
        """Fire the windows that wait for the clock; False if the brake has left some: to be called again."""
        self._brake.is_on = False
        self._fire_timers(self._operator.end_clock, now)
        return not self._operator.is_behind

    def end_of_input(self) -> None:
        """Fire all windows."""
        self._fire_timers(self._operator.end_of_input, self._state.now)

    def _call_raised(self, error: Exception, now: float) -> None:
        timer = self._operator.timer
        self._window_calls.timer_raised(None if timer is None else TimerCall(self._operator, timer), error, now)

    def levels(self) -> dict[str, float]:
        """Return the number of timers, of entries of the state, and of windows with contents."""
        return super().levels() | ({"open_windows": float(self._operator.open_panes)} if self._is_set_up else {})


def _stamps_of(batch: Batch, first: int, last: int) -> Sequence[int | None]:
    return [None] * (last - first) if batch.stamps is None else batch.stamps[first:last]
