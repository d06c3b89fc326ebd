"""Watermarks: how they come into being and how those of several inputs become one.

A watermark `t` promises that no element with a timestamp <= t follows. An *idle* input sends none and is not waited for. An
input that has ended has the watermark MAX_TIMESTAMP.

Two ways to combine, for two places. `WatermarkCombiner` stands before a task, over its input channels; a channel back from
idleness has to catch up before it counts. `WatermarkMultiplexer` is for a source made of several splits, each with a generator.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from enum import Enum
from typing import Any, Protocol

from topo.errors import TopoInternalError, UserError
from topo.operators.time.clock import MAX_TIMESTAMP, MIN_TIMESTAMP


class WatermarkOutput(Protocol):
    """Takes watermarks. A watermark put out while idle ends the idleness."""

    def watermark(self, timestamp: int) -> None:
        """Put out a watermark."""

    def mark_idle(self) -> None:
        """Say that nothing is to be waited for from here."""

    def mark_active(self) -> None:
        """Take the idleness back."""


class WatermarkSource:
    """Makes watermarks from the elements of one source or split."""

    def on_event(self, value: Any, timestamp: int, output: WatermarkOutput) -> None:
        """See one element, after it was forwarded; may put out a watermark."""

    def on_events(self, values: Sequence[Any], timestamps: Sequence[int], output: WatermarkOutput) -> None:
        """See several elements at once; the same as seeing one after the other."""
        for value, timestamp in zip(values, timestamps, strict=True):
            self.on_event(value, timestamp, output)

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Called every interval of processing time; may put out a watermark."""


class NoWatermarks(WatermarkSource):
    """Makes no watermarks: only the end of the input counts."""


class AlwaysIdle(WatermarkSource):
    """There will be no element."""

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        output.mark_idle()


class BoundedOutOfOrderness(WatermarkSource):
    """Elements come at most `bound_ms` of event time after one with a greater timestamp.

    The watermark is one millisecond less than the bound allows, because another element with the greatest timestamp may follow.
    """

    def __init__(self, bound_ms: int) -> None:
        if bound_ms < 0:
            raise UserError(f"out-of-orderness is bounded by zero or more; got {bound_ms} ms")
        self._behind_ms = bound_ms + 1
        self._greatest = MIN_TIMESTAMP + self._behind_ms

    def on_event(self, value: Any, timestamp: int, output: WatermarkOutput) -> None:
        if timestamp > self._greatest:
            self._greatest = timestamp

    def on_events(self, values: Sequence[Any], timestamps: Sequence[int], output: WatermarkOutput) -> None:
        if timestamps:
            self._greatest = max(self._greatest, max(timestamps))

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        output.watermark(self._greatest - self._behind_ms)


class PunctuatedWatermarks(WatermarkSource):
    """Some elements carry a watermark: `watermark_of(value, timestamp)` returns it, or None."""

    def __init__(self, watermark_of: Callable[[Any, int], int | None]) -> None:
        self._watermark_of = watermark_of

    def on_event(self, value: Any, timestamp: int, output: WatermarkOutput) -> None:
        watermark = self._watermark_of(value, timestamp)
        if watermark is not None:
            output.watermark(watermark)


class _LastWatermark:
    """Passes everything on and keeps the greatest watermark."""

    output: WatermarkOutput

    def __init__(self) -> None:
        self.last: int | None = None

    def watermark(self, timestamp: int) -> None:
        if timestamp > MIN_TIMESTAMP and (self.last is None or timestamp > self.last):
            self.last = timestamp
        self.output.watermark(timestamp)

    def mark_idle(self) -> None:
        self.output.mark_idle()

    def mark_active(self) -> None:
        self.output.mark_active()


