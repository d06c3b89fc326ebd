"""Windows and timers of event time where nothing gives event time: refused when the topology is built, with the line to add."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from topo import (
    BasicBolt,
    BatchBolt,
    Bolt,
    IterableSpout,
    ProcessBolt,
    Spout,
    TopologyBuilder,
    WatermarkStrategy,
    WindowBolt,
    aggregates,
    windows,
)
from topo.errors import TopologyError, UserError
from topo.testing import TopologyTest
from topo_cli.main import main

AT = WatermarkStrategy.monotonic_timestamps(timestamp="at")
EMITTED = WatermarkStrategy.emitted()


SECONDS = windows.TumblingEventTimeWindows.of("1s")


def count(window: Any = SECONDS, **parts: Any) -> WindowBolt:
    return WindowBolt(key=None, window=window, aggregate=aggregates.Count(), **parts)


class Rows(IterableSpout):
    def __init__(self) -> None:
        super().__init__([100, 600, 1200], fields=("at",))


class Pass(BasicBolt):
    outputs = ("at",)

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit((tup["at"],))


class PassAnchored(Bolt):
    outputs = ("at",)

    def prepare(self, context: Any, collector: Any) -> None:
        self.collector = collector

    def execute(self, tup: Any) -> None:
        self.collector.emit((tup["at"],), tup, timestamp=tup["at"])
        self.collector.ack(tup)


class Stamp(BasicBolt):
    outputs = ("at",)

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit((tup["at"],), timestamp=tup["at"])


class StampThroughAName(BasicBolt):
    outputs = ("at",)

    def execute(self, tup: Any, collector: Any) -> None:
        for emit in [collector.emit]:
            emit((tup["at"],), timestamp=tup["at"])


def stamped(collector: Any, at: int) -> None:
    collector.emit((at,), timestamp=at)


class StampInAFunction(BasicBolt):
    outputs = ("at",)

    def execute(self, tup: Any, collector: Any) -> None:
        stamped(collector, tup["at"])


class StampByPosition(BasicBolt):
    outputs = ("at",)

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit((tup["at"],), "default", tup["at"])


class StampBatches(BatchBolt):
    outputs = ("at",)

    def __init__(self) -> None:
        super().__init__(size=2, wait="10ms")

    def execute_batch(self, tuples: Any, collector: Any) -> None:
        for tup in tuples:
            collector.emit((tup["at"],), tup, timestamp=tup["at"])


class Sensor(Spout):
    outputs = ("at",)

    def open(self, context: Any, collector: Any) -> None:
        self.collector, self.rows = collector, [100, 600, 1200]

    def next_tuple(self) -> None:
        if not self.rows:
            self.collector.end_of_input()
            return
        at = self.rows.pop(0)
        self.collector.emit((at,), message_id=at, timestamp=at)
        self.collector.emit_watermark(at)


class Sides(Spout):
    """Emits on two streams; a strategy reads the timestamps of the first alone."""

    outputs = {"default": ("at",), "side": ("at",)}

    def open(self, context: Any, collector: Any) -> None:
        self.collector = collector

    def next_tuple(self) -> None:
        self.collector.end_of_input()


def built(
    source: Any, between: Any = None, last: Any = None, *, on_source: Any = None, on_between: Any = None, stream: str = "default"
) -> TopologyBuilder:
    builder = TopologyBuilder("counts")
    builder.set_spout("source", source, watermarks=on_source)
    if between is not None:
        builder.set_bolt("between", between, watermarks=on_between).global_grouping("source")
    builder.set_bolt("counts", last or count()).global_grouping("source" if between is None else "between", stream)
    return builder


def refusal(builder: TopologyBuilder) -> str:
    with pytest.raises(TopologyError) as refused:
        builder.build()
    (problem,) = refused.value.problems
    return problem


def test_windows_of_event_time_without_a_strategy_are_refused() -> None:
    """`TumblingEventTimeWindows` behind a spout, and `watermarks=` is set nowhere."""
    assert refusal(built(Rows())).rpartition(" (")[0] == (
        "bolt 'counts' has windows of event time, but the tuples of 'source' have none: neither it nor a component before it has "
        "a WatermarkStrategy; set one, such as set_spout('source', ..., watermarks="
        'WatermarkStrategy.bounded_out_of_orderness("5s", timestamp="at")), or watermarks=WatermarkStrategy.emitted() where the '
        "component itself calls emit(..., timestamp=...), or use windows of processing time"
    )


@pytest.mark.parametrize(
    "window",
    [
        windows.SlidingEventTimeWindows.of("2s", "1s"),
        windows.EventTimeSessionWindows.with_gap("1s"),
        windows.EventTimeSessionWindows.with_dynamic_gap(lambda _values: "1s"),
    ],
)
def test_other_windows_of_event_time_are_refused_as_well(window: Any) -> None:
    """Sliding windows and sessions of event time, and no strategy."""
    assert "has windows of event time" in refusal(built(Rows(), Pass(), count(window)))


@pytest.mark.parametrize("trigger", [windows.ContinuousEventTimeTrigger.of("1s"), None])
def test_triggers_of_event_time_need_a_strategy_too(trigger: Any) -> None:
    """A trigger goes by event time, over a window that does not."""
    trigger = windows.PurgingTrigger.of(trigger or WakesItself())
    problem = refusal(built(Rows(), last=count(windows.GlobalWindows(), trigger=trigger)))
    assert problem.startswith("bolt 'counts' has a trigger of event time") and "but the tuples of 'source' have none" in problem


class WakesItself(windows.Trigger):
    """A trigger of the user's own, with a timer of event time."""

    def on_element(self, value: Any, timestamp: int, window: Any, context: Any) -> Any:
        context.register_event_time_timer(timestamp + 1000)
        return windows.TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Any, context: Any) -> Any:
        return windows.TriggerResult.FIRE

    def on_processing_time(self, time: int, window: Any, context: Any) -> Any:
        return windows.TriggerResult.CONTINUE

    def clear(self, window: Any, context: Any) -> None:
        """Nothing is kept."""


