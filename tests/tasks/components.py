"""Spouts and bolts that run what a test gives them, and topologies made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from topo.api.bolt import BasicBolt, Bolt
from topo.api.context import TaskContext
from topo.api.spout import RetryingSpout, Spout
from topo.api.topology import Topology
from topo.builder import TopologyBuilder

TRACKED, CHECKPOINTED, UNTRACKED = "at_least_once", "exactly_once", "at_most_once"
MODES = (TRACKED, CHECKPOINTED, UNTRACKED)


class Scripted(Spout):
    """Each `next_tuple` takes the next step of a script: a row to emit, a function to call, an exception to raise."""

    outputs: Any = ("value",)

    def __init__(self, steps: Iterable[Any] = (), *, ends: bool = True) -> None:
        self.steps = list(steps)
        self.ends = ends
        self.calls: list[tuple[Any, ...]] = []

    def open(self, context: TaskContext, collector: Any) -> None:
        self.context, self.collector = context, collector
        self.calls.append(("open", context.committed_position))

    def next_tuple(self) -> None:
        if not self.steps:
            if self.ends:
                self.collector.end_of_input()
            return
        step = self.steps.pop(0)
        if isinstance(step, Exception):
            raise step
        if callable(step):
            step(self.collector)
        elif step is not None:
            self.collector.emit((step,), message_id=step)

    def ack(self, message_id: Any) -> None:
        self.calls.append(("ack", message_id))

    def fail(self, message_id: Any) -> None:
        self.calls.append(("fail", message_id))

    def activate(self) -> None:
        self.calls.append(("activate",))

    def deactivate(self) -> None:
        self.calls.append(("deactivate",))

    def close(self) -> None:
        self.calls.append(("close",))

    def called(self, *verbs: str) -> list[Any]:
        """Return the calls of these methods: the message id for `ack` and `fail`, else the name."""
        return [call[-1] for call in self.calls if call[0] in verbs]

    @property
    def acked(self) -> list[Any]:
        return self.called("ack")

    @property
    def failed(self) -> list[Any]:
        return self.called("fail")


class Replaying(Scripted, RetryingSpout):
    """The same, replayed by the engine."""


class Recorded:
    """Records the inputs of a bolt and the calls of its life cycle."""

    outputs: Any = ("value",)
    calls: list[str]

    def _record(self, outputs: Any) -> None:
        self.outputs = outputs
        self.seen: list[Any] = []
        self.calls = []

    def on_reset(self) -> None:
        self.calls.append("on_reset")

    def cleanup(self) -> None:
        self.calls.append("cleanup")


class Plain(Recorded, BasicBolt):
    """Runs a function for each input; without one it passes the values on."""

    def __init__(self, run: Callable[[Any, Any], None] | None = None, outputs: Any = ("value",)) -> None:
        self.run = run or (lambda tup, collector: collector.emit(tup.values))
        self._record(outputs)

    def prepare(self, context: TaskContext) -> None:
        self.context = context
        self.calls.append("prepare")

    def execute(self, tup: Any, collector: Any) -> None:
        self.seen.append("tick" if tup.is_tick else tup.values[0] if tup.values else ())
        self.run(tup, collector)

    def end_of_input(self, collector: Any) -> None:
        self.calls.append("end_of_input")


class Manual(Recorded, Bolt):
    """Runs a function for each input, with the collector; without one it passes the values on and acks."""

    def __init__(self, run: Callable[[Any, Any], None] | None = None, outputs: Any = ("value",)) -> None:
        self.run = run or self.relay
        self._record(outputs)
        self.tuples: list[Any] = []

    @staticmethod
    def relay(tup: Any, collector: Any) -> None:
        collector.emit(tup.values, anchors=tup)
        collector.ack(tup)

    def prepare(self, context: TaskContext, collector: Any) -> None:
        self.context, self.collector = context, collector
        self.calls.append("prepare")

    def execute(self, tup: Any) -> None:
        self.seen.append("tick" if tup.is_tick else tup.values[0])
        self.tuples.append(tup)
        self.run(tup, self.collector)

    def end_of_input(self) -> None:
        self.calls.append("end_of_input")


class Sink(Plain):
    """Keeps the first value of each input."""

    def __init__(self) -> None:
        super().__init__(lambda tup, collector: None, outputs=())


def several(*values: Any) -> Any:
    """Return a step that emits several messages, each under its value as its id."""

    def emit(collector: Any) -> None:
        for value in values:
            collector.emit((value,), message_id=value)

    return emit


def chain(*components: Any, groupings: Sequence[str] = (), **settings: Any) -> Topology:
    """A spout and bolts one after the other, named a, b, c, ...; shuffled, or by the named grouping without arguments."""
    builder = TopologyBuilder("chain").config(**settings)
    builder.set_spout("a", components[0])
    for place, bolt in enumerate(components[1:], 1):
        declarer = builder.set_bolt(chr(ord("a") + place), bolt)
        kind = groupings[place - 1] if groupings else "shuffle"
        getattr(declarer, f"{kind}_grouping")(chr(ord("a") + place - 1))
    return builder.build()


def fan(
    sink: Any, parallelism: int, bolt: Any = None, *, grouping: str = "shuffle", by: Sequence[str] = (), **settings: Any
) -> Topology:
    """Spout a, bolt b, and a sink c with several tasks."""
    builder = TopologyBuilder("fan").config(**settings)
    builder.set_spout("a", Scripted())
    builder.set_bolt("b", bolt or Plain()).shuffle_grouping("a")
    getattr(builder.set_bolt("c", sink, parallelism=parallelism), f"{grouping}_grouping")("b", *by)
    return builder.build()
