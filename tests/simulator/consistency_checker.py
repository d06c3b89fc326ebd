"""Observes a simulated run with checkpoints: every snapshot, and whether those of a checkpoint are one consistent cut.

A cut is consistent when, on each edge, its receiver has processed exactly the rows that its sender had sent before its snapshot
(Chandy and Lamport 1985). The history counts rows on both ends of every edge, and compares them when the master commits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.simulator.checkpointed_stages import Token
from tests.simulator.faults import FaultKind, Moment
from tests.simulator.history import History
from tests.simulator.observers import FrameObserver
from topo.checkpoint.alignment import Snapshot, SnapshotStore, StoredCallback, StoredPart
from topo.checkpoint.store_messages import CommitCheckpoint, CopyCheckpoint, StoreCommand
from topo.errors import TopoError
from topo.hot import Trees
from topo.ids import TaskId
from topo.task.guarantees.checkpointed_source import CheckpointedSource
from topo.task.guarantees.source import SourceGuarantee
from topo.task.task import Task
from topo.wire import control
from topo.wire.frames import Columns, Frame, FrameKind, SenderStatus
from topo.wire.serializers import RefusedValue

if TYPE_CHECKING:
    from tests.simulator.processes import SimulatedProcess
    from tests.simulator.simulation import Simulation


@dataclass(frozen=True, slots=True)
class EdgeRows:
    """How many rows a task has sent and processed in its epoch, by the other task.

    Attributes:
        watermarks: the last one of each sender.
        silent: senders that were idle once or have ended.
    """

    sent: Counter[TaskId] = field(default_factory=Counter)
    received: Counter[TaskId] = field(default_factory=Counter)
    watermarks: dict[TaskId, int] = field(default_factory=dict)
    silent: set[TaskId] = field(default_factory=set)

    def copy(self) -> EdgeRows:
        """Return it as it is now."""
        return EdgeRows(self.sent.copy(), self.received.copy(), self.watermarks.copy(), self.silent.copy())


class CutObserver(FrameObserver):
    """Counts the rows on both ends of every edge, and has faults strike at moments of a checkpoint."""

    def __init__(self, checker: ConsistencyChecker, process: SimulatedProcess) -> None:
        super().__init__(checker, process)
        self._checker = checker
        self._rows: dict[TaskId, EdgeRows] = {}
        self._restored: dict[TaskId, dict[TaskId, int]] = {}
        """By task: the watermarks of its senders that the restored checkpoint has."""

    def routes_adopted(self, task: TaskId, routes: control.Routes) -> None:
        """Forget the epoch before."""
        super().routes_adopted(task, routes)
        self._rows[task] = EdgeRows()
        self._restored[task] = self._checker.watermarks_at(routes.checkpoint, task)

    def rows_routed(self, task: TaskId, target: TaskId, stream: int, columns: Columns) -> None:
        """Count rows on their way out, but for those that cannot be carried."""
        self._rows[task].sent[target] += sum(not any(type(value) is RefusedValue for value in row) for row in columns.rows)

    def frame_processed(self, task: TaskId, frame: Frame) -> None:
        """Count rows on their way in; check that no sender begins with a lower watermark than that of the checkpoint."""
        super().frame_processed(task, frame)
        sender = TaskId(frame.sender)
        if frame.kind is FrameKind.DATA:
            self._rows[task].received[sender] += frame.count
        elif frame.kind in (FrameKind.IDLE, FrameKind.END) or frame.status is not SenderStatus.ACTIVE:
            self._rows[task].silent.add(sender)
        elif frame.kind in (FrameKind.OPEN, FrameKind.WATERMARK):
            self._rows[task].watermarks[sender] = frame.mark
            restored = self._restored[task].get(sender, frame.mark)
            if frame.mark < restored:
                what = f"task {sender} begins at watermark {frame.mark}, and its checkpoint has {restored}"
                self._checker.violated(13, what)

    def snapshot_taken(self, task: TaskId, checkpoint: int) -> None:
        """Note the cut through the task's edges."""
        self._checker.snapshot_taken(task, checkpoint, self._rows[task].copy())

    def checkpoint_begun(self, task: TaskId, checkpoint: int) -> None:
        """Let a fault strike."""
        self._checker.reached(Moment.BEGIN, self.process)

    def barrier_arrived(self, task: TaskId, checkpoint: int, waited_s: float | None) -> None:
        """Let a fault strike."""
        if waited_s is None:
            self._checker.count("alignment")
            self._checker.reached(Moment.ALIGNING, self.process)
        elif waited_s > 0:
            self._checker.count("barrier waited")

    def checkpoint_published(self, task: TaskId, checkpoint: int) -> None:
        """Let a fault strike."""
        self._checker.reached(Moment.PUBLISHING, self.process)


