"""Every operator, stored and restored after every step into any number of tasks, gives the results of one undisturbed task.

The tasks share the key groups as those of a topology do after a rebalance; snapshots pass through their encoding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.properties.parallelism import FIELDS, keys, parallelisms
from tests.properties.test_state_continuation import Everything
from topo.api import aggregates
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
from topo.keys import range_of
from topo.operators.base import KeyedOperator, OperatorSnapshot
from topo.testing import OperatorHarness
from topo.testing.operator_output import Watermark

END = 2**63 - 1

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
    """Shows the contents of a window, its own state, and the state of its key."""

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
        """Store everything and restore it into the given number of tasks."""
        snapshot = OperatorSnapshot.merged([task.snapshot() for task in self.tasks])
        self.tasks = [self.tasks[0].restore(snapshot, range_of(index, 128, parallelism)) for index in range(parallelism)]
        for task in self.tasks:
            assert isinstance(task.operator, KeyedOperator)
            # A restored operator begins without a watermark. The inputs repeat theirs, which the steps here do not.
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


# -- event time --------------------------------------------------------------------------------------------------------------

STRATEGIES = {
    "bounded": WatermarkStrategy.bounded_out_of_orderness("4ms", timestamp="n"),
    "idle": WatermarkStrategy.bounded_out_of_orderness("4ms", timestamp="n").with_idleness("300ms"),
    "punctuated": WatermarkStrategy.punctuated(lambda values, timestamp: timestamp if timestamp % 3 == 0 else None, "n"),
    "timestamps only": WatermarkStrategy.timestamps_only("n"),
}


@pytest.mark.parametrize("kind", STRATEGIES)
def test_watermarks_after_a_restart_are_never_ahead_of_those_without(kind: str) -> None:
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
