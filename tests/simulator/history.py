"""The history of a simulated run: every tuple tree, every verdict, every frame processed; checked as it happens.

Observers of the tasks (`tests.simulator.observers`) report routed rows, processed frames, acked inputs and verdicts. The history
keeps tuple trees edge by edge, so it knows for certain when a tree is complete; an acker infers it from an XOR.

Oracle numbers are those of `tests.simulator.oracles`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.simulator.observers import FrameObserver, TreeObserver
from topo.checkpoint.alignment import SnapshotStore
from topo.checkpoint.store_messages import StoreCommand
from topo.hot import Trees, unpack_words
from topo.ids import TaskId
from topo.master.positions import SpoutProgress
from topo.task.guarantees.source import SourceGuarantee
from topo.task.guarantees.tracked_source import TrackedSource
from topo.task.guarantees.verdict_delivery import VerdictDelivery
from topo.task.task import Task
from topo.wire import control

if TYPE_CHECKING:
    from tests.simulator.processes import SimulatedProcess


_LATE_S = 1.0
"""How late the INIT of a root may reach its acker: as long as a slow link takes."""


@dataclass(frozen=True, slots=True)
class Violation:
    """An oracle was broken.

    Attributes:
        oracle: its number.
        at: virtual seconds.
        what: a sentence.
    """

    oracle: int
    at: float
    what: str

    def __str__(self) -> str:
        return f"oracle {self.oracle} at {self.at:.6f} s: {self.what}"


@dataclass(slots=True)
class Tree:
    """The tuple tree of one root.

    Attributes:
        open: edges whose tuples have not been acked by user code, with how many have that id.
        edges: how many there ever were.
        emitted_at, owner, spout: when it was emitted, by which process and task; 0 and None until it is pending at a spout.
        decided: the decision of its acker; "" before it.
        verdict: the verdict at its spout; "" while the message is pending.
        touched: its timeout was reset.
    """

    open: dict[int, int] = field(default_factory=dict)
    edges: int = 0
    emitted_at: float = 0.0
    message: Any = None
    owner: SimulatedProcess | None = None
    spout: TaskId | None = None
    decided: str = ""
    verdict: str = ""
    touched: bool = False


class History:
    """Watches the tasks of all processes of one run.

    Attributes:
        violations: of oracles, in order.
        counts: how often each thing of interest occurred, by name.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.violations: list[Violation] = []
        self.counts: dict[str, int] = {}
        self.trees: dict[int, Tree] = {}
        self.roots = 0
        self.may_reopen_trees = False
        self.sent: dict[tuple[int, int, int, int], deque[int]] = {}
        """Edge ids of the rows that were sent and not processed, by epoch, sender, receiver and stream."""
        self.has_lost: Callable[[int, int, int], bool] = lambda _epoch, _sender, _target: True
        """Whether the network has lost, or let overtake, frames of an edge in an epoch."""
        self.explains_timeouts: Callable[[], bool] = lambda: True
        """Whether user code or a fault may have kept a message from its verdict until now."""
        self.replays_in_order: frozenset[TaskId] = frozenset()
        """Spout tasks whose lost messages are replayed by the engine, in the order of their emission."""
        self.ready: dict[int, set[TaskId]] = {}
        """By epoch: the tasks whose TaskReady has arrived at the master."""
        self.go_at: list[float] = []
        """When each Go has left the master."""
        self.takes_single_roots: frozenset[TaskId] = frozenset()
        self.suspects: set[tuple[SimulatedProcess | None, TaskId | None, Any]] = set()
        """Messages, each with the life of its spout and the spout's task, that were in processing when a process died."""
        """Tasks of basic bolts each of whose inputs descends from one message."""
        self.on_positions: Callable[[Mapping[TaskId, SpoutProgress]], None] = lambda _: None
        self.on_dead_letters: Callable[[Iterable[control.DeadLetter]], None] = lambda _: None

    def violated(self, oracle: int, what: str) -> None:
        """An oracle was broken."""
        self.violations.append(Violation(oracle, self._now(), what))

    def count(self, name: str, times: int = 1) -> None:
        """Something of interest occurred."""
        self.counts[name] = self.counts.get(name, 0) + times

    # -- reports of the simulation ---------------------------------------------------------------------------------------

    def master_message(self, process: SimulatedProcess, message: control.FromMaster) -> None:
        """A worker has taken a message of the master."""
        if not isinstance(message, control.Routes) or process.worker.epoch != message.epoch:
            return
        mine = {route.incarnation for route in message.routes if route.worker == process.id}
        if mine != {process.incarnation}:
            self.violated(9, f"worker {process.id} adopted epoch {message.epoch}, whose routes name another life of it")
        self.count("resumed from a position", len(message.positions))
        self.count("suspect", len(message.suspects))
        for task in process.tasks:
            if isinstance(task, Task) and isinstance(task.guarantee, TrackedSource):
                for root, record in task.guarantee.source_messages.pending.items():
                    self.violated(2, f"{record!r} is pending under root {root:x} of an epoch before {message.epoch}")
                    return

    def task_ready(self, message: control.TaskReady) -> None:
        """A TaskReady has arrived at the master."""
        self.ready.setdefault(message.epoch, set()).add(message.task)

    def go_sent(self, message: control.Go, tasks: Iterable[TaskId]) -> None:
        """A Go leaves the master: all tasks have to be ready."""
        self.go_at.append(self._now())
        if unready := sorted(set(tasks) - self.ready.get(message.epoch, set())):
            self.violated(16, f"spouts may emit in epoch {message.epoch}, and tasks {unready} are not ready")

    def stored_positions(self, progress: Mapping[TaskId, SpoutProgress]) -> None:
        """The master has stored the positions from which spouts resume."""
        self.on_positions(progress)

    def stored_dead_letters(self, dead_letters: Iterable[control.DeadLetter]) -> None:
        """The master has stored dead letters."""
        self.on_dead_letters(dead_letters)

    def asked_of_store(self, command: StoreCommand) -> None:
        """The master has asked for something to be done in the store of checkpoints."""

    def committed(self, checkpoint: int, problem: str) -> None:
        """A checkpoint is complete, or (with a problem) certainly not; the master gets the answer after this call."""

    # -- reports of observers --------------------------------------------------------------------------------------------

    def observe(self, process: SimulatedProcess) -> FrameObserver:
        """Return the observer of the tasks of a new process."""
        return TreeObserver(self, process)

    def watched_store(self, store: SnapshotStore, process: SimulatedProcess) -> SnapshotStore:
        """Return the store that a task of a process uses in place of `store`."""
        return store

    def plant(self, root: int) -> Tree:
        """A root is emitted."""
        tree = self.trees[root] = Tree()
        return tree

    def verdict_reached(self, root: int, verdict: str) -> None:
        """An acker has decided a tree."""
        tree = self.trees.get(root)
        if tree is not None:
            if tree.decided:
                self.violated(2, f"an acker found root {root:x} {tree.decided}, and then {verdict}")
            tree.decided = verdict

    def check_complete(self, root: int) -> None:
        """A tree counts as complete: all of its edges have to be acked."""
        tree = self.trees.get(root)
        if tree is None:
            self.violated(3, f"an acker completed root {root:x}, which no spout has emitted")
        elif tree.open:
            self.violated(3, f"an acker completed root {root:x} while {len(tree.open)} of its {tree.edges} edges are open")

    def message_decided(self, root: int, verdict: str) -> None:
        """A message is not pending at its spout any more."""
        tree = self.trees[root]
        if tree.verdict:
            self.violated(2, f"{tree.message!r}: root {root:x} was {tree.verdict}, and now it is {verdict}")
        tree.verdict = verdict
        self.count("verdict: " + verdict)

    # -- now and then ----------------------------------------------------------------------------------------------------

    def inspect(self, process: SimulatedProcess) -> None:
        """Check the invariants of a process between two turns, and the bounds of its queues."""
        process.worker.validate()
        process.observer.inspect()
        for task in process.tasks:
            config = task.config
            queued: dict[int, int] = {}
            for edge, _ in task.inbound.queue:
                # Verdicts have no window: the firings of a window bolt, or the messages of a spout, bound them.
                if edge.sender not in task.plan.ackers:
                    queued[edge.sender] = queued.get(edge.sender, 0) + 1
            if any(count > config.edge_window for count in queued.values()):
                self.violated(5, f"task {task.id} has {queued} frames queued; the window is {config.edge_window}")
            outbox = task.outbound.outbox
            if outbox.waiting:
                self.count("an edge without room")
            if outbox.is_full:
                self.count("back-pressure")
            if isinstance(task, Task) and outbox.waiting > config.outbox_limit + 64 * config.batch_size:
                self.violated(5, f"task {task.id} holds back {outbox.waiting} frames; its limit is {config.outbox_limit}")
            if isinstance(task, Task) and isinstance(task.guarantee, VerdictDelivery):
                self._inspect_acker(task, task.guarantee.trees)
            if isinstance(task, Task) and isinstance(task.guarantee, SourceGuarantee):
                pending = self._pending_of(task.guarantee)
                if pending > (config.max_spout_pending or 1 << 60):
                    self.violated(5, f"spout task {task.id} has {pending} messages pending of {config.max_spout_pending}")

    def _pending_of(self, source: SourceGuarantee) -> int:
        return source.pending

    def _inspect_acker(self, task: Task, trees: Trees) -> None:
        """Check that each open tree of an acker is pending at a spout, or was until a timeout or a recovery: it is bounded."""
        for root in unpack_words(trees.open_roots()):
            tree = self.trees.get(root)
            if not self.may_reopen_trees and (tree is None or tree.verdict in ("acked", "failed")):
                whose = "of no spout" if tree is None else tree.verdict
                self.violated(5, f"acker task {task.id} holds root {root:x} open, which is {whose}")
            timeout_s = task.plan.longest_message_timeout_s
            if tree is not None and tree.owner is not None and timeout_s is not None and not tree.touched:
                age = self._now() - tree.emitted_at
                if age > 3 * timeout_s + _LATE_S:
                    self.violated(5, f"acker task {task.id} holds root {root:x} open, {age:.3f} s after its emission")
