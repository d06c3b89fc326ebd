"""Every operator, stored and restored after every step into any number of tasks, does what it does undisturbed as one task.

The tasks share the key groups as those of a topology do after a rebalance; snapshots pass through their encoding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.properties.test_state_continuation import Everything
from tests.unit.operators.rig import Rig, encoded
from topo.api import aggregates
from topo.api.async_io import AsyncMode, AsyncSettings, FixedDelayRetry
from topo.api.bolt import StatefulBolt
from topo.api.evictors import CountEvictor, DeltaEvictor, TimeEvictor
from topo.api.operator_bolts import OperatorBolt, ProcessBolt, WindowBolt
from topo.api.triggers import (
    ContinuousEventTimeTrigger,
    CountTrigger,
    DeltaTrigger,
    EventTimeTrigger,
    ProcessingTimeoutTrigger,
    PurgingTrigger,
)
from topo.api.tuples import Origin, Tuple
from topo.api.watermarks import WatermarkStrategy
from topo.api.windows import (
    CountWindows,
    EventTimeSessionWindows,
    GlobalWindows,
    ProcessingTimeSessionWindows,
    ProcessWindowFunction,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from topo.builder import TopologyBuilder
from topo.checkpoint.alignment import Snapshot, StoredPart
from topo.checkpoint.assignment import manifest_of, parts_to_read
from topo.connectors.iterable_spout import IterableSpout
from topo.ids import Epoch, IdSource, TaskId
from topo.keys import key_group, owner_of, range_of
from topo.operators.async_wait import AsyncFunction, AsyncWaitOperator, ResultHandle, joined_inputs
from topo.operators.base import KeyedOperator, OperatorSnapshot
from topo.plan.parallelism import with_parallelism
from topo.plan.physical import physical_plan
from topo.storage.snapshots import TaskSnapshots
from topo.task.context import make_context
from topo.task.environment import TaskEnvironment, TaskSpec
from topo.task.factory import task_class
from topo.testing import OperatorHarness
from topo.testing.memory_files import MemoryCheckpoints
from topo.testing.operator_output import Watermark
from topo.wire.codec import Codec
from topo.wire.control import SnapshotTaken
from topo.wire.serializers import SerializerRegistry

FIELDS = ("key", "n")
MOST_TASKS = 4
END = 2**63 - 1

parallelisms = st.sampled_from([1, 1, 2, 3, MOST_TASKS])
keys = st.sampled_from(["A", "B", "other", "C", "D"])
elements = st.tuples(st.just("element"), parallelisms, keys, st.integers(0, 9), st.integers(-12, 9))
scripts = st.lists(
    st.one_of(
        elements,
        elements,
        elements,
        st.tuples(st.just("watermark"), parallelisms, st.integers(1, 12)),
        st.tuples(st.just("clock"), parallelisms, st.integers(1, 12)),
    ),
    max_size=14,
)


class Rows(ProcessWindowFunction):
    """Shows what a window holds, what it remembers of itself, and what it remembers of its key."""

    def __init__(self, *, merges: bool = False) -> None:
        self.merges = merges

    def process(self, key: Any, elements: Sequence[Any], context: Any, collector: Any) -> None:
        bounds = (getattr(context.window, "start", None), getattr(context.window, "end", None))
        fired = context.global_state.value("fired", default=0)
        fired.set(fired.get() + 1)
        times = 0
        if not self.merges:
            of_window = context.window_state.value("times", default=0)
            of_window.set(of_window.get() + 1)
            times = of_window.get()
        collector.emit((key, *bounds, sorted(row[-1] for row in elements), fired.get(), times))


def windows(window: Any, *, key: Any = "key", merges: bool = False, **options: Any) -> Callable[[], WindowBolt]:
    if not {"aggregate", "reduce"} & options.keys():
        options |= {"process": Rows(merges=merges), "outputs": ("key", "start", "end", "numbers", "fired", "times")}
    return lambda: WindowBolt(key=key, window=window, **options)


LATE: dict[str, Any] = {"allowed_lateness": "6ms", "late_stream": "late"}
SUM = aggregates.Sum("n")


def longer(first: tuple[str, int], second: tuple[str, int]) -> tuple[str, int]:
    return (first[0], first[1] * 10 + second[1])


def distance(first: tuple[str, int], second: tuple[str, int]) -> float:
    return abs(second[1] - first[1])


WINDOWS: dict[str, Callable[[], WindowBolt]] = {
    "tumbling, aggregate": windows(TumblingEventTimeWindows.of("10ms"), aggregate=SUM, **LATE),
    "tumbling, process": windows(TumblingEventTimeWindows.of("7ms", offset="3ms"), **LATE),
    "sliding, reduce": windows(SlidingEventTimeWindows.of("10ms", "4ms"), reduce=longer, result_fields=("of", "n"), **LATE),
    "sessions, aggregate": windows(EventTimeSessionWindows.with_gap("5ms"), aggregate=SUM, **LATE),
    "sessions, process": windows(EventTimeSessionWindows.with_gap("5ms"), merges=True, **LATE),
    "dynamic sessions": windows(EventTimeSessionWindows.with_dynamic_gap(lambda row: f"{row[1] + 1}ms"), merges=True, **LATE),
    "sessions, evictor": windows(EventTimeSessionWindows.with_gap("5ms"), merges=True, evictor=CountEvictor(2), **LATE),
    "processing time, tumbling": windows(TumblingProcessingTimeWindows.of("10ms")),
    "processing time, sliding": windows(SlidingProcessingTimeWindows.of("10ms", "5ms"), aggregate=aggregates.Collect("n")),
    "processing time, sessions": windows(ProcessingTimeSessionWindows.with_gap("6ms"), merges=True),
    "count": windows(CountWindows.of(3)),
    "sliding count": windows(CountWindows.of(3, 2)),
    "time evictor": windows(TumblingEventTimeWindows.of("20ms"), evictor=TimeEvictor(6), **LATE),
    "delta evictor": windows(TumblingEventTimeWindows.of("20ms"), evictor=DeltaEvictor(4, distance), **LATE),
    "continuous": windows(TumblingEventTimeWindows.of("20ms"), trigger=ContinuousEventTimeTrigger(6), **LATE),
    "continuous sessions": windows(
        EventTimeSessionWindows.with_gap("6ms"), merges=True, trigger=ContinuousEventTimeTrigger(4), **LATE
    ),
    "purging count": windows(TumblingEventTimeWindows.of("20ms"), trigger=PurgingTrigger.of(CountTrigger(2)), **LATE),
    "delta": windows(GlobalWindows(), trigger=PurgingTrigger.of(DeltaTrigger(3, distance))),
    "processing timeout": windows(
        TumblingEventTimeWindows.of("20ms"), trigger=ProcessingTimeoutTrigger.of(EventTimeTrigger(), "5ms"), **LATE
    ),
}


class EverythingBolt(ProcessBolt):
    """All kinds of state, with and without a time to live, and timers of both domains."""

    outputs = ("why", "key", "timestamp", "domain", "states")

    def __init__(self) -> None:
        super().__init__(key="key")
        self.inner = Everything()

    def open(self, context: Any) -> None:
        self.inner.open(context)

    def process(self, tup: Any, context: Any, collector: Any) -> None:
        self.inner.process(tup["n"], context, collector)

    def on_timer(self, timestamp: int, context: Any, collector: Any) -> None:
        self.inner.on_timer(timestamp, context, collector)


class Tasks:
    """A bolt as one task or as several that share the key groups."""

    def __init__(self, make: Callable[[], OperatorBolt]) -> None:
        self.whole = OperatorHarness(make(), FIELDS)
        self.tasks = [self.whole]
        self.watermark = -(2**63)

    def step(self, kind: str, *arguments: Any) -> list[str]:
        """Take a step; return what came out, those of equal time in any order."""
        for task in self.tasks:
            if kind == "watermark":
                task.watermark(arguments[0])
            elif kind == "clock":
                task.set_clock(arguments[0])
        if kind == "element":
            key, number, timestamp = arguments
            self.whole.owner(self.tasks, key).process((key, number), timestamp)
        out = sorted(repr(event) for task in self.tasks for event in task.events if not isinstance(event, Watermark))
        for task in self.tasks:
            assert task.watermarks == (list(arguments) if kind == "watermark" else [])
            task.clear()
        if kind == "watermark":
            self.watermark = arguments[0]
        return out

    def restart(self, parallelism: int) -> None:
        """Store everything and go on from it as so many tasks."""
        snapshot = OperatorSnapshot.merged([task.snapshot() for task in self.tasks])
        self.tasks = [self.tasks[0].restore(snapshot, range_of(index, 128, parallelism)) for index in range(parallelism)]
        for task in self.tasks:
            assert isinstance(task.operator, KeyedOperator)
            # A restored operator begins without a watermark. The inputs send theirs anew, which the steps here do not.
            for service in task.operator.timers._services.values():
                service.current_watermark = self.watermark


def compare(make: Callable[[], OperatorBolt], script: list[tuple[Any, ...]], *, is_split: bool = True) -> None:
    undisturbed, tasks = Tasks(make), Tasks(make)
    watermark = now_ms = 0
    steps: list[tuple[Any, ...]] = [*script, ("watermark", 2, 100), ("clock", 3, 100)]
    for kind, parallelism, *arguments in steps:
        if kind == "element":
            call = [*arguments[:2], watermark + arguments[2]]
        elif kind == "watermark":
            watermark += arguments[0]
            call = [watermark]
        else:
            now_ms += arguments[0]
            call = [now_ms]
        assert tasks.step(kind, *call) == undisturbed.step(kind, *call)
        tasks.restart(parallelism if is_split else 1)
    assert sum(task.timers for task in tasks.tasks) == undisturbed.whole.timers
    everything = OperatorSnapshot.merged([task.snapshot() for task in tasks.tasks])
    assert everything.keyed.keys() == undisturbed.whole.snapshot().keyed.keys()


@pytest.mark.parametrize("kind", WINDOWS)
def test_windows_of_every_kind_do_not_notice(kind: str) -> None:
    @settings(max_examples=25, deadline=None)
    @given(scripts)
    def holds(script: list[tuple[Any, ...]]) -> None:
        compare(WINDOWS[kind], script)

    holds()


@pytest.mark.parametrize("window", [EventTimeSessionWindows.with_gap("5ms"), CountWindows.of(3, 2)], ids=["sessions", "count"])
def test_windows_over_all_keys_do_not_notice_a_restart(window: Any) -> None:
    @settings(max_examples=25, deadline=None)
    @given(scripts)
    def holds(script: list[tuple[Any, ...]]) -> None:
        compare(windows(window, key=None, merges=True), script, is_split=False)

    holds()


@settings(max_examples=60, deadline=None)
@given(scripts)
def test_process_bolts_with_all_kinds_of_state_and_timers_do_not_notice(script: list[tuple[Any, ...]]) -> None:
    compare(EverythingBolt, [(*step[:-1], abs(step[-1])) if step[0] == "element" else step for step in script])


# -- asynchronous calls ------------------------------------------------------------------------------------------------------


class Calls(AsyncFunction):
    """Calls that the test completes, of one task's life; one that is to fail fails once."""

    def __init__(self, failed: set[int]) -> None:
        self.open: dict[int, ResultHandle] = {}
        self.failed = failed

    def invoke(self, value: int, handle: ResultHandle) -> None:
        self.open[value] = handle

    def complete(self, number: int) -> None:
        if self.open:
            value = sorted(self.open)[number % len(self.open)]
            handle = self.open.pop(value)
            if value % 7 == 0 and value not in self.failed:
                self.failed.add(value)
                handle.complete_exceptionally(OSError(str(value)))
            else:
                handle.complete([value])


