"""Calls of an operator under test as a task with checkpoints makes them: a call that raises is undone, and tried again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from topo.api.operator_bolts import ProcessBolt
from topo.operators.base import KeyedOperator, Operator
from topo.operators.state.undo_log import UndoLog
from topo.operators.windows.operator import WindowOperator
from topo.testing.operator_output import RecordedOutput
from topo.user_errors import call_for_effect


class OperatorCalls:
    """Makes the calls of one operator.

    The output of a call that raises, and its changes of keyed state and timers, are undone; attributes of the user's own object
    are not. After the last attempt its error leaves the harness.

    Args:
        operator: the operator; one without keyed state is called once.
        output: its recorded output.
        attempts: the largest number of calls for one element.

    Attributes:
        log: the operator's.
    """

    def __init__(self, operator: Operator, output: RecordedOutput, attempts: int) -> None:
        self._operator = operator
        self._attempts = attempts
        self.log = UndoLog(output)

    def elements(self, keys: Sequence[Any], values: Sequence[Any], timestamps: Sequence[int | None]) -> None:
        """Feed elements as one batch. An element that raises is the last that is fed."""
        operator = self._operator
        if not isinstance(operator, WindowOperator):
            for key, value, timestamp in zip(keys, values, timestamps, strict=True):
                self._try(partial(call_for_effect, operator.process_element, key, value, timestamp))
            return
        first = 0
        while first < len(values):
            try:
                operator.process_batch(keys[first:], values[first:], timestamps[first:])
                return
            except Exception as error:
                place = first + operator.position
                one = slice(place, place + 1)
                again = partial(operator.process_batch, keys[one], values[one], timestamps[one])
                self._again(again, error)
            first = place + 1

    def on_timer(self, bolt: ProcessBolt, *arguments: Any) -> None:
        """Make the call of a bolt for one timer."""
        self._try(partial(call_for_effect, bolt.on_timer, *arguments))

    def timers(self, fire: Callable[[], object]) -> None:
        """Fire due timers. After the last attempt a timer that raises still clears windows that are over."""
        operator = self._operator
        while True:
            try:
                fire()
                return
            except Exception as error:
                if not isinstance(operator, WindowOperator) or (timer := operator.timer) is None:
                    raise
                try:
                    self._again(partial(operator.call_for, timer), error)
                except Exception:
                    operator.skip(timer)
                    raise

    def _try(self, call: Callable[[], object]) -> None:
        self.log.begin()
        try:
            call()
        except Exception as error:
            self._again(call, error)

    def _again(self, call: Callable[[], object], error: Exception) -> None:
        """Undo a call that has raised, and make it again as often as attempts allow."""
        if not isinstance(self._operator, KeyedOperator):
            raise error
        self.log.undo()
        for _ in range(self._attempts - 1):
            try:
                call()
                return
            except Exception as raised:
                self.log.undo()
                error = raised
        raise error
