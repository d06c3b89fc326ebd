"""Where changes of event time stand among the rows of a batch, also when the call that reported them raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.rows import rows_of
from tests.tasks.components import Manual, Plain, Replaying, Scripted, Sink
from tests.tasks.environment import CODEC
from tests.tasks.solo import Solo
from topo.api import aggregates
from topo.api.operator_bolts import WindowBolt
from topo.api.topology import Topology
from topo.api.watermarks import WatermarkStrategy
from topo.api.windows import TumblingEventTimeWindows
from topo.builder import TopologyBuilder
from topo.testing import Emitted, OperatorHarness, Status, TopologyTest, Watermark
from topo.wire.frames import FrameKind

BOTH = pytest.mark.parametrize("kind", [Scripted, Replaying])
MODES = pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once", "at_most_once"])
EVERY_OTHER = WatermarkStrategy.punctuated(lambda row, stamp: stamp if row[0] % 2 else None, timestamp=lambda row: row[0])


def spouting(*steps: Any, kind: Any = Scripted, watermarks: Any = None, outputs: Any = ("value",), **settings: Any) -> Solo:
    """A spout a with a sink b on each of its streams."""
    builder = TopologyBuilder("cuts").config(**settings)
    spout = kind(steps)
    spout.outputs = outputs
    builder.set_spout("a", spout, watermarks=watermarks)
    sink = builder.set_bolt("b", Sink())
    for stream in outputs if isinstance(outputs, dict) else ("default",):
        sink.shuffle_grouping("a", stream=stream)
    return Solo(builder.build(), "a")


def working(bolt: Any, watermarks: WatermarkStrategy) -> Solo:
    """A bolt b between a spout a and a sink c on each of its streams."""
    builder = TopologyBuilder("cuts")
    builder.set_spout("a", Scripted())
    builder.set_bolt("b", bolt, watermarks=watermarks).shuffle_grouping("a")
    sink = builder.set_bolt("c", Sink())
    for stream in bolt.outputs if isinstance(bolt.outputs, dict) else ("default",):
        sink.shuffle_grouping("b", stream=stream)
    return Solo(builder.build(), "b")


def sent(task: Solo) -> list[Any]:
    """The reader's events, in order: values, ("wm", watermark), "idle", "active", "end"."""
    found: list[Any] = []
    for frame in task.frames(FrameKind.DATA, FrameKind.WATERMARK, FrameKind.IDLE, FrameKind.ACTIVE, FrameKind.END):
        if frame.kind is FrameKind.DATA:
            found += [row[0] for row in rows_of(frame, CODEC)]
        else:
            found.append(("wm", frame.mark) if frame.kind is FrameKind.WATERMARK else frame.kind.name.lower())
    return found


def saying(*script: Any) -> Callable[[Any], None]:
    """One call: ints are emitted, ("wm", t) is a watermark, "idle" and "end" are reported, an exception is raised."""

    def call(collector: Any) -> None:
        for one in script:
            if isinstance(one, Exception):
                raise one
            if isinstance(one, tuple):
                collector.emit_watermark(one[1])
            elif one == "idle":
                collector.mark_idle()
            elif one == "end":
                collector.end_of_input()
            else:
                collector.emit((one,), message_id=one)

    return call


# -- a call that raises


@BOTH
@MODES
def test_a_watermark_said_in_a_call_that_raises_does_not_hold(kind: Any, delivery: str) -> None:
    task = spouting(saying(1, ("wm", 1)), saying(2, ("wm", 9), "idle", OSError("x")), saying(2, ("wm", 2)), kind=kind,
                    delivery=delivery)  # fmt: skip
    task.wait(1)
    assert sent(task) == [1, ("wm", 1), 2, ("wm", 2), "end"]


@BOTH
@MODES
def test_an_end_of_input_said_in_a_call_that_raises_does_not_hold(kind: Any, delivery: str) -> None:
    task = spouting(1, saying(2, "end", OSError("x")), saying(2, "end"), kind=kind, delivery=delivery)
    task.wait(1)
    assert sent(task) == [1, 2, "end"]


