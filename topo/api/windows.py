"""Declarations of windows: the windows themselves, their assigners, and the functions over their contents.

Everything here is a description; `topo.operators` gives it behaviour. Windows, triggers and evictors keep Flink's names and
rules. A user's own assigner, trigger or evictor derives from the base class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import timedelta
from enum import Enum
from typing import Any, ClassVar, Final, NamedTuple, Protocol

from msgspec import Struct

from topo.api.durations import duration_ms, is_whole
from topo.api.evictors import CountEvictor, DeltaEvictor, Evictor, EvictorLike, TimeEvictor, TimestampedValue
from topo.api.metrics import Metrics
from topo.api.streams import DEFAULT_STREAM
from topo.api.triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    DeltaTrigger,
    EndOfStreamTrigger,
    EventTimeTrigger,
    NeverTrigger,
    OnMergeContext,
    ProcessingTimeoutTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    Trigger,
    TriggerContext,
    TriggerLike,
    TriggerResult,
)
from topo.api.tuples import Tuple
from topo.errors import UserError

__all__ = [
    "AssignerLike", "ContinuousEventTimeTrigger", "ContinuousProcessingTimeTrigger", "CountEvictor", "CountTrigger",
    "CountWindows", "DeltaEvictor", "DeltaTrigger", "EndOfStreamTrigger", "EventTimeSessionWindows", "EventTimeTrigger",
    "Evictor", "EvictorLike", "GlobalWindow", "GlobalWindows", "NeverTrigger", "OnMergeContext", "ProcessWindowFunction",
    "ProcessingTimeSessionWindows", "ProcessingTimeTrigger", "ProcessingTimeoutTrigger", "PurgingTrigger", "ReduceFunction",
    "SessionWindows", "SlidingEventTimeWindows", "SlidingProcessingTimeWindows", "SlidingWindows", "TimeEvictor",
    "TimeWindow", "TimestampedValue", "Trigger", "TriggerContext", "TriggerLike", "TriggerResult", "TumblingEventTimeWindows",
    "TumblingProcessingTimeWindows", "TumblingWindows", "Window", "WindowAssigner", "WindowCollector", "WindowContext",
    "WindowStagger",
]  # fmt: skip

_MAX_TIMESTAMP: Final = 2**63 - 1

Duration = str | timedelta

MOST_WINDOWS: Final = 10_000
"""Windows that one element may be in."""


class TimeWindow(NamedTuple):
    """The half-open interval [start, end) in milliseconds. Equal, ordered and hashed by its bounds."""

    start: int
    end: int

    @property
    def max_timestamp(self) -> int:
        """The last millisecond that belongs to the window, and that there is."""
        end = self.end
        return end - 1 if end <= _MAX_TIMESTAMP else _MAX_TIMESTAMP

    def intersects(self, other: TimeWindow) -> bool:
        """Whether the two overlap or touch; windows that only touch are merged too."""
        return self.start <= other.end and self.end >= other.start

    def cover(self, other: TimeWindow) -> TimeWindow:
        """The smallest window that contains both."""
        return TimeWindow(min(self.start, other.start), max(self.end, other.end))


class GlobalWindow(NamedTuple):
    """The one window that holds everything. It never ends, so it is never cleaned up; all instances are equal."""

    @property
    def max_timestamp(self) -> int:
        """The end of time."""
        return _MAX_TIMESTAMP


Window = TimeWindow | GlobalWindow


def merge_time_windows(windows: Iterable[TimeWindow]) -> list[tuple[TimeWindow, list[TimeWindow]]]:
    """Group windows that overlap or touch.

    Returns:
        For each group of two or more *distinct* windows: the window that covers it, and its members by start.
    """
    groups: list[tuple[TimeWindow, list[TimeWindow]]] = []
    for window in sorted(set(windows)):
        if groups and groups[-1][0].intersects(window):
            cover, members = groups[-1]
            members.append(window)
            groups[-1] = (cover.cover(window), members)
        else:
            groups.append((window, [window]))
    return [group for group in groups if len(group[1]) > 1]


class WindowAssigner(ABC):
    """Decides which windows an element belongs to. Derive from it for an assigner of your own.

    Attributes:
        is_event_time: whether lateness and clean-up go by the watermark (else by the clock).
        is_merging: whether `merge` merges windows of one key; they have to be time windows then.
    """

    is_event_time: bool = True
    is_merging: bool = False

    @abstractmethod
    def assign(self, value: Any, timestamp: int, clock: Callable[[], int]) -> Sequence[Window]:
        """Return the windows of one element, in the order in which they are to be processed.

        Args:
            value: the element.
            timestamp: its event time in milliseconds; -2**63 when it has none.
            clock: gives the processing time in milliseconds.
        """

    def merge(self, windows: Sequence[TimeWindow]) -> Iterable[tuple[TimeWindow, Collection[TimeWindow]]]:
        """Choose the windows of a key to merge. By default those that overlap or touch.

        Asked for each window of an element when `is_merging`, and only then.

        Args:
            windows: those in flight, and last the element's, which may be among them already.

        Returns:
            For each merge its result, and the windows that become it, each in one merge at most. The result may not be
            over already: its end, with the allowed lateness, must be ahead of the watermark (of the clock in processing time).
        """
        return merge_time_windows(windows)

    @abstractmethod
    def default_trigger(self) -> TriggerLike:
        """The trigger that is used when none is declared."""


class WindowStagger(Enum):
    """Shift of the windows of different tasks against each other, so that not all fire at the same moment."""

    ALIGNED = "aligned"
    """Not at all."""
    NATURAL = "natural"
    """By how far the clock was into its own window when the task's first element arrived."""
    RANDOM = "random"
    """By a random part of the size."""


