"""A window, process or async bolt between sources and a sink; the test plays the neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.tasks.components import Scripted, Sink
from tests.tasks.solo import RowIds, Solo
from topo import aggregates
from topo.api.operator_bolts import OperatorBolt, WindowBolt
from topo.api.watermarks import WatermarkStrategy
from topo.api.windows import EventTimeSessionWindows, ProcessWindowFunction, TumblingEventTimeWindows
from topo.builder import TopologyBuilder
from topo.wire.frames import FrameKind

TEN = TumblingEventTimeWindows.of("10ms")
SESSION = EventTimeSessionWindows.with_gap("9ms")


class Source(Scripted):
    outputs = ("key", "value")


def between(bolt: OperatorBolt, *, sources: int = 1, watermarks: WatermarkStrategy | None = None, **settings: Any) -> Solo:
    """A bolt named b between sources a (a task each) and a sink."""
    builder = TopologyBuilder("one").config(**{"message_timeout": "30s", "delivery": "at_least_once", **settings})
    builder.set_spout("a", Source(), parallelism=sources, watermarks=WatermarkStrategy.emitted())
    declarer = builder.set_bolt("b", bolt, watermarks=watermarks)
    if bolt.key:
        declarer.fields_grouping("a", *bolt.key)
    else:
        declarer.global_grouping("a")
    builder.set_bolt("sink", Sink()).global_grouping("b")
    if isinstance(bolt, WindowBolt) and bolt.late_stream is not None:
        builder.set_bolt("late", Sink()).global_grouping("b", stream=bolt.late_stream)
    return Solo(builder.build(), "b")


def sums(**more: Any) -> WindowBolt:
    """Sums by key over 10 ms of event time."""
    return WindowBolt(**{"key": "key", "window": TEN, "aggregate": aggregates.Sum("value"), **more})


def put(solo: Solo, rows: Sequence[tuple[Any, ...]], stamps: Sequence[int | None], **more: Any) -> RowIds:
    """Have the first source send rows, with ids where the topology is tracked, and run."""
    tracked = solo.plan.config.delivery == "at_least_once"
    ids = solo.feed(*rows, stamps=stamps, sender=solo.sources()[0], **{"tracked": tracked, **more})
    solo.run()
    return ids


def time(solo: Solo, news: int | FrameKind, source: int = 0) -> None:
    """Have a source send event time, and run."""
    solo.feed_time(news, solo.sources()[source])


def decide(solo: Solo, kind: FrameKind, roots: Sequence[int] | None = None) -> None:
    """Have the acker decide on firings (all of them), and run."""
    solo.feed_ids(kind, solo.roots(FrameKind.INIT) if roots is None else roots, sender=solo.plan.ackers[0])
    solo.run()


class Raises(ProcessWindowFunction):
    """Emits the key and the number of elements, and raises some times for one key."""

    def __init__(self, key: str = "bad", times: int = 1_000) -> None:
        self.key, self.left = key, times

    def process(self, key: Any, elements: Any, context: Any, collector: Any) -> None:
        collector.emit((key, len(elements)))
        if key == self.key and self.left:
            self.left -= 1
            raise ValueError("no")


def counts(function: Raises, **more: Any) -> WindowBolt:
    return sums(aggregate=None, process=function, outputs=("key", "n"), **more)
