"""Windows over time, and the adapter of typed aggregates to the window bolt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final

from topo.api.aggregates import AggregateFunction, Together
from topo.api.durations import duration_ms
from topo.api.triggers import (
    CountTrigger,
    OnMergeContext,
    ProcessingTimeoutTrigger,
    PurgingTrigger,
    Trigger,
    TriggerContext,
    TriggerLike,
    TriggerResult,
)
from topo.api.windows import CountWindows, SessionWindows, SlidingWindows, TumblingWindows, WindowStagger
from topo.errors import UserError
from topo.streams.aggregates import Aggregate, ValueFold
from topo.streams.records import Layout

TimeWindows = TumblingWindows | SlidingWindows | SessionWindows
"""Windows with a start and an end in time."""
_EARLY: Final = "early"


def Tumbling(size: str | timedelta, *, offset: str | timedelta = "0s", clock: str = "event") -> TumblingWindows:
    """Declare windows of one size, one after the other.

    Args:
        size: such as "10m".
        offset: shifts them against the epoch.
        clock: "event" for event time, "processing" for the clock of the machine.

    Raises:
        UserError: the parts do not go together.
    """
    return TumblingWindows(duration_ms(size), duration_ms(offset), WindowStagger.ALIGNED, _is_event_time(clock))


def Sliding(
    size: str | timedelta, slide: str | timedelta, *, offset: str | timedelta = "0s", clock: str = "event"
) -> SlidingWindows:
    """Declare windows of `size` that start every `slide`. Arguments and errors as of `Tumbling`."""
    return SlidingWindows(duration_ms(size), duration_ms(slide), duration_ms(offset), _is_event_time(clock))


def Session(gap: str | timedelta, *, clock: str = "event") -> SessionWindows:
    """Declare windows that end when no record of the key has come for `gap`. Errors as of `Tumbling`."""
    return SessionWindows(duration_ms(gap), _is_event_time(clock))


def Rows(size: int, slide: int | None = None) -> CountWindows:
    """Declare windows of `size` records of a key, one after another, or of the last `size` every `slide` records.

    Results have the numbers of the records as `start` and `end`, and no event time. Records of a window that is not full when the
    input ends give no result.

    Raises:
        UserError: a number is not above zero.
    """
    if type(size) is not int or (slide is not None and type(slide) is not int):
        raise UserError(f"Rows takes whole numbers of records; got {size!r}, {slide!r}")
    return CountWindows(size, slide)


def batch_trigger(size: int, within: str | timedelta) -> TriggerLike:
    """Return the trigger of `batch`: at `size` records, or when `within` has passed since the first; both begin a new batch."""
    return PurgingTrigger(ProcessingTimeoutTrigger(CountTrigger(size), duration_ms(within)))


class EarlyTrigger(Trigger):
    """Fires at the end of the window, and when a period of the clock has passed since the first record not shown yet."""

    can_merge = True

    def __init__(self, period_ms: int, *, is_event_time: bool) -> None:
        self._period_ms, self._is_event_time = period_ms, is_event_time

    def on_element(self, value: Any, timestamp: int, window: Any, context: TriggerContext) -> TriggerResult:
        if self._is_event_time and window.max_timestamp <= context.current_watermark:
            return TriggerResult.FIRE
        self._wait_for_end(window, context)
        if context.get(_EARLY) is None:
            context.put(_EARLY, context.current_processing_time + self._period_ms)
            context.register_processing_time_timer(context.get(_EARLY))
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Any, context: TriggerContext) -> TriggerResult:
        if not self._is_event_time or time != window.max_timestamp:
            return TriggerResult.CONTINUE
        # The result of the end has all records; with a lateness the window outlives it.
        self._forget_early(context)
        return TriggerResult.FIRE

    def on_processing_time(self, time: int, window: Any, context: TriggerContext) -> TriggerResult:
        is_early = time == context.get(_EARLY)
        if is_early:
            context.forget(_EARLY)
        is_end = not self._is_event_time and time == window.max_timestamp
        return TriggerResult.FIRE if is_early or is_end else TriggerResult.CONTINUE

    def on_merge(self, window: Any, context: OnMergeContext) -> None:
        if (early := context.merge(_EARLY, min)) is not None:
            context.register_processing_time_timer(early)
        if not self._is_event_time or window.max_timestamp > context.current_watermark:
            self._wait_for_end(window, context)

    def clear(self, window: Any, context: TriggerContext) -> None:
        self._forget_early(context)
        (context.delete_event_time_timer if self._is_event_time else context.delete_processing_time_timer)(window.max_timestamp)

    def _forget_early(self, context: TriggerContext) -> None:
        if (early := context.get(_EARLY)) is not None:
            context.delete_processing_time_timer(early)
            context.forget(_EARLY)

    def _wait_for_end(self, window: Any, context: TriggerContext) -> None:
        (context.register_event_time_timer if self._is_event_time else context.register_processing_time_timer)(
            window.max_timestamp
        )


def _is_event_time(clock: str) -> bool:
    if clock not in ("event", "processing"):
        raise UserError(f"clock={clock!r}: windows go by clock='event' or clock='processing'")
    return clock == "event"


class RecordAggregate(AggregateFunction):
    """Typed aggregates as the one aggregate of a window bolt, whose elements are rows of a key and a record.

    Args:
        parts: the aggregates.
        into: makes the result of theirs; without it one part gives its own, and several a tuple.
        layout: of the records.
    """

    fields = ("value",)
    is_atomic = True

    def __init__(self, parts: Sequence[Aggregate[Any, Any]], into: Callable[..., Any] | None, layout: Layout) -> None:
        self.parts = tuple(parts)
        self._into = into
        self._layout = layout

    def bind(self, fields: tuple[str, ...]) -> AggregateFunction:
        record = self._record = self._layout.unpacker(1)
        over = [part.over_field(self._layout) if isinstance(part, ValueFold) else None for part in self.parts]
        if all(over):
            self.over_fields = Together(**{f"part{number}": one for number, one in enumerate(over) if one is not None})
        if len(self.parts) == 1:
            # Called for each record, or each result: the same as below, without its loop.
            add, result, into = self.parts[0].add, self.parts[0].result, self._into

            def get_result(accumulator: Any) -> Any:
                return result(accumulator[0]) if into is None else into(result(accumulator[0]))

            self.get_result = get_result  # type: ignore[method-assign]
            self.add = lambda value, kept: (add(kept[0], record(value)),)  # type: ignore[assignment, method-assign]
        return self

    def create_accumulator(self) -> tuple[Any, ...]:
        return tuple([part.create() for part in self.parts])

    def add(self, value: Any, accumulator: Any) -> tuple[Any, ...]:
        record = self._record(value)
        return tuple([part.add(one, record) for part, one in zip(self.parts, accumulator, strict=True)])

    def get_result(self, accumulator: Any) -> Any:
        results = [part.result(one) for part, one in zip(self.parts, accumulator, strict=True)]
        if self._into is not None:
            return self._into(*results)
        return results[0] if len(results) == 1 else tuple(results)

    def merge(self, first: Any, second: Any) -> tuple[Any, ...]:
        return tuple([part.merge(one, other) for part, one, other in zip(self.parts, first, second, strict=True)])


class ReduceRecords(Aggregate[Any, Any]):
    """A function of two records that gives one. The accumulator has the record as a plain value; it is empty before the first."""

    def __init__(self, function: Callable[[Any, Any], Any], layout: Layout, place: str) -> None:
        self._function, self._layout = function, layout
        self._pack, self._unpack = layout.keeper(place, given=True)

    def create(self) -> Any:
        return ()

    def add(self, accumulator: Any, record: Any) -> Any:
        if accumulator:
            record = self._function(self._unpack(accumulator[0]), record)
        return (self._pack(record),)

    def result(self, accumulator: Any) -> Any:
        return self._unpack(accumulator[0])

    def merge(self, first: Any, second: Any) -> Any:
        if not first or not second:
            return first or second
        return (self._pack(self._function(self._unpack(first[0]), self._unpack(second[0]))),)


class TopRecords(Aggregate[Any, Any]):
    """The records with the greatest values of `by`, the greatest first; of equal ones those that came first."""

    def __init__(self, n: int, by: Callable[[Any], Any], layout: Layout, place: str) -> None:
        self._n, self._by = n, by
        self._pack, self._unpack = layout.keeper(place, given=True)

    def create(self) -> Any:
        return ()

    def add(self, accumulator: Any, record: Any) -> Any:
        return self._cut((*accumulator, (self._by(record), self._pack(record))))

    def result(self, accumulator: Any) -> Any:
        return [self._unpack(packed) for _by, packed in accumulator]

    def merge(self, first: Any, second: Any) -> Any:
        return self._cut((*first, *second))

    def _cut(self, entries: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(sorted(entries, key=lambda entry: entry[0], reverse=True)[: self._n])