class WatermarksWithIdleness(WatermarkSource):
    """Another generator, and idleness when no element has come for a time.

    The countdown begins at the first periodic check without an element since the check before. While idle the inner generator is
    not asked; idleness is put out once, and ends with the next watermark.

    Args:
        inner: the generator.
        timeout_ms: how long without an element is idle; above zero.
        now_ms: a clock that stands still while the source is kept from emitting.
        advances: while idle each check puts out the last watermark plus the time since the countdown began, and idleness again.
    """

    def __init__(self, inner: WatermarkSource, timeout_ms: int, now_ms: Callable[[], int], *, advances: bool = False) -> None:
        if timeout_ms <= 0:
            raise UserError(f"an idle timeout must be above zero; got {timeout_ms} ms")
        self._inner = inner
        self._timeout_ms = timeout_ms
        self._now_ms = now_ms
        self._seen_since_check = False
        self._quiet_since: int | None = None
        self._is_idle = False
        self._noted = _LastWatermark() if advances else None

    def on_event(self, value: Any, timestamp: int, output: WatermarkOutput) -> None:
        self._note_activity()
        self._inner.on_event(value, timestamp, self._through(output))

    def on_events(self, values: Sequence[Any], timestamps: Sequence[int], output: WatermarkOutput) -> None:
        if values:
            self._inner.on_events(values, timestamps, self._through(output))
            self._note_activity()

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        if not self._has_gone_idle():
            self._inner.on_periodic_emit(self._through(output))
            return
        if self._noted is not None and self._noted.last is not None and self._quiet_since is not None:
            output.watermark(min(self._noted.last + self._now_ms() - self._quiet_since, MAX_TIMESTAMP - 1))
            output.mark_idle()
        elif not self._is_idle:
            output.mark_idle()
        self._is_idle = True

    def _through(self, output: WatermarkOutput) -> WatermarkOutput:
        """Return the output, or one before it that notes the last watermark where that is needed."""
        if self._noted is None:
            return output
        self._noted.output = output
        return self._noted

    def _note_activity(self) -> None:
        self._seen_since_check = True
        self._is_idle = False

    def _has_gone_idle(self) -> bool:
        if self._seen_since_check:
            self._seen_since_check = False
            self._quiet_since = None
            return False
        if self._quiet_since is None:
            self._quiet_since = self._now_ms()
            return False
        return self._now_ms() - self._quiet_since > self._timeout_ms


class InputStatus(Enum):
    """Whether watermarks of an input, or of all inputs together, are to be waited for."""

    ACTIVE = "active"
    IDLE = "idle"


class _Channel:
    __slots__ = ("is_aligned", "is_idle", "watermark")

    def __init__(self) -> None:
        self.watermark = MIN_TIMESTAMP
        self.is_idle = False
        self.is_aligned = True


class WatermarkCombiner:
    """The watermark of a task: the least one of its input channels, as far as they count.

    A channel is active or idle, and *aligned* or not. An idle one is not aligned. Back from idleness it is aligned only
    when its watermark has caught up with the output of the meantime; until then it does not count, so the result never regresses.

    Invariants: an aligned channel is active and its watermark is at least the last one put out; the output only grows; the
    combiner is idle exactly when all channels are.

    Every method returns the updates to pass on, in order: watermarks as ints, changes of status as `InputStatus`.

    Args:
        channels: ids of the input channels.
    """

    def __init__(self, channels: Iterable[Hashable]) -> None:
        self._channels: dict[Hashable, _Channel] = {channel: _Channel() for channel in channels}
        self.last_watermark = MIN_TIMESTAMP
        self.is_idle = False

    def watermark(self, channel: Hashable, timestamp: int) -> list[int | InputStatus]:
        """Take a watermark of a channel. One of an idle channel is ignored altogether."""
        source = self._channels[channel]
        if source.is_idle or timestamp <= source.watermark:
            return []
        source.watermark = timestamp
        if timestamp >= self.last_watermark:
            source.is_aligned = True
        return self._new_minimum()

    def idle(self, channel: Hashable) -> list[int | InputStatus]:
        """Take the news that a channel is idle. When it was the last active one, the most any channel had reached is put out."""
        source = self._channels[channel]
        if source.is_idle:
            return []
        source.is_idle = True
        source.is_aligned = False
        if all(other.is_idle for other in self._channels.values()):
            self.is_idle = True
            return [*self._raised_to(max(other.watermark for other in self._channels.values())), InputStatus.IDLE]
        return self._new_minimum()

    def active(self, channel: Hashable) -> list[int | InputStatus]:
        """Take the news that a channel is active again."""
        source = self._channels[channel]
        if not source.is_idle:
            return []
        source.is_idle = False
        source.is_aligned = source.watermark >= self.last_watermark
        was_idle, self.is_idle = self.is_idle, False
        return [InputStatus.ACTIVE, *self._new_minimum()] if was_idle else self._new_minimum()

    def finish(self, channel: Hashable) -> list[int | InputStatus]:
        """Take the end of a channel, which is its last watermark; an idle channel that ends is not idle any more."""
        return [*self.active(channel), *self.watermark(channel, MAX_TIMESTAMP)]

    @property
    def counting(self) -> dict[Hashable, int]:
        """The watermarks of the channels that count and have not ended."""
        counting = ((channel, source.watermark) for channel, source in self._channels.items() if source.is_aligned)
        return {channel: watermark for channel, watermark in counting if watermark < MAX_TIMESTAMP}

    @property
    def held_back_by(self) -> Hashable | None:
        """The channel that the watermark is waiting for; None when none counts or all have ended."""
        counting = self.counting
        return min(counting, key=counting.__getitem__, default=None)

    def validate(self) -> None:
        """Check the invariants.

        Raises:
            TopoInternalError: one does not hold.
        """
        channels = self._channels.values()
        if any(source.is_aligned and (source.is_idle or source.watermark < self.last_watermark) for source in channels):
            raise TopoInternalError("an idle channel, or a channel that is behind, is aligned")
        if self._channels and self.is_idle != all(source.is_idle for source in channels):
            raise TopoInternalError("the combiner's idleness is not that of its channels")

    def _new_minimum(self) -> list[int | InputStatus]:
        aligned = [source.watermark for source in self._channels.values() if source.is_aligned]
        return self._raised_to(min(aligned)) if aligned else []

    def _raised_to(self, timestamp: int) -> list[int | InputStatus]:
        if timestamp <= self.last_watermark:
            return []
        self.last_watermark = timestamp
        return [timestamp]


