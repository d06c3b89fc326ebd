"""The rules of an operator core that are easiest to break: one test each, by the public harnesses and the pure classes.

The sentence that a test holds is its docstring.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from topo import AsyncBolt, ProcessBolt, WindowBolt
from topo.api.async_io import AsyncMode, FixedDelayRetry
from topo.api.windows import (
    ContinuousEventTimeTrigger,
    CountTrigger,
    DeltaEvictor,
    DeltaTrigger,
    EventTimeSessionWindows,
    GlobalWindows,
    ProcessingTimeSessionWindows,
    ProcessWindowFunction,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from topo.keys import KeyGroupRange
from topo.operators.mailbox.mailbox import MIN_PRIORITY, Mail, TaskMailbox
from topo.operators.time.watermarks import BoundedOutOfOrderness, InputStatus, WatermarkCombiner
from topo.operators.windows.assigners import window_start
from topo.testing import Emitted, OperatorHarness, TimerHarness, Watermark
from topo.wire.codec import Codec

MIN, MAX = -(2**63), 2**63 - 1
ALL = KeyGroupRange(0, 127)


class Held(ProcessWindowFunction):
    """Emits the values that a window holds."""

    def process(self, key: Any, elements: Sequence[Any], context: Any, collector: Any) -> None:
        collector.emit((key, context.window.start, context.window.end, [row[1] for row in elements]))


def windows(assigner: Any, **options: Any) -> OperatorHarness:
    bolt = WindowBolt(key="key", window=assigner, process=Held(), outputs=("key", "start", "end", "values"), **options)
    return OperatorHarness(bolt, ("key", "value"))


def global_windows(**options: Any) -> OperatorHarness:
    bolt = WindowBolt(key="key", window=GlobalWindows(), process=Values(), outputs=("values",), **options)
    return OperatorHarness(bolt, ("key", "value"))


class Values(ProcessWindowFunction):
    """Emits the values alone."""

    def process(self, key: Any, elements: Sequence[Any], context: Any, collector: Any) -> None:
        collector.emit(([row[1] for row in elements],))


def feed(harness: OperatorHarness, *elements: tuple[Any, int | None]) -> None:
    for value, timestamp in elements:
        harness.process(("k", value), timestamp)


def fired(harness: OperatorHarness) -> list[tuple[Any, ...]]:
    """What came out since the last look, lists as lists."""
    found = [tuple(list(one) if isinstance(one, tuple) else one for one in row) for row in harness.values]
    harness.clear()
    return found


def test_01_priority() -> None:
    """A priority hides mails and never orders them."""
    mailbox, ran = TaskMailbox(), []
    for name, priority in (("low", MIN_PRIORITY), ("mid", 1), ("high", 2), ("top", 9)):
        mailbox.put(Mail(lambda name=name: ran.append(name), name, priority))
    mailbox.create_batch()
    taken = [mailbox.take(1).description, mailbox.take(MIN_PRIORITY).description]
    assert taken == ["mid", "low"], "the oldest that may be seen; hidden mail keeps its place"
    assert [mail.description for mail in mailbox.drain()] == ["high", "top"] and ran == []


def test_02_batches() -> None:
    """A batch is not extended while it runs, so input gets its turn."""
    order: list[str] = []
    mailbox = TaskMailbox()
    again: Callable[[], None] = lambda: (order.append("mail"), mailbox.put(Mail(again)))[0]  # noqa: E731
    mailbox.put(Mail(again))
    mailbox.run_batch()
    assert order == ["mail"] and mailbox.has_mail


def test_03_physical_timer() -> None:
    """The one timer of the clock is armed again after it has fired, and after a restore."""
    first = TimerHarness()
    for moment in (10, 20, 30):
        first.register_processing("k", moment)
    assert first.clock.pending == 1
    first.set_clock(11)
    assert [one.timestamp for one in first.processing_fired] == [10] and first.clock.pending == 1
    second = TimerHarness(now_ms=25)
    second.restore(first.snapshot(), ALL)
    assert second.clock.pending == 1
    second.set_clock(31)
    assert [one.timestamp for one in second.processing_fired] == [20, 30] and second.clock.pending == 0


class Timed(ProcessBolt):
    """Registers a timer of each kind for each element."""

    outputs = ("what",)

    def __init__(self) -> None:
        super().__init__(key="key")

    def process(self, tup: Any, context: Any, collector: Any) -> None:
        context.register_event_time_timer(5)
        context.register_processing_time_timer(7)
        collector.emit(("element",))

    def on_timer(self, timestamp: int, context: Any, collector: Any) -> None:
        collector.emit((context.domain.value,))


def test_04_timestamps_of_output() -> None:
    """What a timer of the clock puts out has no timestamp; what a window puts out has the window's last one."""
    bolt = OperatorHarness(Timed(), ("key",))
    bolt.process(("k",), 3)
    bolt.watermark(9)
    bolt.set_clock(100)
    assert [event.timestamp for event in bolt.outputs] == [3, 5, None]
    window = windows(TumblingEventTimeWindows.of("3s"), trigger=CountTrigger(1))
    feed(window, ("a", 1))
    assert [event.timestamp for event in window.outputs] == [2999]


