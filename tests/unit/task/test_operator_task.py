"""Window, process and async bolts as tasks: what they emit, ack, fail and tell of event time; the test plays the neighbours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.unit.task.harness import CODEC, Calls, Ids, Scripted, Sink, Solo
from topo import aggregates
from topo.api.async_io import AsyncMode, FixedDelayRetry
from topo.api.operator_bolts import AsyncBolt, OperatorBolt, ProcessBolt, WindowBolt
from topo.api.triggers import CountTrigger, EventTimeTrigger, PurgingTrigger, Trigger, TriggerContext, TriggerResult
from topo.api.watermarks import WatermarkStrategy
from topo.api.windows import (
    CountWindows,
    EventTimeSessionWindows,
    GlobalWindows,
    ProcessWindowFunction,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from topo.builder import TopologyBuilder
from topo.ids import REPLAYED_BIT, Epoch
from topo.wire.control import CheckpointComplete, ComponentError, DeadLetter, TuplesFailed
from topo.wire.frames import FrameKind

FIELDS = ("key", "value")


MADE: list[Solo] = []


@pytest.fixture(autouse=True)
def no_call_is_left() -> Iterator[None]:
    yield
    for solo in MADE:
        solo.calls.close()
    MADE.clear()


class Source(Scripted):
    outputs = FIELDS


def alone(
    bolt: OperatorBolt, *, sources: int = 1, watermarks: WatermarkStrategy | None = None, is_open: bool = True, **settings: Any
) -> Solo:
    """A bolt named b between sources a (a task each, played by the test) and a sink."""
    builder = TopologyBuilder("one").config(**{"message_timeout": "30s", "delivery": "at_least_once", **settings})
    builder.set_spout("a", Source(), parallelism=sources)
    declarer = builder.set_bolt("b", bolt, watermarks=watermarks)
    if bolt.key:
        declarer.fields_grouping("a", *bolt.key)
    else:
        declarer.global_grouping("a")
    builder.set_bolt("sink", Sink()).global_grouping("b")
    if isinstance(bolt, WindowBolt) and bolt.late_stream is not None:
        builder.set_bolt("late", Sink()).global_grouping("b", stream=bolt.late_stream)
    solo = Solo(builder.build(), "b", is_open=is_open)
    MADE.append(solo)
    return solo


def sums(**more: Any) -> WindowBolt:
    return WindowBolt(
        **{"key": "key", "window": TumblingEventTimeWindows.of("10ms"), "aggregate": aggregates.Sum("value"), **more}
    )


def spouts_of(solo: Solo) -> list[int]:
    return list(solo.plan.tasks_of("a"))


def put(solo: Solo, rows: Sequence[tuple[Any, ...]], stamps: Sequence[int | None], **more: Any) -> Any:
    ids = solo.feed(*rows, stamps=stamps, sender=spouts_of(solo)[0], **more)
    solo.run()
    return ids


def time(solo: Solo, news: int | FrameKind, source: int = 0) -> None:
    solo.feed_time(news, sender=spouts_of(solo)[source])


def verdict(solo: Solo, kind: FrameKind, roots: Sequence[int]) -> None:
    """The acker has followed firings to their end."""
    solo.feed_ids(kind, roots, sender=solo.plan.ackers[0])
    solo.run()


def owed(ids: Any, solo: Solo) -> dict[int, int]:
    """What is still missing of the inputs' edges, by root."""
    acks = solo.acks()
    return {root: edge ^ acks.get(root, 0) for root, edge in zip(ids.roots, ids.edges, strict=True) if edge ^ acks.get(root, 0)}


# -- windows -----------------------------------------------------------------------------------------------------------------


def checkpointed(bolt: OperatorBolt, **settings: Any) -> Solo:
    return alone(bolt, delivery="exactly_once", **settings)


POISONED = [("a", 1), ("b", 7), ("a", None), ("a", 2), ("b", None), ("c", 5), (None, None)]


@pytest.mark.parametrize("batch", [1, 2, 3, 7])
def test_a_tuple_that_raises_takes_nothing_of_its_neighbours_with_it(batch: int) -> None:
    solo = checkpointed(sums())
    for first in range(0, len(POISONED), batch):
        rows = POISONED[first : first + batch]
        put(solo, rows, [1] * len(rows), tracked=False)
    time(solo, 20)
    assert sorted(solo.rows()) == [("a", 0, 10, 3), ("b", 0, 10, 7), ("c", 0, 10, 5)]
    assert (solo.task.counters.acked, solo.task.counters.failed) == (4, 3)


class InPlace(aggregates.AggregateFunction):
    """Counts before it adds up, in place, so that a value which cannot be added leaves a trace."""

    fields = ("count", "sum")

    def create_accumulator(self) -> Any:
        return {"count": 0, "sum": 0}

    def add(self, value: Any, accumulator: Any) -> Any:
        accumulator["count"] += 1
        accumulator["sum"] += value[1]
        return accumulator

    def get_result(self, accumulator: Any) -> Any:
        return accumulator["count"], accumulator["sum"]


@pytest.mark.parametrize("window", [TumblingEventTimeWindows.of("10ms"), SlidingEventTimeWindows.of("10ms", "10ms")])
def test_an_accumulator_that_is_changed_in_place_is_what_it_was_before_the_call_that_raised(window: Any) -> None:
    solo = checkpointed(sums(window=window, aggregate=InPlace()))
    for rows in ([("a", 1)], [("a", 2), ("a", None), ("a", 3)]):
        put(solo, rows, [1] * len(rows), tracked=False)
    time(solo, 20)
    assert solo.rows() == [("a", 0, 10, 3, 6)]


class Wavering(ProcessWindowFunction):
    """Emits, and then raises so many times for one key."""

    def __init__(self, culprit: str, times: int) -> None:
        self.culprit, self.left = culprit, times

    def process(self, key: Any, elements: Any, context: Any, collector: Any) -> None:
        collector.emit((key, 0, 0, len(elements)))
        if key == self.culprit and self.left:
            self.left -= 1
            raise ValueError("not now")


OUTPUTS = ("key", "start", "end", "count")


@pytest.mark.parametrize("times", [0, 1, 2, 3])
@pytest.mark.parametrize("keys", ["ab", "ba"])
def test_what_a_failed_attempt_has_emitted_is_taken_back_wherever_in_the_batch_its_tuple_is(keys: str, times: int) -> None:
    bolt = WindowBolt(
        key="key",
        window=GlobalWindows(),
        trigger=PurgingTrigger.of(CountTrigger(1)),
        process=Wavering("b", times),
        outputs=OUTPUTS,
    )
    solo = checkpointed(bolt)
    put(solo, [(key, 1) for key in keys], [1, 1], tracked=False)
    assert [row[0] for row in solo.rows()] == [key for key in keys if key == "a" or times < 3]


