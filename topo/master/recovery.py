"""Keeps a topology's workers alive and brings them into one epoch, again after every loss.

    worker started -> Register -> (all registered) -> Routes of a new epoch to all -> TaskReady -> (all ready) -> Go to the spouts

- The epoch rises only when every slot's worker has registered, once for all that was lost since it last rose.
- A loss while the handshake is under way breaks it; it starts from the beginning, under a further epoch, with the replacement.
- Go goes out when every task has reported ready in that very epoch.
- A topology that has never run, and one of whose workers is lost GIVE_UP_AFTER times in a row, cannot be started: `given_up`
  names the reason. A topology that has run, under an earlier master too, is mended without end, ever more slowly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from topo.checkpoint.coordinator import CheckpointCoordinator
from topo.errors import UnsupportedStateError
from topo.ids import Epoch, Incarnation, TaskId, WorkerId
from topo.master.commands import MasterCommand, MasterRecord, RecordError, SendTo, StartWorker, StopWorker
from topo.master.counts import MasterCounts
from topo.master.edge_losses import EdgeLosses
from topo.master.epochs import Epochs, EpochState
from topo.master.events import WorkerExited
from topo.master.membership import Membership, Slot, SlotState
from topo.master.positions import Positions
from topo.master.routes import routes_for, routing_table
from topo.master.statistics import TopologyStatistics
from topo.plan.outline import first_difference, outline
from topo.plan.physical import PhysicalPlan
from topo.tracking.suspects import Suspects
from topo.wire import control

GIVE_UP_AFTER = 3
STUCK_AGAIN = 3
"""A task that is stuck so often at the same place is not stuck by chance."""
STOP_S = 6.0
"""Time for a worker that was asked to end to process its input and to close its components. Then it is killed."""

Mode = control.Drain | control.Deactivate | None
"""The order that spouts get before Go: drain or deactivate; None when they are to emit."""


class Recovery:
    """Workers and epochs of one topology.

    Args:
        digest: of plan and code; a worker that has built another one is not taken.
        new_incarnation: draws the number of a worker's life.
        previous: what an earlier master has persisted.
        positions: the positions that spout tasks resume from.
        figures: reset for tasks that restart.
        commands: where commands are appended.
        counts: counted up.
        checkpoints: decides which one tasks restore; None where none are taken.

    Attributes:
        lives: the latest life of each slot that ever had one.
        given_up: why the topology cannot be started; "" while it can.
    """

    def __init__(
        self,
        plan: PhysicalPlan,
        digest: str,
        new_incarnation: Callable[[], Incarnation],
        previous: MasterRecord | None,
        positions: Positions,
        figures: TopologyStatistics,
        commands: list[MasterCommand],
        counts: MasterCounts,
        checkpoints: CheckpointCoordinator | None = None,
    ) -> None:
        self.membership = Membership(plan.workers, plan.config)
        last_epoch = Epoch(0) if previous is None else previous.epoch
        self.epochs = Epochs(frozenset(task.id for task in plan.tasks), last_epoch, plan.config.start_timeout_s)
        self.lives: dict[WorkerId, Incarnation] = {} if previous is None else dict(previous.incarnations)
        self.given_up = ""
        self.unstorable: dict[TaskId, str] = {}
        """The last error of each task about state that no checkpoint can store."""
        self._ran_before = previous is not None and previous.has_run
        self._term = 1 if previous is None else previous.term + 1
        self._plan = plan
        self._digest = digest
        self._new_incarnation = new_incarnation
        self._positions = positions
        self._figures = figures
        self._commands = commands
        self._counts = counts
        self._checkpoints = checkpoints
        self._spouts = frozenset(plan.spouts)
        self._sources = frozenset(plan.sources)
        self._edge_losses = EdgeLosses()
        self._suspects = Suspects()
        self._killed: dict[WorkerId, Incarnation] = {}
        """The last life of each slot that was given up while its process lived: its crash marker is still to be read."""
        self._stuck_at: dict[TaskId, tuple[float, int]] = {}
        """What a task had done when it was last stuck, and how often it was stuck there."""
        self._stopping: dict[tuple[WorkerId, Incarnation], float] = {}
        """Lives that were asked to end and have not yet: when they are killed."""

    def serve(self, mode: Mode, now: float, *, has_read_all: bool) -> None:
        """Start due workers, give up silent ones, settle dead edges, raise the epoch.

        Args:
            mode: what spouts have to know.
            now: monotonic seconds.
            has_read_all: all messages of workers until now were handled; before that, none of them counts as silent.
        """
        for slot, why in self.membership.overdue(now) if has_read_all else ():
            self.lose(slot, why, now, kill=True)
        for life in [life for life, at in self._stopping.items() if now >= at]:
            del self._stopping[life]
            self._commands.append(StopWorker(*life, kill=True))
        if self.given_up:
            return
        for slot in self.membership.due(now):
            incarnation = self.lives[slot.worker] = self._new_incarnation()
            self.membership.started(slot, incarnation, now)
            self._commands.append(StartWorker(slot.worker, incarnation))
        if self._edge_losses.is_due(now):
            peer = self._edge_losses.judge(now)
            if peer is None:
                self._break_epoch()
            else:
                self.lose(self.membership.slots[peer], "its edges were lost again and again", now, kill=True)
        if self.epochs.is_overdue(now):
            names = ", ".join(f"{task} ({self._plan.task(task).component})" for task in self.epochs.waiting_for())
            self.record("TasksNotReady", f"epoch {self.epochs.epoch} is opened again: not ready in time: {names}")
            self._break_epoch()
        is_held = self._checkpoints is not None and self._checkpoints.holds_epoch
        if self.epochs.state is EpochState.FORMING and self.membership.is_complete and not is_held:
            self._raise_epoch(mode, now)

    @property
    def has_run(self) -> bool:
        """Whether all tasks were ready once, under this master or an earlier one."""
        return self._ran_before or self.epochs.has_run

    def next_deadline(self) -> float | None:
        """When `serve` has something to do, unless something happens."""
        deadlines = (self.membership.next_deadline(), self.epochs.next_deadline(), self._edge_losses.next_deadline())
        return min((at for at in (*deadlines, *self._stopping.values()) if at is not None), default=None)

    def registered(self, slot: Slot, message: control.Register, now: float) -> None:
        """A slot's present life has bound its inbox. A repeated message changes nothing."""
        if slot.state is not SlotState.STARTING:
            return
        if message.digest != self._digest:
            self.lose(slot, self._other_plan(message.outline), now, kill=True)
        elif set(message.tasks) != set(slot.tasks):
            self.lose(slot, "it registered other tasks than the plan gives it", now, kill=True)
        else:
            self.membership.registered(slot, message, now)

    def _other_plan(self, theirs: Sequence[str]) -> str:
        parts = first_difference(outline(self._plan), theirs) if theirs else None
        where = "" if parts is None else f": the first difference is {parts[0]} in the master, {parts[1]} in the worker"
        fix = "keep chance, time, environment and the order of sets out of it, and submit the topology again"
        return f"it built another plan from its code than the master did{where}; {fix}"

    def task_ready(self, message: control.TaskReady) -> None:
        """A task has all its in-edges open; after the last one, spouts may emit."""
        if self.epochs.task_ready(message.task, message.epoch):
            for slot in self.live_spouts():
                self.send(slot, control.Go(message.epoch))

    def edge_lost(self, slot: Slot, message: control.EdgeLost, now: float) -> None:
        """A task of the slot has a dead edge; reports of other epochs than the present one are too late."""
        is_present = self.epochs.state is not EpochState.FORMING and message.epoch == self.epochs.epoch
        if not is_present or not 0 < message.sender <= len(self._plan.tasks):
            return
        if self._edge_losses.reported(self._plan.worker_of(message.sender), now):
            self._counts.edges_lost += 1
            self.record("EdgeLost", f"from task {message.sender}: {message.why}", slot, task=message.task)

    def stuck(self, slot: Slot, message: control.Stuck, now: float) -> None:
        """User code of the slot does not return; beyond `progress_timeout` the worker is replaced."""
        self._counts.stuck += 1
        why = f"stuck in {message.component} for {message.seconds:.0f} s"
        limit_s = self._plan.config.progress_timeout_s
        is_to_end = limit_s is not None and message.seconds >= limit_s
        if is_to_end and (times := self._times_stuck(message.task)) >= STUCK_AGAIN:
            why += (
                f", {times} times in a row without having emitted or processed anything in between: the call needs longer than "
                "progress_timeout. Raise it, or call context.progress() during the call"
            )
        place = message.file, message.line
        self.record("TaskStuck", why, slot, task=message.task, traceback=message.stack, place=place)
        if is_to_end:
            self.lose(slot, why, now, kill=True)

    def _times_stuck(self, task: TaskId) -> int:
        """Count a report that a task is stuck; return how many there were since it has last done something."""
        if not 0 < task <= len(self._plan.tasks):
            return 1
        counters = self._figures.of(task).counters
        done = counters.get("emitted", 0) + counters.get("executed", 0)
        last, times = self._stuck_at.get(task, (done, 0))
        self._stuck_at[task] = (done, times + 1 if last == done else 1)
        return self._stuck_at[task][1]

    def cannot_read(self, slot: Slot, message: control.RestoreFailed, now: float, why: str) -> None:
        """A task of the slot does not get at its checkpoint, which may be whole: another worker tries again, after a back-off."""
        if self.epochs.state is EpochState.OPENING and message.epoch == self.epochs.epoch:
            self.lose(slot, f"task {message.task} cannot read checkpoint {message.checkpoint}: {why}", now, kill=True)

    def exited(self, event: WorkerExited, now: float) -> None:
        """A process has ended: the present life of its slot, or a life that was given up before."""
        self._stopping.pop((event.worker, event.incarnation), None)
        is_present = self.membership.is_current(event.worker, event.incarnation)
        if not is_present and self._killed.get(event.worker) != event.incarnation:
            return
        self._killed.pop(event.worker, None)
        if event.in_flight is not None:
            self._suspects.noted(event.worker, event.in_flight)
            self._positions.died_in_flight(event.in_flight, now)
        if is_present:
            self.lose(self.membership.slots[event.worker], event.description, now, kill=False)

    def restart(self, slot: Slot, now: float) -> None:
        """The operator wants the worker replaced. No failure: no backoff, and its tuples in processing are not suspect."""
        if slot.incarnation is not None:
            self._commands.append(StopWorker(slot.worker, slot.incarnation, kill=False))
            self._stopping[slot.worker, slot.incarnation] = now + STOP_S
            self._vacate(slot, "the operator asked for a restart", now)

    def lose(self, slot: Slot, why: str, now: float, *, kill: bool) -> None:
        """The present life of a slot has ended, or (`kill`) is ended here; another one follows, after a back-off if need be."""
        assert slot.incarnation is not None
        if kill:
            self._killed[slot.worker] = slot.incarnation
            self._commands.append(StopWorker(slot.worker, slot.incarnation, kill=True))
        self._counts.losses += 1
        start_at = slot.restarts.lost(now, has_ended=not kill)
        when = f"in {start_at - now:.1f} s" if start_at > now else "at once"
        self.record("WorkerLost", f"{why.rstrip('.')}; it is restarted {when}", slot)
        self._vacate(slot, why, start_at)
        if not self.has_run and slot.restarts.losses_in_a_row >= GIVE_UP_AFTER:
            who = ", ".join(self._components(slot.tasks))
            self.given_up = f"worker {slot.worker} ({who}) could not be started, tried {GIVE_UP_AFTER} times: {why}"

    def reset_run(self) -> None:
        """Begin another epoch, because the checkpoint of the present one cannot be restored."""
        self._break_epoch()

    def live_spouts(self) -> list[Slot]:
        """Return the slots that host spouts and whose workers have registered."""
        return [slot for slot in self.membership.live() if not self._spouts.isdisjoint(slot.tasks)]

    def live_sources(self) -> list[Slot]:
        """Return the slots that host tasks without input and whose workers have registered."""
        return [slot for slot in self.membership.live() if not self._sources.isdisjoint(slot.tasks)]

    def tell_spouts(self, message: control.Activate | control.Deactivate | control.Drain) -> None:
        """Send an order to all spouts; workers that register later get it with their routes."""
        for slot in self.live_spouts():
            self.send(slot, message)

    def send(self, slot: Slot, message: control.FromMaster) -> None:
        assert slot.incarnation is not None
        self._commands.append(SendTo(slot.worker, slot.incarnation, message))

    def component_error(self, slot: Slot, message: control.ComponentError) -> None:
        """Make a row of `topo errors` of an exception of user code."""
        self._commands.append(RecordError.of(message, slot.worker))
        if message.kind == UnsupportedStateError.__name__:
            self.unstorable[message.task] = message.message

    def record(
        self, kind: str, message: str, slot: Slot | None = None, *, task: TaskId | None = None, traceback: str = "",
        place: tuple[str, int] = ("", 0),
    ) -> None:  # fmt: skip
        """Make a row of `topo errors` of something that happened to a slot, or to a task of it."""
        tasks = () if slot is None else slot.tasks if task is None else (task,)
        components = self._components(tasks)
        component = components[0] if len(components) == 1 else ""
        worker = None if slot is None else slot.worker
        self._commands.append(RecordError(kind, message, component, task, worker, traceback, *place))

    def validate(self) -> None:
        self.membership.validate()
        self.epochs.validate()

    def _raise_epoch(self, mode: Mode, now: float) -> None:
        # Every live worker gets Routes, also those that lost nothing: frames of the old epoch are dropped by all from here on.
        epoch = self.epochs.begin(now)
        self._counts.epochs += 1
        slots = self.membership.live()
        table, accused = routing_table(slots), self._suspects.take()
        for slot in slots:
            routes = routes_for(slot, table, self._term, epoch, accused, self._positions, self._plan, self._checkpoints)
            self.send(slot, routes)
        if self._checkpoints is not None:
            self._checkpoints.restored()
        # Behind the routes and before Go, so that no spout emits between the two.
        if mode is not None:
            for slot in self.live_spouts():
                self.send(slot, mode)

    def _vacate(self, slot: Slot, why: str, start_at: float) -> None:
        self._counts.unreported += slot.state is SlotState.LIVE and self.has_run
        self._figures.lost(slot.tasks)
        self.membership.vacate(slot, why, start_at)
        self._break_epoch()

    def _break_epoch(self) -> None:
        self.epochs.broken()
        self._edge_losses.explained()

    def _components(self, tasks: tuple[TaskId, ...]) -> list[str]:
        return list(dict.fromkeys(self._plan.task(task).component for task in tasks))
