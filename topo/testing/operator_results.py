"""The output of an operator under test, and its state."""

from __future__ import annotations

from typing import Any

from topo.api.operator_bolts import OperatorBolt, WindowBolt
from topo.errors import UserError
from topo.operators.async_wait import AsyncWaitOperator, FailTheTask
from topo.operators.base import KeyedOperator, Operator
from topo.operators.windows.operator import WindowOperator
from topo.testing.operator_batches import BatchesUnderTest
from topo.testing.operator_output import Emitted, Event, OnStream, RecordedOutput, Watermark
from topo.testing.timer_harness import Fired


class FailedInputs(FailTheTask):
    """The inputs of an async bolt that fail."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, BaseException]] = []

    def failed(self, value: Any, error: BaseException) -> None:
        self.seen.append((value.values, error))


class OperatorResults:
    """Output and contents of one operator under test; base of `OperatorHarness`.

    Attributes:
        operator: the operator that runs.
        bolt: the bolt; None for a bare operator.
    """

    operator: Operator
    bolt: OperatorBolt | None
    _output: RecordedOutput
    _failures: FailedInputs
    _batches: BatchesUnderTest | None

    # -- what came out ---------------------------------------------------------------------------------------------------

    @property
    def events(self) -> list[Event]:
        """All that was put out since the beginning or the last `clear`, in order."""
        return self._output.events

    @property
    def outputs(self) -> list[Emitted]:
        """The elements of the main stream, in order: (values, timestamp)."""
        return [event for event in self.events if isinstance(event, Emitted)]

    @property
    def values(self) -> list[Any]:
        """The values of the main stream, in order."""
        return [event.values for event in self.outputs]

    @property
    def watermarks(self) -> list[int]:
        """The watermarks that were passed on, in order."""
        return [event.timestamp for event in self.events if isinstance(event, Watermark)]

    def side(self, stream: str) -> list[Emitted]:
        """The elements of another stream, in order: (values, timestamp)."""
        return [Emitted(one.values, one.timestamp) for one in self.events if isinstance(one, OnStream) and one.stream == stream]

    @property
    def late(self) -> list[Emitted]:
        """The elements of a window bolt's late stream, in order."""
        stream = self.bolt.late_stream if isinstance(self.bolt, WindowBolt) else None
        return [] if stream is None else self.side(stream)

    @property
    def failed(self) -> list[tuple[Any, BaseException]]:
        """Of an async or batching bolt: values and error of each input that failed, in order."""
        return self._failures.seen if self._batches is None else self._batches.failures

    @property
    def acked(self) -> list[Any]:
        """Of a batching bolt: the values of each input that was acked, in order."""
        if self._batches is None:
            raise UserError("only a batching bolt acks its inputs one by one; of other operators see `outputs` and `failed`")
        return self._batches.acked

    def clear(self) -> None:
        """Forget the output so far."""
        self._output.events.clear()

    # -- its state ---------------------------------------------------------------------------------------------------

    @property
    def late_elements(self) -> int:
        """How many elements were too late for all their windows."""
        return self._windows.late_elements

    @property
    def late_dropped(self) -> int:
        """How many of them went nowhere."""
        return self._windows.late_dropped

    @property
    def open_windows(self) -> int:
        """How many windows, over all keys, have contents."""
        return self._windows.open_panes

    @property
    def timers(self) -> int:
        """How many timers are registered, of both kinds."""
        return self._keyed.pending_timers

    @property
    def event_timers(self) -> list[Fired]:
        """The timers of event time, earliest first: key, window (None in a process bolt) and timestamp of each.

        The key is None where one timer fires a window for all keys.
        """
        ends = [Fired(None, window, window.max_timestamp) for window in self._keyed.ends]
        return sorted([*ends, *self._timers_of(0)], key=lambda timer: timer.timestamp)

    @property
    def processing_timers(self) -> list[Fired]:
        """The timers of processing time, as `event_timers`."""
        return self._timers_of(1)

    def _timers_of(self, domain: int) -> list[Fired]:
        found = [Fired(key, namespace, at) for queues in self._keyed.timers.queues() for at, key, namespace in queues[domain]]
        return sorted(found, key=lambda timer: timer.timestamp)

    @property
    def state_entries(self) -> int:
        """How many cells of state there are, over all keys and windows."""
        return self._keyed.state.entries

    @property
    def in_flight(self) -> int:
        """How many elements and watermarks an async bolt holds, or how many elements a batching bolt."""
        if self._batches is not None:
            return self._batches.operator.held
        if not isinstance(self.operator, AsyncWaitOperator):
            raise UserError("only an async or batching bolt holds elements")
        return self.operator.in_flight

    @property
    def _windows(self) -> WindowOperator:
        if not isinstance(self.operator, WindowOperator):
            raise UserError("only a window bolt has windows")
        return self.operator

    @property
    def _keyed(self) -> KeyedOperator:
        if not isinstance(self.operator, KeyedOperator):
            raise UserError("only window and process bolts have state and timers")
        return self.operator
