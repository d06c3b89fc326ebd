"""The calls of a window task with checkpoints: nothing is tracked, and a call that raises is undone and repeated in place."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from topo.operators.state.undo_log import UndoLog
from topo.operators.windows.operator import WindowOperator
from topo.operators.windows.scope import UndoingWindowScope
from topo.task.batch import Batch
from topo.task.runners.operator import OperatorTask
from topo.wire.frames import Frame


class CheckpointedWindowScope(UndoingWindowScope):
    """The scope of a window operator whose windows are in the checkpoints.

    Args:
        task: runs the operator.
        log: the operator's.
    """

    open_firings = 0
    owes = False

    def __init__(self, task: OperatorTask, log: UndoLog) -> None:
        super().__init__(log, task._collector.mark, task._collector.rewind)
        self._task = task
        self._errors: list[Exception] = []
        """Final errors of the elements of a batch; reported when the results of the others are out."""

    # -- calls -----------------------------------------------------------------------------------------------------------

    def begin_slice(self, batch: Batch, first: int, last: int) -> None:
        """The operator gets inputs of a batch next."""
        self.begin_batch()

    def took(self, count: int, now: float) -> None:
        """Inputs in windows are acked by the checkpoints."""

    def element_raised(self, place: int, again: Callable[[], object], row: Any, error: Exception, now: float) -> None:
        """Repeat the call for an element, and make it a dead letter if that does not help."""
        task = self._task
        self.undo_element(place)
        final = task._try_again(again, partial(self.undo_element, 0), error)
        if final is not None:
            self._errors.append(final)
            task.counters.failed += 1
            task._give_up(row, final)

    def end_slices(self, batch: Batch, begin: int, now: float) -> None:
        """The inputs of a batch from `begin` on have been taken."""
        errors, self._errors = self._errors, []
        self._task.counters.acked += batch.done - begin - len(errors)
        self._task._settle(now)
        for error in errors:
            self._task._user_error(error, now)

    def call_raised(self, error: Exception, now: float) -> None:
        """Repeat the call for a timer, and make it a dead letter with the contents of its window if that does not help."""
        task, timer, windows = self._task, self.timer, self._task._operator
        assert isinstance(windows, WindowOperator)
        if timer is None:
            task._user_error(error, now)
            return
        self.undo_timer()
        final = task._try_again(partial(windows.call_for, timer), self.undo_timer, error)
        if final is None:
            return
        task.counters.failed += 1
        task._give_up(windows.contents_for(timer), final)
        try:
            windows.skip(timer)
        except Exception as raised:
            task.reports.record(raised, now)
        task._user_error(final, now)

    def end_of_input(self) -> None:
        """Windows stay in the checkpoints."""

    # -- verdicts: no firing is a root -----------------------------------------------------------------------------------

    def reset(self, epoch: int) -> None: ...

    def settle(self, now: float) -> None: ...

    def on_verdicts(self, frame: Frame, now: float) -> None: ...

    def held_roots(self) -> dict[int, None]:
        return {}

    def touched(self, roots: Iterable[int], now: float) -> dict[int, None]:
        return {}

    def deadline(self) -> float | None:
        return None

    def on_time(self, now: float) -> None: ...

    def flush_is_due(self) -> bool:
        return False

    def flush(self) -> None: ...

    def validate(self) -> None: ...