@pytest.mark.parametrize("window", [TumblingEventTimeWindows.of("10ms"), EventTimeSessionWindows.with_gap("9ms")])
def test_a_firing_that_raises_is_tried_again_and_puts_out_one_result(window: Any) -> None:
    solo = checkpointed(WindowBolt(key="key", window=window, process=Wavering("a", 2), outputs=OUTPUTS))
    put(solo, [("a", 1), ("b", 1), ("a", 2)], [1, 1, 1], tracked=False)
    time(solo, 20)
    assert sorted(solo.rows()) == [("a", 0, 0, 2), ("b", 0, 0, 1)]
    assert solo.task.counters.failed == 0 and solo.errors() == []


@pytest.mark.parametrize(
    ("window", "end"), [(TumblingEventTimeWindows.of("10ms"), 10), (EventTimeSessionWindows.with_gap("9ms"), 9)]
)
def test_a_firing_that_always_raises_is_a_letter_with_what_the_window_held(window: Any, end: int) -> None:
    solo = checkpointed(WindowBolt(key="key", window=window, process=Wavering("a", 99), outputs=OUTPUTS))
    put(solo, [("a", 1), ("b", 1), ("a", 2)], [0, 1, 0], tracked=False)
    time(solo, 20)
    assert solo.rows() == [("b", 0, 0, 1)]
    assert solo.task.counters.failed == 1 and solo.errors() == ["ValueError: not now"]
    assert given_up(solo) == [("a", 0, end, (("a", 1), ("a", 2)))]
    assert solo.task._operator.state.entries == 0  # type: ignore[attr-defined]


class Alarm(ProcessBolt):
    outputs = ("key",)

    def __init__(self) -> None:
        super().__init__(key="key")

    def process(self, tup: Any, context: Any, collector: Any) -> None:
        context.register_event_time_timer(5)

    def on_timer(self, timestamp: int, context: Any, collector: Any) -> None:
        collector.emit((context.key,))
        if context.key == "a":
            raise ValueError("never")


def test_a_timer_that_always_raises_is_a_letter_of_its_key_and_timestamp() -> None:
    solo = checkpointed(Alarm())
    put(solo, [("a", 1), ("b", 1)], [1, 1], tracked=False)
    time(solo, 20)
    assert solo.rows() == [("b",)]
    assert given_up(solo) == [("a", 5)] and solo.task.counters.failed == 1


def given_up(solo: Solo) -> list[Any]:
    """The dead letters that the task holds for the next checkpoint."""
    return [CODEC.unpack_value(values) for _, values, _, _ in solo.task._letters.snapshot(1)["letters"]]  # type: ignore[attr-defined]


def test_a_window_emits_its_result_when_the_watermark_is_there_and_acks_its_inputs_when_that_is_through() -> None:
    solo = alone(sums())
    ids = put(solo, [("k", 1), ("k", 2)], [1, 9])
    time(solo, 8)
    assert solo.rows() == [] and owed(ids, solo) == dict(zip(ids.roots, ids.edges, strict=True))
    time(solo, 9)
    assert solo.rows() == [("k", 0, 10, 3)]
    (firing,) = solo.roots(FrameKind.INIT)
    assert owed(ids, solo) == dict(zip(ids.roots, ids.edges, strict=True)), "its result is on its way"
    verdict(solo, FrameKind.ACKED, [firing])
    assert owed(ids, solo) == {}


def test_a_result_carries_the_last_moment_of_its_window_and_one_root() -> None:
    solo = alone(sums())
    put(solo, [("k", 1), ("k", 2)], [1, 2])
    time(solo, 100)
    (frame,) = solo.frames(FrameKind.DATA)
    assert frame.timestamp_list() == [9]
    (init,) = solo.frames(FrameKind.INIT)
    assert frame.root_list() == init.root_list() and frame.edge_list() == init.edge_list()


def test_a_result_that_fails_fails_all_inputs_of_its_window() -> None:
    solo = alone(sums())
    ids = put(solo, [("k", 1), ("k", 2), ("other", 5)], [1, 2, 30])
    time(solo, 10)
    (firing,) = solo.roots(FrameKind.INIT)
    verdict(solo, FrameKind.FAILED, [firing])
    assert solo.roots(FrameKind.FAIL) == ids.roots[:2]


def test_a_result_that_has_no_verdict_for_the_message_timeout_has_failed() -> None:
    solo = alone(sums())
    ids = put(solo, [("k", 1)], [1])
    time(solo, 10)
    assert solo.task._pending == 1
    solo.confirm_all()
    solo.wait(29.0)
    assert solo.roots(FrameKind.FAIL) == []
    solo.wait(2.0)
    assert solo.roots(FrameKind.FAIL) == ids.roots and solo.task._pending == 0


def test_after_an_hour_of_standing_still_verdicts_that_have_come_count_before_timeouts() -> None:
    solo = alone(sums())
    ids = put(solo, [("k", 1)], [1])
    time(solo, 10)
    solo.clock.now += 3600.0
    verdict(solo, FrameKind.ACKED, solo.roots(FrameKind.INIT))
    assert owed(ids, solo) == {} and solo.roots(FrameKind.FAIL) == []


def test_a_touch_of_a_result_is_passed_on_to_the_inputs() -> None:
    solo = alone(sums())
    ids = put(solo, [("k", 1)], [1])
    time(solo, 10)
    verdict(solo, FrameKind.TOUCHED, solo.roots(FrameKind.INIT))
    assert solo.roots(FrameKind.RESET) == ids.roots


def test_an_input_of_several_windows_is_acked_with_the_last_one() -> None:
    solo = alone(sums(window=SlidingEventTimeWindows.of("20ms", "10ms")))
    ids = put(solo, [("k", 1)], [15])
    time(solo, 19)
    assert solo.rows() == [("k", 0, 20, 1)]
    verdict(solo, FrameKind.ACKED, solo.roots(FrameKind.INIT))
    assert owed(ids, solo)
    time(solo, 29)
    assert solo.rows()[1:] == [("k", 10, 30, 1)]
    verdict(solo, FrameKind.ACKED, solo.roots(FrameKind.INIT)[1:])
    assert owed(ids, solo) == {}


