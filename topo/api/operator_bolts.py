"""Bolts with event time, timers, keyed state and asynchronous calls: thin descriptions that the operator core carries out.

They are added with `set_bolt` like every bolt. `__init__` takes their parts; their behaviour is decided in
`topo.operators`, and who drives it in `topo.task`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Protocol

from topo.api.aggregates import AggregateFunction, in_columns
from topo.api.arguments import check_text, texts_of
from topo.api.async_io import AsyncMode, AsyncSettings, RetryStrategy
from topo.api.context import TaskContext
from topo.api.durations import duration_ms
from topo.api.evictors import EvictorLike
from topo.api.metrics import Metrics
from topo.api.streams import DEFAULT_STREAM, Outputs, declared_streams
from topo.api.triggers import EventTimeTrigger, TriggerLike
from topo.api.tuples import Tuple
from topo.api.windows import AssignerLike, Duration, ProcessWindowFunction, ReduceFunction, SlidingWindows, TumblingWindows
from topo.deprecation import old_parameters
from topo.errors import ConfigError, UserError

Key = str | Sequence[str] | None
"""The field or fields that a bolt's state goes by; None for none."""


def key_fields(key: Key, argument: str = "key") -> tuple[str, ...]:
    """Return the names of the fields of a key. Raises ConfigError, which names `argument`, for anything else."""
    return () if key is None else (key,) if isinstance(key, str) else texts_of(argument, key, ("user", "day"))


class OperatorBolt:
    """Base of the bolts that the operator core runs.

    Attributes:
        outputs, component_settings: as of a `Bolt`.
        key: names of the key fields; empty when nothing is keyed. Its inputs are grouped by exactly these.
    """

    outputs: Outputs = ()
    component_settings: Mapping[str, Any] = {}
    key: tuple[str, ...] = ()

    def _set_key(self, key: Key) -> None:
        self.key = key_fields(key)


class WindowBolt(OperatorBolt):
    """Puts tuples into windows and emits what each window gives.

        builder.set_bolt("visits", WindowBolt(key="user", window=EventTimeSessionWindows.with_gap("30s"),
                                              aggregate=aggregates.Count())).fields_grouping("clicks", "user")

    It emits the key fields, `window_start`, `window_end` (milliseconds; the end is exclusive) and the fields of the result. With
    `process` it emits what that function emits, under the fields that `outputs` names.

    Args:
        key: the field or fields to window by, the same as the grouping's; None for one window over everything (`window_all`),
            which needs a parallelism of 1, or for windows of each task's own with `per_task`.
        window: which windows.
        trigger: when they fire; by default the assigner's own trigger.
        evictor: what leaves a window before or after it fires.
        aggregate: what tuples are added to.
        reduce: or a function of two tuples' values that gives one.
        process: a function over the contents, alone or after one of the two.
        allowed_lateness: how long after its end a window of event time still takes tuples.
        late_stream: where tuples go that are too late, under the fields of the input; without it they are dropped and counted.
        result_fields: names of the result's fields, where they are not the aggregate's own.
        outputs: declares the fields that `process` emits, or replaces the default ones.
        max_wait: the longest time that an input waits for its windows, by the clock. By default as long as the windows are;
            give it where event time passes faster than the clock, as with history that is read from a file. `message_timeout`
            has to cover it, since inputs are acked with their windows.
        per_task: each task has windows over whatever it is given, as in Storm: no key, any parallelism, any grouping. When a
            topology is resumed with another parallelism, open windows go to the tasks that take them over, apart from their own.
        sources: keep with each element which stream it comes from, for `context.rows`, `new` and `expired` of a `process`
            function. The streams may then have different fields. Triggers, evictors and dynamic gaps see the source as one more
            value at the end, "component/stream".
    """

    per_task = sources = False
    emits_batches = False
    """Whether it emits batches of columns. Decided when the topology is built."""
    max_wait_ms: int | None = None
    declared_at: tuple[str, int] | None = None
    """File and line where it is added to a topology, for errors in which nothing else is the user's, such as those of a sum."""

    @old_parameters(held_for="max_wait")
    def __init__(
        self,
        *,
        key: Key,
        window: AssignerLike,
        trigger: TriggerLike | None = None,
        evictor: EvictorLike | None = None,
        aggregate: AggregateFunction | None = None,
        reduce: ReduceFunction | Callable[[Any, Any], Any] | None = None,
        process: ProcessWindowFunction | None = None,
        allowed_lateness: Duration = "0s",
        late_stream: str | None = None,
        result_fields: Sequence[str] | None = None,
        outputs: Outputs | None = None,
        max_wait: Duration | None = None,
        per_task: bool = False,
        sources: bool = False,
    ) -> None:
        self._set_key(key)
        self.per_task = per_task
        self.sources = sources
        self.max_wait_ms = None if max_wait is None else duration_ms(max_wait)
        self.window = window
        self.trigger = trigger
        self.evictor = evictor
        self.aggregate = aggregate
        self.reduce = reduce
        self.process = process
        self.allowed_lateness_ms = duration_ms(allowed_lateness)
        self.late_stream = late_stream
        # The argument may be no aggregate at all; `build` reports that.
        fields = key_fields(
            getattr(aggregate, "fields", ("result",)) if result_fields is None else result_fields, "result_fields"
        )
        self.result_width = len(fields)
        self.outputs = outputs if outputs is not None else (*self.key, "window_start", "window_end", *fields)
        if late_stream is not None:
            check_text("late_stream", late_stream, "late")
            if not isinstance(self.outputs, Mapping):
                self.outputs = {DEFAULT_STREAM: self.outputs}
            if late_stream in self.outputs:
                raise UserError(f"late_stream={late_stream!r} is declared in outputs already; leave it out there")

    @property
    def takes_columns(self) -> bool:
        """Whether its windows take batches of columns whole; else they are given the rows, one by one."""
        # Without `super().__init__()` it has none, which `build` reports.
        window = getattr(self, "window", None)
        if not isinstance(window, TumblingWindows | SlidingWindows) or not window.is_event_time:
            return False
        at_end = self.trigger is None or isinstance(self.trigger, EventTimeTrigger)
        is_plain = self.evictor is None and self.process is None and not self.allowed_lateness_ms and not self.sources
        return at_end and is_plain and self.aggregate is not None and in_columns(self.aggregate)

    def bind_input(self, fields: tuple[str, ...]) -> None:
        """Take the fields of the input for the late stream. Called when the topology is built."""
        if self.late_stream is not None and isinstance(self.outputs, Mapping):
            self.outputs = {**self.outputs, self.late_stream: fields}


