"""Components of each kind that takes input, which all run the same function, and a task that runs one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tests.tasks.components import TRACKED, Manual, Plain, Scripted, Sink
from tests.tasks.solo import RowIds, Solo
from topo.api.batch_bolt import BatchBolt
from topo.api.operator_bolts import AsyncBolt, ProcessBolt, WindowBolt
from topo.api.windows import CountWindows, ProcessWindowFunction
from topo.builder import TopologyBuilder
from topo.wire.frames import FrameKind

Run = Callable[[Any], Iterable[Any]]
"""Takes the value of an input, returns the values to emit for it; may raise."""


def basic(run: Run) -> Any:
    def execute(tup: Any, collector: Any) -> None:
        for value in run(tup[0]):
            collector.emit((value,))

    return Plain(execute)


def manual(run: Run) -> Any:
    def execute(tup: Any, collector: Any) -> None:
        for value in run(tup[0]):
            collector.emit((value,), anchors=tup)
        collector.ack(tup)

    return Manual(execute)


class Process(ProcessBolt):
    outputs = ("value",)

    def __init__(self, run: Run) -> None:
        super().__init__("value")
        self.run = run

    def process(self, tup: Any, context: Any, collector: Any) -> None:
        for value in self.run(tup[0]):
            collector.emit((value,))


class WindowFunction(ProcessWindowFunction):
    def __init__(self, run: Run) -> None:
        self.run = run

    def process(self, key: Any, elements: Sequence[Any], context: Any, collector: Any) -> None:
        for element in elements:
            for value in self.run(element[0]):
                collector.emit((value,))


def window(run: Run) -> Any:
    return WindowBolt(key="value", window=CountWindows.of(1), process=WindowFunction(run), outputs=("value",))


class Async(AsyncBolt):
    outputs = ("value",)

    def __init__(self, run: Run) -> None:
        super().__init__(capacity=2)
        self.run = run

    async def call(self, tup: Any) -> Any:
        return [(value,) for value in self.run(tup[0])]


class Batches(BatchBolt):
    outputs = ("value",)

    def __init__(self, run: Run) -> None:
        super().__init__(2, wait="1s")
        self.run = run

    def execute_batch(self, tuples: Any, collector: Any) -> None:
        for tup in tuples:
            for value in self.run(tup[0]):
                collector.emit((value,), tup)


KINDS: dict[str, Callable[[Run], Any]] = {
    "basic_bolt": basic,
    "bolt": manual,
    "process": Process,
    "window": window,
    "async": Async,
    "batch": Batches,
}


def echo(value: Any) -> Iterable[Any]:
    return [value]


class Neighbours:
    """One task of a kind between a spout and a sink; the test plays its neighbours."""

    def __init__(self, kind: str, guarantee: str, run: Run = echo, **settings: Any) -> None:
        self.guarantee = guarantee
        builder = TopologyBuilder("contract").config(delivery=guarantee, **settings)
        builder.set_spout("a", Scripted())
        builder.set_bolt("b", KINDS[kind](run)).fields_grouping("a", "value")
        builder.set_bolt("sink", Sink()).global_grouping("b")
        self.solo = Solo(builder.build(), "b")
        self.task = self.solo.task
        (self.spout,) = self.solo.plan.tasks_of("a")
        self.ids = RowIds([], [])
        """Those of all inputs so far."""
        self._decided: set[int] = set()
        self.run()

    def feed(self, *values: Any, stamps: Sequence[int | None] | None = None) -> RowIds:
        """Deliver inputs in one frame; runs nothing."""
        ids = self.solo.feed(*values, sender=self.spout, tracked=self.guarantee == TRACKED, stamps=stamps)
        self.ids.roots += ids.roots
        self.ids.edges += ids.edges
        return ids

    def run(self, seconds: float = 0.0) -> None:
        """Let time pass; asynchronous calls end, and ackers complete the trees that begin here."""
        self.solo.wait(seconds)
        while self.solo.calls.waiting or (firings := self._new_trees()):
            self.solo.calls.complete_all()
            self.solo.run()
            if firings := self._new_trees():
                self.solo.feed_ids(FrameKind.ACKED, firings, sender=self.solo.plan.ackers[0])
                self._decided.update(firings)
                self.solo.run()

    def _new_trees(self) -> list[int]:
        return [root for root in self.solo.roots(FrameKind.INIT) if root not in self._decided]

    def finish(self) -> None:
        """Let time pass until no batch waits for further inputs."""
        self.run(2.0)

    @property
    def accounted(self) -> tuple[int, int]:
        """The numbers of inputs acked and failed."""
        return self.task.counters.acked, self.task.counters.failed

    def end(self) -> None:
        self.solo.feed_time(FrameKind.END, sender=self.spout)
        self.finish()

    def watermark(self, timestamp: int) -> None:
        self.solo.feed_time(timestamp, sender=self.spout)
        self.run()

    def barrier(self, checkpoint: int) -> None:
        self.solo.barrier(checkpoint)
        self.run()

    def begin_epoch(self, epoch: int, **more: Any) -> None:
        self.solo.begin_epoch(epoch, **more)
        self.run()

    @property
    def values(self) -> list[Any]:
        """Values sent to the sink, in order."""
        return self.solo.values()

    def undecided(self) -> list[int]:
        """The roots of inputs whose trees are still open."""
        return self.solo.undecided(self.ids.pairs)

    def failed(self) -> list[int]:
        """The places of inputs that have failed, by their roots."""
        return [self.ids.roots.index(root) for root in self.solo.roots(FrameKind.FAIL)]
