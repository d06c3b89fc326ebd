"""Operators that give elements their timestamps and put watermarks among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from topo.errors import UserError
from topo.operators.base import Operator, Output
from topo.operators.time.clock import MAX_TIMESTAMP, MIN_TIMESTAMP
from topo.operators.time.watermarks import WatermarkGenerator

TimestampAssigner = Callable[[Any, int], int]
"""Called with the element and the timestamp it has (MIN_TIMESTAMP if none); returns its event time in milliseconds."""


class MonotoneWatermarks:
    """A watermark output that drops what does not advance, says idle once, and is active again by a watermark or an element.

    Args:
        output: where the rest goes.
    """

    def __init__(self, output: Output) -> None:
        self.last_watermark = MIN_TIMESTAMP
        self.is_idle = False
        self._output = output

    def watermark(self, timestamp: int) -> None:
        """Put out a watermark if it is greater than the last."""
        if timestamp > self.last_watermark:
            self.last_watermark = timestamp
            self.mark_active()
            self._output.watermark(timestamp)

    def mark_idle(self) -> None:
        """Put out that nothing is to be waited for, unless that was said."""
        if not self.is_idle:
            self.is_idle = True
            self._output.mark_idle()

    def mark_active(self) -> None:
        """Take the idleness back, if there is any."""
        if self.is_idle:
            self.is_idle = False
            self._output.mark_active()


class TimestampsAndWatermarks(Operator):
    """Gives each element its timestamp and makes watermarks from them; those of the input are swallowed, except the last one.

    Args:
        generator: makes the watermarks; a new one for each operator.
        timestamp_of: gives the timestamp; None keeps the one that elements have.
        interval_ms: processing time between two periodic watermarks; 0 for none.
        progressive: False where the whole input is there before anything is asked: no watermarks but the last.
    """

    def __init__(
        self,
        generator: WatermarkGenerator,
        timestamp_of: TimestampAssigner | None = None,
        interval_ms: int = 200,
        progressive: bool = True,
    ) -> None:
        self._generator = generator if progressive else WatermarkGenerator()
        self._timestamp_of = timestamp_of
        self._interval_ms = interval_ms if progressive else 0

    def open(self) -> None:
        """Arm the periodic timer."""
        self._watermarks = MonotoneWatermarks(self.output)
        self._arm()

    def process_element(self, key: Any, value: Any, timestamp: int | None) -> None:
        """Forward the element with its timestamp; the generator sees it afterwards."""
        known = MIN_TIMESTAMP if timestamp is None else timestamp
        assigned = known if self._timestamp_of is None else self._timestamp_of(value, known)
        self.output.emit(value, assigned)
        self._generator.on_event(value, assigned, self._watermarks)

    def process_watermark(self, timestamp: int) -> None:
        """Swallow it, unless it says that the input has ended."""
        if timestamp == MAX_TIMESTAMP:
            self._watermarks.watermark(timestamp)

    def process_idle(self, idle: bool) -> None:
        """Swallow it: idleness is for the generator to find."""

    def end_of_input(self) -> None:
        """Ask the generator a last time."""
        self._generator.on_periodic_emit(self._watermarks)

    def _arm(self) -> None:
        if self._interval_ms > 0:
            self.context.clock.register(self.context.clock.now_ms() + self._interval_ms, self._on_time)

    def _on_time(self, timestamp: int) -> None:
        self._generator.on_periodic_emit(self._watermarks)
        self._arm()


class IngestionTime(Operator):
    """Event time is the moment at which an element comes by; watermarks are the clock rounded down to the interval.

    A watermark goes out at most once an interval: by a timer, or right after an element that comes first. Rounding keeps the
    watermarks of several tasks in step.

    Args:
        interval_ms: processing time between two watermarks; above zero.
    """

    def __init__(self, interval_ms: int = 200) -> None:
        if interval_ms <= 0:
            raise UserError(f"ingestion time needs an interval above zero; got {interval_ms} ms")
        self._interval_ms = interval_ms
        self._due_ms = 0

    def open(self) -> None:
        """Arm the timer."""
        self._ended = False
        self._arm()

    def process_element(self, key: Any, value: Any, timestamp: int | None) -> None:
        """Forward the element with the clock as its timestamp, then the watermark if that is overdue."""
        now_ms = self.context.clock.now_ms()
        self.output.emit(value, now_ms)
        self._emit_if_due(now_ms)

    def process_watermark(self, timestamp: int) -> None:
        """Swallow it, unless it says that the input has ended; nothing follows then."""
        if timestamp == MAX_TIMESTAMP and not self._ended:
            self._ended = True
            self.output.watermark(timestamp)

    def _arm(self) -> None:
        self.context.clock.register(self.context.clock.now_ms() + self._interval_ms, self._on_time)

    def _on_time(self, timestamp: int) -> None:
        self._emit_if_due(self.context.clock.now_ms())
        if not self._ended:
            self._arm()

    def _emit_if_due(self, now_ms: int) -> None:
        if now_ms > self._due_ms and not self._ended:
            rounded = now_ms - now_ms % self._interval_ms
            self._due_ms = rounded + self._interval_ms
            self.output.watermark(rounded)


class SourceOutput:
    """What a source emits with: elements with timestamps, watermarks, idleness, and the end.

    A source that is cancelled simply stops calling: only `end_of_input` puts out the last watermark.
    """

    def __init__(self, output: Output) -> None:
        self._output = output
        self._watermarks = MonotoneWatermarks(output)
        self._ended = False

    def emit(self, value: Any, timestamp: int | None = None) -> None:
        """Emit an element; the source is active again by it."""
        self._watermarks.mark_active()
        self._output.emit(value, timestamp)

    def emit_watermark(self, timestamp: int) -> None:
        """Promise that no element with a timestamp <= `timestamp` follows; nothing happens when that was promised before."""
        self._watermarks.watermark(timestamp)

    def mark_idle(self) -> None:
        """Say that nothing is to be waited for until the next element or watermark."""
        self._watermarks.mark_idle()

    def end_of_input(self) -> None:
        """Put out the last watermark, after everything else; once."""
        self._watermarks.watermark(MAX_TIMESTAMP)