class TumblingWindows(Struct, frozen=True):
    """Windows of one size, one after the other without gap. Made by the `of` of the two classes below."""

    size_ms: int
    offset_ms: int
    stagger: WindowStagger
    is_event_time: bool

    def __post_init__(self) -> None:
        if abs(self.offset_ms) >= self.size_ms:
            raise UserError(f"tumbling windows need |offset| < size; got offset {self.offset_ms} ms, size {self.size_ms} ms")


class TumblingEventTimeWindows:
    """Tumbling windows over event time."""

    @staticmethod
    def of(size: Duration, *, offset: Duration = "0s", stagger: WindowStagger | str = WindowStagger.ALIGNED) -> TumblingWindows:
        """Declare windows of `size`, shifted by `offset` against the epoch (a time zone, say)."""
        return TumblingWindows(duration_ms(size), duration_ms(offset), WindowStagger(stagger), is_event_time=True)


class TumblingProcessingTimeWindows:
    """Tumbling windows over the clock of the machine; the timestamps of the elements are not looked at."""

    @staticmethod
    def of(size: Duration, *, offset: Duration = "0s", stagger: WindowStagger | str = WindowStagger.ALIGNED) -> TumblingWindows:
        """Declare windows of `size`, shifted by `offset` against the epoch."""
        return TumblingWindows(duration_ms(size), duration_ms(offset), WindowStagger(stagger), is_event_time=False)


class SlidingWindows(Struct, frozen=True):
    """Windows of one size that start every `slide`. A slide above the size leaves gaps: an element may be in no window."""

    size_ms: int
    slide_ms: int
    offset_ms: int
    is_event_time: bool

    def __post_init__(self) -> None:
        if abs(self.offset_ms) >= self.slide_ms or self.size_ms <= 0:
            raise UserError(
                "sliding windows need |offset| < slide and size > 0; "
                f"got offset {self.offset_ms} ms, slide {self.slide_ms} ms, size {self.size_ms} ms"
            )
        if self.size_ms > MOST_WINDOWS * self.slide_ms:
            raise UserError(
                f"sliding windows of {self.size_ms} ms every {self.slide_ms} ms put each element into "
                f"{self.size_ms // self.slide_ms:,} windows; at most {MOST_WINDOWS:,} are possible: choose a longer slide"
            )


