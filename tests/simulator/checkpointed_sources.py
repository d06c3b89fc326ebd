"""Spouts for simulated topologies with checkpoints: those that read again from a position, and a queue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from zlib import crc32

from tests.simulator.checkpointed_stages import FIELDS, Beyond, Row, key_of
from tests.simulator.external_world import chosen
from tests.simulator.stages import Trouble
from topo.api.context import TaskContext
from topo.api.spout import RetryingSpout, Spout, SpoutCollector
from topo.api.watermarks import WatermarkStrategy

STEP_MS = 10
JITTER_MS = 30
"""Rows of a spout task come out of order by less than this."""


def event_time(root: str, number: int) -> int:
    """Return the event time of a row of a source."""
    return number * STEP_MS + crc32(root.encode()) % JITTER_MS


@dataclass(frozen=True, slots=True)
class Source:
    """The rows of a spout.

    Attributes:
        total: rows of each task.
        work_s: the time that each takes.
        quiet_s: how long it marks itself as idle, in the middle of its rows; 0 for never.
        ends_quiet: its input ends after that time, as event time matters downstream.
        raises: it raises instead of emitting, the first time, at one in this number of rows; 0 for never.
    """

    name: str
    total: int
    work_s: float = 0.0
    quiet_s: float = 0.0
    ends_quiet: bool = False
    raises: int = 0

    def row(self, index: int, number: int) -> Row:
        """Return a row."""
        name = f"{self.name}.{index}.{number}"
        return Row(key_of(name), name, number, name, event_time(name, number))

    def numbers(self) -> range:
        """Return the numbers of those that it emits."""
        return range(self.total // 2 if self.quiet_s and self.ends_quiet else self.total)


def strategy() -> WatermarkStrategy:
    """Return how all spouts make watermarks."""
    return WatermarkStrategy.bounded_out_of_orderness(f"{JITTER_MS}ms")


class _SourceSpout(Spout):
    outputs = FIELDS

    def __init__(self, outside: Beyond, source: Source) -> None:
        self.outside, self.source = outside, source

    def is_quiet(self, number: int) -> bool:
        """Whether it is in its quiet time before a row."""
        source = self.source
        may_be = bool(source.quiet_s) and number >= source.total // 2
        return may_be and self.outside.is_quiet(source.name, self.index, source.quiet_s)

    def emit(self, number: int) -> None:
        """Emit a row, or raise instead, the first time."""
        row_id, name = self.source.row(self.index, number).id, f"{self.source.name} raises"
        if chosen(row_id, self.source.raises, name) and not self.outside.tried(name, row_id):
            raise Trouble(f"{row_id} cannot be read at once")
        self.send(number)

    def send(self, number: int) -> None:
        """Emit a row."""
        row = self.source.row(self.index, number)
        self.outside.work(self.source.work_s)
        self.collector.emit(row.values, number, timestamp=row.at)

    def open(self, context: TaskContext, collector: SpoutCollector) -> None:
        self.index, self.collector = context.task_index, collector


class ReplayableSpout(_SourceSpout, RetryingSpout):
    """Reads on from a position."""

    def open(self, context: TaskContext, collector: SpoutCollector) -> None:
        super().open(context, collector)
        done = context.committed_position
        self.next = 0 if done is None else done + 1

    def next_tuple(self) -> None:
        if self.is_quiet(self.next):
            self.collector.mark_idle()
        elif self.next >= len(self.source.numbers()):
            self.collector.end_of_input()
        else:
            self.emit(self.next)
            self.next += 1


class TellingSpout(ReplayableSpout):
    """A replayable spout whose `ack` is called for covered messages."""

    def ack(self, message_id: Any) -> None:
        key = self.source.row(self.index, message_id).id
        self.outside.acked[key] = self.outside.acked.get(key, 0) + 1
        self.outside.on_ack(key)


class QueueSpout(_SourceSpout):
    """Takes from a queue that redelivers unacked messages, in order.

    With `replays_in_fail` it ends its input when all were emitted once, and emits again inside `fail`; otherwise it ends when
    everything is acked.
    """

    def __init__(self, outside: Beyond, source: Source, replays_in_fail: bool) -> None:
        super().__init__(outside, source)
        self.replays_in_fail = replays_in_fail

    def open(self, context: TaskContext, collector: SpoutCollector) -> None:
        super().open(context, collector)
        self.left = self.outside.broker.setdefault((self.source.name, self.index), dict.fromkeys(self.source.numbers(), 0))
        self.queue = list(self.left)

    def next_tuple(self) -> None:
        if self.queue:
            if self.is_quiet(self.queue[0]):
                self.collector.mark_idle()
            else:
                self.emit(self.queue[0])
                self.queue.pop(0)
        elif self.replays_in_fail or not self.left:
            if self.is_quiet(self.source.total):
                self.collector.mark_idle()
            else:
                self.collector.end_of_input()

    def ack(self, message_id: Any) -> None:
        self.left.pop(message_id, None)
        key = self.source.row(self.index, message_id).id
        self.outside.acked[key] = self.outside.acked.get(key, 0) + 1
        self.outside.on_ack(key)

    def fail(self, message_id: Any) -> None:
        if self.replays_in_fail:
            # Raised here, it would come out of order, and late.
            self.send(message_id)
        else:
            self.queue = sorted({*self.queue, message_id})
