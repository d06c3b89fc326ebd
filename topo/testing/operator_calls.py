"""Calls of an operator under test as a task with checkpoints makes them: a call that raises is undone, and tried again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from topo.operators.base import KeyedOperator, Operator
from topo.operators.windows.operator import WindowOperator
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
    """

    def __init__(self, operator: Operator, output: RecordedOutput, attempts: int) -> None:
        self._operator = operator
        self._output = output
        self._attempts = attempts if isinstance(operator, KeyedOperator) else 1
        self._mark: int | None = None
        """What had been put out when the call at hand began; None when the operator has begun none."""
        self._position = 0

    def begins(self) -> None:
        """A call begins; told by the operator."""
        self._mark = len(self._output.events)
        self._position = self._operator.position if isinstance(self._operator, WindowOperator) else 0

    def elements(self, keys: Sequence[Any], values: Sequence[Any], timestamps: Sequence[int | None]) -> None:
        """Feed elements as one batch. One that raises is the last that is fed."""
        operator = self._operator
        if not isinstance(operator, WindowOperator):
            for key, value, timestamp in zip(keys, values, timestamps, strict=True):
                self._try(partial(call_for_effect, operator.process_element, key, value, timestamp))
            return
        first = 0
        while first < len(values):
            self._mark = None
            try:
                operator.process_batch(keys[first:], values[first:], timestamps[first:])
                return
            except Exception as error:
                place = first + operator.position
                one = slice(place, place + 1)
                if self._position != operator.position:
                    # The element was taken a short way, which changes nothing when it raises.
                    self._mark = None
                self._again(partial(operator.process_batch, keys[one], values[one], timestamps[one]), error)
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
                if not isinstance(operator, WindowOperator) or operator.due is None:
                    raise
                try:
                    self._again(operator.repeat_due, error)
                except Exception:
                    operator.clear_due()
                    raise

    def _try(self, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception as error:
            self._again(call, error)

    def _again(self, call: Callable[[], object], error: Exception) -> None:
        """Undo a call that has raised and make it again, as often as attempts allow."""
        for _ in range(self._attempts - 1):
            self._undo()
            try:
                call()
                return
            except Exception as raised:
                error = raised
        self._undo()
        raise error

    def _undo(self) -> None:
        if self._mark is not None and isinstance(self._operator, KeyedOperator):
            self._operator.undo()
            del self._output.events[self._mark :]