def test_a_late_tuple_is_counted_acked_and_put_out_on_the_late_stream_with_its_own_root() -> None:
    solo = alone(sums(late_stream="late"))
    time(solo, 50)
    ids = put(solo, [("k", 1)], [5])
    (frame,) = solo.frames(FrameKind.DATA)
    assert solo.rows() == [("k", 1)] and frame.root_list() == ids.roots and frame.timestamp_list() == [5]
    left = owed(ids, solo)
    assert left == dict(zip(ids.roots, frame.edge_list(), strict=True)), "the rest is the late tuple's to ack"
    assert (solo.task.counters.late, solo.task.counters.late_dropped) == (1, 0)


def test_a_late_tuple_without_a_late_stream_is_acked_and_counted_as_dropped() -> None:
    solo = alone(sums())
    time(solo, 50)
    ids = put(solo, [("k", 1)], [5])
    assert owed(ids, solo) == {} and solo.rows() == []
    assert (solo.task.counters.late, solo.task.counters.late_dropped) == (1, 1)


def test_within_the_lateness_a_window_fires_again_and_holds_its_inputs_to_its_clean_up() -> None:
    solo = alone(sums(allowed_lateness="20ms"))
    first = put(solo, [("k", 1)], [5])
    time(solo, 10)
    second = put(solo, [("k", 2)], [6])
    assert [row[3] for row in solo.rows()] == [1, 3]
    verdict(solo, FrameKind.ACKED, solo.roots(FrameKind.INIT))
    assert owed(first, solo) and owed(second, solo)
    time(solo, 29)
    assert owed(first, solo) == {} == owed(second, solo)


def test_a_tuple_in_a_gap_between_windows_is_acked() -> None:
    solo = alone(sums(window=SlidingEventTimeWindows.of("5ms", "10ms")))
    ids = put(solo, [("k", 1)], [7])
    assert owed(ids, solo) == {} and solo.task.counters.late == 0


def test_sessions_that_merge_ack_all_their_inputs_together() -> None:
    solo = alone(sums(window=EventTimeSessionWindows.with_gap("10ms")))
    ids = put(solo, [("k", 1), ("k", 2), ("k", 4)], [0, 15, 8])
    time(solo, 24)
    assert solo.rows() == [("k", 0, 25, 7)]
    verdict(solo, FrameKind.ACKED, solo.roots(FrameKind.INIT))
    assert owed(ids, solo) == {}


def test_a_window_of_processing_time_fires_by_the_clock() -> None:
    solo = alone(sums(window=TumblingProcessingTimeWindows.of("1s")))
    put(solo, [("k", 1)], [None])
    solo.wait(0.9)
    assert solo.rows() == []
    solo.wait(0.2)
    assert [row[3] for row in solo.rows()] == [1]


def test_count_windows_fire_with_their_last_tuple() -> None:
    solo = alone(sums(window=CountWindows.of(2)))
    ids = put(solo, [("k", 1), ("j", 9), ("k", 2)], [None] * 3)
    assert solo.rows() == [("k", None, None, 3)]
    verdict(solo, FrameKind.ACKED, solo.roots(FrameKind.INIT))
    assert list(owed(ids, solo)) == [ids.roots[1]]


def test_what_a_global_window_still_holds_at_the_end_is_acked_without_a_result() -> None:
    solo = alone(sums(window=CountWindows.of(2)))
    ids = put(solo, [("k", 1)], [None])
    time(solo, FrameKind.END)
    assert owed(ids, solo) == {} and solo.rows() == []
    again = put(solo, [("j", 1)], [None])
    assert owed(again, solo) == {}, "a replay after the end is not held for ever"


def test_the_end_of_the_input_fires_what_is_open_before_it_is_told() -> None:
    solo = alone(sums())
    put(solo, [("k", 1)], [5])
    time(solo, FrameKind.END)
    kinds = [frame.kind for frame in solo.frames(FrameKind.DATA, FrameKind.END, to=solo.task.outbound.consumers[0])]
    assert kinds == [FrameKind.DATA, FrameKind.END]


def test_results_of_untracked_inputs_are_untracked() -> None:
    solo = alone(sums())
    put(solo, [("k", 1)], [5], tracked=False)
    time(solo, 10)
    assert solo.rows() == [("k", 0, 10, 1)]
    assert solo.frames(FrameKind.INIT) == [] and solo.roots(FrameKind.DATA) == []


def test_a_tuple_that_raises_fails_alone() -> None:
    solo = alone(sums())
    ids = put(solo, [("k", 1), ("k", "no number"), ("k", 2)], [1, 2, 3])
    assert solo.roots(FrameKind.FAIL) == [ids.roots[1]]
    time(solo, 10)
    assert solo.rows() == [("k", 0, 10, 3)]
    assert solo.errors() and solo.errors()[0].startswith("TypeError")


def test_a_tuple_without_a_timestamp_fails_in_event_time() -> None:
    solo = alone(sums())
    ids = put(solo, [("k", 1), ("k", 2)], [None, 2])
    assert solo.roots(FrameKind.FAIL) == ids.roots[:1]
    time(solo, 10)
    assert solo.rows() == [("k", 0, 10, 2)]


class Raises(ProcessWindowFunction):
    def process(self, key: Any, elements: Sequence[Any], context: Any, collector: Any) -> None:
        collector.emit((key, len(elements)))
        if key == "bad":
            raise ValueError("no")


def test_a_window_function_that_raises_fails_its_windows_inputs_and_no_others_and_its_output_is_discarded() -> None:
    solo = alone(sums(aggregate=None, process=Raises(), outputs=("key", "n")))
    ids = put(solo, [("bad", 1), ("good", 2), ("bad", 3)], [1, 2, 3])
    time(solo, 10)
    assert solo.rows() == [("good", 1)]
    assert sorted(solo.roots(FrameKind.FAIL)) == [ids.roots[0], ids.roots[2]]
    assert solo.task.statistics().levels["open_windows"] == 0.0, "its clean-up does not come again"


def test_a_window_function_that_raises_by_the_clock_does_not_take_the_process_down() -> None:
    window = TumblingProcessingTimeWindows.of("1s")
    solo = alone(sums(aggregate=None, process=Raises(), outputs=("key", "n"), window=window))
    ids = put(solo, [("bad", 1), ("good", 2)], [None, None])
    solo.wait(1.1)
    assert solo.rows() == [("good", 1)] and solo.roots(FrameKind.FAIL) == ids.roots[:1]


def test_a_window_function_that_raises_at_an_element_fails_what_the_window_holds() -> None:
    trigger = PurgingTrigger.of(CountTrigger(2))
    solo = alone(sums(aggregate=None, process=Raises(), outputs=("key", "n"), window=GlobalWindows(), trigger=trigger))
    ids = put(solo, [("bad", 1), ("good", 2), ("bad", 3), ("good", 4)], [None] * 4)
    assert solo.rows() == [("good", 2)]
    assert sorted(set(solo.roots(FrameKind.FAIL))) == [ids.roots[0], ids.roots[2]]