class AsyncTasks:
    """An async operator as a few tasks. What was in flight in task i goes to task i modulo their new number."""

    def __init__(self, mode: AsyncMode) -> None:
        retry = FixedDelayRetry(3, "3ms", if_error=lambda _error: True)
        self.settings = AsyncSettings(mode, capacity=1000, timeout_ms=0, retry=retry)
        self.now_ms = 0
        self.failed: set[int] = set()
        self.left: list[tuple[int, int]] = []
        """Values and timestamps, in the order in which they left."""
        self.start([[]])

    def start(self, queues: list[list[Any]]) -> None:
        self.calls = [Calls(self.failed) for _ in queues]
        self.rigs = [
            Rig(AsyncWaitOperator(calls, self.settings), now_ms=self.now_ms, restore=OperatorSnapshot(own=list(queue)))
            for calls, queue in zip(self.calls, queues, strict=True)
        ]
        self.told = [-1] * len(queues)

    def restart(self, parallelism: int) -> None:
        own = [encoded(rig.operator.snapshot()).own for rig in self.rigs]
        self.start([joined_inputs(own[index::parallelism]) for index in range(parallelism)])

    def take(self) -> None:
        for index, rig in enumerate(self.rigs):
            for one in rig.taken():
                if one[0] == "watermark":
                    self.told[index] = max(self.told[index], one[1])
                else:
                    assert one[1] > self.told[index], f"{one} has left behind the watermark {self.told[index]}"
                    self.left.append(one)


