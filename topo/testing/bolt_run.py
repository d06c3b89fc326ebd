"""One bolt on given tuples: no topology, no processes, no clock. The result holds its emits, acks, fails and errors.

The bolt is given the collector that a task gives it, so emits, anchors, acks and exceptions mean what they mean in a topology.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Any

from topo.api.batch_bolt import BatchBolt
from topo.api.bolt import BasicBolt, Bolt
from topo.api.column_batch import ColumnBatch
from topo.api.columns import ColumnBolt
from topo.api.component import Component
from topo.api.context import TaskContext
from topo.api.metrics import MetricsSnapshot
from topo.api.streams import DEFAULT_STREAM, SYSTEM_COMPONENT, TICK_STREAM, streams_of
from topo.api.topology import CarriedType
from topo.api.tuples import Origin, Tuple
from topo.config import TopologyConfig, current_names
from topo.emission.collectors import BoltCollector, TrackedTuple, anchoring_collector
from topo.emission.emitter import Emitter, StreamRows
from topo.errors import UserError
from topo.hot import Row
from topo.operators.base import OperatorContext
from topo.operators.batching import BatchOperator
from topo.operators.mailbox.executor import MailboxExecutor
from topo.operators.mailbox.mailbox import TaskMailbox
from topo.operators.time.clock import ManualProcessingTime
from topo.task.runners.batch_calls import BatchCalls, GatheredCalls
from topo.task.runners.columns import ColumnCalls
from topo.testing.given_tuples import TICK, GivenTuple, given_tuple
from topo.testing.operator_output import RecordedOutput
from topo.testing.recording import CheckedBasicCollector, CheckedCollector
from topo.testing.wire_roundtrip import WireRoundtrip, codec_for
from topo.user_errors import call_for_effect, place_of
from topo.wire.codec import Codec

TASK = 1
"""Id of the task that the bolt believes to be."""
_EPOCH = 1
AnyBolt = Bolt | BasicBolt | BatchBolt | ColumnBolt


@dataclass(frozen=True, slots=True)
class EmittedTuple:
    """A tuple that the bolt has emitted.

    Attributes:
        values: as they arrive at the next component: sequences are tuples.
        inputs: numbers of the inputs that it is anchored on; empty: it is not tracked.
        timestamp: event time in milliseconds.
        task: the task that was named, on a direct stream.
    """

    values: Row
    inputs: tuple[int, ...] = ()
    timestamp: int | None = None
    task: int | None = None


@dataclass(frozen=True, slots=True)
class BoltError:
    """An exception of the bolt, or an error that it reported.

    Attributes:
        input: number of the input being processed; None at a tick and at the end of the input.
        file, line: the innermost place in the bolt's own code; "" and 0 where the error has none.
    """

    exception: BaseException
    input: int | None
    file: str
    line: int

    def __str__(self) -> str:
        where = "" if self.input is None else f"input {self.input}: "
        place = f" ({self.file}:{self.line})" if self.file else ""
        return f"{where}{type(self.exception).__name__}: {self.exception}{place}"


@dataclass(slots=True)
class BoltRun:
    """The result of `run_bolt`. Inputs are numbered from 0, ticks left out.

    Attributes:
        bolt: the bolt that ran.
        inputs: how many there were.
        emitted: by stream, in order.
        acked: numbers of the inputs that were acked, in order.
        failed: numbers of those that failed.
        errors: the exceptions raised and reported.
        metrics: the bolt's own metrics at the end.
    """

    bolt: AnyBolt
    inputs: int = 0
    emitted: dict[str, list[EmittedTuple]] = field(default_factory=dict)
    acked: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    errors: list[BoltError] = field(default_factory=list)
    metrics: MetricsSnapshot = field(default_factory=MetricsSnapshot)

    def values(self, stream: str = DEFAULT_STREAM) -> list[Row]:
        """Return the values emitted on a stream, in order."""
        return [emitted.values for emitted in self.emitted.get(stream, [])]

    @property
    def unfinished(self) -> list[int]:
        """Numbers of the inputs that were neither acked nor failed."""
        return sorted(set(range(self.inputs)) - set(self.acked) - set(self.failed))

    def assert_all_acked(self) -> None:
        """Raise AssertionError, with the bolt's errors, unless every input was acked."""
        found = (("failed", self.failed), ("were neither acked nor failed", self.unfinished))
        problems = [f"inputs {numbers} {what}" for what, numbers in found if numbers]
        assert not problems, "\n".join([*problems, *map(str, self.errors)])