def test_05_watermark_after_timers() -> None:
    """A watermark is forwarded after the timers that it fires."""
    bolt = OperatorHarness(Timed(), ("key",))
    bolt.process(("k",), 3)
    bolt.clear()
    bolt.watermark(5)
    assert bolt.events == [Emitted(("event time",), 5), Watermark(5)]


def test_06_lateness_is_of_windows() -> None:
    """An element behind the watermark is taken while one of its windows lives; the late stream is for those late themselves."""
    harness = windows(SlidingEventTimeWindows.of("3s", "1s"), late_stream="late")
    harness.watermark(2999)
    feed(harness, ("behind", 2500))
    assert harness.late == [] and harness.late_elements == 0, "two of its three windows live"
    harness.watermark(4999)
    assert [row[3] for row in fired(harness)] == [["behind"], ["behind"]]
    feed(harness, ("late", 2500))
    assert harness.late == [Emitted(("k", "late"), 2500)] and harness.late_elements == 1


@pytest.mark.parametrize(("watermark", "is_late"), [(20, False), (21, True)])
def test_07_boundaries(watermark: int, is_late: bool) -> None:
    """Late: clean-up time <= watermark. Due: timestamp <= time. Fires late at once: last timestamp <= watermark."""
    harness = windows(TumblingEventTimeWindows.of("2ms"), allowed_lateness="20ms")
    harness.watermark(watermark)
    feed(harness, ("a", 1))
    assert (harness.late_dropped == 1) is is_late and (harness.values == []) is is_late
    at_its_end = windows(TumblingEventTimeWindows.of("2ms"), allowed_lateness="20ms")
    at_its_end.watermark(watermark - 20)
    feed(at_its_end, ("a", 1))
    assert (at_its_end.values != []) is is_late, "the window's last timestamp, 1, is behind the watermark 1, and not 0"
    timers = TimerHarness()
    timers.register_event("k", 10)
    timers.watermark(9)
    assert timers.event_fired == []
    timers.watermark(10)
    assert [one.timestamp for one in timers.event_fired] == [10]


def test_08_fire_and_purge() -> None:
    """Firing keeps the contents; purging drops them and nothing else."""
    keeps = windows(TumblingEventTimeWindows.of("3s"), trigger=CountTrigger(2))
    feed(keeps, *[(number, number) for number in range(4)])
    assert [row[3] for row in fired(keeps)] == [[0, 1], [0, 1, 2, 3]]
    purges = windows(EventTimeSessionWindows.with_gap("3s"), trigger=PurgingTrigger(CountTrigger(2)))
    feed(purges, ("a", 0), ("b", 1000))
    assert fired(purges) == [("k", 0, 4000, ["a", "b"])] and purges.open_windows == 0 and purges.timers == 1
    feed(purges, ("c", 3500), ("d", 3600))
    assert fired(purges) == [("k", 0, 6600, ["c", "d"])], "the purged session still merges by its extent"


def test_09_sessions_that_touch() -> None:
    """Sessions that only touch are one: with a gap of 3000 an element at 2500 reaches up to and including 5500."""
    for second, expected in ((5500, [("k", 2500, 8500, [1, 2])]), (5501, [("k", 2500, 5500, [1]), ("k", 5501, 8501, [2])])):
        harness = windows(EventTimeSessionWindows.with_gap("3s"))
        feed(harness, (1, 2500), (2, second))
        harness.watermark(20_000)
        assert fired(harness) == expected