def test_what_a_call_before_the_one_that_raises_has_said_holds() -> None:
    task = spouting(1, saying(2, ("wm", 2)), saying(("wm", 7), OSError("x")))
    task.run()
    assert sent(task) == [1, 2, ("wm", 2)]


def test_the_kit_takes_back_an_end_of_input_too() -> None:
    test = TopologyTest(lambda: _topology([saying("end", OSError("x")), 1, saying("end")]))
    test.run()
    assert test.emitted("a") == [(1,)]
    test.assert_all_acked()


def _topology(steps: list[Any]) -> Topology:
    builder = TopologyBuilder("kit")
    builder.set_spout("a", Replaying(steps, ends=False))
    builder.set_bolt("b", Sink()).shuffle_grouping("a")
    return builder.build()


def test_what_a_generator_says_in_a_call_that_raises_does_not_hold() -> None:
    class Broken:
        def on_event(self, value: Any, timestamp: int, output: Any) -> None:
            output.watermark(timestamp)
            if timestamp == 2:
                raise ValueError("x")

        def on_periodic_emit(self, output: Any) -> None:
            output.watermark(100)
            raise ValueError("y")

    task = spouting(1, 2, 3, watermarks=WatermarkStrategy.from_generator(Broken, timestamp="value"))
    task.wait(1)
    assert sent(task) == [1, ("wm", 1), 2, 3, ("wm", 3), "end"]


# -- spouts


@BOTH
@MODES
def test_a_watermark_of_the_user_stands_between_the_rows_of_a_burst(kind: Any, delivery: str) -> None:
    task = spouting(saying(1, ("wm", 1), 2), 3, saying(("wm", 3), 4, ("wm", 2), ("wm", 5)), 5, kind=kind, delivery=delivery)
    task.run()
    assert sent(task) == [1, ("wm", 1), 2, 3, ("wm", 3), 4, ("wm", 5), 5, "end"]


@BOTH
@MODES
def test_a_punctuated_watermark_follows_its_row(kind: Any, delivery: str) -> None:
    task = spouting(1, 2, 3, 4, kind=kind, delivery=delivery, watermarks=EVERY_OTHER)
    task.run()
    assert sent(task) == [1, ("wm", 1), 2, 3, ("wm", 3), 4, "end"]


def test_a_spout_with_both_keeps_the_order_of_both() -> None:
    task = spouting(saying(1, 2, ("wm", 2)), saying(3, ("wm", 8), 9), watermarks=EVERY_OTHER)
    task.run()
    assert sent(task) == [1, ("wm", 1), 2, ("wm", 2), 3, ("wm", 3), ("wm", 8), 9, ("wm", 9), "end"]


def test_idleness_ends_before_the_next_row() -> None:
    task = spouting(saying(1, "idle"), saying(2, "idle", ("wm", 5)), saying("idle"), saying(3))
    task.wait(1)
    assert sent(task) == [1, "idle", "active", 2, "idle", "active", ("wm", 5), "idle", "active", 3, "end"]


def test_a_watermark_stands_between_the_rows_of_all_streams() -> None:
    def call(collector: Any) -> None:
        collector.emit((1,), stream="left", timestamp=1)
        collector.emit((2,), stream="right", timestamp=2)
        collector.emit_watermark(2)
        collector.emit((3,), stream="right", timestamp=3)

    task = spouting(call, outputs={"left": ("value",), "right": ("value",)})
    task.run()
    assert sent(task) == [1, 2, ("wm", 2), 3, "end"]


def test_rows_keep_ids_timestamps_and_targets_when_their_batch_is_cut() -> None:
    def call(collector: Any) -> None:
        collector.emit((1,), message_id="a", timestamp=10)
        collector.emit_watermark(5)
        collector.emit((2,))
        collector.emit((3,), message_id="b", timestamp=30)

    task = spouting(call)
    task.run()
    stamps = [stamp for frame in task.frames(FrameKind.DATA) for stamp in frame.timestamp_list()]
    assert [stamp for stamp in stamps if stamp is not None] == [10, 30]
    assert sent(task)[:4] == [1, ("wm", 5), 2, 3]
    inits, data = task.roots(FrameKind.INIT), task.roots(FrameKind.DATA)
    assert len(inits) == 2 and inits == data