class SlidingEventTimeWindows:
    """Sliding windows over event time."""

    @staticmethod
    def of(size: Duration, slide: Duration, *, offset: Duration = "0s") -> SlidingWindows:
        """Declare windows of `size` that start every `slide`, shifted by `offset` against the epoch."""
        return SlidingWindows(duration_ms(size), duration_ms(slide), duration_ms(offset), is_event_time=True)


class SlidingProcessingTimeWindows:
    """Sliding windows over the clock of the machine."""

    @staticmethod
    def of(size: Duration, slide: Duration, *, offset: Duration = "0s") -> SlidingWindows:
        """Declare windows of `size` that start every `slide`, shifted by `offset` against the epoch."""
        return SlidingWindows(duration_ms(size), duration_ms(slide), duration_ms(offset), is_event_time=False)


class SessionWindows(Struct, frozen=True):
    """Windows that grow as long as elements of the key follow each other within a gap.

    Attributes:
        gap: milliseconds, or a function from the element to a duration ("30s", timedelta), called for each element.
    """

    gap: int | Callable[[Any], Duration]
    is_event_time: bool

    def __post_init__(self) -> None:
        if isinstance(self.gap, int) and self.gap <= 0:
            raise UserError(f"session windows need a gap above zero; got {self.gap} ms")
        if not isinstance(self.gap, int) and not callable(self.gap):
            raise UserError(f"a dynamic gap is a function of the element; got {self.gap!r}: write with_gap({self.gap!r})")


class EventTimeSessionWindows:
    """Sessions over event time."""

    @staticmethod
    def with_gap(gap: Duration) -> SessionWindows:
        """Declare sessions that end when no element came for `gap`."""
        return SessionWindows(duration_ms(gap), is_event_time=True)

    @staticmethod
    def with_dynamic_gap(gap: Callable[[Any], Duration]) -> SessionWindows:
        """Declare sessions whose gap each element gives itself; a gap that is not above zero fails that element."""
        return SessionWindows(gap, is_event_time=True)


class ProcessingTimeSessionWindows:
    """Sessions over the clock of the machine."""

    @staticmethod
    def with_gap(gap: Duration) -> SessionWindows:
        """Declare sessions that end when no element came for `gap`."""
        return SessionWindows(duration_ms(gap), is_event_time=False)

    @staticmethod
    def with_dynamic_gap(gap: Callable[[Any], Duration]) -> SessionWindows:
        """Declare sessions whose gap each element gives itself; a gap that is not above zero fails that element."""
        return SessionWindows(gap, is_event_time=False)


class GlobalWindows(Struct, frozen=True):
    """One window for all elements of a key. Without a trigger it never fires; `at_end_of_stream` fires once, at the end."""

    fires_at_end: bool = False

    @classmethod
    def at_end_of_stream(cls) -> GlobalWindows:
        """Declare the global window that fires when the input has ended."""
        return cls(fires_at_end=True)


class CountWindows(Struct, frozen=True):
    """Windows by number: the global window with a count trigger, and an evictor where they slide. They know no time.

    Without `slide` every `count` elements of a key are a window; with it, each `slide` elements the last `count` are looked at.
    With `slide_ms` the last `count` are looked at every `slide_ms` of the clock; with `over_ms` each `count` elements those of
    the last `over_ms`, by event time, or by their arrival where they have no timestamp.
    """

    count: int
    slide: int | None = None
    slide_ms: int | None = None
    over_ms: int | None = None

    def __post_init__(self) -> None:
        for count in (self.count, 1 if self.slide is None else self.slide):
            if not is_whole(count) or count <= 0:
                raise UserError(f"count windows need a count and a slide that are whole numbers above zero; got {count!r}")
        for span_ms in (self.slide_ms, self.over_ms):
            if span_ms is not None and span_ms <= 0:
                raise UserError(f"count windows need a time above zero; got {span_ms} ms")

    @classmethod
    def of(cls, count: int, slide: int | Duration | None = None) -> CountWindows:
        """Declare windows of `count` elements, which slide by a number of elements or by a time of the clock ("10s")."""
        return cls(count, slide) if slide is None or isinstance(slide, int) else cls(count, slide_ms=duration_ms(slide))

    @classmethod
    def every(cls, count: int, over: Duration) -> CountWindows:
        """Declare windows over the last `over` of time, one for each `count` elements."""
        return cls(count, over_ms=duration_ms(over))