class StrikingStore:
    """The store of a task's snapshots, where faults strike."""

    def __init__(self, store: SnapshotStore, checker: ConsistencyChecker, process: SimulatedProcess) -> None:
        self._store = store
        self._checker = checker
        self._process = process
        self.pack = store.pack
        self.unpack = store.unpack

    def write(self, checkpoint: int, snapshot: Snapshot, stored: StoredCallback) -> None:
        """Write a snapshot, as the store does."""

        def answered(part: StoredPart | None, error: Exception | None) -> None:
            if self._process.is_alive:
                self._checker.reached(Moment.STORED, self._process)
            stored(part, error)

        self._store.write(checkpoint, snapshot, answered)
        self._checker.reached(Moment.SNAPSHOT, self._process)

    def read(self, folder: str, checkpoint: int, parts: Sequence[control.PartToRead]) -> list[Snapshot]:
        """Read snapshots, as the store does."""
        self._checker.count("restored")
        self._checker.reached(Moment.RESTORING, self._process)
        return self._store.read(folder, checkpoint, parts)


class ConsistencyChecker(History):
    """The history of a run with checkpoints."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(lambda: simulation.now)
        self._simulation = simulation
        self._cuts: dict[int, dict[TaskId, EdgeRows]] = {}
        self._complete: set[int] = set()
        self._last_cut = 0
        """The checkpoint of the snapshot that is being taken."""
        self._staged_for: dict[Token, int] = {}

    def succeed(self, earlier: ConsistencyChecker) -> None:
        """Take over which checkpoints another simulation has completed, and for which of them tokens were staged."""
        self._complete, self._staged_for = set(earlier._complete), dict(earlier._staged_for)

    def begin_from_savepoint(self, earlier: ConsistencyChecker) -> None:
        """Begin from another simulation's savepoint: it covers every token that was staged there."""
        self._staged_for = dict.fromkeys(earlier._staged_for, 0)

    # -- reports of observers --------------------------------------------------------------------------------------------

    def observe(self, process: SimulatedProcess) -> FrameObserver:
        """Return what watches the tasks of a new process."""
        return CutObserver(self, process)

    def watched_store(self, store: SnapshotStore, process: SimulatedProcess) -> SnapshotStore:
        """Return the store with faults that strike when it is written and read."""
        return StrikingStore(store, self, process)

    def reached(self, moment: Moment, process: SimulatedProcess) -> None:
        """A moment of a checkpoint has come in a process."""
        self._simulation.strikes.reached(moment, process)

    def snapshot_taken(self, task: TaskId, checkpoint: int, rows: EdgeRows) -> None:
        """A task takes its snapshot when it has sent and processed these rows."""
        cut = self._cuts.setdefault(checkpoint, {})
        if task in cut:
            self.violated(9, f"task {task} took two snapshots of checkpoint {checkpoint}")
        cut[task] = rows
        self._last_cut = checkpoint

    def token_staged(self, token: Token) -> None:
        """A sink has staged rows in its snapshot."""
        self._staged_for[token] = self._last_cut

    def token_committed(self, token: Token) -> None:
        """A sink publishes rows: a checkpoint that covers them has to be complete."""
        covered_by = self._staged_for[token]
        # The answer is lost with a master that dies while the manifest is written; its successor finds and keeps the manifest.
        if max(self._complete, default=0) < covered_by and max(self._durable(), default=0) < covered_by:
            self.violated(16, f"token {token} is published, and checkpoint {covered_by} is not complete")

    def _durable(self) -> set[int]:
        """Return the checkpoints that would be complete after a power cut."""
        disk = self._simulation.disk
        assert disk is not None
        return {stored.checkpoint for stored in disk.after_power_cut().checkpoints() if stored.manifest is not None}

    def check_kept(self) -> None:
        """Check that the last complete checkpoints are kept. A damaged one is not counted as complete any more."""
        keep, durable = self._simulation.plan.config.checkpoint_keep, self._durable()
        is_damaged = any(fault.kind is FaultKind.DAMAGE for _, fault, _ in self._simulation.strikes.struck)
        wanted = sorted(self._complete | durable)[-keep:]
        if not durable.issuperset(wanted) and not is_damaged:
            what = f"of {len(self._complete)} complete checkpoints {sorted(durable)} are left, and not {wanted}"
            self.violated(16, what)

    def watermarks_at(self, checkpoint: int, task: TaskId) -> dict[TaskId, int]:
        """Return the watermark that a task had from each sender at a checkpoint.

        Left out are senders whose inputs had all ended or been idle: the watermark of such a bolt may be the highest, with which
        it does not begin.
        """
        cut, upstream_tasks = self._cuts.get(checkpoint, {}), self._simulation.plan.upstream_tasks
        has_time = {one for one, rows in cut.items() if not upstream_tasks(one) or set(upstream_tasks(one)) - rows.silent}
        return {one: mark for one, mark in cut[task].watermarks.items() if one in has_time} if task in cut else {}

    # -- at the master ---------------------------------------------------------------------------------------------------

    def asked_of_store(self, command: StoreCommand) -> None:
        """The master has asked for something to be done in the store of checkpoints."""
        if isinstance(command, CopyCheckpoint):
            self._simulation.strikes.reached(Moment.COPYING, None)
        if not isinstance(command, CommitCheckpoint):
            return
        simulation = self._simulation
        assert simulation.disk is not None
        manifest = command.manifest
        self.check_kept()
        cut = self._cuts.get(manifest.checkpoint, {})
        tasks = {task.id for task in simulation.plan.tasks} - set(simulation.plan.ackers)
        if cut.keys() != tasks:
            self.violated(3, f"checkpoint {manifest.checkpoint} is committed without {sorted(tasks - cut.keys())}")
            return
        for sender, rows in cut.items():
            for target in simulation.plan.downstream_tasks(sender):
                if target in cut:
                    sent, received = rows.sent[target], cut[target].received[sender]
                    if sent != received:
                        what = f"task {sender} had sent {sent} rows to task {target}, which had processed {received}"
                        self.violated(7, f"checkpoint {manifest.checkpoint} is no consistent cut: {what}")
        try:
            simulation.disk.after_power_cut().verify(manifest)
        except TopoError as error:
            self.violated(3, f"checkpoint {manifest.checkpoint} is committed, and after a power cut {error}")
        simulation.strikes.reached(Moment.COMMITTING, None)

    def committed(self, checkpoint: int, problem: str) -> None:
        """A checkpoint is complete, or (with a problem) certainly not; the master gets the answer after this call."""
        disk = self._simulation.disk
        assert disk is not None
        self.count("checkpoint not committed" if problem else "checkpoint")
        if problem and disk.may_be_complete(checkpoint):
            self.violated(3, f"checkpoint {checkpoint} may be complete after a power cut, although: {problem}")
        elif not problem and checkpoint not in self._durable():
            self.violated(3, f"checkpoint {checkpoint} is complete, and would be gone after a power cut")
        if not problem:
            self._complete.add(checkpoint)
            self._simulation.strikes.reached(Moment.COMPLETE, None)

    # -- now and then ----------------------------------------------------------------------------------------------------

    def inspect(self, process: SimulatedProcess) -> None:
        """Check the invariants of a process between two turns, and the bounds of its queues."""
        super().inspect(process)
        for task in process.tasks:
            behind: dict[TaskId, int] = {}
            for edge, _ in task.inbound.behind:
                behind[edge.sender] = behind.get(edge.sender, 0) + 1
            if behind:
                self.count("frames behind a barrier")
            if any(count > task.config.edge_window for count in behind.values()):
                self.violated(5, f"task {task.id} has {behind} frames behind a barrier; the window is {task.config.edge_window}")

    def _pending_of(self, source: SourceGuarantee) -> int:
        """Messages that no checkpoint covers."""
        assert isinstance(source, CheckpointedSource)
        return 0 if source.is_retrying else source.uncommitted.uncovered

    def _inspect_acker(self, task: Task, trees: Trees) -> None:
        """Ackers hold barriers: those of checkpoints that failed, too, until the epoch is over."""
        if len(trees) > (len(self._cuts) + 1) * len(task.plan.spouts):
            self.violated(5, f"acker task {task.id} holds {len(trees)} roots open")
