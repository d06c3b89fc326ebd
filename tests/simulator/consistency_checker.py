"""What a simulated run with checkpoints is seen to do: every snapshot, and whether those of a checkpoint are one consistent cut.

A cut is consistent when, on each edge, its receiver has processed exactly the rows that its sender had sent before its snapshot
(Chandy and Lamport 1985). The history counts rows on both ends of every edge, and compares them when the master commits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.simulator.faults import Moment
from tests.simulator.history import History, _replace
from topo.checkpoint.alignment import StoredCallback, StoredPart
from topo.checkpoint.store_messages import CommitCheckpoint, StoreCommand
from topo.errors import TopoError
from topo.ids import Epoch, TaskId
from topo.task.flow_control import InEdge
from topo.task.guarantees.checkpointed_spout import CheckpointedSpoutTask
from topo.task.runners.acker import AckerTask
from topo.task.runners.inputs import BoltTask
from topo.task.runners.spout import SpoutTask
from topo.task.task import Task
from topo.wire import control
from topo.wire.frames import Columns, Frame, FrameKind

if TYPE_CHECKING:
    from tests.simulator.processes import SimulatedProcess
    from tests.simulator.simulation import Simulation


@dataclass(slots=True)
class EdgeRows:
    """How many rows a task has sent and processed in its epoch, by the other task."""

    epoch: Epoch
    sent: dict[TaskId, int] = field(default_factory=dict)
    received: dict[TaskId, int] = field(default_factory=dict)

    def copy(self) -> EdgeRows:
        """Return them as they are now."""
        return EdgeRows(self.epoch, dict(self.sent), dict(self.received))


class ConsistencyChecker(History):
    """Watches the tasks of all processes of a run with checkpoints."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(lambda: simulation.now)
        self._simulation = simulation
        self._cuts: dict[int, dict[TaskId, EdgeRows]] = {}

    # -- watching tasks --------------------------------------------------------------------------------------------------

    def watch(self, process: SimulatedProcess) -> None:
        """Watch the tasks of a new process."""
        for task in process.tasks:
            self._watch_input(process, task)
            if isinstance(task, AckerTask):
                continue
            self._watch_rows(task)
            self._watch_snapshots(process, task)
            if isinstance(task, BoltTask):
                self._watch_alignment(process, task)
            elif isinstance(task, SpoutTask):
                self._at(process, task, "_on_begin_checkpoint", Moment.BEGIN)

    def _at(self, process: SimulatedProcess, task: Task, method: str, moment: Moment) -> None:
        called = getattr(task, method)

        def watched(*arguments: Any) -> Any:
            self._simulation.strikes.reached(moment, process)
            return called(*arguments)

        _replace(task, method, watched)

    def _watch_rows(self, task: Task) -> None:
        rows = EdgeRows(Epoch(0))
        put, processed, take_snapshot = task.outbox.put, task._processed, task._take_snapshot

        def now() -> EdgeRows:
            if rows.epoch != task.epoch:
                rows.epoch = task.epoch
                rows.sent.clear()
                rows.received.clear()
            return rows

        def watched_put(target: TaskId, stream: int, columns: Columns) -> None:
            sent = now().sent
            sent[target] = sent.get(target, 0) + len(columns.rows)
            put(target, stream, columns)

        def watched_processed(edge: InEdge, frame: Frame, at: float) -> None:
            if frame.kind is FrameKind.DATA:
                received = now().received
                received[edge.sender] = received.get(edge.sender, 0) + frame.count
            processed(edge, frame, at)

        def watched_take(checkpoint: int, waited_s: float, then: Callable[[], None], at: float) -> None:
            cut = self._cuts.setdefault(checkpoint, {})
            if task.id in cut:
                self.violated(9, f"task {task.id} took two snapshots of checkpoint {checkpoint}")
            cut[task.id] = now().copy()
            take_snapshot(checkpoint, waited_s, then, at)

        _replace(task.outbox, "put", watched_put)
        _replace(task, "_processed", watched_processed)
        _replace(task, "_take_snapshot", watched_take)

    def _watch_snapshots(self, process: SimulatedProcess, task: Task) -> None:
        self._at(process, task, "_publish", Moment.PUBLISHING)
        store, take_over = task.ports.snapshots, task._load_snapshot
        assert store is not None
        write = store.write
        strikes = self._simulation.strikes

        def watched_write(checkpoint: int, snapshot: Any, stored: StoredCallback) -> None:
            def watched_stored(part: StoredPart | None, error: Exception | None) -> None:
                if process.is_alive:
                    strikes.reached(Moment.STORED, process)
                stored(part, error)

            write(checkpoint, snapshot, watched_stored)
            strikes.reached(Moment.SNAPSHOT, process)

        def watched_take_over(routes: control.Routes) -> None:
            if routes.restore.get(task.id):
                self.count("restored")
                strikes.reached(Moment.RESTORING, process)
            take_over(routes)

        _replace(store, "write", watched_write)
        _replace(task, "_load_snapshot", watched_take_over)

    def _watch_alignment(self, process: SimulatedProcess, task: BoltTask) -> None:
        arrived = task._alignment.arrived

        def watched_arrived(*arguments: Any) -> Any:
            aligned = arrived(*arguments)
            if aligned is None:
                self.count("alignment")
                self._simulation.strikes.reached(Moment.ALIGNING, process)
            elif aligned.waited_s > 0:
                self.count("barrier waited")
            return aligned

        _replace(task._alignment, "arrived", watched_arrived)

    # -- at the master ---------------------------------------------------------------------------------------------------

    def asked_of_store(self, command: StoreCommand) -> None:
        """The master has asked for something to be done in the store of checkpoints."""
        if not isinstance(command, CommitCheckpoint):
            return
        simulation = self._simulation
        assert simulation.disk is not None
        manifest = command.manifest
        cut = self._cuts.get(manifest.checkpoint, {})
        tasks = {task.id for task in simulation.plan.tasks} - set(simulation.plan.ackers)
        if cut.keys() != tasks:
            self.violated(3, f"checkpoint {manifest.checkpoint} is committed without {sorted(tasks - cut.keys())}")
            return
        for sender, rows in cut.items():
            for target in simulation.plan.downstream_tasks(sender):
                if target in cut:
                    sent, received = rows.sent.get(target, 0), cut[target].received.get(sender, 0)
                    if sent != received:
                        what = f"task {sender} had sent {sent} rows to task {target}, which had processed {received}"
                        self.violated(7, f"checkpoint {manifest.checkpoint} is no consistent cut: {what}")
        try:
            simulation.disk.verify(manifest)
        except TopoError as error:
            self.violated(3, f"checkpoint {manifest.checkpoint} is committed, and {error}")
        simulation.strikes.reached(Moment.COMMITTING, None)

    def committed(self, checkpoint: int, problem: str) -> None:
        """A checkpoint is complete, or (with a problem) certainly not; the master is about to hear of it."""
        self.count("checkpoint not committed" if problem else "checkpoint")
        if not problem:
            self._simulation.strikes.reached(Moment.COMPLETE, None)

    # -- now and then ----------------------------------------------------------------------------------------------------

    def inspect(self, process: SimulatedProcess) -> None:
        """Check the invariants of a process between two turns, and that what it holds is bounded."""
        super().inspect(process)
        for task in process.tasks:
            behind: dict[TaskId, int] = {}
            for edge, _ in task.behind:
                behind[edge.sender] = behind.get(edge.sender, 0) + 1
            if behind:
                self.count("frames behind a barrier")
            if any(count > task.config.edge_window for count in behind.values()):
                self.violated(5, f"task {task.id} has {behind} frames behind a barrier; the window is {task.config.edge_window}")

    def _pending_of(self, task: SpoutTask) -> int:
        """Messages that no checkpoint covers; up to as many again were emitted in the burst that reached the limit."""
        assert isinstance(task, CheckpointedSpoutTask)
        return 0 if task.is_retrying else (task.uncommitted.uncovered + 1) // 2

    def _inspect_acker(self, task: AckerTask) -> None:
        """Ackers hold barriers: those of checkpoints that failed, too, until the epoch is over."""
        if len(task.acker.ledger._words) > (len(self._cuts) + 1) * len(task.plan.spouts):
            self.violated(5, f"acker task {task.id} holds {len(task.acker.ledger._words)} roots open")