def test_10_after_a_merge() -> None:
    """Dangling timers of old windows are ignored; the trigger and the clean-up belong to the merged window, contents stay."""
    harness = windows(EventTimeSessionWindows.with_gap("3s"), trigger=ContinuousEventTimeTrigger.of("1s"))
    feed(harness, (1, 500), (2, 2500))
    (held,) = harness.snapshot().keyed.values()
    assert [row[1] for row in held["state"]["__window-contents"]["rows"]] == [(500, 3500)], "where they were put first"
    assert ("k", (500, 5500), 5499) in held["timers"]["window-timers"][0], "the merged window's"
    harness.watermark(999)
    assert fired(harness) == [], "the first fire time, 1000, has not come"
    harness.watermark(3499)
    assert {row[1:3] for row in fired(harness)} == {(500, 5500)}, "the old end, 3499, asks no trigger"
    harness.watermark(5499)
    assert fired(harness)[-1] == ("k", 500, 5500, [1, 2])
    assert harness.open_windows == 0 and harness.state_entries == 0


def test_11_lateness_of_processing_time() -> None:
    """Windows of processing time have no lateness, whatever is allowed."""
    for assigner in (TumblingProcessingTimeWindows.of("3s"), ProcessingTimeSessionWindows.with_gap("3s")):
        harness = windows(assigner, allowed_lateness="1h")
        feed(harness, ("a", 10_000_000))
        harness.set_clock(3000)
        assert len(fired(harness)) == 1 and harness.open_windows == harness.timers == 0


def test_12_overflow() -> None:
    """A clean-up time beyond 64 bits is no clean-up timer; 64-bit times survive being written down."""
    harness = windows(TumblingEventTimeWindows.of("3s"), allowed_lateness=f"{MAX // 1000}s")
    feed(harness, ("a", 5000))
    assert harness.timers == 1, "the trigger's alone"
    harness.watermark(MAX - 1)
    assert harness.open_windows == 1
    codec = Codec()
    assert codec.unpack_value(codec.pack_value((MIN, MAX))) == (MIN, MAX)


def test_13_remainders() -> None:
    """A window's start is the floor on both sides of the epoch; a continuous trigger's first fire truncates towards zero."""
    assert [window_start(at, 0, 10) for at in (-11, -10, -1, 0, 9)] == [-20, -10, -10, 0, 0]
    harness = windows(TumblingEventTimeWindows.of("1m"), trigger=ContinuousEventTimeTrigger.of("10ms"))
    feed(harness, ("a", -50_005))
    harness.watermark(-49_991)
    assert fired(harness) == []
    harness.watermark(-49_990)
    assert len(fired(harness)) == 1


def test_14_continuous_trigger() -> None:
    """The first fire comes from the first element, is capped at the window's end, and a merge registers the least."""
    harness = windows(TumblingEventTimeWindows.of("10ms"), trigger=ContinuousEventTimeTrigger.of("4ms"))
    feed(harness, ("late", 5), ("early", 1))
    harness.watermark(7)
    assert fired(harness) == [], "8 for the element at 5 that came first; 4 would be for the least"
    harness.watermark(8)
    assert len(fired(harness)) == 1
    harness.watermark(9)
    assert len(fired(harness)) == 1, "12 is capped to 9, which is the end as well: one timer"
    merged = windows(EventTimeSessionWindows.with_gap("10ms"), trigger=ContinuousEventTimeTrigger.of("4ms"))
    feed(merged, (1, 20), (2, 1), (3, 11))
    merged.watermark(3)
    assert fired(merged) == []
    merged.watermark(4)
    assert [(*row[:3], sorted(row[3])) for row in fired(merged)] == [("k", 1, 30, [1, 2, 3])]


def test_15_count_after_a_merge() -> None:
    """A merge adds the counts up and does not fire before the next element."""
    harness = windows(EventTimeSessionWindows.with_gap("3s"), trigger=CountTrigger(4))
    feed(harness, (1, 0), (2, 0), (3, 4000), (4, 10_000))
    assert fired(harness) == []
    feed(harness, (5, 2000))
    assert [sorted(row[3]) for row in fired(harness)] == [[1, 2, 3, 5]], "the element that merges is the fourth"


def test_16_evictors() -> None:
    """The buffer holds what an evictor left; the delta evictor drops at its threshold, where the delta trigger still waits."""
    distance = lambda first, second: abs(second[1] - first[1])  # noqa: E731
    harness = global_windows(trigger=CountTrigger(2), evictor=DeltaEvictor(5, distance))
    feed(harness, (0, 0), (5, 0))
    assert fired(harness) == [([5],)]
    feed(harness, (9, 0), (9, 0))
    assert fired(harness) == [([5, 9, 9],)], "the first does not return"
    trigger = global_windows(trigger=DeltaTrigger(5, distance))
    feed(trigger, (0, 0), (5, 0))
    assert fired(trigger) == []
    feed(trigger, (6, 0))
    assert fired(trigger) == [([0, 5, 6],)]