async_scripts = st.lists(
    st.tuples(
        st.sampled_from(["element", "element", "element", "watermark", "complete", "mails", "clock"]),
        # 0: nothing happens to the tasks.
        st.sampled_from([0, 0, 1, 2, 3]),
        st.integers(0, 20),
    ),
    min_size=5,
    max_size=30,
)


@settings(max_examples=120, deadline=None)
@example(AsyncMode.ORDERED, [("element", 2, 0), ("element", 0, 1), ("watermark", 1, 0)], False)
@example(AsyncMode.UNORDERED, [("element", 2, 0), ("element", 0, 1), ("watermark", 1, 0)], False)
@given(st.sampled_from(list(AsyncMode)), async_scripts, st.booleans())
def test_async_bolts_lose_and_repeat_nothing_and_nothing_gets_behind_a_watermark(
    mode: AsyncMode, script: list[tuple[str, int, int]], is_always_restarted: bool
) -> None:
    tasks = AsyncTasks(mode)
    watermark = 0
    given_: list[tuple[int, int]] = []
    for number, (kind, parallelism, argument) in enumerate(script):
        at = argument % len(tasks.rigs)
        if kind == "element":
            given_.append((number, watermark + 1 + argument % 3))
            tasks.rigs[at].operator.process_element(None, *given_[-1])
        elif kind == "watermark":
            watermark += 2
            for rig in tasks.rigs:
                rig.operator.process_watermark(watermark)
        elif kind == "complete":
            tasks.calls[at].complete(argument)
        elif kind == "mails":
            tasks.rigs[at].run_mails(argument)
        else:
            tasks.now_ms += argument
            for rig in tasks.rigs:
                rig.clock.advance_to(tasks.now_ms)
        tasks.take()
        if parallelism or is_always_restarted:
            tasks.restart(parallelism or len(tasks.rigs))
            tasks.take()
    while any(calls.open for calls in tasks.calls):
        for rig, calls in zip(tasks.rigs, tasks.calls, strict=True):
            calls.complete(0)
            rig.run_mails()
            rig.clock.advance_to(tasks.now_ms + 10)
        tasks.now_ms += 10
    for rig in tasks.rigs:
        rig.operator.end_of_input()
    tasks.take()
    assert sorted(tasks.left) == sorted(given_)


