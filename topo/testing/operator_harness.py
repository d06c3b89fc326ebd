"""One operator under test, on a manual clock: windows, process functions, asynchronous calls, batches. docs/testing-operators.md.

The operator is the one that a task runs, with the same mailbox, timers and state; only tracking is left out. Everything happens
in the thread of the test, inside the call that causes it. The clock stands until it is moved, with one exception: where the
operator itself has to wait (a full queue of an async bolt, the end of its input), time goes on to whatever is due next. Calls
that use threads or sockets are waited for in real time, while the manual clock stands.
"""

from __future__ import annotations

import copy
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from topo.api.batch_bolt import BatchBolt
from topo.api.context import TaskContext
from topo.api.durations import duration_ms
from topo.api.operator_bolts import AsyncBolt, OperatorBolt, ProcessBolt, WindowBolt
from topo.api.streams import DEFAULT_STREAM, declared_streams
from topo.api.topology import CarriedType
from topo.api.tuples import Tuple
from topo.api.watermarks import WatermarkStrategy
from topo.emission.collectors import BoltCollector
from topo.errors import UserError
from topo.keys import DEFAULT_MAX_PARALLELISM, KeyGroupRange, key_group, range_of
from topo.operators.async_wait import AsyncWaitOperator
from topo.operators.base import KeyedOperator, Operator, OperatorContext, OperatorSnapshot
from topo.operators.bolt_operators import BoltCalls, window_operator_of
from topo.operators.mailbox.executor import MailboxExecutor
from topo.operators.mailbox.mailbox import MIN_PRIORITY, TaskMailbox
from topo.operators.process import ProcessOperator
from topo.operators.time.clock import MAX_TIMESTAMP, MIN_TIMESTAMP, ManualProcessingTime
from topo.operators.time.watermarks import InputStatus, WatermarkCombiner
from topo.operators.windows.operator import WindowOperator
from topo.operators.windows.rows import source_name
from topo.task.runners.process import TimersApart
from topo.testing.operator_batches import BatchesUnderTest
from topo.testing.operator_calls import OperatorCalls
from topo.testing.operator_output import Emitted, Event, OnStream, RecordedOutput, Watermark
from topo.testing.operator_rows import Fields, InputRows
from topo.testing.strategy_operator import StrategyOperator
from topo.testing.timer_harness import Fired
from topo.testing.wire_roundtrip import WireRoundtrip, codec_for

if TYPE_CHECKING:
    from topo.testing.manual_loop import ManualLoop

PATIENCE_S: Final = 5.0
"""Real seconds to wait for what other threads and sockets bring, before the clock goes on without them."""

_GLANCE_S = 0.05
"""Real seconds between two looks whether there is anything left to wait for."""


