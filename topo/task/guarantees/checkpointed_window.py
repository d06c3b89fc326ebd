"""Windows as a task, in a topology with checkpoints: nothing is tracked, and a call that raises is tried again in place."""

from __future__ import annotations

from functools import partial

from topo.api.operator_bolts import WindowBolt
from topo.emission.collectors import Mark
from topo.errors import FrameworkBug
from topo.operators.base import Operator
from topo.operators.bolt_operators import window_operator_of
from topo.operators.windows.operator import WindowOperator
from topo.task.batch import Batch
from topo.task.runners.operator import OperatorTask


class CheckpointedWindowTask(OperatorTask):
    """Runs a `WindowBolt` whose windows are in the checkpoints: no input is tracked."""

    _call: tuple[int, Mark] | None = None
    """Which element of the batch the last call was for, and what had been emitted before it."""

    def _on_call(self) -> None:
        operator = self._operator
        assert isinstance(operator, WindowOperator)
        self._call = operator.position, self._collector.mark()

    def _undo_element(self) -> None:
        """Take back what the call for the element at hand has done before it raised."""
        call, self._call = self._call, None
        # Without a call for it, the element has been taken the short way, which changes nothing when it raises.
        if call is not None and call[0] == self._windows.position:
            self._windows.undo()
            self._collector.rewind(call[1])

    def _call_raised(self, error: Exception, now: float) -> None:
        """A timer has raised: its firing is tried again, and then given up with what the window holds."""
        windows = self._windows
        if windows.due is None:
            super()._call_raised(error, now)
            return
        self._undo_timer()
        final = self._try_again(windows.repeat_due, self._undo_timer, error)
        if final is None:
            return
        self.counters.failed += 1
        self._give_up(windows.contents_due(), final)
        try:
            windows.clear_due()
        except Exception as raised:
            self._record_error(raised, now)
        self._user_error(final, now)

    def _user_end(self) -> None:
        self._fire_timers(self._operator.end_of_input, self._now)

    def _undo_timer(self) -> None:
        assert self._call is not None
        self._windows.undo()
        self._collector.rewind(self._call[1])

    @property
    def _windows(self) -> WindowOperator:
        assert isinstance(self._operator, WindowOperator)
        return self._operator

    def _make_operator(self) -> Operator:
        bolt = self.component
        assert isinstance(bolt, WindowBolt)
        return window_operator_of(bolt, self._window_inputs, lambda size: self.ports.ids.roots(1)[0] % size)

    def _run(self, batch: Batch, first: int, last: int, now: float) -> None:
        operator = self._operator
        assert isinstance(operator, WindowOperator)
        errors: list[Exception] = []
        begin = first
        while first < last:
            keys, stamps = self._keys(batch, first, last), self._stamps_of(batch, first, last)
            rows = batch.to_cut(self._rows(batch, first, last))
            self._call = None
            try:
                operator.process_batch(keys, rows, stamps)
                taken = operator.position + 1
            except FrameworkBug:
                raise
            except Exception as error:
                place = operator.position
                one = slice(place, place + 1)
                row = self._rows(batch, first + place, first + place + 1)
                self._undo_element()
                again = partial(operator.process_batch, keys[one], row, stamps[one])
                final = self._try_again(again, self._undo_element, error)
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