# -- a user's own state ------------------------------------------------------------------------------------------------------


class Logs(StatefulBolt):
    """Remembers by key what it was given."""

    key = "key"

    def prepare(self, context: Any) -> None:
        self.state: dict[Any, list[int]] = {}

    def execute(self, tup: Tuple, collector: Any) -> None:
        self.state.setdefault(tup["key"], []).append(tup["n"])

    def snapshot(self) -> Any:
        return self.state

    def restore(self, state: Any) -> None:
        self.state = {key: list(numbers) for key, numbers in (state or {}).items()}


class Nothing:
    """Notes nothing of what is in hand."""

    def hold(self, task: TaskId, roots: bytes) -> None: ...

    def release(self) -> None: ...


class LogTasks:
    """`Logs` as the tasks of a plan; what is stored of them passes through files, and the shares that each task reads."""

    def __init__(self) -> None:
        builder = TopologyBuilder("logs").config(delivery="exactly_once")
        builder.set_spout("source", IterableSpout((), fields=FIELDS))
        builder.set_bolt("logs", Logs()).fields_grouping("source", "key")
        self.topology = builder.build()
        self.codec = Codec()
        self.checkpoint = 0
        self._plan(1)
        self.checkpoints = MemoryCheckpoints(self.plan, SerializerRegistry())
        self._open({})

    def _plan(self, parallelism: int) -> None:
        self.plan = physical_plan(with_parallelism(self.topology, {"logs": parallelism}, self.topology.config))

    def _open(self, snapshots: dict[TaskId, list[Snapshot]]) -> None:
        self.tasks: list[Any] = []
        for task in self.plan.tasks_of("logs"):
            bolt = Logs()
            setup = TaskSpec(task, self.plan, self.plan.config_of("logs"), bolt, make_context(self.plan, task))
            stored = TaskSnapshots(self.plan, task, self.checkpoints.store, SerializerRegistry(), lambda work: work())
            ports = TaskEnvironment(IdSource(b"logs"), lambda: 0.0, self.codec, Nothing(), snapshots=stored)
            made: Any = task_class(self.plan, task, bolt)(setup, ports)
            bolt.prepare(setup.context)
            made._restore_user(snapshots.get(task, []))
            self.tasks.append(made)

    def process(self, key: str, number: int) -> None:
        task = self.tasks[owner_of(key_group(key, 128), 128, len(self.tasks))]
        task._user.execute(Tuple((key, number), Origin("source", 1, "default", FIELDS)), None)

    def restart(self, parallelism: int) -> None:
        self.checkpoint += 1
        taken: dict[TaskId, SnapshotTaken] = {}

        def store(task: Any) -> None:
            def stored(part: StoredPart | None, error: Exception | None) -> None:
                assert part is not None, error
                taken[task.id] = SnapshotTaken(
                    task=task.id, epoch=Epoch(1), checkpoint=self.checkpoint,
                    file=part.file, length=part.length, checksum=part.checksum,
                )  # fmt: skip

            task.snapshots.store.write(self.checkpoint, task._snapshot(self.checkpoint), stored)

        for task in self.tasks:
            store(task)
        manifest = manifest_of(self.plan, self.checkpoint, taken, 0.0)
        self._plan(parallelism)
        ids = self.plan.tasks_of("logs")
        parts = parts_to_read(self.plan, manifest, ids)
        readers = {task: TaskSnapshots(self.plan, task, self.checkpoints.store, SerializerRegistry(), print) for task in ids}
        self._open({task: readers[task].read("", self.checkpoint, parts[task]) for task in ids})

    @property
    def state(self) -> dict[Any, list[int]]:
        found: dict[Any, list[int]] = {}
        for index, task in enumerate(self.tasks):
            for key, numbers in task._user.state.items():
                assert owner_of(key_group(key, 128), 128, len(self.tasks)) == index, "a key is with a task that does not own it"
                found[key] = numbers
        return found


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(keys, st.integers(0, 99), parallelisms), max_size=12))
def test_the_state_of_a_bolt_of_ones_own_follows_its_keys(script: list[tuple[str, int, int]]) -> None:
    tasks = LogTasks()
    expected: dict[str, list[int]] = {}
    for key, number, parallelism in script:
        tasks.process(key, number)
        expected.setdefault(key, []).append(number)
        tasks.restart(parallelism)
        assert tasks.state == expected