def run_bolt(
    bolt: AnyBolt,
    tuples: Iterable[Any],
    *,
    fields: Sequence[str] | None = None,
    ticks: int = 0,
    end_of_input: bool = True,
    tasks: Mapping[str, Sequence[int]] | None = None,
    task_index: int = 0,
    parallelism: int = 1,
    types: Iterable[CarriedType] = (),
    **settings: Any,
) -> BoltRun:
    """Run one bolt: `prepare`, `execute` for each tuple, `end_of_input`, `cleanup`.

    A `BatchBolt` is called for full batches; for open ones at a `TICK`, which stands for the passing of `wait`, and at the end.
    So is a `ColumnBolt` for tuples; a batch of a component that emits batches is `ColumnBatch.of({...})`.

    Every value goes through the codec, in and out. An unsupported value raises in the `emit` that has it.

    Args:
        bolt: an instance that has not run.
        tuples: its inputs: `tuple_of(word="a")`, a mapping of fields to values, a sequence of values, or `TICK`.
        fields: names for the inputs that are sequences.
        ticks: tick tuples after the inputs.
        end_of_input: whether the inputs end.
        tasks: task ids by component, as the bolt's context names them; direct emits may go to these.
        task_index, parallelism: those of the bolt's context.
        types: types that tuples may carry besides those that topo knows.
        settings: the bolt's settings.

    Raises:
        ConfigError: a setting is wrong.
        UserError: an input is not what `tuples` may hold.
        UnsupportedValueError: an input has a value that no spout or bolt could emit.
        Exception: whatever `prepare` and `cleanup` raise; with `on_error="crash"` also what `execute` raises.
    """
    given: Any = bolt
    if not isinstance(given, AnyBolt):
        name = given.__name__ if isinstance(given, type) else type(given).__name__
        fix = "a bolt with windows, timers or calls runs in an OperatorHarness"
        if not isinstance(given, Component):
            fix = "give a bolt" if not isinstance(given, type) else f"give an instance, {name}(...)"
        raise UserError(f"run_bolt takes a Bolt, BasicBolt, BatchBolt or ColumnBolt; got {name}: {fix}")
    if not isinstance(tuples, Iterable):
        raise UserError(f"run_bolt was given {tuples!r:.60} as the inputs; give a list of them, such as [(1,), (2,)]")
    config = TopologyConfig().with_settings({**current_names(bolt.component_settings), **current_names(settings)})
    known = {component: tuple(ids) for component, ids in (tasks or {}).items()}
    streams = {"bolt": {stream.name: stream.fields for stream in streams_of(bolt)}}
    context = TaskContext("test", "bolt", TASK, task_index, parallelism, config, known, streams=streams)
    codec = codec_for(types)
    driver = _driver(bolt, context, codec)
    driver.prepare()
    for item in chain(tuples, repeat(TICK, ticks)):
        if item is TICK:
            driver.tick()
        else:
            driver.input(given_tuple(item, fields))
    if end_of_input:
        driver.end()
    bolt.cleanup()
    driver.run.metrics = context.metrics.snapshot()
    return driver.run