def test_an_element_that_raises_behind_a_firing_takes_neither_its_result_nor_the_late_rows_with_it() -> None:
    solo = alone(sums(allowed_lateness="100ms", late_stream="late"))
    time(solo, 200)
    ids = put(solo, [("k", 1), ("late", 9), ("k", None)], [150, 5, 150])
    assert solo.rows() == [("k", 150, 160, 1), ("late", 9)]
    assert solo.roots(FrameKind.FAIL) == ids.roots[2:]


class RaisesAtTheSecond(Trigger):
    """Fires at the end of windows, and raises instead for the second one."""

    def __init__(self) -> None:
        self.times = 0

    def on_element(self, value: Any, timestamp: int, window: Any, context: TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Any, context: TriggerContext) -> TriggerResult:
        self.times += 1
        if self.times == 2:
            raise ValueError("not twice")
        return TriggerResult.FIRE

    def on_processing_time(self, time: int, window: Any, context: TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def clear(self, window: Any, context: TriggerContext) -> None:
        """Nothing is kept."""


def test_a_trigger_that_raises_by_the_watermark_fails_its_own_window_and_not_the_one_that_has_just_fired() -> None:
    solo = alone(sums(trigger=RaisesAtTheSecond()))
    ids = put(solo, [("a", 1), ("b", 2), ("c", 3)], [1, 2, 3])
    time(solo, 10)
    assert solo.rows() == [("a", 0, 10, 1), ("c", 0, 10, 3)]
    assert solo.roots(FrameKind.FAIL) == ids.roots[1:2]
    assert solo.errors() == ["ValueError: not twice"]


class NoResult(InPlace):
    """Has no result for a sum of 13."""

    def get_result(self, accumulator: Any) -> Any:
        if accumulator["sum"] == 13:
            raise ValueError("unlucky")
        return super().get_result(accumulator)


@pytest.mark.parametrize("trigger", [None, EventTimeTrigger()])
def test_inputs_of_a_window_fail_whose_aggregate_has_no_result(trigger: Any) -> None:
    solo = alone(sums(aggregate=NoResult(), trigger=trigger))
    ids = put(solo, [("a", 13), ("b", 2)], [1, 2])
    time(solo, 10)
    assert solo.rows() == [("b", 0, 10, 1, 2)] and solo.roots(FrameKind.FAIL) == ids.roots[:1]


def test_a_firing_that_raises_and_puts_out_untracked_rows_takes_them_back() -> None:
    solo = alone(sums(aggregate=None, process=Raises(), outputs=("key", "n")))
    put(solo, [("bad", 1), ("good", 2)], [1, 2], tracked=False)
    time(solo, 10)
    assert solo.rows() == [("good", 1)]


@pytest.mark.parametrize("window", [TumblingEventTimeWindows.of("10ms"), EventTimeSessionWindows.with_gap("9ms")])
def test_a_tracked_firing_that_raises_is_tried_again_at_once_and_puts_out_one_result(window: Any) -> None:
    solo = alone(WindowBolt(key="key", window=window, process=Wavering("a", 2), outputs=OUTPUTS))
    ids = put(solo, [("a", 1), ("b", 1), ("a", 2)], [1, 1, 1])
    time(solo, 20)
    assert sorted(solo.rows()) == [("a", 0, 0, 2), ("b", 0, 0, 1)]
    assert solo.roots(FrameKind.FAIL) == [] and solo.errors() == []
    verdict(solo, FrameKind.ACKED, solo.roots(FrameKind.INIT))
    assert owed(ids, solo) == {}


def test_a_tracked_firing_is_tried_as_often_as_attempts_allow() -> None:
    function = Wavering("a", 99)
    solo = alone(sums(aggregate=None, process=function, outputs=OUTPUTS), attempts=5)
    ids = put(solo, [("a", 1)], [1])
    time(solo, 20)
    assert function.left == 99 - 5 and solo.roots(FrameKind.FAIL) == ids.roots


def again(solo: Solo, rows: Sequence[tuple[Any, ...]], stamps: Sequence[int | None]) -> Ids:
    """Deliver rows of messages that have failed before."""
    ids = solo.fresh(len(rows))
    put(solo, rows, stamps, ids=Ids([root | REPLAYED_BIT for root in ids.roots], ids.edges))
    return Ids([root | REPLAYED_BIT for root in ids.roots], ids.edges)


@pytest.mark.parametrize("window", [TumblingEventTimeWindows.of("10ms"), EventTimeSessionWindows.with_gap("9ms")])
def test_a_message_that_comes_again_too_late_for_its_window_fails(window: Any) -> None:
    solo = alone(sums(window=window))
    time(solo, 50)
    ids = again(solo, [("k", 1), ("k", 2), ("k", 3)], [5, 60, 6])
    assert solo.roots(FrameKind.FAIL) == [ids.roots[0], ids.roots[2]]
    assert (solo.task.counters.late, solo.task.counters.late_dropped, solo.task.counters.failed) == (2, 2, 2)
    assert solo.errors() == ["TooLate: component 'b': a message that had failed came again too late for its window"]
    time(solo, 70)
    assert [row[3] for row in solo.rows()] == [2]


def test_of_several_messages_of_one_tuple_all_fail_when_it_comes_again_too_late() -> None:
    solo = alone(sums())
    time(solo, 50)
    put(solo, [("k", 1)], [5], ids=Ids([(7, 8 | REPLAYED_BIT)], [(70, 80)]))
    assert solo.roots(FrameKind.FAIL) == [7, 8 | REPLAYED_BIT]


def test_a_message_that_comes_again_too_late_for_one_of_its_windows_fails_though_another_takes_it() -> None:
    solo = alone(sums(window=SlidingEventTimeWindows.of("20ms", "10ms")))
    time(solo, 19)
    ids = again(solo, [("k", 1)], [15])
    assert solo.roots(FrameKind.FAIL) == ids.roots
    time(solo, 29)
    assert solo.rows() == [("k", 10, 30, 1)]


def test_a_message_that_comes_again_too_late_goes_to_the_late_stream_as_any_other() -> None:
    solo = alone(sums(late_stream="late"))
    time(solo, 50)
    ids = again(solo, [("k", 1)], [5])
    assert solo.rows() == [("k", 1)] and solo.roots(FrameKind.FAIL) == [] and list(owed(ids, solo)) == ids.roots


def test_a_message_that_comes_again_into_a_gap_between_windows_is_acked() -> None:
    solo = alone(sums(window=SlidingEventTimeWindows.of("5ms", "10ms")))
    ids = again(solo, [("k", 1)], [7])
    assert owed(ids, solo) == {} and solo.roots(FrameKind.FAIL) == []


@pytest.mark.parametrize("window", [TumblingEventTimeWindows.of("10ms"), EventTimeSessionWindows.with_gap("5ms")])
def test_what_a_window_gives_comes_again_when_one_of_its_inputs_does(window: Any) -> None:
    solo = alone(sums(window=window))
    put(solo, [("k", 1), ("other", 1)], [1, 1])
    again(solo, [("k", 2)], [4])
    time(solo, 10)
    assert {row[0]: row[3] for row in solo.rows()} == {"k": 3, "other": 1}
    assert sum(bool(root & REPLAYED_BIT) for root in solo.roots(FrameKind.INIT)) == 1


def test_a_new_epoch_forgets_the_windows_since_all_their_inputs_come_again() -> None:
    solo = alone(sums(late_stream="late"))
    put(solo, [("k", 1)], [5])
    time(solo, 50)
    solo.out.clear()
    solo.adopt(2)
    solo.open_inputs()
    ids = put(solo, [("k", 1)], [5])
    time(solo, 9)
    assert solo.rows() == [("k", 0, 10, 1)], "neither late nor counted twice"
    verdict(solo, FrameKind.ACKED, solo.roots(FrameKind.INIT))
    assert owed(ids, solo) == {}


def test_timers_of_an_earlier_epoch_do_nothing() -> None:
    solo = alone(sums(window=TumblingProcessingTimeWindows.of("1s")))
    put(solo, [("k", 1)], [None])
    solo.clock.now += 1.5
    solo.adopt(2)
    solo.open_inputs()
    solo.wait(3.0)
    assert solo.rows() == []


def test_the_watermark_of_a_window_bolt_follows_its_results() -> None:
    solo = alone(sums())
    put(solo, [("k", 1)], [5])
    time(solo, 10)
    kinds = [frame.kind for frame in solo.frames(FrameKind.DATA, FrameKind.WATERMARK, to=solo.task.outbound.consumers[0])]
    assert kinds == [FrameKind.DATA, FrameKind.WATERMARK] and solo.told_time() == [10]


def test_levels_say_how_far_event_time_has_come_and_whom_it_waits_for() -> None:
    solo = alone(sums(), sources=2)
    assert "watermark_ms" not in solo.task.statistics().levels
    first, second = spouts_of(solo)
    time(solo, 1_699_999_990_000)
    levels = solo.task.statistics().levels
    assert levels["held_back_by"] == second and "watermark_lag_s" not in levels
    time(solo, 1_699_999_980_000, source=1)
    put(solo, [("k", 1), ("j", 2)], [1_699_999_995_000] * 2)
    levels = solo.task.statistics().levels
    assert (levels["watermark_ms"], levels["watermark_lag_s"], levels["held_back_by"]) == (1_699_999_980_000, 20.0, second)
    assert (levels["open_windows"], levels["timers"], levels["state_entries"]) == (2.0, 2.0, 2.0)
    time(solo, FrameKind.END, source=1)
    assert solo.task.statistics().levels["held_back_by"] == first


def test_levels_of_process_and_async_bolts_say_what_they_hold() -> None:
    solo = alone(Timeout(event_time=True))
    put(solo, [("a", 0), ("b", 0)], [0, 1])
    levels = solo.task.statistics().levels
    assert (levels["timers"], levels["state_entries"]) == (2.0, 4.0)
    solo, _ = enriching()
    feed(solo, 1, 2, 3)
    assert solo.task.statistics().levels["async_in_flight"] == 3.0


def test_nothing_of_event_time_is_told_after_the_end() -> None:
    strategy = WatermarkStrategy.bounded_out_of_orderness("0s", timestamp="window_start").with_idleness("200ms")
    solo = alone(sums(), watermarks=strategy)
    put(solo, [("k", 1)], [25])
    time(solo, FrameKind.END)
    solo.wait(2.0)
    assert solo.told_time() == ["END"]


def test_an_idle_input_holds_nobody_back_and_comes_back_without_a_regress() -> None:
    solo = alone(sums(), sources=2)
    put(solo, [("k", 1)], [5])
    time(solo, 20)
    assert solo.rows() == []
    time(solo, FrameKind.IDLE, source=1)
    assert solo.rows() == [("k", 0, 10, 1)]
    time(solo, FrameKind.ACTIVE, source=1)
    time(solo, 15, source=1)
    time(solo, 30)
    time(solo, 40, source=1)
    assert solo.told_time() == [20, 30]


def test_a_window_bolt_with_watermarks_of_its_own_swallows_those_of_its_input() -> None:
    strategy = WatermarkStrategy.bounded_out_of_orderness("0s", timestamp="window_start")
    solo = alone(sums(), watermarks=strategy)
    put(solo, [("k", 1)], [25])
    time(solo, 40)
    solo.wait(0.3)
    assert solo.told_time() == [19]


def test_a_window_bolt_is_not_quiet_while_its_results_are_open() -> None:
    solo = alone(sums())
    put(solo, [("k", 1)], [5])
    time(solo, FrameKind.END)
    solo.confirm_all()
    assert not solo.task.is_quiet
    verdict(solo, FrameKind.ACKED, solo.roots(FrameKind.INIT))
    solo.confirm_all()
    assert solo.task.is_quiet


# -- process bolts -----------------------------------------------------------------------------------------------------------


class Timeout(ProcessBolt):
    """Emits a key that was not seen for 100 ms, by either clock."""

    outputs = ("key", "seen")

    def __init__(self, *, event_time: bool) -> None:
        super().__init__("key")
        self.event_time = event_time

    def open(self, context: Any) -> None:
        self.last = context.state.value("last")
        self.seen = context.state.value("seen")

    def process(self, tup: Any, context: Any, collector: Any) -> None:
        if tup["value"] == "raise":
            collector.emit(("never", 0))
            raise ValueError("told to")
        register, delete, now = (
            (context.register_event_time_timer, context.delete_event_time_timer, context.timestamp)
            if self.event_time
            else (
                context.register_processing_time_timer,
                context.delete_processing_time_timer,
                context.current_processing_time,
            )
        )
        if self.last.get() is not None:
            delete(self.last.get())
        self.last.set(now + 100)
        self.seen.set((self.seen.get() or 0) + 1)
        register(now + 100)
        if tup["value"] == "echo":
            collector.emit((context.key, -1))

    def on_timer(self, timestamp: int, context: Any, collector: Any) -> None:
        collector.emit((context.key, self.seen.get()))
        if context.key == "bad":
            raise ValueError("bad")


def test_a_process_bolt_keeps_state_by_key_and_is_called_at_event_time() -> None:
    solo = alone(Timeout(event_time=True))
    ids = put(solo, [("a", 0), ("b", 0), ("a", 0)], [0, 10, 50])
    assert owed(ids, solo) == {}, "an input is done when process returns"
    time(solo, 120)
    assert solo.rows() == [("b", 1)]
    time(solo, 150)
    assert solo.rows() == [("b", 1), ("a", 2)]
    assert [frame.timestamp_list() for frame in solo.frames(FrameKind.DATA)] == [[110], [150]]


def test_a_process_bolt_is_called_by_the_clock_and_then_emits_without_a_timestamp() -> None:
    solo = alone(Timeout(event_time=False))
    put(solo, [("a", 0)], [5])
    solo.wait(0.05)
    put(solo, [("a", 0)], [6])
    solo.wait(0.09)
    assert solo.rows() == []
    solo.wait(0.02)
    assert solo.rows() == [("a", 2)]
    (frame,) = solo.frames(FrameKind.DATA)
    assert not frame.timestamps


def test_what_a_process_bolt_emits_for_a_tuple_is_anchored_on_it_and_has_its_timestamp() -> None:
    solo = alone(Timeout(event_time=True))
    ids = put(solo, [("a", "echo")], [7])
    (frame,) = solo.frames(FrameKind.DATA)
    assert frame.root_list() == ids.roots and frame.timestamp_list() == [7]
    assert owed(ids, solo) == dict(zip(ids.roots, frame.edge_list(), strict=True))


def test_a_process_bolt_that_raises_fails_its_tuple_and_takes_back_what_it_emitted() -> None:
    solo = alone(Timeout(event_time=True))
    ids = put(solo, [("a", "raise"), ("a", 0)], [0, 0])
    assert solo.roots(FrameKind.FAIL) == ids.roots[:1] and solo.rows() == []
    assert owed(ids, solo).keys() == {ids.roots[0]}


@pytest.mark.parametrize("event_time", [True, False])
def test_a_timer_that_raises_is_reported_and_the_other_timers_run(event_time: bool) -> None:
    solo = alone(Timeout(event_time=event_time))
    put(solo, [("a", 0), ("bad", 0), ("c", 0)], [0, 1, 2])
    time(solo, 500)
    solo.wait(0.3)
    assert sorted(solo.values()) == ["a", "c"]
    assert solo.errors() == ["ValueError: bad"]


def test_timers_that_are_due_run_between_slices_of_a_full_input() -> None:
    solo = alone(Timeout(event_time=False))
    put(solo, [("a", 0)], [0])
    solo.clock.now += 0.2
    for _ in range(50):
        solo.feed(("b", "echo"), sender=spouts_of(solo)[0])
    solo.turn()
    assert solo.task.inbound.queue, "there is more to do"
    solo.run()
    assert solo.rows()[0] == ("a", 1), "the timer did not wait for the end of the queue"


# -- async bolts -------------------------------------------------------------------------------------------------------------


class Enrich(AsyncBolt):
    outputs = ("key", "found")

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.calls: list[Any] = []

    async def call(self, tup: Any) -> Any:
        self.calls.append(tup["value"])
        value = tup["value"]
        if isinstance(value, Exception):
            raise value
        return value(tup) if callable(value) else (tup["key"], value)

    def on_timeout(self, tup: Any) -> Any:
        return (tup["key"], "too late")


def enriching(opens: bool = True, bolt: Enrich | None = None, **more: Any) -> tuple[Solo, Calls]:
    solo = alone(bolt or Enrich(**more))
    if opens:
        solo.calls.complete()
        solo.run()
    return solo, solo.calls


def feed(solo: Solo, *values: Any, stamps: Sequence[int | None] | None = None) -> Any:
    """Tuples that share the process with their sender, so that they can hold anything."""
    ids = solo.feed(*[("k", value) for value in values], stamps=stamps, sender=spouts_of(solo)[0])
    solo.run()
    return ids


def test_no_call_begins_before_open_has_returned() -> None:
    solo, calls = enriching(opens=False)
    feed(solo, 1)
    assert len(calls.waiting) == 1 and solo.task.inbound.queue
    calls.complete()
    solo.run()
    assert len(calls.waiting) == 1 and not solo.task.inbound.queue


def test_an_input_is_acked_when_its_result_has_been_emitted_and_the_result_is_anchored_on_it() -> None:
    solo, calls = enriching()
    ids = feed(solo, 1, stamps=[5])
    assert len(owed(ids, solo)) == 1 and solo.rows() == []
    calls.complete()
    solo.run()
    (frame,) = solo.frames(FrameKind.DATA)
    assert solo.rows() == [("k", 1)] and frame.root_list() == ids.roots and frame.timestamp_list() == [5]
    assert owed(ids, solo) == dict(zip(ids.roots, frame.edge_list(), strict=True))


def test_ordered_results_come_in_the_order_of_the_inputs() -> None:
    solo, calls = enriching(mode=AsyncMode.ORDERED)
    feed(solo, 1, 2, 3)
    for place in (2, 1):
        calls.complete(place)
    solo.run()
    assert solo.rows() == []
    calls.complete()
    solo.run()
    assert [row[1] for row in solo.rows()] == [1, 2, 3]


def test_unordered_results_come_as_they_complete_but_never_across_a_watermark() -> None:
    solo, calls = enriching(mode=AsyncMode.UNORDERED)
    feed(solo, 1, 2)
    time(solo, 10)
    feed(solo, 3)
    calls.complete(2)
    calls.complete(1)
    solo.run()
    assert [row[1] for row in solo.rows()] == [2] and solo.told_time() == []
    calls.complete()
    solo.run()
    assert [row[1] for row in solo.rows()] == [2, 1, 3] and solo.told_time() == [10]


def test_a_full_bolt_takes_no_further_input_and_loses_none() -> None:
    solo, calls = enriching(capacity=2)
    ids = feed(solo, *range(7))
    assert len(calls.waiting) == 2 and not solo.task.has_work
    seen = 0
    while calls.waiting:
        assert len(calls.waiting) <= 2
        calls.complete()
        solo.run()
        seen += 1
    assert seen == 7 and [row[1] for row in solo.rows()] == list(range(7))
    assert set(owed(ids, solo)) == set(ids.roots), "each waits for its own result, and for nothing else"
    assert solo.task.counters.executed == 7


def test_a_call_that_raises_fails_its_input_alone() -> None:
    solo, calls = enriching()
    values = [lambda tup: (tup["key"], 1), ValueError("no"), lambda tup: (tup["key"], 3)]
    ids = solo.fresh(3)
    local_feed(solo, values, ids)
    calls.complete_all()
    solo.run()
    assert solo.rows() == [("k", 1), ("k", 3)] and solo.roots(FrameKind.FAIL) == [ids.roots[1]]
    assert solo.errors() == ["ValueError: no"]


@pytest.mark.parametrize("result", [5, "text", ("k", 1, "one too many"), [("k", 1), ("k",)], {"a": 1}])
def test_a_call_that_returns_no_rows_fails_its_input_and_the_bolt_goes_on(result: Any) -> None:
    solo, calls = enriching()
    ids = solo.fresh(2)
    local_feed(solo, [lambda tup: result, lambda tup: ("k", "fine")], ids)
    calls.complete_all()
    solo.run()
    assert solo.rows() == [("k", "fine")] and solo.roots(FrameKind.FAIL) == ids.roots[:1]
    assert len(solo.errors()) == 1


def one_too_few(tup: Any) -> Any:
    return (tup["key"],)


def where_calls_begin() -> str:
    return f"test_operator_task.py:{Enrich.call.__code__.co_firstlineno}, component 'b'"


def test_with_exactly_once_a_result_that_does_not_fit_is_a_dead_letter_that_says_so_and_names_the_call() -> None:
    solo = alone(Enrich(), delivery="exactly_once")
    solo.calls.complete()
    solo.run()
    local_feed(solo, [one_too_few, 2], Ids([], []))
    solo.calls.complete_all()
    solo.run()
    fields = "component 'b' emitted 1 values on stream 'default', which has 2 fields: ('key', 'found')"
    assert letters(solo) == [f"EmitError: {fields} ({where_calls_begin()})"]
    assert solo.rows() == [("k", 2)] and solo.task.counters.failed == 1
    (error,) = solo.messages(ComponentError)
    assert (error.file, error.line) == (__file__, Enrich.call.__code__.co_firstlineno)


def test_the_cause_of_a_result_that_does_not_fit_says_so_and_names_the_call() -> None:
    solo, calls = enriching()
    ids = solo.fresh(1)
    local_feed(solo, [lambda tup: [("k", 1), ("k",)]], ids)
    calls.complete()
    solo.run()
    (told,) = solo.messages(TuplesFailed)
    ((cause, roots),) = told.causes
    assert roots == ids.roots and cause.kind == "EmitError" and str(cause).endswith(f"({where_calls_begin()})")
    assert solo.rows() == [] and solo.task.counters.failed == 1


def test_a_result_that_does_not_fit_fails_its_input_alone_where_a_watermark_puts_it_out() -> None:
    solo, calls = enriching()
    ids = solo.fresh(2)
    local_feed(solo, [1, one_too_few], ids)
    calls.complete(1)
    calls.complete()
    # The mail that has put out the first result has posted one for the second; the watermark comes before that.
    time(solo, 10)
    assert solo.rows() == [("k", 1)] and solo.roots(FrameKind.FAIL) == ids.roots[1:]
    assert solo.told_time() == [10] and len(solo.errors()) == 1


def test_a_call_may_give_several_rows_or_none() -> None:
    solo, calls = enriching()
    ids = solo.fresh(2)
    local_feed(solo, [lambda tup: [("k", 1), ("k", 2)], lambda tup: None], ids)
    calls.complete_all()
    solo.run()
    assert solo.rows() == [("k", 1), ("k", 2)]
    assert set(owed(ids, solo)) == {ids.roots[0]}


def test_a_call_that_takes_too_long_gives_what_the_handler_says_and_its_own_result_is_ignored() -> None:
    solo, calls = enriching(timeout="1s")
    feed(solo, 1)
    solo.wait(0.9)
    assert solo.rows() == []
    solo.wait(0.2)
    assert solo.rows() == [("k", "too late")]
    calls.complete()
    solo.run()
    assert len(solo.rows()) == 1


class Plain(Enrich):
    def on_timeout(self, tup: Any) -> Any:
        return AsyncBolt.on_timeout(self, tup)


def test_a_call_that_takes_too_long_fails_where_there_is_no_handler() -> None:
    solo, _ = enriching(bolt=Plain(timeout="1s"))
    ids = feed(solo, 1)
    solo.wait(1.1)
    assert solo.roots(FrameKind.FAIL) == ids.roots


def test_a_call_is_made_again_after_its_back_off() -> None:
    retry = FixedDelayRetry(2, "100ms", if_error=lambda error: isinstance(error, OSError))
    bolt = Enrich(retry=retry)
    solo, calls = enriching(bolt=bolt)
    answers = iter([OSError("once"), ("k", "at last")])

    def answer(_tup: Any) -> Any:
        one = next(answers)
        if isinstance(one, Exception):
            raise one
        return one

    local_feed(solo, [answer], solo.fresh(1))
    calls.complete()
    solo.run()
    assert solo.rows() == [] and not calls.waiting
    solo.wait(0.2)
    calls.complete()
    solo.run()
    assert solo.rows() == [("k", "at last")] and len(bolt.calls) == 2 and solo.errors() == []


def test_the_end_is_told_when_the_last_call_is_done() -> None:
    solo, calls = enriching()
    feed(solo, 1)
    time(solo, FrameKind.END)
    assert solo.told_time() == [] and not solo.task.is_quiet
    calls.complete()
    solo.run()
    assert solo.told_time() == ["END"]


def stubborn(delay: str = "1h") -> Enrich:
    return Enrich(retry=FixedDelayRetry(5, delay, if_error=lambda error: isinstance(error, OSError)))


def raises_again(_tup: Any) -> Any:
    raise OSError("again")


def test_the_end_of_the_input_waits_for_all_attempts_and_their_pauses() -> None:
    bolt = stubborn("1s")
    solo, calls = enriching(bolt=bolt)
    ids = solo.fresh(2)
    answers = iter([OSError("once"), OSError("twice"), ("k", "at last")])

    def answer(_tup: Any) -> Any:
        one = next(answers)
        if isinstance(one, Exception):
            raise one
        return one

    local_feed(solo, [raises_again, answer], ids)
    time(solo, FrameKind.END)
    for _ in range(6):
        calls.complete_all()
        solo.run()
        assert not calls.waiting
        assert solo.told_time() == ([] if len(bolt.calls) < 9 else ["END"])
        solo.wait(1.1)
    assert solo.rows() == [("k", "at last")] and solo.roots(FrameKind.FAIL) == ids.roots[:1]
    assert len(bolt.calls) == 9 and solo.told_time() == ["END"] and solo.errors() == ["OSError: again"]


def test_a_replay_after_the_end_of_the_input_has_all_its_attempts() -> None:
    bolt = stubborn("1s")
    solo, calls = enriching(bolt=bolt)
    time(solo, FrameKind.END)
    local_feed(solo, [raises_again], solo.fresh(1))
    calls.complete_all()
    solo.run()
    solo.wait(1.1)
    assert len(calls.waiting) == 1 and solo.roots(FrameKind.FAIL) == []


def test_with_exactly_once_an_attempt_that_fails_at_the_end_of_the_input_is_a_dead_letter_that_names_its_line() -> None:
    solo = alone(stubborn("1s"), delivery="exactly_once")
    solo.calls.complete()
    solo.run()
    local_feed(solo, [raises_again], Ids([], []))
    solo.calls.complete_all()
    solo.run()
    time(solo, FrameKind.END)
    for _ in range(5):
        solo.wait(1.1)
        solo.calls.complete_all()
        solo.run()
    line = raises_again.__code__.co_firstlineno + 1
    assert letters(solo) == [f"OSError: again (test_operator_task.py:{line}, component 'b')"]
    assert solo.told_time() == ["END"]


def test_an_idle_input_is_told_behind_what_is_in_flight_and_the_output_stays_idle() -> None:
    solo, calls = enriching()
    feed(solo, 1, stamps=[5])
    time(solo, 5)
    time(solo, FrameKind.IDLE)
    assert solo.told_time() == []
    calls.complete()
    solo.run()
    assert solo.told_time() == [5, "IDLE"]
    time(solo, FrameKind.ACTIVE)
    time(solo, 6)
    assert solo.told_time() == [5, "IDLE", "ACTIVE", 6]


def test_an_idle_input_that_ends_while_calls_are_in_flight_is_told_as_its_end_alone() -> None:
    solo, calls = enriching()
    feed(solo, 1, stamps=[5])
    time(solo, FrameKind.IDLE)
    time(solo, FrameKind.END)
    calls.complete()
    solo.run()
    assert solo.told_time() == ["END"]


def test_calls_of_an_earlier_epoch_count_for_nothing() -> None:
    solo, calls = enriching()
    feed(solo, 1)
    time(solo, FrameKind.END)
    solo.out.clear()
    solo.adopt(2)
    solo.open_inputs()
    calls.complete()
    solo.run()
    assert solo.rows() == [] and solo.told_time() == [] and solo.acks() == {}
    feed(solo, 2)
    calls.complete()
    solo.run()
    assert solo.rows() == [("k", 2)]


def test_an_open_that_raises_ends_the_process_as_prepare_does() -> None:
    class Broken(Enrich):
        async def open(self, context: Any) -> None:
            raise RuntimeError("no server")

    solo, calls = enriching(opens=False, bolt=Broken())
    calls.complete()
    with pytest.raises(RuntimeError, match="no server"):
        solo.turn()


def test_close_is_awaited_at_an_orderly_end() -> None:
    from topo.wire.control import Close

    closed: list[str] = []

    class Closing(Enrich):
        async def close(self) -> None:
            closed.append("closed")

    solo, calls = enriching(bolt=Closing())
    solo.handle(Close(Epoch(1)))
    calls.complete_all()
    assert closed == ["closed"]


def test_a_blocking_call_reaches_the_errors() -> None:
    solo, calls = enriching()
    feed(solo, 1)
    _, _, on_blocked = calls.waiting[0]
    on_blocked(ValueError("it blocks"))
    solo.run()
    assert solo.errors() == ["ValueError: it blocks"] and solo.roots(FrameKind.FAIL) == []


def letters(solo: Solo) -> list[str]:
    """Why tuples were given up, as their letters say when a checkpoint covers them."""
    solo.handle(CheckpointComplete(1))
    return [why for letter in solo.messages(DeadLetter) for why in letter.errors]


def local_feed(solo: Solo, values: Sequence[Any], ids: Any) -> None:
    """Deliver tuples of any values as a task of the same process would: as they are."""
    from topo.task.events import FrameArrived, Inbox
    from topo.wire.frames import Anchoring, Columns, data_frame, pack_words

    sender = spouts_of(solo)[0]
    rows = [("k", value) for value in values]
    anchoring = Anchoring.SINGLE if ids.roots else Anchoring.NONE
    columns = Columns(anchoring, rows, pack_words(ids.roots), pack_words(ids.edges), b"")
    frame = data_frame(solo.stamp(sender), solo.id, solo.next_number(sender), 0, columns)
    solo.handle(FrameArrived(frame, Inbox.DATA))
    solo.run()


class Flood(ProcessBolt):
    """Emits as many rows as its input says, and as many again from a timer."""

    outputs = ("key",)

    def __init__(self) -> None:
        super().__init__(key="key")

    def open(self, context: Any) -> None:
        self.late = context.state.value("late")

    def process(self, tup: Any, context: Any, collector: Any) -> None:
        now, later = tup["value"]
        self.late.set(later)
        context.register_event_time_timer(5)
        for _ in range(now):
            collector.emit((context.key,))

    def on_timer(self, timestamp: int, context: Any, collector: Any) -> None:
        for _ in range(self.late.get()):
            collector.emit((context.key + "-late",))


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_a_process_bolt_that_emits_more_than_it_may_in_a_call_fails_it_and_the_others_go_on(delivery: str) -> None:
    solo = alone(Flood(), delivery=delivery, max_task_emit=5)
    is_tracked = delivery == "at_least_once"
    ids = put(solo, [("a", (6, 1)), ("b", (5, 6)), ("c", (4, 5))], [1, 1, 1], tracked=is_tracked)
    assert Counter(row[0] for row in solo.rows()) == {"b": 5, "c": 4}
    if is_tracked:
        assert solo.roots(FrameKind.FAIL) == [ids.roots[0]]
    time(solo, 20)
    late = Counter(row[0] for row in solo.rows() if "late" in row[0])
    assert late == ({"a-late": 1, "c-late": 5} if is_tracked else {"c-late": 5}), "with checkpoints the timer is undone too"
    if not is_tracked:
        assert given_up(solo) == [("a", (6, 1)), ("b", 5)]
    solo.wait(2.0)
    assert all("at most 5 are allowed" in error for error in solo.errors())
    assert sum(error.count for error in solo.messages(ComponentError)) == 2