class TimeDomain(Enum):
    """The time domain of a timer."""

    EVENT_TIME = "event time"
    PROCESSING_TIME = "processing time"


class TimerContext(Protocol):
    """Time and timers of a function by key, during a call."""

    @property
    def timestamp(self) -> int | None:
        """Event time of the tuple or record, or the moment of the timer, in milliseconds."""

    @property
    def current_watermark(self) -> int:
        """Event time of the input, in milliseconds; -2**63 before the first watermark."""

    @property
    def current_processing_time(self) -> int:
        """The clock, in milliseconds."""

    @property
    def metrics(self) -> Metrics:
        """The task's own counters, gauges and histograms, which `topo status` shows."""

    def register_event_time_timer(self, timestamp: int) -> None:
        """Have `on_timer` called for this key when the watermark reaches `timestamp` (ms); at the next one if that is past.

        Raises:
            UserError: not a 64-bit number.
        """

    def register_processing_time_timer(self, timestamp: int) -> None:
        """Have `on_timer` called for this key when the clock reaches `timestamp` (ms).

        Raises:
            UserError: not a 64-bit number.
        """

    def delete_event_time_timer(self, timestamp: int) -> None:
        """Undo a registration for this key; nothing happens when there is none."""

    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Undo a registration for this key; nothing happens when there is none."""


class ProcessContext(TimerContext, Protocol):
    """The context of a `ProcessBolt` during a call. One object serves all calls, and describes the current one."""

    @property
    def key(self) -> Any:
        """The key of the tuple or of the timer."""

    @property
    def domain(self) -> TimeDomain | None:
        """The time domain of the timer in `on_timer`: `TimeDomain.EVENT_TIME` or `PROCESSING_TIME`; None in `process`."""

    @property
    def state(self) -> Any:
        """Keyed state: `state.value(name)`, `list`, `map`, `reducing`, `aggregating`. Ask for handles once, in `open`."""


class ProcessCollector(Protocol):
    """The collector of a `ProcessBolt`."""

    def emit(self, values: Any, stream: str | None = None) -> None:
        """Emit one tuple with the timestamp of the current input or timer."""


class ProcessBolt(OperatorBolt, ABC):
    """A function of each tuple and of timers, with keyed state: Flink's keyed process function.

    With `delivery="exactly_once"`, the default for it, state and timers are restored when a process dies, and each tuple and
    each timer has changed them once. With `at_least_once` they live in the memory of the task, and die with its process; what
    `process` emits is anchored on its tuple, which is acked when the call returns, and what `on_timer` emits is not tracked.

    Args:
        key: the field or fields that state and timers go by, the same as the grouping's.

    Attributes:
        forgets_at_a_loss: with `at_least_once` state and timers are gone after each loss: messages in flight are replayed.
    """

    forgets_at_a_loss = False

    def __init__(self, key: Key) -> None:
        self.key = key_fields(key)

    def open(self, context: ProcessContext) -> None:
        """Called once before everything else: ask for state handles here."""

    @abstractmethod
    def process(self, tup: Tuple, context: ProcessContext, collector: ProcessCollector) -> None:
        """Called for each tuple."""

    def on_timer(self, timestamp: int, context: ProcessContext, collector: ProcessCollector) -> None:
        """Called when a timer is due, with its moment and its key."""

    def close(self) -> None:
        """Called at an orderly end."""


class AsyncBolt(OperatorBolt, ABC):
    """An asynchronous call for each tuple, with a bound on how many are in flight.

    `call` is an `async def` (or returns a future) that runs on an event loop beside the task's thread. It returns the tuples to
    emit: a list of tuples of values, one such tuple, or None for nothing. They are anchored on the input, which is acked when
    they have been emitted. A call that raises fails its input.

    Args:
        mode: results in the order of the inputs ("ordered"), or as they complete but never across a watermark ("unordered").
        capacity: how many tuples are in flight at most; a full bolt takes no further input.
        timeout: for one tuple with all its attempts; None for none.
        retry: when a call is made again, also after the end of the input, for which the run then waits.
    """

    def __init__(
        self,
        mode: AsyncMode | str = AsyncMode.ORDERED,
        capacity: int = 100,
        timeout: Duration | None = None,
        retry: RetryStrategy | None = None,
    ) -> None:
        self.settings = AsyncSettings(AsyncMode(mode), capacity, 0 if timeout is None else duration_ms(timeout), retry)

    async def open(self, context: TaskContext) -> None:
        """Awaited once, on the event loop, before the first call: make sessions and pools here."""

    @abstractmethod
    def call(self, tup: Tuple) -> Awaitable[Any]:
        """Begin the call for one tuple, on the event loop. Must not block: what blocks goes to `asyncio.to_thread`,
        which has a thread for each call in flight (up to 1,000 in a worker process).
        """

    def on_timeout(self, tup: Tuple) -> Any:
        """Return what to emit for a tuple whose call took too long; by default it fails. Called on the task's thread."""
        raise TimeoutError(f"the call for {tup!r} took longer than {self.settings.timeout_ms} ms")

    async def close(self) -> None:
        """Awaited once at an orderly end, for as long as `drain_timeout`. The run fails if it raises, as with `cleanup`."""


class _Input(Protocol):
    @property
    def source(self) -> str: ...
    @property
    def stream(self) -> str: ...


def bind_inputs(components: Mapping[str, Any], inputs: Mapping[str, Sequence[_Input]]) -> None:
    """Give window bolts the fields of their input, in the order in which they feed each other; validation reports mistakes."""
    waiting = {
        name: bolt
        for name, bolt in components.items()
        if isinstance(bolt, WindowBolt) and getattr(bolt, "late_stream", None) is not None
    }
    for _ in range(len(waiting)):
        for name, bolt in list(waiting.items()):
            sources = {declared.source for declared in inputs[name]}
            if sources.isdisjoint(waiting) and inputs[name]:
                del waiting[name]
                source = components.get(inputs[name][0].source)
                try:
                    streams = {stream.name: stream.fields for stream in declared_streams(getattr(source, "outputs", ()))}
                except ConfigError:
                    continue
                bolt.bind_input(streams.get(inputs[name][0].stream, ()))
