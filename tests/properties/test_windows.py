"""The window operator against a naive model and against the whole input at once; and through a restart after any step."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.properties.window_model import END_OF_TIME, START_OF_TIME, Naive
from tests.unit.operators.rig import Rig, restored
from topo.api import aggregates
from topo.api.triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
)
from topo.api.windows import (
    EventTimeSessionWindows,
    ProcessingTimeSessionWindows,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from topo.operators.windows.builder import build_window_operator
from topo.operators.windows.operator import WindowOperator


def ms(number: int) -> timedelta:
    return timedelta(milliseconds=number)


Case = tuple[WindowOperator, Naive]

shapes = st.one_of(
    st.tuples(st.just("tumbling"), st.integers(1, 12), st.integers(-11, 11), st.just(0)).filter(
        lambda shape: abs(shape[2]) < shape[1]
    ),
    st.tuples(st.just("sliding"), st.integers(1, 12), st.integers(-7, 7), st.integers(1, 8)).filter(
        lambda shape: abs(shape[2]) < shape[3]
    ),
    st.tuples(st.just("session"), st.integers(2, 10), st.just(0), st.just(0)),
)
triggers = st.one_of(
    st.just("time"),
    st.just("never"),
    st.tuples(st.sampled_from(["count", "purging count"]), st.integers(1, 4)),
    st.tuples(st.just("continuous"), st.integers(1, 8)),
)
lateness = st.sampled_from([0, 0, 1, 5, 20, END_OF_TIME])
elements = st.tuples(st.just("element"), st.sampled_from("ab"), st.integers(-20, 60))
advances = st.tuples(st.just("advance"), st.just(""), st.integers(1, 15))
steps = st.lists(st.one_of(elements, elements, elements, advances), max_size=25)


def declared(shape: Any, is_event_time: bool) -> Any:
    kind, size, offset, slide = shape
    if kind == "tumbling":
        tumbling = TumblingEventTimeWindows if is_event_time else TumblingProcessingTimeWindows
        return tumbling.of(ms(size), offset=ms(offset))
    if kind == "sliding":
        sliding = SlidingEventTimeWindows if is_event_time else SlidingProcessingTimeWindows
        return sliding.of(ms(size), ms(slide), offset=ms(offset))
    return (EventTimeSessionWindows if is_event_time else ProcessingTimeSessionWindows).with_gap(ms(size))


def assigned(shape: Any, time: int) -> list[tuple[int, int]]:
    """Every window of the shape that holds `time`, found by trying all starts."""
    kind, size, offset, slide = shape
    if kind == "session":
        return [(time, time + size)]
    step = slide if kind == "sliding" else size
    return [(start, start + size) for start in range(time, time - size, -1) if (start - offset) % step == 0]


def trigger_of(trigger: Any, is_event_time: bool) -> Any:
    kind, number = trigger if isinstance(trigger, tuple) else (trigger, 0)
    match kind:
        case "time":
            return EventTimeTrigger() if is_event_time else ProcessingTimeTrigger()
        case "never":
            return NeverTrigger()
        case "count":
            return CountTrigger(number)
        case "purging count":
            return PurgingTrigger.of(CountTrigger(number))
    return (ContinuousEventTimeTrigger if is_event_time else ContinuousProcessingTimeTrigger)(number)


def build(shape: Any, trigger: Any, is_event_time: bool, lateness_ms: int) -> WindowOperator:
    return build_window_operator(
        declared(shape, is_event_time),
        trigger=trigger_of(trigger, is_event_time),
        aggregate=aggregates.Collect(),
        allowed_lateness_ms=lateness_ms,
        late_stream="late",
        result_of=lambda key, window, result: (key, window.start, window.end, tuple(sorted(result))),
    )


def outputs(rig: Rig) -> list[Any]:
    """What came out, without watermarks; every result has to carry the last millisecond of its window."""
    seen: list[Any] = []
    for one in rig.taken():
        if one[0] == "late":
            seen.append(("late", one[1]))
        elif one[0] != "watermark":
            assert one[1] == one[0][2] - 1
            seen.append(one[0])
    return sorted(seen, key=repr)


def restarted(rig: Rig, operator: WindowOperator) -> Rig:
    """Return a rig that continues from a stored snapshot, at the same time."""
    assert isinstance(rig.operator, WindowOperator)
    again = restored(lambda: operator, rig.snapshot(), now_ms=rig.clock.now_ms())
    # A restored operator begins without a watermark. The inputs repeat theirs, which the steps here do not.
    operator.timer_service.current_watermark = rig.operator.timer_service.current_watermark
    return again


def run(shape: Any, trigger: Any, lateness_ms: int, script: list[Any], is_event_time: bool, restarts: bool) -> None:
    naive = Naive(
        lambda time: assigned(shape, time),
        is_merging=shape[0] == "session",
        is_event_time=is_event_time,
        lateness=lateness_ms,
        trigger=trigger,
        time=START_OF_TIME if is_event_time else 0,
    )
    rig = Rig(build(shape, trigger, is_event_time, lateness_ms))
    now = -25 if is_event_time else 0
    for number, (kind, key, amount) in enumerate([*script, ("advance", "", 200), ("advance", "", 10_000)]):
        if kind == "element":
            expected = naive.element(key, number, amount)
            rig.operator.process_element(key, number, amount)
        else:
            now += amount
            expected = naive.advance(now)
            if is_event_time:
                rig.operator.process_watermark(now)
            else:
                rig.clock.advance_to(now)
        assert outputs(rig) == sorted(expected, key=repr)
        if restarts:
            rig = restarted(rig, build(shape, trigger, is_event_time, lateness_ms))
    assert isinstance(rig.operator, WindowOperator)
    if lateness_ms < END_OF_TIME:
        assert rig.operator.state.entries == 0
        assert not rig.operator.snapshot().keyed or trigger[0] == "continuous"


@given(shapes, triggers, lateness, steps, st.booleans())
@settings(max_examples=150)
def test_event_time_windows_do_at_each_step_what_the_naive_model_does(
    shape: Any, trigger: Any, lateness_ms: int, script: list[Any], restarts: bool
) -> None:
    run(shape, trigger, lateness_ms, script, is_event_time=True, restarts=restarts)


@given(shapes, triggers, steps, st.booleans())
@settings(max_examples=150)
def test_processing_time_windows_do_at_each_step_what_the_naive_model_does(
    shape: Any, trigger: Any, script: list[Any], restarts: bool
) -> None:
    run(shape, trigger, 0, script, is_event_time=False, restarts=restarts)


@given(shapes, st.lists(st.tuples(st.sampled_from("ab"), st.integers(-20, 60)), max_size=40), st.randoms(use_true_random=False))
def test_in_whatever_order_a_bounded_input_comes_its_windows_are_those_of_the_whole(
    shape: Any, inputs: list[tuple[str, int]], random: Any
) -> None:
    inputs = [*inputs, *inputs[:5]]  # duplicates are elements like any other
    random.shuffle(inputs)
    rig = Rig(build(shape, "time", True, 0))
    rig.operator.process_batch([key for key, _ in inputs], list(range(len(inputs))), [timestamp for _, timestamp in inputs])
    rig.operator.process_watermark(END_OF_TIME)

    members: dict[tuple[str, int, int], list[int]] = defaultdict(list)
    for number, (key, timestamp) in enumerate(inputs):
        for start, end in windows_of_the_whole(shape, key, timestamp, inputs):
            members[key, start, end].append(number)
    assert outputs(rig) == sorted(((*pane, tuple(numbers)) for pane, numbers in members.items()), key=repr)


def windows_of_the_whole(shape: Any, key: str, timestamp: int, inputs: list[tuple[str, int]]) -> list[tuple[int, int]]:
    if shape[0] != "session":
        return assigned(shape, timestamp)
    gap, times = shape[1], sorted({time for other, time in inputs if other == key})
    first = last = times.index(timestamp)
    while first > 0 and times[first] - times[first - 1] <= gap:
        first -= 1
    while last < len(times) - 1 and times[last + 1] - times[last] <= gap:
        last += 1
    return [(times[first], times[last] + gap)]
