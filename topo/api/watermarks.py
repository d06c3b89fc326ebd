"""Where event time comes from: which timestamp a tuple has, and how far the stream is complete.

A watermark t says: no tuple with a timestamp <= t follows. A spout gives timestamps with `emit(..., timestamp=)` and watermarks
with `emit_watermark`, or a `WatermarkStrategy` makes both from what passes. Timestamps are milliseconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Protocol

from topo.api.durations import duration_ms
from topo.errors import UserError

TimestampOf = str | int | Callable[[Any], int | None]
"""A field that holds the timestamp, its position, or a function of the tuple's values."""


class WatermarkGenerator(Protocol):
    """A user's own way to make watermarks. One for each task; all calls come from the task's thread."""

    def on_event(self, value: Any, timestamp: int, output: Any) -> None:
        """Called for each tuple with a timestamp; may call `output.watermark(t)`."""

    def on_periodic_emit(self, output: Any) -> None:
        """Called every `watermark_interval`; may call `output.watermark(t)`, `mark_idle()` and `mark_active()`."""


@dataclass(frozen=True, slots=True)
class WatermarkStrategy:
    """How watermarks are made; set on a spout, or on a bolt that gives a stream its event time.

        builder.set_spout("clicks", Clicks(), watermarks=WatermarkStrategy.bounded_out_of_orderness("5s", timestamp="at"))

    Attributes:
        kind: "bounded", "punctuated", "own" or "none".
        bound_ms: how far timestamps lie back at most behind the latest one before.
        generator: makes the user's own generator, or gives a tuple's watermark (punctuated).
        timestamp: where a tuple's timestamp is; None: it has been given one when it was emitted.
        idleness_ms: after so long without a tuple the source holds nobody back; None: never.
    """

    kind: str
    bound_ms: int = 0
    generator: Callable[..., Any] | None = None
    timestamp: TimestampOf | None = None
    idleness_ms: int | None = None

    @classmethod
    def bounded_out_of_orderness(cls, bound: str | timedelta, timestamp: TimestampOf | None = None) -> WatermarkStrategy:
        """Tuples come at most `bound` behind the latest timestamp so far."""
        return cls("bounded", bound_ms=duration_ms(bound), timestamp=timestamp)

    @classmethod
    def monotonous_timestamps(cls, timestamp: TimestampOf | None = None) -> WatermarkStrategy:
        """Timestamps never fall."""
        return cls("bounded", timestamp=timestamp)

    @classmethod
    def punctuated(
        cls, watermark_of: Callable[[Any, int], int | None], timestamp: TimestampOf | None = None
    ) -> WatermarkStrategy:
        """Some tuples carry a watermark: `watermark_of(values, timestamp)` returns it, or None."""
        return cls("punctuated", generator=watermark_of, timestamp=timestamp)

    @classmethod
    def own(cls, make: Callable[[], WatermarkGenerator], timestamp: TimestampOf | None = None) -> WatermarkStrategy:
        """Take a generator of your own; `make` is called once in each task."""
        return cls("own", generator=make, timestamp=timestamp)

    @classmethod
    def timestamps_only(cls, timestamp: TimestampOf) -> WatermarkStrategy:
        """Give tuples timestamps, and make no watermarks."""
        return cls("none", timestamp=timestamp)

    def with_idleness(self, timeout: str | timedelta) -> WatermarkStrategy:
        """Return this strategy for a source that may fall silent: after `timeout` it holds nobody back."""
        timeout_ms = duration_ms(timeout)
        if timeout_ms <= 0:
            raise UserError(f"an idleness timeout is above zero; got {timeout!r}")
        return replace(self, idleness_ms=timeout_ms)