# -- event time --------------------------------------------------------------------------------------------------------------

STRATEGIES = {
    "bounded": WatermarkStrategy.bounded_out_of_orderness("4ms", timestamp="n"),
    "idle": WatermarkStrategy.bounded_out_of_orderness("4ms", timestamp="n").with_idleness("300ms"),
    "punctuated": WatermarkStrategy.punctuated(lambda values, timestamp: timestamp if timestamp % 3 == 0 else None, "n"),
    "timestamps only": WatermarkStrategy.timestamps_only("n"),
}


@pytest.mark.parametrize("kind", STRATEGIES)
def test_watermarks_after_a_restart_are_never_ahead_of_those_without_and_elements_keep_their_timestamps(kind: str) -> None:
    @settings(max_examples=25, deadline=None)
    @given(st.lists(st.one_of(st.tuples(st.just("element"), st.integers(0, 40)), st.tuples(st.just("clock"), st.just(200)))))
    def holds(script: list[tuple[str, int]]) -> None:
        undisturbed, again = OperatorHarness(STRATEGIES[kind], FIELDS), OperatorHarness(STRATEGIES[kind], FIELDS)
        reached = -(2**63)
        for step, amount in script:
            for harness in (undisturbed, again):
                harness.clear()
                if step == "element":
                    harness.process(("A", amount))
                else:
                    harness.advance_clock(amount)
            assert again.outputs == undisturbed.outputs
            reached = max([reached, *undisturbed.watermarks])
            assert all(watermark <= reached for watermark in again.watermarks)
            again = again.restore(again.snapshot())
        again.clear()
        again.end_of_input()
        assert again.watermarks[-1:] == [END]

    holds()