class Reminds(ProcessBolt):
    """Registers a timer of event time."""

    outputs = ("at",)

    def __init__(self) -> None:
        super().__init__(key=None)

    def process(self, tup: Any, context: Any, collector: Any) -> None:
        self.remind(context, tup["at"])

    def remind(self, context: Any, at: int) -> None:
        context.register_event_time_timer(at + 1000)

    def on_timer(self, timestamp: int, context: Any, collector: Any) -> None:
        collector.emit((timestamp,))


def test_timers_of_event_time_without_a_strategy_are_refused() -> None:
    """`register_event_time_timer` in a process bolt, and no strategy: its timers would wait for the end of the input."""
    problem = refusal(built(Rows(), last=Reminds()))
    assert problem.startswith("bolt 'counts' has timers of event time (Reminds calls register_event_time_timer), but the tuples")
    assert problem.rpartition(" (")[0].endswith("or use register_processing_time_timer")
    assert built(Rows(), last=Reminds(), on_source=AT).build()


def test_each_input_of_a_window_needs_event_time() -> None:
    """Two sources, and the strategy stands on one of them: each row of the other would fail."""
    builder = built(Rows(), on_source=AT)
    builder.set_spout("other", Rows())
    builder._declared[1][1].global_grouping("other")
    assert "but the tuples of 'other' have none" in refusal(builder)


def test_a_side_stream_of_a_spout_has_the_timestamps_that_the_spout_emits() -> None:
    """A strategy on the spout reads the timestamps of its main stream alone."""
    problem = refusal(built(Sides(), on_source=AT, stream="side"))
    assert "the tuples of 'source' (stream 'side') have none" in problem and "reads the stream 'default' alone" in problem
    assert built(Sides(), on_source=AT).build()
    assert built(Sides(), on_source=EMITTED, stream="side").build()


