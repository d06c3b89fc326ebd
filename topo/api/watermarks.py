"""Where event time comes from: which timestamp a tuple has, and how far the stream is complete.

A watermark t promises that no tuple with a timestamp <= t follows. A `WatermarkStrategy` makes timestamps and watermarks from
passing tuples, or a component emits them itself, with `emit(..., timestamp=)` and, in a spout, `emit_watermark`.
Timestamps are milliseconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from difflib import get_close_matches
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from topo.api.durations import duration_ms
from topo.deprecation import warn_renamed
from topo.errors import UserError

TimestampOf = str | int | Callable[[Any], int | None]
"""A field that holds the timestamp, its position, or a function of the tuple's values."""

_KINDS = ("bounded", "punctuated", "own", "none", "emitted")
_TAKES = {
    "punctuated": ("punctuated", "a function of values and timestamp"),
    "own": ("from_generator", "a class or function to call"),
}
"""For each kind with a generator the method that makes it, and its first argument."""
EXAMPLE = 'WatermarkStrategy.bounded_out_of_orderness("5s", timestamp="at")'
"""For texts of errors."""


class WatermarkGenerator(Protocol):
    """A user's own way to make watermarks. One for each task; all calls come from the task's thread."""

    def on_event(self, value: Any, timestamp: int, output: Any) -> None:
        """Called for each tuple with a timestamp; may call `output.watermark(t)`."""

    def on_periodic_emit(self, output: Any) -> None:
        """Called every `watermark_interval`; may call `output.watermark(t)`, `mark_idle()` and `mark_active()`."""


