"""Calls of an operator under test as a task with checkpoints makes them: a call that raises is undone, and tried again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from topo.operators.base import KeyedOperator, Operator
from topo.operators.state.undo_log import UndoLog
from topo.operators.windows.operator import WindowOperator
from topo.operators.windows.scope import UndoingWindowScope
from topo.testing.operator_output import RecordedOutput
from topo.user_errors import call_for_effect


class OperatorCalls:
    """Makes the calls of one operator.

    What a call that raises has put out, and has changed in keyed state and timers, is taken back; what the user's own object
    keeps in attributes is not. After the last attempt its error leaves the harness.

    Args:
        operator: the operator; one without keyed state is called once.
        output: what it puts out.
        attempts: how often a call is made at most.

    Attributes:
        log: the operator's.
        scope: of the operator, where it has windows.
    """

    def __init__(self, operator: Operator, output: RecordedOutput, attempts: int) -> None:
        self._operator = operator
        self._output = output
        self._attempts = attempts if isinstance(operator, KeyedOperator) else 1
        self.log = UndoLog()
        self.scope = UndoingWindowScope(self.log, self._mark, self._rewind)
        if isinstance(operator, WindowOperator):
            operator.scope = self.scope

    def elements(self, keys: Sequence[Any], values: Sequence[Any], timestamps: Sequence[int | None]) -> None:
        """Feed elements as one batch. One that raises is the last that is fed."""
        operator, scope = self._operator, self.scope
        if not isinstance(operator, WindowOperator):
            for key, value, timestamp in zip(keys, values, timestamps, strict=True):
                self._try(partial(call_for_effect, operator.process_element, key, value, timestamp))
            return
        first = 0
        while first < len(values):
            scope.begin_batch()
            try:
                operator.process_batch(keys[first:], values[first:], timestamps[first:])
                return
            except Exception as error:
                place = first + operator.position
                one = slice(place, place + 1)
                again = partial(operator.process_batch, keys[one], values[one], timestamps[one])
                scope.undo_element(operator.position)
                self._again(again, partial(scope.undo_element, 0), error)
            first = place + 1

    def on_timer(self, _timestamp: int, call: Callable[[], object]) -> None:
        """Make the call for one timer of a process function."""
        self._try(partial(call_for_effect, call))

    def timers(self, fire: Callable[[], object]) -> None:
        """Fire what is due. A timer of a window that raises for good clears what is over; the others are due at the next call."""
        operator = self._operator
        while True:
            try:
                fire()
                return
            except Exception as error:
                timer = self.scope.timer
                if not isinstance(operator, WindowOperator) or timer is None:
                    raise
                self.scope.undo_timer()
                try:
                    self._again(partial(operator.call_for, timer), self.scope.undo_timer, error)
                except Exception:
                    operator.skip(timer)
                    raise

    def _try(self, call: Callable[[], object]) -> None:
        mark = self._mark()
        self.log.begin()
        try:
            call()
        except Exception as error:
            undo = partial(self._undo, mark)
            undo()
            self._again(call, undo, error)

    def _again(self, call: Callable[[], object], undo: Callable[[], object], error: Exception) -> None:
        """Make a call again that has raised and was undone, as often as attempts allow."""
        for _ in range(self._attempts - 1):
            try:
                call()
                return
            except Exception as raised:
                undo()
                error = raised
        raise error

    def _undo(self, mark: int) -> None:
        if isinstance(self._operator, KeyedOperator):
            self.log.undo()
            self._rewind(mark)

    def _mark(self) -> int:
        return len(self._output.events)

    def _rewind(self, mark: int) -> None:
        del self._output.events[mark:]
