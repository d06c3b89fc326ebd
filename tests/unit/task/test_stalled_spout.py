"""A spout without room while windows wait for its watermark: detected, and reported with the remedy."""

from __future__ import annotations

from typing import Any

from tests.tasks.components import Scripted, Sink
from tests.tasks.solo import Solo
from topo import aggregates
from topo.api.operator_bolts import WindowBolt
from topo.api.watermarks import WatermarkStrategy
from topo.api.windows import TumblingEventTimeWindows
from topo.builder import TopologyBuilder
from topo.wire.frames import FrameKind


def spout(*, windows: bool = True, count: int = 10) -> Solo:
    builder = TopologyBuilder("t").config(max_spout_pending=4, delivery="at_least_once")
    builder.set_spout("a", Scripted(range(count)), watermarks=WatermarkStrategy.emitted())
    if windows:
        window = WindowBolt(key="value", window=TumblingEventTimeWindows.of("10s"), aggregate=aggregates.Count())
        builder.set_bolt("b", window).fields_grouping("a", "value")
    else:
        builder.set_bolt("b", Sink()).shuffle_grouping("a")
    return Solo(builder.build(), "a")


def stalls(solo: Solo) -> list[Any]:
    return [error for error in solo.errors() if error.startswith("SpoutStalledError")]


def test_a_spout_that_windows_keep_from_emitting_is_reported_once_with_the_remedy() -> None:
    solo = spout()
    solo.wait(4.9)
    assert stalls(solo) == []
    solo.wait(15.0)
    (error,) = stalls(solo)
    assert "4 messages in flight (max_spout_pending) and no verdict for 5 s" in error
    assert "set max_spout_pending to more than the messages of all open windows" in error


def test_verdicts_are_no_stall() -> None:
    solo = spout()
    for _ in range(6):
        solo.wait(3.0)
        solo.feed_ids(FrameKind.ACKED, solo.roots(FrameKind.INIT)[:1])
    assert stalls(solo) == []


def test_a_spout_with_room_or_at_its_end_is_not_stalled() -> None:
    solo = spout(count=3)
    solo.wait(20.0)
    assert stalls(solo) == []


def test_a_slow_bolt_without_windows_is_no_stall() -> None:
    solo = spout(windows=False)
    solo.wait(20.0)
    assert stalls(solo) == []
