"""One worker's core under test, hosting the tasks of a topology on a manual clock."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.tasks.components import Plain
from tests.tasks.environment import CODEC, INCARNATION, Clock, make_env, make_task, routes
from topo.api.topology import Topology
from topo.builder import TopologyBuilder
from topo.ids import Epoch, TaskId, WorkerId
from topo.plan.physical import physical_plan
from topo.task.commands import SendFrame, TellMaster
from topo.wire import control
from topo.worker.core import InFlightTracker, Worker


class Notes:
    """Remembers the notes."""

    def __init__(self) -> None:
        self.written: list[tuple[TaskId, list[int], list[tuple[TaskId, Any]]]] = []
        self.is_clear = True

    def write(self, task: TaskId, roots: bytes, positions: list[tuple[TaskId, bytes]]) -> None:
        unpacked = [(spout, position) for spout, packed in positions for position in CODEC.unpack_value(packed)]
        self.written.append((task, memoryview(roots).cast("Q").tolist(), unpacked))
        self.is_clear = False

    def clear(self) -> None:
        self.is_clear = True


class Hosted:
    """A worker that hosts the tasks of one slot of a topology; by default all of them."""

    def __init__(self, topology: Topology, slot: int = 0, *, starts: bool = True) -> None:
        self.plan = physical_plan(topology)
        self.clock = Clock()
        self.notes = Notes()
        self.hand = InFlightTracker(self.notes)
        mine = self.plan.workers[slot]
        tasks = [make_task(topology, self.plan, task, make_env(task, self.clock, self.hand, wait=self.attend)) for task in mine]
        self.worker = Worker(WorkerId(slot), INCARNATION, tasks, self.hand)
        self.out: list[Any] = []
        if starts:
            self.send(routes(self.plan, 1))
            self.run()
            self.send(control.Go(Epoch(1)))

    def send(self, message: control.FromMaster) -> None:
        self.worker.on_messages([message], self.clock.now)
        self.take()

    def attend(self) -> None:
        """Run the loop's part while a call yields."""
        self.worker.run(self.clock.now)
        self.worker.idle(self.clock.now)
        self.out += self.worker.take_commands()
        if self.worker.has_failed():
            raise SystemExit("the worker ends")

    def take(self) -> None:
        self.out += self.worker.take_commands()
        if self.worker.exit is None:
            self.worker.validate()

    def run(self, seconds: float = 0.0) -> None:
        """Let the worker work and time pass, as its loop would."""
        end = self.clock.now + seconds
        while self.worker.exit is None:
            while self.worker.exit is None and self.worker.run(self.clock.now):
                self.take()
            self.worker.idle(self.clock.now)
            self.take()
            if self.worker.has_work:
                continue
            at = self.worker.next_deadline(self.clock.now)
            if at is None or at > end:
                break
            self.clock.now = max(at, self.clock.now)
        self.clock.now = end

    def messages(self, kind: type) -> list[Any]:
        return [c.message for c in self.out if isinstance(c, TellMaster) and isinstance(c.message, kind)]

    def sent(self) -> list[SendFrame]:
        return [command for command in self.out if isinstance(command, SendFrame)]


def word_count(spout: Any, workers: int | None = 1, *, counted: Any = None, **settings: Any) -> tuple[Topology, Counter[str]]:
    """Lines, split, count; and the counts."""
    counts: Counter[str] = Counter()

    def count(tup: Any, collector: Any) -> None:
        counts[tup.values[0]] += 1

    builder = TopologyBuilder("word-count").config(workers=workers, **settings)
    builder.set_spout("a", spout)
    split = Plain(lambda tup, collector: [collector.emit((word,)) for word in tup.values[0].split()])
    builder.set_bolt("b", split).shuffle_grouping("a")
    builder.set_bolt("c", counted or Plain(count, ())).fields_grouping("b", "value")
    return builder.build(), counts


LINES = ["", "jumps over", "the end", "the lazy dog", "the quick brown fox"]


EXPECTED = Counter(" ".join(LINES).split())