def test_results_of_count_windows_have_no_moment() -> None:
    """Windows of event time over results of count windows, whose timestamp is the end of time: all would be dropped as late."""
    problem = refusal(built(Rows(), count(windows.CountWindows.of(2)), count(), on_source=AT))
    assert problem.startswith("bolt 'counts' has windows of event time, but the tuples of 'between' have none: the windows of")
    assert "set_bolt('between', ..., watermarks=" in problem
    strategy = WatermarkStrategy.monotonic_timestamps(timestamp=lambda _values: 5)
    assert built(Rows(), count(windows.CountWindows.of(2)), count(), on_between=strategy).build()


# -- what works


@pytest.mark.parametrize(
    ("between", "strategy"),
    [
        (Pass, AT),
        (Stamp, None),
        (StampThroughAName, None),
        (StampInAFunction, None),
        (StampBatches, None),
        (PassAnchored, None),
        (StampByPosition, EMITTED),
    ],
)
def test_a_bolt_may_give_event_time(between: Callable[[], Any], strategy: Any) -> None:
    """A bolt reads the time by a strategy, or emits with `timestamp=`, which is recognised; by position it is declared."""
    test = TopologyTest(built(Rows(), between(), on_between=strategy).build)
    test.run()
    assert test.emitted("counts") == [(0, 1000, 2), (1000, 2000, 1)]


def test_a_timestamp_that_is_not_recognised_is_refused_with_the_line_to_add() -> None:
    """`emit(values, "default", at)`: the code does not show that the third argument is the time."""
    assert "or watermarks=WatermarkStrategy.emitted() where the component itself" in refusal(built(Rows(), StampByPosition()))


@pytest.mark.parametrize("strategy", [None, EMITTED])
@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_a_spout_may_emit_timestamps_and_watermarks(strategy: Any, delivery: str) -> None:
    """A spout with `emit(..., timestamp=)` and `emit_watermark` needs no declaration, and the declaration changes nothing."""
    test = TopologyTest(built(Sensor(), Pass(), on_source=strategy).config(delivery=delivery).build)
    test.run()
    assert test.emitted("counts") == [(0, 1000, 2), (1000, 2000, 1)]
    test.assert_all_acked()


def test_windows_pass_on_the_event_time_of_their_input() -> None:
    """Windows over windows."""
    test = TopologyTest(built(Rows(), count(), count(windows.TumblingEventTimeWindows.of("2s")), on_source=AT).build)
    test.run()
    assert test.emitted("counts") == [(0, 2000, 2)]


def test_windows_of_the_clock_need_no_strategy() -> None:
    """Processing time, counts, the end of the stream."""
    end = windows.GlobalWindows.at_end_of_stream()
    for window in (windows.TumblingProcessingTimeWindows.of("1s"), windows.CountWindows.of(2), end):
        assert built(Rows(), last=count(window)).build()


def test_what_a_component_emits_itself_has_no_parts() -> None:
    """`WatermarkStrategy.emitted()` with an idleness: the spout calls `mark_idle`."""
    with pytest.raises(UserError, match=r"the component emits its watermarks itself.*call mark_idle"):
        EMITTED.with_idleness("5s")


def test_validate_refuses_it_too(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """`topo validate` refuses the topology before anything starts."""
    file = tmp_path / "counts.py"
    file.write_text(
        "from topo import *\n"
        "b = TopologyBuilder('counts')\n"
        "b.set_spout('source', IterableSpout([1], fields=('n',)))\n"
        "window = windows.TumblingEventTimeWindows.of('1s')\n"
        "b.set_bolt('counts', WindowBolt(key=None, window=window, aggregate=aggregates.Count())).global_grouping('source')\n"
        "topology = b.build()\n"
    )
    with pytest.raises(SystemExit) as ended:
        main(["validate", str(file)])
    assert ended.value.code == 2
    assert "bolt 'counts' has windows of event time, but the tuples of 'source' have none" in capsys.readouterr().out
