"""Drives one spout or bolt with the collectors that tasks use."""

from __future__ import annotations

from typing import Any

from topo.api.bolt import Bolt
from topo.api.context import TaskContext
from topo.api.spout import Spout
from topo.api.streams import declared_streams
from topo.emission.collectors import BoltCollector
from topo.emission.message_collectors import MessageCollector
from topo.testing.contracts.sink_tasks import TICK, tracked

__all__ = ["TICK", "Emitted", "context", "drain", "opened", "prepared", "tracked"]

Emitted = list[tuple[tuple[Any, ...], Any]]


def _refuse(error: BaseException) -> None:
    raise error


def context(index: int = 0, parallelism: int = 1, committed: Any = None) -> TaskContext:
    return TaskContext("test", "part", 1 + index, index, parallelism, committed_position=committed)


def opened(spout: Spout, *, index: int = 0, parallelism: int = 1, committed: Any = None) -> MessageCollector:
    """Open a spout; the collector shows its tuples."""
    collector = MessageCollector("part", declared_streams(spout.outputs), _refuse)
    spout.open(context(index, parallelism, committed), collector)
    return collector


def drain(spout: Spout, collector: MessageCollector) -> Emitted:
    """Call `next_tuple` until the input has ended; return values and message ids."""
    while not collector.ended:
        spout.next_tuple()
    return list(zip(collector.streams[0].rows, collector.messages[0], strict=True))


def prepared(bolt: Bolt, *, index: int = 0, parallelism: int = 1) -> BoltCollector:
    """Prepare a bolt; the collector shows its acks and fails."""
    collector = BoltCollector("part", declared_streams(bolt.outputs), _refuse)
    bolt.prepare(context(index, parallelism), collector)
    return collector