class WatermarkStrategy(Struct, frozen=True):
    """How watermarks are made; set on a spout, or on a bolt that gives a stream its event time.

        builder.set_spout("clicks", Clicks(), watermarks=WatermarkStrategy.bounded_out_of_orderness("5s", timestamp="at"))

    Attributes:
        kind: "bounded", "punctuated", "own", "none" or "emitted".
        bound_ms: how far timestamps lie back at most behind the latest one before.
        generator: makes the user's own generator, or gives a tuple's watermark (punctuated).
        timestamp: where a tuple's timestamp is; None: it has been given one when it was emitted.
        idleness_ms: time without a tuple after which the source is idle and holds no reader back; None: never.
        advances_when_idle: event time then advances with the clock.

    Raises:
        UserError: the parts are none that a strategy can have.
    """

    kind: str
    bound_ms: int = 0
    generator: Callable[..., Any] | None = None
    timestamp: TimestampOf | None = None
    idleness_ms: int | None = None
    advances_when_idle: bool = False

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise UserError(f"{self.kind!r} is no kind of watermark strategy; use a factory method, such as {EXAMPLE}")
        if self.kind == "emitted" and (self.bound_ms, self.timestamp, self.idleness_ms) != (0, None, None):
            what = "WatermarkStrategy.emitted() has no parts: the component emits its watermarks itself"
            raise UserError(f"{what}; have the spout call mark_idle() where it falls silent, or take another strategy")
        if self.bound_ms < 0:
            raise UserError(f"tuples come 0 s or more behind the latest timestamp; got a bound of {self.bound_ms} ms")
        if self.kind in _TAKES and not callable(self.generator):
            maker, what = _TAKES[self.kind]
            kind = type(self.generator).__name__
            raise UserError(f"WatermarkStrategy.{maker} takes {what}; got {self.generator!r} ({kind})")
        if self.kind == "own" and isinstance(self.generator, type):
            wanted = ("on_event", "on_periodic_emit")
            if missing := [name for name in wanted if not callable(getattr(self.generator, name, None))]:
                raise UserError(f"the watermark generator {self.generator.__name__} does not define {', '.join(missing)}; add it")
        where = self.timestamp
        if where is not None and (isinstance(where, bool) or (not isinstance(where, str | int) and not callable(where))):
            kind = type(where).__name__
            raise UserError(f"timestamp= is a field, a position or a function of a tuple's values; got {where!r} ({kind})")

    @classmethod
    def bounded_out_of_orderness(cls, bound: str | timedelta, timestamp: TimestampOf | None = None) -> WatermarkStrategy:
        """Tuples come at most `bound` behind the latest timestamp so far."""
        return cls("bounded", bound_ms=duration_ms(bound), timestamp=timestamp)

    @classmethod
    def monotonic_timestamps(cls, timestamp: TimestampOf | None = None) -> WatermarkStrategy:
        """Timestamps never fall."""
        return cls("bounded", timestamp=timestamp)

    @classmethod
    def punctuated(
        cls, watermark_of: Callable[[Any, int], int | None], timestamp: TimestampOf | None = None
    ) -> WatermarkStrategy:
        """Some tuples carry a watermark: `watermark_of(values, timestamp)` returns it, or None."""
        return cls("punctuated", generator=watermark_of, timestamp=timestamp)

    @classmethod
    def from_generator(cls, make: Callable[[], WatermarkGenerator], timestamp: TimestampOf | None = None) -> WatermarkStrategy:
        """Take a generator of your own; `make` is called once in each task."""
        return cls("own", generator=make, timestamp=timestamp)

    @classmethod
    def own(cls, make: Callable[[], WatermarkGenerator], timestamp: TimestampOf | None = None) -> WatermarkStrategy:
        """Old name of `from_generator`, until topo 0.2."""
        warn_renamed("WatermarkStrategy.own", "WatermarkStrategy.from_generator")
        return cls.from_generator(make, timestamp)

    @classmethod
    def monotonous_timestamps(cls, timestamp: TimestampOf | None = None) -> WatermarkStrategy:
        """Old name of `monotonic_timestamps`, until topo 0.2."""
        warn_renamed("WatermarkStrategy.monotonous_timestamps", "WatermarkStrategy.monotonic_timestamps")
        return cls.monotonic_timestamps(timestamp)

    @classmethod
    def timestamps_only(cls, timestamp: TimestampOf) -> WatermarkStrategy:
        """Give tuples timestamps, and make no watermarks."""
        return cls("none", timestamp=timestamp)

    @classmethod
    def emitted(cls) -> WatermarkStrategy:
        """Declare that the component gives event time itself: `emit(..., timestamp=)`, and in a spout `emit_watermark`.

        It changes nothing but the check that windows and timers of event time have event time. Needed where the code of the
        component does not show it, as with a timestamp that is given by position.
        """
        return cls("emitted")

    def with_idleness(self, timeout: str | timedelta, *, advance: bool = False) -> WatermarkStrategy:
        """Return this strategy for a source that may fall silent: after `timeout` without a tuple it holds no reader back.

        Args:
            timeout: how long, by the clock; the time in which the source is kept from emitting does not count.
            advance: event time advances with the clock as long as the source is silent: the watermark is the last one plus the
                time since the last tuple. So the last windows close without further tuples; a tuple that comes after that with
                an earlier timestamp is late.
        """
        timeout_ms = duration_ms(timeout)
        if timeout_ms <= 0:
            raise UserError(f"an idleness timeout is above zero; got {timeout!r}")
        return replace(self, idleness_ms=timeout_ms, advances_when_idle=advance)


def strategy_problem(strategy: Any, fields: Sequence[str] | None) -> str | None:
    """Return the mistake in the argument `watermarks=`, with the fix; None when it is valid.

    Args:
        strategy: the argument.
        fields: of the component's main stream; None when it has none.
    """
    if strategy is None:
        return None
    if not isinstance(strategy, WatermarkStrategy):
        given = f"watermarks={strategy!r:.80} ({type(strategy).__name__})"
        return f"{given} is no WatermarkStrategy; give one, such as {EXAMPLE}"
    if fields is None:
        what = "a watermark strategy reads the stream 'default', which is not among its outputs"
        return f"{what}; declare it, or leave watermarks= out"
    where, names = strategy.timestamp, ", ".join(map(repr, fields))
    if isinstance(where, str) and where not in fields:
        near = get_close_matches(where, fields, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"its fields are {names}"
        return f"the watermark strategy reads the timestamp from the field {where!r}, which it does not emit; {hint}"
    if isinstance(where, int) and not -len(fields) <= where < len(fields):
        return f"the watermark strategy reads the timestamp at position {where}, but there are {len(fields)} fields: {names}"
    return None
