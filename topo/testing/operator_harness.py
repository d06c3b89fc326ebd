"""One operator under test, on a manual clock: windows, process functions, asynchronous calls, batches. docs/testing-operators.md.

The operator is that of a task, with the same mailbox, timers and state; only tracking is left out. All calls happen
in the thread of the test, inside the call that causes it. The clock stands until it is moved, with one exception: where the
operator itself has to wait (a full queue of an async bolt, the end of its input), time advances to the next deadline. Calls
that use threads or sockets are waited for in real time, while the manual clock stands.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from time import monotonic
from typing import Any

from topo.api.batch_bolt import BatchBolt
from topo.api.component import Component
from topo.api.context import TaskContext
from topo.api.durations import duration_ms
from topo.api.operator_bolts import AsyncBolt, OperatorBolt, ProcessBolt, WindowBolt
from topo.api.streams import DEFAULT_STREAM, streams_of
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
from topo.operators.mailbox.mailbox import MIN_PRIORITY
from topo.operators.process import ProcessOperator
from topo.operators.time.clock import MAX_TIMESTAMP, MIN_TIMESTAMP
from topo.operators.time.watermarks import InputStatus, WatermarkCombiner
from topo.operators.windows.rows import source_name
from topo.task.runners.process import TimersApart
from topo.testing.operator_batches import BatchesUnderTest
from topo.testing.operator_calls import OperatorCalls
from topo.testing.operator_output import RecordedOutput
from topo.testing.operator_results import FailedInputs, OperatorResults
from topo.testing.operator_rows import FieldNames, InputRows
from topo.testing.operator_time import OperatorTime
from topo.testing.strategy_operator import StrategyOperator
from topo.testing.wire_roundtrip import WireRoundtrip, codec_for


class OperatorHarness(OperatorResults):
    """Feeds one operator and shows its output.

    Args:
        operator: a `WindowBolt`, `ProcessBolt`, `AsyncBolt` or `BatchBolt`; or a `WatermarkStrategy`, asked every
            200 ms of the clock; or a function that returns an operator of `topo.operators`.
        fields: names of the input's fields; of a bolt with several inputs by component. For bolts and strategies.
        now_ms: the first time of the clock, in milliseconds.
        max_parallelism: number of key groups.
        key_groups: those that this instance owns; by default all.
        restore: the snapshot to restore.
        channels: how many input channels there are, each with its own watermark and idleness.
        runs_mails: whether mails (results of asynchronous calls, above all) run after each call; else `run_mails` does it.
        types: types that tuples may carry besides those that topo knows.
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
        fields: FieldNames = (),
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
        given: Any = operator
        if isinstance(given, type) and issubclass(given, Component):
            raise UserError(f"the class {given.__name__} was given; give an instance, {given.__name__}(...)")
        if isinstance(given, Component) and not isinstance(given, OperatorBolt):
            raise UserError(f"a {type(given).__name__} runs without an operator; test it with run_bolt or a TopologyTest")
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
        self._time = OperatorTime(now_ms)
        self.clock = self._time.clock
        self.mailbox = self._time.mailbox
        self._failures = FailedInputs()
        self._batches = None
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
            values: for a bolt a row or a mapping of its fields; for a bare operator its element.
            timestamp: event time in milliseconds; None: it has none.
            key: for a bare operator; a bolt's key is in the values.
            component: which input it is of; for a bolt with several.

        Raises:
            UserError: the values are not those of the fields, or the key belongs to another instance.
            Exception: any exception of the user's code.
        """
        self._feed([self._element(values, timestamp, key, component)])

    def process_batch(self, elements: Iterable[tuple[Any, int | None]], *, component: str | None = None) -> None:
        """Feed elements, as (values, timestamp), in one batch as to a task. An element that raises is the last that is fed.

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
        """The clock's time, in milliseconds."""
        return self.clock.now_ms()

    def advance_clock(self, by: int | str | timedelta) -> None:
        """Move the clock on by milliseconds or a duration ("10s"), and run what becomes due.

        The clock stops at everything that is due on the way, as that of a task does: a timer sees the clock
        a millisecond behind its timestamp, a call after a sleep at its own moment.
        """
        self._settle()
        now_ms = self.now_ms + (by if isinstance(by, int) else duration_ms(by))
        while (due := self._time.next_due_ms) is not None and due < now_ms:
            self._run_clock(max(due, self.now_ms))
        self._run_clock(now_ms)

    def set_clock(self, now_ms: int) -> None:
        """Set the clock, at once: due timers run in order and see the clock at its new time.

        An async bolt's clock stops on the way, as in `advance_clock`. Backwards moves nothing but the clock.
        """
        if self._time.loop is not None and now_ms > self.now_ms:
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
        self._time.turn()
        while self.run_mails():
            self._time.turn()

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
            self._time.poll()
            self._settle()

    def is_idle(self, channel: int | None = None) -> bool:
        """Whether a channel is idle; without one, whether all are, so that the operator is."""
        return self._is_idle if channel is None else channel in self._idle_channels

    # -- snapshots -------------------------------------------------------------------------------------------------------

    def snapshot(self) -> OperatorSnapshot:
        """Return the operator's state as it comes back from storage: lists are tuples.

        A batching bolt is called for its open batches first, as in front of a checkpoint.

        Raises:
            UnsupportedValueError: something in it could not be stored.
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
        """Return a harness of a new instance restored from a snapshot; its watermark is that of the beginning.

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
        """Return harnesses of as many new instances that together continue this one.

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
        """Close the operator, and cancel running calls. Harmless when it is closed."""
        if self._is_closed:
            return
        self._is_closed = True
        self.operator.close()
        if self._time.loop is not None:
            if isinstance(self.bolt, AsyncBolt):
                self._time.run_to_end(self.bolt.close())
            self._time.loop.end()
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
            operator.emits_batches = False
            return window_operator_of(operator, origins, lambda size: size // 2)
        if isinstance(operator, ProcessBolt):
            return ProcessOperator(TimersApart(operator, lambda *arguments: self._calls.on_timer(operator, *arguments)))
        if isinstance(operator, AsyncBolt):
            from topo.testing.manual_loop import ManualLoop

            loop = self._time.loop = ManualLoop(self.clock.now_ms)
            weakref.finalize(self, loop.end)
            return AsyncWaitOperator(BoltCalls(operator, loop.run), operator.settings, self._failures)
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
            OperatorContext(self._output, self.clock, executor, self._max_parallelism, self._key_groups, self._calls.log)
        )
        if snapshot is not None:
            self.operator.restore(OperatorSnapshot(snapshot.keyed, [self._own_again(one) for one in snapshot.own]))
        if isinstance(self.bolt, AsyncBolt):
            self._time.run_to_end(self.bolt.open(TaskContext("test", "bolt", 1)))
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
        streams = streams_of(self.bolt)
        collector = BoltCollector("bolt", streams, lambda _error: None)
        carrier = WireRoundtrip(self._codec, "bolt", streams)

        def check(stream: str | None, values: Any) -> Any:
            name = DEFAULT_STREAM if stream is None else stream
            collector.stream(name, values, direct=False)
            return carrier.carried(values, name)

        return check

    # -- progress ---------------------------------------------------------------------------------------------------------

    def _ending(self) -> list[int | InputStatus]:
        if self._combiner is not None:
            channels: int = self._options["channels"]
            return [one for channel in range(channels) for one in self._combiner.finish(channel)]
        active: list[int | InputStatus] = [InputStatus.ACTIVE] if self._is_idle else []
        return [*active, MAX_TIMESTAMP] if self._watermark < MAX_TIMESTAMP else active

    def _take_in(self, news: Iterable[int | InputStatus]) -> None:
        for one in news:
            if isinstance(one, InputStatus):
                # A single channel has no combiner that would leave out repeated states.
                if self._is_idle is not (one is InputStatus.IDLE):
                    self._is_idle = not self._is_idle
                    self.operator.process_idle(self._is_idle)
            else:
                self._watermark = one
                self._calls.timers(partial(self.operator.process_watermark, one))

    def _settle(self) -> None:
        if self._runs_mails:
            self.run()
        else:
            self._time.turn()

    @property
    def _under_way(self) -> int:
        if self._time.loop is not None:
            return self._time.loop.under_way
        waits = isinstance(self.operator, AsyncWaitOperator) and not self.mailbox.has_mail
        return self.in_flight if waits else 0
