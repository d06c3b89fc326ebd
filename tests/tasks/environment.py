"""What a task gets from outside: a clock, a store, coroutines that the test runs, routes. Time moves when a test moves it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from topo.api.topology import Topology
from topo.checkpoint.alignment import Snapshot, StoredPart
from topo.hot import Ids
from topo.ids import Epoch, Incarnation, TaskId
from topo.plan.physical import PhysicalPlan
from topo.task.context import make_context
from topo.task.environment import TaskEnvironment, TaskSpec
from topo.task.factory import make_task as make_any_task
from topo.task.router_factory import custom_groupings
from topo.task.task import Task
from topo.wire.codec import Codec
from topo.wire.control import Routes, TaskRoute

INCARNATION = Incarnation(77)
CODEC = Codec()


class Clock:
    """A monotonic clock that a test moves."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Calls:
    """Takes the coroutines of async bolts. Each runs to its end at once when the test wants it."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Any, Any, Any]] = []

    def close(self) -> None:
        """Close the coroutines that never ran."""
        for call, _, _ in self.waiting:
            call.close()

    def __call__(self, call: Any, done: Any, on_blocked: Any) -> None:
        self.waiting.append((call, done, on_blocked))

    def complete(self, place: int = 0) -> None:
        """Run one of the coroutines that wait, which must not wait for anything itself."""
        call, done, _ = self.waiting.pop(place)
        try:
            call.send(None)
        except StopIteration as end:
            done(end.value, None)
        except Exception as error:
            done(None, error)
        else:
            raise AssertionError("the coroutine waits")

    def complete_all(self) -> None:
        while self.waiting:
            self.complete()


class Hand:
    """Remembers the roots that were noted as in flight."""

    def __init__(self) -> None:
        self.noted: list[list[int]] = []
        self.holds = False

    def hold(self, task: TaskId, roots: bytes) -> None:
        self.noted.append(memoryview(roots).cast("Q").tolist())
        self.holds = True

    def release(self) -> None:
        self.holds = False


class Store:
    """Stores snapshots at once.

    Attributes:
        kept: snapshots by checkpoint.
        unreadable: raised by every read.
        unwritable: fails every write.
    """

    def __init__(self) -> None:
        self.kept: dict[int, Snapshot] = {}
        self.unreadable: Exception | None = None
        self.unwritable: Exception | None = None

    def pack(self, value: Any, what: str = "state") -> bytes:
        return CODEC.pack_value(value)

    def write(self, checkpoint: int, snapshot: Snapshot, stored: Any) -> None:
        self.kept[checkpoint] = snapshot
        stored(None if self.unwritable else StoredPart("file", 1, "checksum"), self.unwritable)

    def read(self, _folder: str, checkpoint: int, _parts: Any) -> list[Snapshot]:
        if self.unreadable is not None:
            raise self.unreadable
        return [self.kept[checkpoint]]


def make_env(
    task: TaskId,
    clock: Callable[[], float],
    hand: Any,
    seed: bytes = b"seed",
    calls: Any = None,
    wait: Callable[[], None] | None = None,
) -> TaskEnvironment:
    return TaskEnvironment(Ids(seed + bytes([task])), clock, CODEC, hand, lambda: 1_700_000_000_000, run_async=calls, wait=wait)


def make_task(topology: Topology, plan: PhysicalPlan, task: TaskId, env: TaskEnvironment) -> Task:
    """A task as a worker process makes it."""
    name, context = plan.task(task).component, make_context(plan, task)
    if task in plan.ackers:
        return make_any_task(TaskSpec(task, plan, context.config, None, context), env)
    declared = topology.component(name)
    customs = custom_groupings(topology, name)
    made, marks, chain = declared.make(), declared.watermarks, declared.chain
    return make_any_task(TaskSpec(task, plan, context.config, made, context, customs, marks, chain=chain), env)


def routes(
    plan: PhysicalPlan, epoch: int, incarnations: Mapping[TaskId, Incarnation] | None = None, term: int = 1, **more: Any
) -> Routes:
    """Routes in which every task has the usual incarnation unless another is given."""
    lives = incarnations or {}
    entries = [TaskRoute(t.id, plan.worker_of(t.id), lives.get(t.id, INCARNATION), "") for t in plan.tasks]
    return Routes(term, Epoch(epoch), entries, **more)
