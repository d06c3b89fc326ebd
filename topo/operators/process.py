"""The process-function operator: user code for each element and for timers, with keyed state and side streams.

Emits of a function carry the timestamp of the cause of the call: the element's (or none), or the event-time timer's. Those
of a processing-time timer carry none, because the clock is not event time.
"""

from __future__ import annotations

from typing import Any, Protocol

from topo.api.metrics import Metrics
from topo.api.operator_bolts import TimeDomain
from topo.errors import UserError
from topo.operators.base import KeyedOperator
from topo.operators.state.keyed_state import KeyedState
from topo.operators.time.clock import MAX_TIMESTAMP, MIN_TIMESTAMP
from topo.operators.time.timers import TimerClocks, TimerService


class OperatorCollector:
    """The collector of a process function. Valid during the call it was given to."""

    __slots__ = ("_operator",)

    def __init__(self, operator: ProcessOperator) -> None:
        self._operator = operator

    def emit(self, value: Any, stream: str | None = None) -> None:
        operator = self._operator
        if stream is None:
            operator.output.emit(value, operator.timestamp)
        else:
            operator.output.side(stream, value, operator.timestamp)


class OperatorProcessContext(TimerClocks):
    """The surroundings of a process function. One object serves all calls, and describes the current one."""

    def __init__(self, operator: ProcessOperator, timers: TimerService) -> None:
        super().__init__(timers)
        self._operator = operator

    @property
    def key(self) -> Any:
        return self._operator.keys.key

    @property
    def timestamp(self) -> int | None:
        return self._operator.called_for

    @property
    def domain(self) -> TimeDomain | None:
        return self._operator.domain

    @property
    def metrics(self) -> Metrics:
        return self._operator.context.metrics

    @property
    def state(self) -> KeyedState:
        return self._operator.state

    def stamp_output(self, timestamp: int) -> None:
        """Give the rest of the output of this call another timestamp."""
        self._operator.timestamp = timestamp

    def register_event_time_timer(self, timestamp: int) -> None:
        """Have `on_timer` called for this key when the watermark reaches `timestamp` (ms); at the next one if that is past.

        Raises:
            UserError: not a 64-bit number.
        """
        self._timers.register_event_timer(None, _checked(timestamp))

    def register_processing_time_timer(self, timestamp: int) -> None:
        """Have `on_timer` called for this key when the clock reaches `timestamp` (ms).

        Raises:
            UserError: not a 64-bit number.
        """
        self._timers.register_processing_timer(None, _checked(timestamp))

    def delete_event_time_timer(self, timestamp: int) -> None:
        self._timers.delete_event_timer(None, timestamp)

    def delete_processing_time_timer(self, timestamp: int) -> None:
        self._timers.delete_processing_timer(None, timestamp)

    def output(self, stream: str, value: Any) -> None:
        """Emit to a side stream, with the timestamp that the main output would have.

        Raises:
            UserError: no stream is given.
        """
        if not isinstance(stream, str):
            raise UserError(f"a side output needs the name of its stream; got {stream!r}")
        self._operator.output.side(stream, value, self._operator.timestamp)


class ProcessFunction(Protocol):
    """The functions that the operator calls, all from one thread, one at a time."""

    def open(self, context: OperatorProcessContext) -> None:
        """Called once before everything else: ask for state handles here. There is no key yet, so no timers either."""

    def process(self, value: Any, context: OperatorProcessContext, collector: OperatorCollector) -> None:
        """Called for each element."""

    def on_timer(self, timestamp: int, context: OperatorProcessContext, collector: OperatorCollector) -> None:
        """Called when a timer is due, with its timestamp and its key; `context.domain` is its time domain."""

    def close(self) -> None:
        """Called once after everything else."""


class ProcessOperator(KeyedOperator):
    """Runs a process function.

    Attributes:
        timestamp: what output carries during the call at hand.
        called_for: timestamp of the element or the timer at hand.
        domain: of the timer at hand; None for an element.
    """

    def __init__(self, function: ProcessFunction) -> None:
        self._function = function
        self.timestamp: int | None = None
        self.called_for: int | None = None
        self.domain: TimeDomain | None = None

    def open(self) -> None:
        """Claim the timers, open the function."""
        self._process_context = OperatorProcessContext(self, self.timers.get("user-timers", self))
        self._collector = OperatorCollector(self)
        self._function.open(self._process_context)

    def process_element(self, key: Any, value: Any, timestamp: int | None) -> Any:
        """Call the function for one element; return its result, which should be None."""
        self.begin_call()
        self.keys.key = key
        self.timestamp = self.called_for = timestamp
        self.domain = None
        return self._function.process(value, self._process_context, self._collector)

    def on_event_time(self, key: Any, namespace: Any, timestamp: int) -> None:
        """Call the function for a timer; output carries the timer's timestamp."""
        self.begin_call()
        self.timestamp = self.called_for = timestamp
        self.domain = TimeDomain.EVENT_TIME
        self._function.on_timer(timestamp, self._process_context, self._collector)

    def on_processing_time(self, key: Any, namespace: Any, timestamp: int) -> None:
        """Call the function for a timer; output carries no timestamp."""
        self.begin_call()
        self.timestamp, self.called_for = None, timestamp
        self.domain = TimeDomain.PROCESSING_TIME
        self._function.on_timer(timestamp, self._process_context, self._collector)

    def close(self) -> None:
        self._function.close()


def _checked(timestamp: int) -> int:
    if not isinstance(timestamp, int) or not MIN_TIMESTAMP <= timestamp <= MAX_TIMESTAMP:
        raise UserError(f"a timer's timestamp is a signed 64-bit number of milliseconds; got {timestamp!r}")
    return timestamp
