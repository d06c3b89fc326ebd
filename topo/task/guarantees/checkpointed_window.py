"""Windows as a task, in a topology with checkpoints: nothing is tracked, and a call that raises is tried again in place."""

from __future__ import annotations

from functools import partial

from topo.api.operator_bolts import WindowBolt
from topo.errors import FrameworkBug
from topo.operators.base import Operator
from topo.operators.bolt_operators import window_operator_of
from topo.operators.windows.operator import WindowOperator
from topo.operators.windows.scope import CheckpointedWindowScope
from topo.task.batch import Batch
from topo.task.runners.operator import OperatorTask


class CheckpointedWindowTask(OperatorTask):
    """Runs a `WindowBolt` whose windows are in the checkpoints: no input is tracked."""

    _scope: CheckpointedWindowScope

    def _call_raised(self, error: Exception, now: float) -> None:
        """A timer has raised: its firing is tried again, and then given up with what the window holds."""
        timer = self._scope.timer
        if timer is None:
            super()._call_raised(error, now)
            return
        windows = self._windows
        self._scope.undo_timer()
        final = self._try_again(partial(windows.call_for, timer), self._scope.undo_timer, error)
        if final is None:
            return
        self.counters.failed += 1
        self._give_up(windows.contents_for(timer), final)
        try:
            windows.skip(timer)
        except Exception as raised:
            self.reports.record(raised, now)
        self._user_error(final, now)

    def _user_end(self) -> None:
        self._fire_timers(self._operator.end_of_input, self.state.now)

    @property
    def _windows(self) -> WindowOperator:
        assert isinstance(self._operator, WindowOperator)
        return self._operator

    def _make_operator(self) -> Operator:
        bolt = self.component
        assert isinstance(bolt, WindowBolt)
        assert self._undo_log is not None
        operator = window_operator_of(bolt, self._window_inputs, lambda size: self.ports.ids.roots(1)[0] % size)
        operator.scope = self._scope = CheckpointedWindowScope(self._undo_log, self._collector.mark, self._collector.rewind)
        return operator

    def _run(self, batch: Batch, first: int, last: int, now: float) -> None:
        operator = self._operator
        assert isinstance(operator, WindowOperator)
        errors: list[Exception] = []
        begin = first
        while first < last:
            keys, stamps = self._keys(batch, first, last), self._stamps_of(batch, first, last)
            rows = batch.to_cut(self._rows(batch, first, last))
            self._scope.begin_batch()
            try:
                operator.process_batch(keys, rows, stamps)
                taken = operator.position + 1
            except FrameworkBug:
                raise
            except Exception as error:
                place = operator.position
                one = slice(place, place + 1)
                row = self._rows(batch, first + place, first + place + 1)
                self._scope.undo_element(place)
                again = partial(operator.process_batch, keys[one], row, stamps[one])
                final = self._try_again(again, partial(self._scope.undo_element, 0), error)
                if final is not None:
                    errors.append(final)
                    self.counters.failed += 1
                    self._give_up(row[0], final)
                taken = place + 1
            first += taken
            if not rows:
                break
        batch.done = first
        self.counters.acked += first - begin - len(errors)
        self.counters.late += operator.late_elements
        self.counters.late_dropped += operator.late_dropped
        operator.late_elements = operator.late_dropped = 0
        self._settle(now)
        for raised in errors:
            self._user_error(raised, now)