class _Partial:
    __slots__ = ("is_idle", "watermark")

    def __init__(self) -> None:
        self.watermark = MIN_TIMESTAMP
        self.is_idle = False

    def raise_to(self, timestamp: int) -> bool:
        self.is_idle = False
        if timestamp <= self.watermark:
            return False
        self.watermark = timestamp
        return True


class WatermarkMultiplexer:
    """Combines the watermarks of the splits of one source.

    The watermark of a split only grows. The combined one is the least of the splits that are not idle, and only grows as well.

    Each split has two outputs: the immediate one is combined at once (watermarks made from elements), the deferred one at the
    next `on_periodic_emit` (so that all splits are asked before anything is put out).
    """

    def __init__(self, output: WatermarkOutput) -> None:
        self._output = output
        self._parts: dict[Hashable, _Partial] = {}
        self._watermark = MIN_TIMESTAMP

    def register(self, split: Hashable) -> None:
        """Add a split, which holds the watermark back until it has sent one.

        Raises:
            UserError: it is registered already.
        """
        if split in self._parts:
            raise UserError(f"split {split!r} is registered already")
        self._parts[split] = _Partial()

    def unregister(self, split: Hashable) -> bool:
        """Remove a split; what that changes is put out by the next update. Returns whether it was there."""
        return self._parts.pop(split, None) is not None

    def immediate(self, split: Hashable) -> WatermarkOutput:
        """Return the output of a split for watermarks that are combined at once."""
        return _SplitOutput(self, self._parts[split], deferred=False)

    def deferred(self, split: Hashable) -> WatermarkOutput:
        """Return the output of a split for watermarks that are combined at the next tick."""
        return _SplitOutput(self, self._parts[split], deferred=True)

    def on_periodic_emit(self) -> None:
        """Combine, and put out the changes."""
        self._update()

    @property
    def watermarks(self) -> dict[Hashable, int]:
        """The watermark of each split."""
        return {split: part.watermark for split, part in self._parts.items()}

    @property
    def idle(self) -> set[Hashable]:
        """The splits that are idle."""
        return {split for split, part in self._parts.items() if part.is_idle}

    @property
    def is_idle(self) -> bool:
        """Whether all splits are idle."""
        return all(part.is_idle for part in self._parts.values())

    def _update(self) -> None:
        if not self._parts:
            return
        counting = [part.watermark for part in self._parts.values() if not part.is_idle]
        if not counting:
            self._output.mark_idle()
        elif min(counting) > self._watermark:
            self._watermark = min(counting)
            self._output.watermark(self._watermark)


class _SplitOutput:
    def __init__(self, multiplexer: WatermarkMultiplexer, part: _Partial, deferred: bool) -> None:
        self._multiplexer = multiplexer
        self._part = part
        self._deferred = deferred

    def watermark(self, timestamp: int) -> None:
        grown = self._part.raise_to(timestamp)
        if grown and not self._deferred and timestamp > self._multiplexer._watermark:
            self._multiplexer._update()

    def mark_idle(self) -> None:
        self._set_idle(True)

    def mark_active(self) -> None:
        self._set_idle(False)

    def _set_idle(self, idle: bool) -> None:
        self._part.is_idle = idle
        if not self._deferred:
            self._multiplexer._update()