class _Failures:
    """Follows the inputs of an async bolt; one that fails is written down."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, BaseException]] = []

    def emitting(self, value: Any) -> None:
        """Nothing."""

    def emitted(self, value: Any) -> None:
        """Nothing."""

    def failed(self, value: Any, error: BaseException) -> None:
        """Write it down."""
        self.seen.append((value.values, error))


class OperatorHarness:
    """Feeds one operator and shows what it puts out.

    Args:
        operator: a `WindowBolt`, `ProcessBolt`, `AsyncBolt` or `BatchBolt`; or a `WatermarkStrategy`, asked every
            200 ms of the clock; or a function that returns an operator of `topo.operators`.
        fields: names of the input's fields; of a bolt with several inputs by component. For bolts and strategies.
        now_ms: what the clock says at first, in milliseconds.
        max_parallelism: number of key groups.
        key_groups: those that this instance owns; by default all.
        restore: the snapshot to go on from.
        channels: how many input channels there are, each with its own watermark and idleness.
        runs_mails: whether mails (results of asynchronous calls, above all) run after each call; else `run_mails` does it.
        types: what tuples may carry besides the types that topo knows.
        attempts: how often a call of a window or process bolt that raises is made; undone before each, as with `exactly_once`.

    Attributes:
        operator: the operator that runs.
        bolt: the bolt; None for a bare operator.
        clock: the processing time.
        mailbox: the operator's mailbox.

    Raises:
        UserError: the parts of the bolt do not go together, or a field is missing.
    """

    def __init__(
        self,
        operator: OperatorBolt | WatermarkStrategy | Callable[[], Operator],
        fields: Fields = (),
        *,
        now_ms: int = 0,
        max_parallelism: int = DEFAULT_MAX_PARALLELISM,
        key_groups: KeyGroupRange | None = None,
        restore: OperatorSnapshot | None = None,
        channels: int = 1,
        runs_mails: bool = True,
        types: Iterable[CarriedType] = (),
        attempts: int = 1,
    ) -> None:
        self._again = copy.deepcopy(operator) if isinstance(operator, OperatorBolt) else operator
        self._options: dict[str, Any] = {
            "fields": dict(fields) if isinstance(fields, Mapping) else tuple(fields),
            "max_parallelism": max_parallelism,
            "channels": channels,
            "runs_mails": runs_mails,
            "types": tuple(types),
            "attempts": attempts,
        }
        self._codec = codec_for(self._options["types"])
        self._max_parallelism = max_parallelism
        self._key_groups = key_groups if key_groups is not None else KeyGroupRange(0, max_parallelism - 1)
        self._runs_mails = runs_mails
        self._combiner = WatermarkCombiner(range(channels)) if channels > 1 else None
        self._idle_channels: set[int] = set()
        self._watermark = MIN_TIMESTAMP
        self._is_idle = False
        self.clock = ManualProcessingTime(now_ms)
        self._mail_came = threading.Event()
        self.mailbox = TaskMailbox(self._mail_came.set, self._wait)
        self._failures = _Failures()
        self._loop: ManualLoop | None = None
        self._batches: BatchesUnderTest | None = None
        self._is_closed = False
        self.bolt = operator if isinstance(operator, OperatorBolt) else None
        takes_rows = isinstance(operator, OperatorBolt | WatermarkStrategy)
        key_fields = () if self.bolt is None else self.bolt.key
        self._rows = InputRows(self._options["fields"], key_fields, self._codec) if takes_rows else None
        self.operator = self._make(operator)
        self._output = RecordedOutput(self._checked() if self.bolt is not None else lambda _stream, values: values)
        self._calls = OperatorCalls(self.operator, self._output, attempts)
        self._open(restore)

    # -- feeding ---------------------------------------------------------------------------------------------------------

    def process(self, values: Any, timestamp: int | None = None, *, key: Any = None, component: str | None = None) -> None:
        """Feed one element.

        Args:
            values: for a bolt a row or a mapping of its fields; for a bare operator what it takes.
            timestamp: event time in milliseconds; None: it has none.
            key: for a bare operator; a bolt's key is in the values.
            component: which input it is of; for a bolt with several.

        Raises:
            UserError: the values are not those of the fields, or the key belongs to another instance.
            Exception: what the user's code raises.
        """
        self._feed([self._element(values, timestamp, key, component)])

    def process_batch(self, elements: Iterable[tuple[Any, int | None]], *, component: str | None = None) -> None:
        """Feed elements, as (values, timestamp), in one batch as they come to a task. One that raises is the last that is fed.

        Raises:
            UserError, Exception: as `process`.
        """
        self._feed([self._element(values, timestamp, None, component) for values, timestamp in elements])

    def _element(self, values: Any, timestamp: int | None, key: Any, component: str | None) -> tuple[Any, Any, int | None]:
        if self._rows is not None:
            if key is not None:
                raise UserError("the key is in the fields of the input; leave key= out")
            origin = self._rows.origin(component)
            row = self._rows.row(values, origin)
            key = self._rows.key(row, origin)
            if getattr(self.bolt, "sources", False):
                row = (*row, source_name(origin.component, origin.stream))
            if self._batches is not None:
                return key, self._batches.input(row, origin, timestamp), timestamp
            values = Tuple(row, origin, timestamp) if isinstance(self.bolt, ProcessBolt | AsyncBolt) else row
        if isinstance(self.operator, KeyedOperator) and self._is_keyed:
            group = key_group(key, self._max_parallelism)
            if group not in self._key_groups:
                raise UserError(f"key {key!r} is in key group {group}; this instance has {self._key_groups}")
        return key, values, timestamp

    def _feed(self, elements: Sequence[tuple[Any, Any, int | None]]) -> None:
        # A batch that is full is called for before the next element is taken, as in a task.
        for some in [elements] if self._batches is None else [[element] for element in elements]:
            if some:
                keys, values, timestamps = zip(*some, strict=True)
                try:
                    self._calls.elements(keys, values, timestamps)
                finally:
                    self._settle()

    def watermark(self, timestamp: int, channel: int = 0) -> None:
        """Feed a watermark, in milliseconds; with several channels what they give together reaches the operator."""
        self._take_in([timestamp] if self._combiner is None else self._combiner.watermark(channel, timestamp))
        self._settle()

    def idle(self, channel: int = 0) -> None:
        """Say that a channel is idle."""
        self._idle_channels.add(channel)
        self._take_in([InputStatus.IDLE] if self._combiner is None else self._combiner.idle(channel))
        self._settle()

    def active(self, channel: int = 0) -> None:
        """Say that a channel is active again."""
        self._idle_channels.discard(channel)
        self._take_in([InputStatus.ACTIVE] if self._combiner is None else self._combiner.active(channel))
        self._settle()

    def end_of_input(self) -> None:
        """End the input: the last watermark if it was not fed yet, then whatever the operator does at the end.

        Idle channels are active again by it. Waits for the operator's calls.
        """
        self._idle_channels.clear()
        self._take_in(self._ending())
        self.operator.end_of_input()
        if self._batches is not None:
            self._batches.end()
        self._settle()

    # -- time ------------------------------------------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        """What the clock says, in milliseconds."""
        return self.clock.now_ms()

    def advance_clock(self, by: int | str | timedelta) -> None:
        """Move the clock on by milliseconds or a duration ("10s"), and run what becomes due.

        The clock stops at everything that is due on the way, as that of a task does: a timer, or a call after a sleep, sees the
        clock at its own moment.
        """
        self._settle()
        now_ms = self.now_ms + (by if isinstance(by, int) else duration_ms(by))
        while (due := self._next_due()) is not None and due < now_ms:
            self._run_clock(max(due, self.now_ms))
        self._run_clock(now_ms)

    def set_clock(self, now_ms: int) -> None:
        """Set the clock, at once: what has become due runs in its order and sees the clock at its new time.

        An async bolt's clock stops on the way, as in `advance_clock`. Backwards moves nothing but the clock.
        """
        if self._loop is not None and now_ms > self.now_ms:
            self.advance_clock(now_ms - self.now_ms)
        else:
            self._run_clock(now_ms)

    def _run_clock(self, now_ms: int) -> None:
        try:
            self._calls.timers(lambda: self.clock.advance_to(now_ms))
        finally:
            self._settle()

    def run(self) -> None:
        """Let everything happen that can without the clock: what a test has done to a future or a handle takes effect."""
        if self._batches is not None:
            self._batches.run_ready()
        if self._loop is not None:
            self._loop.turn()
        while self.run_mails():
            if self._loop is not None:
                self._loop.turn()

    def run_mails(self, most: int | None = None) -> int:
        """Run the mails that wait, at most `most`; return how many ran."""
        ran = 0
        while (most is None or ran < most) and (mail := self.mailbox.try_take(MIN_PRIORITY)) is not None:
            mail.run()
            ran += 1
        return ran

    def settle(self, timeout: str | timedelta = "5s") -> None:
        """Wait, in real time, until no asynchronous call is under way: for calls that use threads or sockets.

        Of a bare operator until nothing is in flight, or, where mails do not run by themselves, until one waits.

        Raises:
            TimeoutError: some still are.
        """
        until = monotonic() + duration_ms(timeout) / 1000
        self._settle()
        while under_way := self._under_way:
            if monotonic() > until:
                raise TimeoutError(f"{under_way} asynchronous calls have not ended within {timeout}")
            if self._loop is not None:
                self._loop.wait(_GLANCE_S)
            else:
                self._look_out(_GLANCE_S)
            self._settle()

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
        """Forget what was put out so far."""
        self._output.events.clear()

    # -- what it holds ---------------------------------------------------------------------------------------------------

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
        return self._keyed.timers.pending

    @property
    def event_timers(self) -> list[Fired]:
        """The timers of event time, earliest first: key, window (None in a process bolt) and timestamp of each."""
        return self._timers_of(0)

    @property
    def processing_timers(self) -> list[Fired]:
        """The timers of processing time, as `event_timers`."""
        return self._timers_of(1)

    def _timers_of(self, domain: int) -> list[Fired]:
        found = [Fired(key, namespace, at) for queues in self._keyed.timers.queues() for at, key, namespace in queues[domain]]
        return sorted(found, key=lambda timer: timer.timestamp)

    def is_idle(self, channel: int | None = None) -> bool:
        """Whether a channel is idle; without one, whether all are, so that the operator is."""
        return self._is_idle if channel is None else channel in self._idle_channels

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

    # -- snapshots -------------------------------------------------------------------------------------------------------

    def snapshot(self) -> OperatorSnapshot:
        """Return what the operator has to remember, as it comes back from where it was stored: lists are tuples.

        A batching bolt is called for its open batches first, as in front of a checkpoint.

        Raises:
            ValueNotCarried: something in it could not be stored.
        """
        if self._batches is not None:
            self._batches.flush()
        taken = self.operator.snapshot()
        own = [
            {**one, "value": tup.values, "component": tup.component} if isinstance(tup := one.get("value"), Tuple) else one
            for one in taken.own
        ]
        keyed, restored = self._codec.unpack_value(self._codec.pack_value((taken.keyed, own)))
        return OperatorSnapshot(keyed, list(restored))

    def restore(self, snapshot: OperatorSnapshot, key_groups: KeyGroupRange | None = None) -> OperatorHarness:
        """Return a harness of a new instance that goes on from a snapshot; its watermark is that of the beginning.

        Args:
            snapshot: of this operator, or several, `OperatorSnapshot.merged`.
            key_groups: those that the new instance owns; by default those of this one.
        """
        groups = key_groups if key_groups is not None else self._key_groups
        return OperatorHarness(
            copy.deepcopy(self._again) if isinstance(self._again, OperatorBolt) else self._again,
            now_ms=self.now_ms,
            key_groups=groups,
            restore=snapshot,
            **self._options,
        )

    def split(self, parallelism: int) -> list[OperatorHarness]:
        """Return harnesses of as many new instances that go on from this one together.

        Each has its range of key groups. What belongs to no key (what an async bolt has in flight, above all) stays together
        and goes to the first, as that of one task does when a topology is given more.
        """
        snapshot = self.snapshot()
        first, *others = [range_of(index, self._max_parallelism, parallelism) for index in range(parallelism)]
        keyed = OperatorSnapshot(snapshot.keyed)
        return [self.restore(snapshot, first), *(self.restore(keyed, key_groups) for key_groups in others)]

    def owner(self, harnesses: Sequence[OperatorHarness], key: Any) -> OperatorHarness:
        """Return the one of several split harnesses that a key belongs to."""
        group = key_group(key, self._max_parallelism)
        return next(harness for harness in harnesses if group in harness._key_groups)

    # -- life ------------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the operator, and cancel what is under way. Harmless when it is closed."""
        if self._is_closed:
            return
        self._is_closed = True
        self.operator.close()
        if self._loop is not None:
            if isinstance(self.bolt, AsyncBolt):
                self._run_to_end(self.bolt.close())
            self._loop.end()
        if isinstance(self.bolt, BatchBolt):
            self.bolt.cleanup()

    def __enter__(self) -> OperatorHarness:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- the bolt's surroundings -----------------------------------------------------------------------------------------

    def _make(self, operator: OperatorBolt | WatermarkStrategy | Callable[[], Operator]) -> Operator:
        if isinstance(operator, WindowBolt):
            assert self._rows is not None
            origins = list(self._rows.origins.values())
            operator.bind_input(origins[0].fields)
            return window_operator_of(operator, origins, lambda size: size // 2)
        if isinstance(operator, ProcessBolt):
            return ProcessOperator(TimersApart(operator, lambda timestamp, call: self._calls.on_timer(timestamp, call)))
        if isinstance(operator, AsyncBolt):
            from topo.testing.manual_loop import ManualLoop

            self._loop = ManualLoop(self.clock.now_ms)
            weakref.finalize(self, self._loop.end)
            return AsyncWaitOperator(BoltCalls(operator, self._loop.run), operator.settings, self._failures)
        if isinstance(operator, BatchBolt):
            self._batches = BatchesUnderTest(operator, self._codec, lambda: self._output)
            return self._batches.operator
        if isinstance(operator, WatermarkStrategy):
            return StrategyOperator(operator, self._options["fields"])
        assert not isinstance(operator, OperatorBolt)
        return operator()

    def _open(self, snapshot: OperatorSnapshot | None) -> None:
        executor = MailboxExecutor(self.mailbox)
        self.operator.setup(
            OperatorContext(
                self._output,
                self.clock,
                executor,
                self._max_parallelism,
                self._key_groups,
                self._calls.log,
            )
        )
        if snapshot is not None:
            self.operator.restore(OperatorSnapshot(snapshot.keyed, [self._own_again(one) for one in snapshot.own]))
        if isinstance(self.bolt, AsyncBolt):
            self._run_to_end(self.bolt.open(TaskContext("test", "bolt", 1)))
        if isinstance(self.bolt, BatchBolt):
            self.bolt.prepare(TaskContext("test", "bolt", 1))
        self.operator.open()
        self._settle()

    def _own_again(self, one: Any) -> Any:
        is_input = isinstance(self.bolt, AsyncBolt) and "value" in one
        if not is_input:
            return one
        assert self._rows is not None
        rest = {name: value for name, value in one.items() if name != "component"}
        return {**rest, "value": Tuple(one["value"], self._rows.origin(one["component"]), one["timestamp"])}

    @property
    def _is_keyed(self) -> bool:
        return self.bolt is None or bool(self.bolt.key)

    def _checked(self) -> Callable[[str | None, Any], Any]:
        assert self.bolt is not None
        streams = declared_streams(self.bolt.outputs)
        collector = BoltCollector("bolt", streams, lambda _error: None)
        carrier = WireRoundtrip(self._codec, "bolt", streams)

        def check(stream: str | None, values: Any) -> Any:
            name = DEFAULT_STREAM if stream is None else stream
            collector.stream(name, values, direct=False)
            return carrier.carried(values, name)

        return check

    # -- going on --------------------------------------------------------------------------------------------------------

    def _ending(self) -> list[int | InputStatus]:
        if self._combiner is not None:
            channels: int = self._options["channels"]
            return [one for channel in range(channels) for one in self._combiner.finish(channel)]
        active: list[int | InputStatus] = [InputStatus.ACTIVE] if self._is_idle else []
        return [*active, MAX_TIMESTAMP] if self._watermark < MAX_TIMESTAMP else active

    def _take_in(self, news: Iterable[int | InputStatus]) -> None:
        for one in news:
            if isinstance(one, InputStatus):
                # A single channel has no combiner that would leave out what says nothing new.
                if self._is_idle is not (one is InputStatus.IDLE):
                    self._is_idle = not self._is_idle
                    self.operator.process_idle(self._is_idle)
            else:
                self._watermark = one
                self._calls.timers(partial(self.operator.process_watermark, one))

    def _settle(self) -> None:
        if self._runs_mails:
            self.run()
        elif self._loop is not None:
            self._loop.turn()

    def _next_due(self) -> int | None:
        due = [self.clock.next_due_ms, None if self._loop is None else self._loop.next_due_ms]
        return min((one for one in due if one is not None), default=None)

    def _wait(self) -> None:
        """Have a mail come, for an operator that waits for one."""
        if self._loop is not None:
            self._loop.turn()
        if not self.mailbox.has_mail and not self._go_on():
            raise UserError("the operator waits for a call to complete, and nothing is due that could complete one")

    def _go_on(self) -> bool:
        """Let time pass until something happens; return whether anything did."""
        loop = self._loop
        until = monotonic() + PATIENCE_S
        if loop is None and self._wait_for_mail(until):
            return True
        while loop is not None and loop.waits_outside and monotonic() < until:
            before = loop.under_way
            loop.wait(_GLANCE_S)
            if self.mailbox.has_mail or loop.under_way != before:
                return True
        due = self._next_due()
        if due is None:
            return False
        self.clock.advance_to(max(due, self.now_ms))
        if loop is not None:
            loop.turn()
        return True

    def _wait_for_mail(self, until: float) -> bool:
        """Wait for a mail of another thread, if there is one that could send it; return whether a mail is there."""
        while not self.mailbox.has_mail and threading.active_count() > 1 and (left := until - monotonic()) > 0:
            # Not for all that is left: a thread that ends without a mail wakes nobody.
            self._look_out(min(left, _GLANCE_S))
        return self.mailbox.has_mail

    def _look_out(self, longest_s: float) -> None:
        self._mail_came.wait(longest_s)
        self._mail_came.clear()

    @property
    def _under_way(self) -> int:
        if self._loop is not None:
            return self._loop.under_way
        waits = isinstance(self.operator, AsyncWaitOperator) and not self.mailbox.has_mail
        return self.in_flight if waits else 0

    def _run_to_end(self, call: Any) -> None:
        """Run a coroutine of the bolt's own."""
        assert self._loop is not None
        ended: list[BaseException | None] = []
        self._loop.run(call, lambda _result, error: ended.append(error))
        self._loop.turn()
        while not ended:
            if not self._go_on():
                raise UserError("`open` or `close` of the bolt waits for something that does not happen")
        if ended[0] is not None:
            raise ended[0]

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