# -- bolts


def _twice(tup: Any, collector: Any) -> None:
    (value,) = tup.values
    collector.emit((value,))
    collector.emit((value + 1,))


def _twice_by_hand(tup: Any, collector: Any) -> None:
    (value,) = tup.values
    collector.emit((value,), anchors=tup)
    collector.emit((value + 1,), anchors=tup)
    collector.ack(tup)


@pytest.mark.parametrize("make", [lambda: Plain(_twice), lambda: Manual(_twice_by_hand)])
@pytest.mark.parametrize("tracked", [True, False])
def test_a_punctuated_watermark_of_a_bolt_follows_its_row(make: Any, tracked: bool) -> None:
    task = working(make(), EVERY_OTHER)
    ids = task.feed(1, 3, 6, tracked=tracked)
    task.run()
    assert sent(task) == [1, ("wm", 1), 2, 3, ("wm", 3), 4, 6, 7, ("wm", 7)]
    if tracked:
        owed = dict(zip(ids.roots, ids.edges, strict=True))
        for frame in task.frames(FrameKind.DATA):
            for root, edge in zip(frame.root_list(), frame.edge_list(), strict=True):
                owed[root] ^= edge
        assert task.acks() == owed


def test_rows_of_other_streams_of_the_same_call_go_before_the_watermark() -> None:
    def run(tup: Any, collector: Any) -> None:
        collector.emit(tup.values)
        collector.emit((tup.values[0] * 10,), stream="other")

    task = working(Plain(run, outputs={"default": ("value",), "other": ("value",)}), EVERY_OTHER)
    task.feed(1, 2, 3)
    task.run()
    found = sent(task)
    assert found.index(10) < found.index(("wm", 1)) < found.index(2) < found.index(("wm", 3))
    assert found.index(("wm", 1)) < found.index(20) and found.index(30) < found.index(("wm", 3))


# -- lateness does not depend on the size of a burst


TIMES = [1, 12, 3, 21, 14, 5, 33, 35, 8]


def test_the_harness_shows_the_same_order_as_a_task() -> None:
    task = spouting(*TIMES, watermarks=EVERY_OTHER)
    task.run()
    harness = OperatorHarness(EVERY_OTHER, ("value",))
    for at in TIMES:
        harness.process((at,))
    events = [("wm", one.timestamp) if isinstance(one, Watermark) else one.values[0] for one in harness.events
              if isinstance(one, Emitted | Watermark | Status)]  # fmt: skip
    assert sent(task) == [*events, "end"]


@pytest.mark.parametrize("burst", [1, 2, 3, len(TIMES)])
@MODES
def test_what_is_late_does_not_depend_on_the_size_of_a_burst(burst: int, delivery: str) -> None:
    def build() -> Topology:
        builder = TopologyBuilder("late").config(delivery=delivery)
        steps = [saying(*TIMES[first : first + burst]) for first in range(0, len(TIMES), burst)]
        builder.set_spout("a", Scripted(steps), watermarks=EVERY_OTHER)
        windows = WindowBolt(
            key=None, window=TumblingEventTimeWindows.of("10ms"), aggregate=aggregates.Count(), late_stream="late"
        )
        builder.set_bolt("w", windows).global_grouping("a")
        builder.set_bolt("b", Sink()).shuffle_grouping("w").shuffle_grouping("w", stream="late")
        return builder.build()

    test = TopologyTest(build)
    test.run()
    assert test.emitted("w", "late") == [(14,), (5,), (8,)]
    assert test.emitted("w") == [(0, 10, 2), (10, 20, 1), (20, 30, 1), (30, 40, 2)]
