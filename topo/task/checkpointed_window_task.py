"""Windows as a task, in a topology with checkpoints: nothing is tracked, and a call that raises is tried again in place."""

from __future__ import annotations

from functools import partial

from topo.api.operator_bolts import WindowBolt
from topo.errors import FrameworkBug
from topo.operators.base import Operator
from topo.operators.bolt_operators import window_operator_of
from topo.operators.windowing import WindowOperator
from topo.task.batch import Batch
from topo.task.collectors import Mark
from topo.task.operator_task import OperatorTask


class CheckpointedWindowTask(OperatorTask):
    """Runs a `WindowBolt` whose windows are in the checkpoints: no input is tracked."""

    _call: tuple[int, Mark] | None = None
    """Which element of the batch the last call was for, and what had been emitted before it."""

    def _on_call(self) -> None:
        operator = self._operator
        assert isinstance(operator, WindowOperator)
        self._call = operator.position, self._collector.mark()

    def _undo_call(self, place: int) -> None:
        """Take back what the call for an element has done before it raised."""
        operator = self._operator
        assert isinstance(operator, WindowOperator)
        operator.undo()
        # Without a call for it, the element has been taken the short way, which changes nothing when it raises.
        if self._call is not None and self._call[0] == place:
            self._collector.rewind(self._call[1])

    def _make_operator(self) -> Operator:
        bolt = self.component
        assert isinstance(bolt, WindowBolt)
        return window_operator_of(bolt, self.input_fields, lambda size: self.ports.ids.roots(1)[0] % size)

    def _run(self, batch: Batch, first: int, last: int, now: float) -> None:
        operator = self._operator
        assert isinstance(operator, WindowOperator)
        errors: list[Exception] = []
        count = last - first
        while first < last:
            keys, stamps, rows = self._keys(batch, first, last), self._stamps_of(batch, first, last), batch.rows[first:last]
            self._call = None
            try:
                operator.process_batch(keys, rows, stamps)
                taken = last - first
            except FrameworkBug:
                raise
            except Exception as error:
                place = operator.position
                one = slice(place, place + 1)
                undo = partial(self._undo_call, place)
                undo()
                final = self._try_again(partial(operator.process_batch, keys[one], rows[one], stamps[one]), undo, error)
                if final is not None:
                    errors.append(final)
                    self.counters.failed += 1
                    self._give_up(rows[place], final)
                taken = place + 1
            first += taken
        self.counters.acked += count - len(errors)
        self.counters.late += operator.late_elements
        self.counters.late_dropped += operator.late_dropped
        operator.late_elements = operator.late_dropped = 0
        self._settle(now)
        for raised in errors:
            self._user_error(raised, now)

    def _levels(self) -> dict[str, float]:
        operator = self._operator
        assert isinstance(operator, WindowOperator)
        if not self._is_open:
            return super()._levels()
        return {
            **super()._levels(),
            "open_windows": float(operator.open_panes),
            "timers": float(operator.timers.pending),
            "state_entries": float(operator.state.entries),
        }
