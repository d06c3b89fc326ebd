"""The outside world of a simulated topology, which outlives its processes, and the spouts that read from it.

Every message is known by a *path*: its key, and the name of each component that it passed. The output of a component for a path
is a pure function, so the effects of each message at the sinks can be computed without a run.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from topo.api.context import TaskContext
from topo.api.spout import RetryingSpout, Spout, SpoutCollector

FIELDS = ("key", "paths", "extra")


@dataclass(slots=True)
class ExternalWorld:
    """All that outlives a process.

    Attributes:
        effects: (sink, path) that were written, and how often.
        tries: (component, path) on which a component has failed already, and how often.
        broker: for spouts without positions: by (spout, index) the numbers that were not acked yet.
        acked: keys of messages, with the number of calls of `ack`.
        given_up: keys of messages that were given up, by the engine (a call of `fail`) or by the spout.
        quiet_until: by (spout, index): until when it has nothing to emit.
        on_ack: called with the key at each call of `ack`.
        now: virtual seconds.
        work: takes virtual seconds.
        kill: takes the calling process down.
    """

    effects: dict[tuple[str, str], int] = field(default_factory=dict)
    tries: dict[tuple[str, str], int] = field(default_factory=dict)
    broker: dict[tuple[str, int], dict[int, int]] = field(default_factory=dict)
    acked: dict[str, int] = field(default_factory=dict)
    given_up: dict[str, int] = field(default_factory=dict)
    quiet_until: dict[tuple[str, int], float] = field(default_factory=dict)
    on_ack: Callable[[str], None] = lambda _key: None
    now: Callable[[], float] = lambda: 0.0
    work: Callable[[float], None] = lambda _seconds: None
    kill: Callable[[], None] = lambda: None

    def tried(self, component: str, path: str) -> int:
        """Count a failure of a component on a path; return how many there were before."""
        before = self.tries.get((component, path), 0)
        self.tries[component, path] = before + 1
        return before

    def is_quiet(self, spout: str, index: int, seconds: float) -> bool:
        """Whether a spout task has nothing to emit, in a pause that begins with the first call."""
        return self.now() < self.quiet_until.setdefault((spout, index), self.now() + seconds)


def message_key(spout: str, index: int, number: int) -> str:
    """Return the key of a message."""
    return f"{spout}.{index}.{number}"


def chosen(path: str, one_in: int, salt: str) -> bool:
    """Whether a path belongs to a fixed share of all paths; always the same ones."""
    return one_in > 0 and crc32(f"{salt}{path}".encode()) % one_in == 0


class Sleep:
    """Yields its seconds to the simulator, which drives the coroutine."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __await__(self) -> Generator[float, None, None]:
        yield self.seconds


class PositionedSpout(RetryingSpout):
    """Emits `total` messages, numbered by position, after the committed one. It raises at one in `raises`, the first time.

    Before its last message it has nothing to emit for `quiet_s`.
    """

    outputs = FIELDS

    def __init__(
        self, outside: ExternalWorld, name: str, total: int, work_s: float, raises: int = 0, quiet_s: float = 0.0
    ) -> None:
        self.outside, self.name, self.total, self.work_s = outside, name, total, work_s
        self.raises, self.quiet_s = raises, quiet_s

    def open(self, context: TaskContext, collector: SpoutCollector) -> None:
        self.index, self.collector = context.task_index, collector
        done = context.committed_position
        self.next = 0 if done is None else done + 1

    def next_tuple(self) -> None:
        if self.next >= self.total:
            self.collector.end_of_input()
            return
        if self.quiet_s and self.next == self.total - 1 and self.outside.is_quiet(self.name, self.index, self.quiet_s):
            return
        self.outside.work(self.work_s)
        key = message_key(self.name, self.index, self.next)
        if chosen(key, self.raises, self.name) and not self.outside.tried(f"{self.name} raises", key):
            raise OSError(f"{key} cannot be read at once")
        self.collector.emit((key, (key,), None), self.next)
        self.next += 1

    def ack(self, message_id: Any) -> None:
        key = message_key(self.name, self.index, message_id)
        self.outside.acked[key] = self.outside.acked.get(key, 0) + 1
        self.outside.on_ack(key)

    def fail(self, message_id: Any) -> None:
        key = message_key(self.name, self.index, message_id)
        self.outside.given_up[key] = self.outside.given_up.get(key, 0) + 1


class BrokerSpout(Spout):
    """Takes messages from a broker that redelivers unacked ones. It replays them itself, a limited number of times.

    With `replays_in_fail` it ends its input when all were emitted once, and emits again inside `fail`; otherwise it queues
    replays for `next_tuple` and ends when nothing is left.
    """

    outputs = FIELDS

    def __init__(
        self, outside: ExternalWorld, name: str, total: int, work_s: float, attempts: int, replays_in_fail: bool, untracked: bool
    ) -> None:
        self.outside, self.name, self.total, self.work_s = outside, name, total, work_s
        self.attempts, self.replays_in_fail, self.untracked = attempts, replays_in_fail, untracked

    def open(self, context: TaskContext, collector: SpoutCollector) -> None:
        self.index, self.collector = context.task_index, collector
        left = self.outside.broker.setdefault((self.name, self.index), dict.fromkeys(range(self.total), 0))
        self.left = left
        self.queue = list(left)
        self.open_numbers = set(left)

    def next_tuple(self) -> None:
        if self.queue:
            self.outside.work(self.work_s)
            self._emit(self.queue.pop(0))
            if self.untracked:
                self.collector.emit(("untracked", (), None))
        elif self.replays_in_fail or not self.open_numbers:
            self.collector.end_of_input()

    def _emit(self, number: int) -> None:
        key = message_key(self.name, self.index, number)
        self.collector.emit((key, (key,), None), number)

    def ack(self, message_id: Any) -> None:
        key = message_key(self.name, self.index, message_id)
        self.outside.acked[key] = self.outside.acked.get(key, 0) + 1
        self.outside.on_ack(key)
        self.open_numbers.discard(message_id)
        self.left.pop(message_id, None)

    def fail(self, message_id: Any) -> None:
        key = message_key(self.name, self.index, message_id)
        if key in self.outside.given_up:
            # By another life of this task, which keeps running for a while after its master has died.
            self.open_numbers.discard(message_id)
        elif message_id in self.left and self.outside.tried(self.name, f"{self.index}.{message_id}") >= self.attempts:
            self.left.pop(message_id)
            self.open_numbers.discard(message_id)
            self.outside.given_up[key] = 1
        elif self.replays_in_fail:
            self._emit(message_id)
        else:
            # Even if it was acked to another life: this one waits for its own ack.
            self.queue.append(message_id)