def test_17_idle_channels() -> None:
    """An idle channel's watermarks are not even stored, it has to catch up; when all idle the maximum goes before the status."""
    combiner = WatermarkCombiner("ab")
    assert combiner.watermark("a", 10) == [] and combiner.idle("b") == [10]
    assert combiner.watermark("b", 30) == [] and combiner.active("b") == []
    assert combiner.watermark("b", 5) == [], "5 is behind 10, and 30 was never stored"
    assert combiner.watermark("a", 20) == [20], "b does not count before it has caught up"
    assert combiner.watermark("b", 25) == [] and combiner.watermark("a", 40) == [25]
    assert combiner.idle("b") == [40] and combiner.watermark("a", 41) == [41]
    both = WatermarkCombiner("ab")
    assert both.watermark("a", 7) == [] and both.idle("a") == []
    assert both.idle("b") == [7, InputStatus.IDLE]


def test_18_bounded_out_of_orderness() -> None:
    """The bound's watermark lies one millisecond further back."""
    seen: list[int] = []

    class Output:
        watermark = staticmethod(seen.append)

    generator = BoundedOutOfOrderness(100)
    generator.on_periodic_emit(Output)  # type: ignore[arg-type]
    generator.on_event(None, 1337, Output)  # type: ignore[arg-type]
    generator.on_periodic_emit(Output)  # type: ignore[arg-type]
    assert seen == [MIN, 1236]


class Asks(AsyncBolt):
    """Waits for an answer of the test."""

    outputs = ("name",)

    def call(self, tup: Any) -> Any:
        self.__dict__.setdefault("open_calls", {})[tup["name"]] = answer = asyncio.get_running_loop().create_future()
        return answer


def test_19_async() -> None:
    """Capacity counts watermarks; nothing crosses one; each answer leaves in one mail; a retry keeps its place."""
    bolt = Asks(AsyncMode.UNORDERED, 4)
    harness = OperatorHarness(bolt, ("name",), runs_mails=False)
    harness.process(("a",), 1)
    harness.process(("b",), 2)
    harness.watermark(2)
    harness.process(("c",), 3)
    assert harness.in_flight == 4 and harness.operator.is_full  # type: ignore[attr-defined]
    for name in "cba":
        bolt.open_calls[name].set_result((name,))  # type: ignore[attr-defined]
    harness._time.turn()
    left = []
    while harness.run_mails(1):
        left.append(len(harness.events))
    assert all(after - before <= 1 for before, after in zip([0, *left], left, strict=False)), "one a mail"
    assert harness.events == [Emitted(("b",), 2), Emitted(("a",), 1), Watermark(2), Emitted(("c",), 3)]
    again = Asks(AsyncMode.ORDERED, 1, retry=FixedDelayRetry(1, "10ms", if_error=lambda _error: True))
    waits = OperatorHarness(again, ("name",))
    waits.process(("a",), 1)
    again.open_calls.pop("a").set_exception(OSError("not now"))  # type: ignore[attr-defined]
    waits.run()
    assert waits.in_flight == 1 and waits.operator.is_full and not again.open_calls  # type: ignore[attr-defined]
    waits.advance_clock(11)
    assert list(again.open_calls) == ["a"] and waits.failed == []  # type: ignore[attr-defined]


def test_20_restored() -> None:
    """A restored operator has no watermark, its clock timers are armed, and its calls are made again."""
    window = windows(TumblingEventTimeWindows.of("3s"))
    feed(window, ("a", 1))
    window.watermark(2998)
    again = window.restore(window.snapshot())
    feed(again, ("b", 2))
    assert again.values == [] and again.late_dropped == 0
    again.watermark(2999)
    assert [row[3] for row in fired(again)] == [["a", "b"]]
    timed = OperatorHarness(Timed(), ("key",))
    timed.process(("k",), 1)
    resumed = timed.restore(timed.snapshot())
    resumed.set_clock(8)
    assert resumed.values == [("processing time",)]
    bolt = Asks(AsyncMode.ORDERED, 4)
    asking = OperatorHarness(bolt, ("name",))
    asking.process(("a",), 1)
    asking.process(("b",), 2)
    asked = asking.restore(asking.snapshot())
    assert asked.in_flight == 2 and sorted(asked.bolt.open_calls) == ["a", "b"]  # type: ignore[union-attr]