AssignerLike = TumblingWindows | SlidingWindows | SessionWindows | GlobalWindows | CountWindows | WindowAssigner


class ReduceFunction(ABC):
    """Combines two elements of a window into one of the same kind. A plain function of two arguments serves as well."""

    @abstractmethod
    def reduce(self, first: Any, second: Any) -> Any:
        """Return the combination; `first` is what came before. Must be associative."""


class WindowContext(Protocol):
    """The context of a window function: everything but the elements."""

    @property
    def window(self) -> Any:
        """The window that fires or is cleared."""

    @property
    def current_watermark(self) -> int:
        """Milliseconds; -2**63 before the first watermark."""

    @property
    def current_processing_time(self) -> int:
        """The clock, in milliseconds."""

    @property
    def metrics(self) -> Metrics:
        """The task's own counters, gauges and histograms."""

    @property
    def window_state(self) -> Any:
        """Keyed state of this key and window; an error with merging windows. Clear it in `ProcessWindowFunction.clear`."""

    @property
    def global_state(self) -> Any:
        """Keyed state of this key, common to all its windows."""

    @property
    def rows(self) -> Sequence[Tuple]:
        """The elements as tuples: `row["user"]`, `row.component`, `row.stream` (`row.task` is 0, and `row.timestamp` None).

        Raises:
            UserError: an aggregate or reduce keeps no elements; or the window reads several streams without `sources=True`.
        """

    @property
    def new(self) -> Sequence[Tuple]:
        """Those of `rows` that were not there at the last firing for this key: Storm's `getNew`.

        Raises:
            UserError: the function does not set `keeps_previous`; or as `rows`.
        """

    @property
    def expired(self) -> Sequence[Tuple]:
        """The elements of this key's last firing that have left the window since: Storm's `getExpired`. Raises as `new`."""


class WindowCollector(Protocol):
    """Takes the results of a window function; all carry the last timestamp of the window."""

    def emit(self, values: Any, stream: str = DEFAULT_STREAM) -> None:
        """Emit one result, to the main output or to a side stream."""


class ProcessWindowFunction(ABC):
    """A function over the whole contents of a window, called each time the window fires with contents.

    With a reduce or an aggregate beside it, `elements` holds exactly one value: the result so far.

    Attributes:
        keeps_previous: for how long the elements of a key's last firing are kept, for `context.new` and `context.expired`, such
            as "1h"; None: not at all.
        put_result: set by `open` where the function needs nothing but key, window and one result, and emits on the main stream
            alone. It is called with them and with a function that takes a row, and makes many keys of a window cheaper: neither
            `process` nor `clear` is then called when the window ends.
    """

    keeps_previous: ClassVar[Duration | None] = None
    put_result: Callable[[Any, Any, Any, Callable[[Any], None]], None] | None = None

    def open(self) -> None:
        """Called once, before the first element."""

    @abstractmethod
    def process(self, key: Any, elements: Sequence[Any], context: WindowContext, collector: WindowCollector) -> None:
        """Emit what one firing of the window gives."""

    def clear(self, context: WindowContext) -> None:
        """Called when the window is cleaned up: clear `context.window_state` here."""

    def close(self) -> None:
        """Called once, after the last element."""
