"""A keyed operator that is stored and restored at any step, also split over tasks, continues as if nothing had happened."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.operators.rig import Rig
from topo.api.aggregates import Count
from topo.keys import KeyGroupRange, key_group
from topo.operators.base import OperatorSnapshot
from topo.operators.process import OperatorCollector, OperatorProcessContext, ProcessOperator

KEYS = st.sampled_from(["A", "B", "other", 7, (1, "x")])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("element"), KEYS, st.integers(0, 9)),
        st.tuples(st.just("element"), KEYS, st.integers(0, 9)),
        st.tuples(st.just("watermark"), st.integers(1, 10)),
        st.tuples(st.just("clock"), st.integers(1, 10)),
        st.tuples(st.just("restore")),
        st.tuples(st.just("split"), st.integers(0, 126)),
    ),
    max_size=40,
)


class Everything:
    """Uses every kind of state, with and without a time to live, in two namespaces, and timers of both domains."""

    def open(self, context: OperatorProcessContext) -> None:
        state = context.state
        self.last = state.value("last", default=-1)
        self.fading = state.value("fading", ttl="12ms")
        self.all = state.list("all")
        self.recent = state.list("recent", ttl="12ms")
        self.counts = state.map("counts")
        self.fading_counts = state.map("fading counts", ttl="12ms", refresh_on_read=True)
        self.total = state.reducing("total", lambda first, second: first + second)
        self.count = state.aggregating("count", Count())
        self.by_digit = state.list("by digit")

    def process(self, value: int, context: OperatorProcessContext, collector: OperatorCollector) -> None:
        self.show("element", context, collector)
        self.last.set(value)
        self.all.add(value)
        self.recent.add(value)
        self.counts.put(value, self.counts.get(value, 0) + 1)
        self.fading_counts.put(value, self.fading_counts.get(value, 0) + 1)
        self.total.add(value)
        self.count.add(value)
        self.by_digit.namespace = value % 2
        self.by_digit.add(value)
        if value == 0:
            self.by_digit.merge_namespaces(1, [0])
            self.counts.clear()
        if value % 3 == 0:
            self.fading.set(value)
        assert context.timestamp is not None
        context.register_event_time_timer(context.timestamp + value)
        context.register_processing_time_timer(context.current_processing_time + value)
        if value == 9:
            context.delete_event_time_timer(context.timestamp + 8)

    def on_timer(self, timestamp: int, context: OperatorProcessContext, collector: OperatorCollector) -> None:
        self.show("timer", context, collector)
        self.all.replace(self.all.get()[1:])
        if timestamp % 4 == 0:
            context.register_event_time_timer(timestamp + 3)
            self.last.clear()

    def show(self, why: str, context: OperatorProcessContext, collector: OperatorCollector) -> None:
        self.by_digit.namespace = 1
        states = (
            [self.last.get(), self.fading.get(), self.all.get(), self.recent.get(), self.counts.items()],
            [self.fading_counts.items(), self.total.get(), self.count.get(), self.by_digit.get()],
        )
        collector.emit((why, context.key, context.timestamp, str(context.domain), states))

    def close(self) -> None:
        pass


class Tasks:
    """The operator as one task or as two that share the key groups; snapshots are taken and restored between the steps."""

    def __init__(self) -> None:
        self.split_at = 127
        self.rigs = [Rig(ProcessOperator(Everything()))]

    def restore(self, split_at: int | None) -> None:
        snapshot = OperatorSnapshot.merged([rig.snapshot() for rig in self.rigs])
        now_ms = self.rigs[0].clock.now_ms()
        last = 127 if split_at is None else split_at
        shares = [KeyGroupRange(start, end) for start, end in ((0, last), (last + 1, 127)) if start <= end]
        self.split_at = shares[0].end
        self.rigs = [Rig(ProcessOperator(Everything()), now_ms=now_ms, restore=snapshot, groups=share) for share in shares]

    def run(self, kind: str, *arguments: Any) -> list[Any]:
        if kind == "element":
            key, value, timestamp = arguments
            share = 0 if key_group(key, 128) <= self.split_at else 1
            self.rigs[share].operator.process_element(key, value, timestamp)
        for rig in self.rigs:
            if kind == "watermark":
                rig.operator.process_watermark(arguments[0])
            elif kind == "clock":
                rig.clock.advance_to(arguments[0])
        emitted = [each for rig in self.rigs for each in rig.taken() if each[0] != "watermark"]
        # Timers of equal timestamp fire in no particular order, but each key has at most one for each domain and timestamp.
        return sorted(emitted, key=lambda each: (each[0][2], repr(each[0][1]), repr(each)))


@given(STEPS)
@settings(max_examples=300, deadline=None)
def test_snapshot_and_restore_at_any_step_give_the_same_continuation(steps: list[tuple[Any, ...]]) -> None:
    plain, tasks = Tasks(), Tasks()
    watermark = now_ms = 0
    for step in steps:
        match step:
            case "element", key, value:
                call: tuple[Any, ...] = ("element", key, value, watermark + value)
            case "watermark", by:
                watermark += by
                call = ("watermark", watermark)
            case "clock", by:
                now_ms += by
                call = ("clock", now_ms)
            case ("restore",):
                tasks.restore(None)
                continue
            case _, split_at:
                tasks.restore(split_at)
                continue
        assert tasks.run(*call) == plain.run(*call)
    everything = OperatorSnapshot.merged([rig.snapshot() for rig in tasks.rigs])
    assert everything.keyed.keys() == plain.rigs[0].snapshot().keyed.keys()
