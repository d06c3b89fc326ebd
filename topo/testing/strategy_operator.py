"""A `WatermarkStrategy` as an operator under test: `OutputWatermarks`, which tasks run, asked at its interval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from topo.api.watermarks import WatermarkStrategy
from topo.emission.output_watermarks import OutputWatermarks
from topo.operators.base import Operator
from topo.operators.time.clock import MAX_TIMESTAMP
from topo.operators.time.watermarks import InputStatus
from topo.wire.frames import MAX_WATERMARK

INTERVAL_MS = 200


def _raise(error: Exception) -> None:
    raise error


class StrategyOperator(Operator):
    """Gives each row its timestamp and makes watermarks from them; those of the input are swallowed, except the last one.

    Args:
        strategy: makes them.
        fields: names of the rows' fields.
    """

    def __init__(self, strategy: WatermarkStrategy, fields: Sequence[str]) -> None:
        self._strategy = strategy
        self._fields = fields

    def open(self) -> None:
        """Make the generator, and arm the timer that asks it."""
        clock = self.context.clock
        self._time = OutputWatermarks(self._strategy, self._fields, clock.now_ms, INTERVAL_MS / 1000, "test", _raise)
        self._time.reset(self._now_s, forget=False)
        self._arm()

    def process_element(self, key: Any, value: Any, timestamp: int | None) -> None:
        """Put out the row with its timestamp, then the watermark that it makes.

        Raises:
            EmitError: the strategy cannot read the timestamp.
        """
        (stamp,), refused = self._time.read([value], [None if self._time.reads else timestamp])
        for error in refused.values():
            raise error
        self.output.emit(value, stamp)
        self._time.show([value], [stamp], lambda _shown: self._tell())

    def process_watermark(self, timestamp: int) -> None:
        """Swallow it, unless it marks the end of the input."""
        if timestamp == MAX_TIMESTAMP:
            self._time.watermark(MAX_WATERMARK)
            self._tell()

    def process_idle(self, idle: bool) -> None:
        """Swallow it: idleness is for the strategy to find."""

    @property
    def _now_s(self) -> float:
        return self.context.clock.now_ms() / 1000

    def _arm(self) -> None:
        # A task asks when the interval has passed; a timer is due a millisecond after its timestamp.
        self.context.clock.register(self.context.clock.now_ms() + INTERVAL_MS - 1, self._on_time)

    def _on_time(self, _timestamp: int) -> None:
        self._time.probe(self._now_s)
        self._tell()
        self._arm()

    def _tell(self) -> None:
        for one in self._time.drain_updates():
            if not isinstance(one, InputStatus):
                self.output.watermark(one)
            elif one is InputStatus.IDLE:
                self.output.mark_idle()
            else:
                self.output.mark_active()
