"""One task with a two-phase sink, driven through checkpoints as the engine drives it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import msgpack

from topo.api.bolt import Bolt
from topo.api.context import TaskContext
from topo.api.streams import SYSTEM_COMPONENT, TICK_STREAM, declared_streams
from topo.api.tuples import Origin, Tuple
from topo.api.two_phase import TwoPhaseSink
from topo.checkpoint.staged_output import StagedOutput
from topo.config import TopologyConfig
from topo.emission.collectors import BoltCollector, TrackedTuple

TICK = Tuple((), Origin(SYSTEM_COMPONENT, 0, TICK_STREAM))


class MakesSinks(Protocol):
    """Makes sinks for one target."""

    def sink(self, folder: Path, /) -> Any:
        """Return a sink, for each task another one, whose target is in the folder or belongs to it."""


def tracked(**values: Any) -> TrackedTuple:
    """Return an input with these fields."""
    return TrackedTuple.made(tuple(values.values()), Origin("source", 9, fields=tuple(values)), None, 1, (77,), (78,))


def carried(state: Any) -> Any:
    """Return a state as it comes back from a checkpoint."""
    return msgpack.unpackb(msgpack.packb(state), use_list=False, strict_map_key=False)


def started(
    sink: Bolt,
    index: int = 0,
    parallelism: int = 1,
    delivery: str = "exactly_once",
    writer: tuple[str, str] = ("test", "sink"),
) -> BoltCollector:
    """Prepare a sink for a mode of delivery; the collector shows its acks, and raises its reported errors."""

    def refuse(error: BaseException) -> None:
        raise error

    collector = BoltCollector(writer[1], declared_streams(sink.outputs), refuse)
    config = replace(TopologyConfig(), delivery=delivery)  # type: ignore[arg-type]
    sink.prepare(TaskContext(*writer, 1 + index, index, parallelism, config), collector)
    return collector


class SinkTask:
    """One task with a sink, in a separate process as the sink sees it; it begins at a checkpoint, or (None) without one."""

    def __init__(
        self,
        kind: MakesSinks,
        folder: Path,
        index: int = 0,
        parallelism: int = 1,
        state: Any = None,
        writer: tuple[str, str] = ("test", "sink"),
    ) -> None:
        self.sink: TwoPhaseSink = kind.sink(folder)
        self.collector = started(self.sink, index, parallelism, writer=writer)
        self.output = StagedOutput(self.sink)
        self.output.restore(state)

    def write(self, *numbers: int) -> None:
        """Process tuples."""
        for number in numbers:
            self.sink.execute(tracked(n=number))

    def snapshot(self, checkpoint: int) -> Any:
        """Take a snapshot; returns the state as it comes back."""
        return carried(self.output.snapshot(checkpoint))

    def die(self) -> None:
        """Do nothing that a killed process would not do; the kernel takes the descriptors."""
        self.sink.close()