class _Driver(ABC):
    """Calls the bolt and writes down what follows."""

    def __init__(self, bolt: AnyBolt, collector: Emitter, context: TaskContext, codec: Codec) -> None:
        streams = streams_of(bolt)
        self.run = BoltRun(bolt, emitted={stream.name: [] for stream in streams})
        self.context = context
        self.carrier = WireRoundtrip(codec, context.component, streams)
        self._codec = codec
        self.collector = collector
        self._in_hand: int | None = None
        for stream in collector.streams:
            stream.direct_targets = frozenset(task for ids in context.tasks.values() for task in ids)

    @abstractmethod
    def prepare(self) -> None:
        """Call `prepare`."""

    @abstractmethod
    def execute(self, tup: TrackedTuple) -> None:
        """Call `execute`, and settle the input."""

    @abstractmethod
    def tick(self) -> None:
        """Call `execute` with a tick tuple."""

    @abstractmethod
    def end(self) -> None:
        """Call `end_of_input`."""

    def input(self, given: GivenTuple) -> None:
        """Give the bolt its next input."""
        values = WireRoundtrip(self._codec, given.component, ()).carried(given.values, given.stream)
        is_batch = len(values) == 1 and isinstance(values[0], ColumnBatch)
        takes_batches = isinstance(self.run.bolt, ColumnBolt) or getattr(self.run.bolt, "takes_batches", False)
        if is_batch and not takes_batches:
            raise UserError(f"a {type(self.run.bolt).__name__} is given the rows of a batch: give them one by one")
        origin = Origin(given.component, given.task, given.stream, given.fields, columnar=is_batch)
        number = self._in_hand = self.run.inputs
        self.run.inputs += 1
        # The number of the input stands for its root; it is not zero.
        tup = TrackedTuple.made(values, origin, given.timestamp, _EPOCH, (number + 1,), (number + 1,))
        try:
            self.execute(tup)
        finally:
            self._in_hand = None

    def report(self, error: BaseException) -> None:
        """Write down an error."""
        self.run.errors.append(BoltError(error, self._in_hand, *place_of(error)))

    def raised(self, error: Exception) -> None:
        """Write down what a call has raised."""
        self.report(error)
        if self.context.config.on_error == "crash":
            raise error

    def note(self, stream: StreamRows, row: int, inputs: tuple[int, ...], timestamp: int | None) -> None:
        """Write down a row."""
        name = stream.declaration.name
        values = self.carrier.carried(stream.rows[row], name)
        task = stream.targets[row] if stream.targets else None
        self.run.emitted[name].append(EmittedTuple(values, inputs, stream.stamps.get(row, timestamp), task))


def _tick() -> Tuple:
    return Tuple((), Origin(SYSTEM_COMPONENT, 0, TICK_STREAM))


class _BasicDriver(_Driver):
    def __init__(self, bolt: BasicBolt, context: TaskContext, codec: Codec) -> None:
        self._bolt = bolt
        collector = anchoring_collector(context.component, streams_of(bolt), self.report, codec)
        super().__init__(bolt, collector, context, codec)
        self._collector = CheckedBasicCollector(collector, self.carrier)

    def prepare(self) -> None:
        self._bolt.prepare(self.context)

    def execute(self, tup: TrackedTuple) -> None:
        number = tup.roots[0] - 1
        is_done = self._call(lambda: call_for_effect(self._bolt.execute, tup, self._collector), (number,), tup.timestamp)
        (self.run.acked if is_done else self.run.failed).append(number)

    def tick(self) -> None:
        self._call(lambda: call_for_effect(self._bolt.execute, _tick(), self._collector))

    def end(self) -> None:
        self._call(lambda: call_for_effect(self._bolt.end_of_input, self._collector))

    def _call(self, call: Any, inputs: tuple[int, ...] = (), timestamp: int | None = None) -> bool:
        try:
            call()
            self.collector.check_emitted(self.collector.count(), self.context.config.max_task_emit)
        except Exception as error:
            self.raised(error)
            return False
        else:
            for stream in self.collector.streams:
                for row in range(len(stream.rows)):
                    self.note(stream, row, inputs, timestamp)
            return True
        finally:
            for stream in self.collector.streams:
                stream.clear()


class _AnchoringDriver(_Driver):
    """Base of the drivers of bolts that name their anchors."""

    def __init__(self, bolt: Bolt | BatchBolt | ColumnBolt, context: TaskContext, codec: Codec) -> None:
        self._collector = BoltCollector(context.component, streams_of(bolt), self.report, codec)
        super().__init__(bolt, self._collector, context, codec)

    def _call(self, call: Any, tup: TrackedTuple | None = None) -> None:
        mark = self._collector.mark()
        try:
            call()
            self.collector.check_emitted(self.collector.count() - mark.emitted, self.context.config.max_task_emit)
        except Exception as error:
            self._collector.roll_back(mark, tup)
            self.raised(error)
        finally:
            self._settle()

    def _settle(self) -> None:
        for stream, anchors in zip(self.collector.streams, self._collector.anchors, strict=True):
            for row, on in enumerate(anchors):
                self.note(stream, row, tuple(anchor.roots[0] - 1 for anchor in on), None)
        self.run.acked += [tup.roots[0] - 1 for tup in self._collector.acked]
        self.run.failed += [tup.roots[0] - 1 for tup in self._collector.failed]
        self._collector.clear()


class _TrackingDriver(_AnchoringDriver):
    def __init__(self, bolt: Bolt, context: TaskContext, codec: Codec) -> None:
        self._bolt = bolt
        super().__init__(bolt, context, codec)

    def prepare(self) -> None:
        self._bolt.prepare(self.context, CheckedCollector(self._collector, self.carrier))
        self._settle()

    def execute(self, tup: TrackedTuple) -> None:
        self._call(lambda: call_for_effect(self._bolt.execute, tup), tup)

    def tick(self) -> None:
        self._call(lambda: call_for_effect(self._bolt.execute, _tick()))

    def end(self) -> None:
        self._call(self._bolt.end_of_input)


class _BatchDriver(_AnchoringDriver):
    """Drives a batching bolt, and is the function that its batches call."""

    def __init__(self, bolt: BatchBolt | ColumnBolt, context: TaskContext, codec: Codec) -> None:
        self._bolt = bolt
        super().__init__(bolt, context, codec)
        most, given = context.config.max_task_emit, CheckedCollector(self._collector, self.carrier)
        self._calls: GatheredCalls
        if isinstance(bolt, ColumnBolt):
            self._calls = ColumnCalls(bolt, self._collector, streams_of(bolt), most, given)
        else:
            self._calls = BatchCalls(bolt, self._collector, most, given)
        self._batches = BatchOperator(self, bolt.settings)
        executor = MailboxExecutor(TaskMailbox())
        self._batches.setup(OperatorContext(RecordedOutput(), ManualProcessingTime(), executor))

    def prepare(self) -> None:
        self._bolt.prepare(self.context)

    def execute(self, tup: TrackedTuple) -> None:
        if tup.origin.columnar:
            self._batches.process_alone(None, tup)
        else:
            is_column_bolt = isinstance(self._bolt, ColumnBolt)
            key = (tup.component, tup.stream) if is_column_bolt else tuple(tup[name] for name in self._bolt.key)
            self._batches.process_element(key, tup, tup.timestamp)
        self._run_ready()

    def tick(self) -> None:
        self._batches.close_batches()
        self._run_ready()

    def end(self) -> None:
        self.tick()
        self._call(lambda: self._bolt.end_of_input(self._calls.collector))

    def _run_ready(self) -> None:
        while self._batches.has_ready:
            self._batches.run_one()
            self._settle()

    def call(self, values: list[TrackedTuple]) -> None:
        self._calls.call(values)
        for error in filter(None, map(self._calls.error_of, values)):
            self.report(error)

    def split(self, error: Exception) -> None:
        self.raised(error)

    def failed(self, value: TrackedTuple, error: Exception) -> None:
        """Fail the input whose own call has raised."""
        self._collector.fail(value)
        self._in_hand = value.roots[0] - 1
        self.raised(error)


def _driver(bolt: AnyBolt, context: TaskContext, codec: Codec) -> _Driver:
    if isinstance(bolt, BatchBolt | ColumnBolt):
        return _BatchDriver(bolt, context, codec)
    return _BasicDriver(bolt, context, codec) if isinstance(bolt, BasicBolt) else _TrackingDriver(bolt, context, codec)
