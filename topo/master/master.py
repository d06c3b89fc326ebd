"""The topology master: one state machine, composed of the parts beside it.

Knows: the plan, the lives of workers, the epoch, positions that spouts have committed, counters of tasks. Does not know:
processes, sockets, files, the wall clock; the loop performs its commands.

Rules that hold whatever happens:

- At most one incarnation of a slot is current. Another one that speaks is counted and told to stop.
- What others rely on (term, epoch, incarnations, activity) is persisted before anything that rests on it is done: the record is
  compared after every event, and a changed one goes to the front of the commands.
- Close goes out when two probe rounds agree that nothing moves, or when the operator's time for a drain is up; from then on no
  worker is replaced.
- Finished is the last command.

The parts: `recovery` (workers, epochs), `checkpoints` (what tasks go on from, in mode exactly_once), `quiescence` and `ending`
(when it is over), `positions` and `dead_letters` (what is stored for spouts), `statistics` (what is shown).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from topo.checkpoint.coordinator import CheckpointCoordinator, Finding
from topo.checkpoint.manifest import Manifest
from topo.checkpoint.steps import Problem, Step, ToAll, ToSpouts
from topo.checkpoint.store_messages import CheckpointFound, CheckpointStored, SavepointStored
from topo.dead_letters.registry import DeadLetters, Waiting
from topo.ids import Incarnation, TaskId
from topo.master.commands import (
    Finished,
    MasterCommand,
    MasterRecord,
    Persist,
    RecordError,
    SendTo,
    StopWorker,
    StoreDeadLetters,
    StorePositions,
)
from topo.master.ending import Ending, EndingStage
from topo.master.epochs import EpochState
from topo.master.events import (
    ActivateAsked,
    DeactivateAsked,
    DeadLettersWritten,
    DrainAsked,
    KillAsked,
    LaunchFailed,
    MasterEvent,
    MessagesLost,
    RestartAsked,
    SavepointAsked,
    Started,
    Tick,
    WorkerExited,
    WorkerLaunched,
    WorkerMessage,
)
from topo.master.membership import Slot, SlotState
from topo.master.outcome import Outcome, OutcomeKind, outcome_of_end, problems_of_engine
from topo.master.positions import Positions, SpoutProgress
from topo.master.quiescence import Quiescence
from topo.master.recovery import Mode, Recovery
from topo.master.statistics import TopologyStatistics
from topo.plan.physical import PhysicalPlan
from topo.wire import control
from topo.wire.codec import Codec

LATE_S = 1.0
"""Called so much later than it asked to be, the master stood still, and the silence of workers is not theirs. With a short
`worker_timeout` a quarter of that is enough."""


@dataclass(frozen=True, slots=True)
class MasterStatistics:
    """Counts since the master started.

    Attributes:
        losses: lives of workers that ended before their time.
        unreported: processes that were lost while they worked; what they had counted since their last heartbeat is missing.
        epochs: how often the epoch was raised.
        edges_lost: epochs in which a dead edge was reported.
        stuck: reports of user code that does not return.
        fenced: messages of workers that are not, or no longer, current.
        misdirected: messages about tasks that the sender does not host.
        unreadable: statistics of tasks that were not figures.
        dead_letters: messages given up and stored.
    """

    losses: int
    unreported: int
    epochs: int
    edges_lost: int
    stuck: int
    fenced: int
    misdirected: int
    unreadable: int
    dead_letters: int


class TopologyMaster:
    """Runs one topology.

    Args:
        plan: the topology, with its settings.
        digest: of the plan and the code; a worker that has built another one does not take part.
        new_incarnation: draws the number of a worker's life.
        previous: what the last master persisted; None for a topology that has never run.
        progress: what its spout tasks resume from.
        codec: reads positions and writes records of kills.
        dead_letters: what is known of those on disk.
        completed: the checkpoint to go on from, which fits the plan; None: from the beginning.
        completed_in: the folder that its parts are in; empty: that of this topology's checkpoints.

    Attributes:
        term: one higher than the previous master's.
        is_active: whether the operator wants the spouts to emit.
        started_at: when Started came; None before.
        membership: worker slots and who lives in them, to be read only.
        checkpoints: None unless delivery is exactly_once.
    """

    def __init__(
        self,
        plan: PhysicalPlan,
        digest: str,
        new_incarnation: Callable[[], Incarnation],
        previous: MasterRecord | None = None,
        progress: Mapping[TaskId, SpoutProgress] | None = None,
        codec: Codec | None = None,
        dead_letters: DeadLetters | None = None,
        completed: Manifest | None = None,
        completed_in: str = "",
    ) -> None:
        tasks = frozenset(task.id for task in plan.tasks)
        self.plan = plan
        self.term = 1 if previous is None else previous.term + 1
        self.is_active = True if previous is None else previous.active
        self.started_at: float | None = None
        self._commands: list[MasterCommand] = []
        self.positions = Positions(codec or Codec(), progress or {})
        self.figures = TopologyStatistics(tasks)
        self.checkpoints: CheckpointCoordinator | None = None
        if plan.config.delivery == "exactly_once":
            last = 0 if previous is None else previous.checkpoint
            # A later master must not give a number again that the restored one has, wherever that came from.
            last = max(last, 0 if completed is None else completed.checkpoint)
            self.checkpoints = CheckpointCoordinator(plan, last, completed, completed_in)
        self.recovery = Recovery(
            plan, digest, new_incarnation, previous, self.positions, self.figures, self._commands, self.checkpoints
        )
        self.membership = self.recovery.membership
        self.quiescence = Quiescence(tasks)
        self.ending = Ending(plan.config.drain_timeout_s)
        self.dead_letters = dead_letters or DeadLetters()
        self._persisted = previous
        self._fenced = self._misdirected = 0
        self._deadline: float | None = None
        self._late_s = min(LATE_S, plan.config.worker_timeout_s / 4)
        self._called_at = 0.0
        self._handlers: dict[type, Callable[[Any, float], None]] = {
            Tick: lambda _event, _now: None,
            WorkerMessage: self._on_message,
            Started: lambda _event, now: setattr(self, "started_at", now),
            WorkerLaunched: self._on_launched,
            LaunchFailed: self._on_launch_failed,
            WorkerExited: self._on_exited,
            DeadLettersWritten: self._on_dead_letters_written,
            ActivateAsked: lambda _event, _now: self._set_active(True),
            DeactivateAsked: lambda _event, _now: self._set_active(False),
            DrainAsked: self._on_drain,
            KillAsked: lambda _event, now: self._stop(Outcome(OutcomeKind.KILLED, "killed by the operator"), now),
            RestartAsked: self._on_restart,
            MessagesLost: self._on_messages_lost,
            CheckpointStored: lambda event, now: self._with_checkpoints(lambda it: it.stored(event, now)),
            SavepointStored: lambda event, _now: self._with_checkpoints(lambda it: it.savepoint_stored(event)),
            CheckpointFound: self._on_checkpoint_found,
            SavepointAsked: lambda event, _now: self._with_checkpoints(lambda it: it.want_savepoint(event.folder)),
        }
        self._message_handlers: dict[type, Callable[[Slot, Any, float], None]] = {
            control.Register: lambda slot, message, now: self.recovery.registered(slot, message, now),
            control.Heartbeat: self._on_heartbeat,
            control.Stuck: lambda slot, message, now: self.recovery.stuck(slot, message, now),
            control.TaskReady: lambda _slot, message, _now: self.recovery.task_ready(message),
            control.EdgeLost: lambda slot, message, now: self.recovery.edge_lost(slot, message, now),
            control.ComponentError: self._on_component_error,
            control.TuplesFailed: lambda _slot, message, _now: self.dead_letters.failed(message.causes),
            control.PositionReport: self._on_position,
            control.DeadLetter: self._on_dead_letter,
            control.Quiet: lambda _slot, message, now: self.quiescence.told(message, now),
            control.Closed: self._on_closed,
            control.SnapshotTaken: self._about_checkpoint(lambda it, message, now: it.snapshot_taken(message, now)),
            control.SnapshotFailed: self._about_checkpoint(lambda it, message, now: it.snapshot_failed(message, now)),
            control.RestoreFailed: self._on_restore_failed,
            control.BarrierAcked: self._about_checkpoint(lambda it, message, now: it.barrier_acked(message, now)),
            control.CheckpointWanted: self._about_checkpoint(lambda it, message, _now: it.wanted(message)),
            control.CheckpointPublished: self._about_checkpoint(lambda it, message, _now: it.published(message)),
        }

    # -- the only way in -------------------------------------------------------------------------------------------------

    def handle(self, event: MasterEvent, now: float) -> list[MasterCommand]:
        """Take an event at `now` (monotonic seconds); return what is to be performed, in order.

        Nothing has an effect before Started or after Finished.
        """
        if self.ending.stage is EndingStage.FINISHED or (self.started_at is None and not isinstance(event, Started)):
            return []
        if self._deadline is not None and now - self._deadline > self._late_s:
            self.membership.forgive(now - self._called_at)
        self._handlers[type(event)](event, now)
        # The shell takes what has arrived first: after a stall of the master the beats of all are among that.
        self._advance(now, all_is_heard=isinstance(event, Tick))
        record = self._record()
        if record != self._persisted:
            self._persisted = record
            self._commands.insert(0, Persist(record))
        commands = self._commands[:]
        self._commands.clear()
        self._deadline, self._called_at = self.next_deadline(), now
        return commands

    def next_deadline(self) -> float | None:
        """When the master wants a Tick if nothing happens before, in monotonic seconds."""
        if self.started_at is None or self.ending.stage is EndingStage.FINISHED:
            return None
        deadlines = [self.ending.next_deadline(), self.positions.next_deadline(), self.dead_letters.next_deadline()]
        if self.ending.stage is EndingStage.SERVING:
            deadlines.append(self.recovery.next_deadline())
            if self.checkpoints is not None:
                deadlines.append(self.checkpoints.next_deadline())
            if self._may_probe:
                deadlines.append(self.quiescence.next_deadline())
        elif self.ending.stage is EndingStage.CLOSING:
            deadlines.append(self.membership.next_deadline())
        return min((at for at in deadlines if at is not None), default=None)

    def validate(self) -> None:
        """Assert the invariants."""
        for part in (self.recovery, self.quiescence, self.ending, self.checkpoints):
            if part is not None:
                part.validate()
        assert not self._commands, "commands were left behind"
        if self.ending.stage is EndingStage.SERVING and self.recovery.epochs.state is not EpochState.FORMING:
            assert self.membership.is_complete, "an epoch goes on without all its workers"

    def statistics(self) -> MasterStatistics:
        """Return what the master has counted."""
        counts = self.recovery.counts
        return MasterStatistics(
            losses=counts.losses,
            unreported=counts.unreported,
            epochs=counts.epochs,
            edges_lost=counts.edges_lost,
            stuck=counts.stuck,
            fenced=self._fenced,
            misdirected=self._misdirected,
            unreadable=self.figures.unreadable,
            dead_letters=self.dead_letters.count,
        )

    # -- what time and circumstances ask for -----------------------------------------------------------------------------

    def _advance(self, now: float, *, all_is_heard: bool) -> None:
        if self.ending.stage is EndingStage.SERVING:
            self.recovery.serve(self._mode, now, all_is_heard=all_is_heard)
            self._checkpoint(now)
            self.quiescence.follow(self.recovery.epochs.epoch, self.recovery.epochs.breaks)
            if hopeless := self.recovery.given_up or (self.checkpoints.lost if self.checkpoints is not None else ""):
                self._stop(Outcome(OutcomeKind.CRASHED, hopeless), now)
            elif self._may_probe:
                self._probe(now)
            if self.ending.stage is EndingStage.SERVING and self.ending.is_out_of_time(now):
                self._cut_short(now)
        else:
            self._leave(now, all_is_heard=all_is_heard)
        for waiting, letter in self.dead_letters.overdue(now):
            self._commands.append(StoreDeadLetters(waiting.worker, waiting.incarnation, (letter,)))
        if self.ending.stage in (EndingStage.CLOSING, EndingStage.STOPPING) and self.membership.is_gone:
            self._finish(now)
        elif due := self.positions.take_due(now):
            self._commands.append(StorePositions(due))

    @property
    def _mode(self) -> Mode:
        if self.ending.is_draining:
            return control.Drain()
        return None if self.is_active else control.Deactivate()

    @property
    def _may_probe(self) -> bool:
        return self.recovery.epochs.state is EpochState.RUNNING and not self.dead_letters.in_flight

    def _probe(self, now: float) -> None:
        if self.quiescence.is_still:
            if not self._has_final_checkpoint(now):
                return
            drained = Outcome(OutcomeKind.DRAINED, "drained; nothing was left in flight")
            self._close(drained if self.ending.is_draining else None, now)
        elif (number := self.quiescence.begin_due(now)) is not None:
            for slot in self.membership.live():
                self.recovery.send(slot, control.Probe(number, self.recovery.epochs.epoch))

    # -- checkpoints -----------------------------------------------------------------------------------------------------

    def _record(self) -> MasterRecord:
        checkpoints = self.checkpoints
        # One that is elsewhere is not to be expected among this run's own.
        own = None if checkpoints is None or checkpoints.folder else checkpoints.completed
        return MasterRecord(
            term=self.term,
            epoch=self.recovery.epochs.epoch,
            incarnations=dict(self.recovery.lives),
            active=self.is_active,
            checkpoint=0 if checkpoints is None else checkpoints.last,
            completed=0 if own is None else own.checkpoint,
            has_run=self.recovery.has_run,
        )

    def _checkpoint(self, now: float) -> None:
        checkpoints = self.checkpoints
        if checkpoints is None:
            return
        epochs = self.recovery.epochs
        if epochs.state is EpochState.RUNNING:
            checkpoints.epoch_runs(epochs.epoch, now)
        else:
            checkpoints.epoch_broken(now)
        checkpoints.ending(self.quiescence.has_ended)
        checkpoints.advance(now)
        for step in checkpoints.take_steps():
            self._take(step)

    def _take(self, step: Step) -> None:
        if isinstance(step, ToSpouts):
            for slot in self.recovery.live_spouts():
                self.recovery.send(slot, step.message)
        elif isinstance(step, ToAll):
            for slot in self.membership.live():
                self.recovery.send(slot, step.message)
        elif isinstance(step, Problem):
            self._commands.append(RecordError(step.kind, step.message))
        else:
            self._commands.append(step)

    def _has_final_checkpoint(self, now: float) -> bool:
        """Whether what was computed is stored and published; asks for it."""
        checkpoints = self.checkpoints
        if checkpoints is None or checkpoints.may_close:
            return True
        checkpoints.want_final()
        self._checkpoint(now)
        return False

    def _with_checkpoints(self, do: Callable[[CheckpointCoordinator], object]) -> None:
        if self.checkpoints is not None and self.ending.stage is EndingStage.SERVING:
            do(self.checkpoints)

    def _about_checkpoint(self, take: Callable[[CheckpointCoordinator, Any, float], None]) -> Callable[[Slot, Any, float], None]:
        return lambda _slot, message, now: self._with_checkpoints(lambda it: take(it, message, now))

    def _on_restore_failed(self, slot: Slot, message: control.RestoreFailed, now: float) -> None:
        if message.is_transient:
            self.recovery.cannot_read(slot, message, now, message.why)
        else:
            self._with_checkpoints(lambda it: it.restore_failed(message, now))

    def _on_checkpoint_found(self, event: CheckpointFound, now: float) -> None:
        if self.checkpoints is None or self.ending.stage is not EndingStage.SERVING:
            return
        finding, failed = self.checkpoints.found(event), self.checkpoints.unreadable
        if finding is Finding.EARLIER:
            self.recovery.reset_run()
        elif finding is Finding.WHOLE and failed is not None:
            why = f"{failed.why}; the master reads it well, so storage that the worker's host reaches differs"
            slot = self.membership.slots[self.plan.worker_of(failed.task)]
            self.recovery.cannot_read(slot, failed, now, why)

    # -- lives of workers ------------------------------------------------------------------------------------------------

    def _on_launched(self, event: WorkerLaunched, now: float) -> None:
        if self.membership.is_current(event.worker, event.incarnation):
            self.membership.heard(self.membership.slots[event.worker], now)

    def _on_launch_failed(self, event: LaunchFailed, now: float) -> None:
        self._on_exited(WorkerExited(event.worker, event.incarnation, f"could not be launched: {event.why}"), now)

    def _on_exited(self, event: WorkerExited, now: float) -> None:
        if self.ending.stage is EndingStage.SERVING:
            self.recovery.exited(event, now)
        elif self.membership.is_current(event.worker, event.incarnation):
            self._left(self.membership.slots[event.worker], event.description)

    def _on_restart(self, event: RestartAsked, now: float) -> None:
        slot = self.membership.slots.get(event.worker)
        if slot is not None and self.ending.stage is EndingStage.SERVING:
            self.recovery.restart(slot, now)

    def _on_messages_lost(self, event: MessagesLost, now: float) -> None:
        if self.ending.stage is EndingStage.SERVING and self.membership.is_current(event.worker, event.incarnation):
            self.recovery.lose(self.membership.slots[event.worker], event.why, now, kill=True)

    # -- messages of workers ------------------------------------------------------------------------------------------------

    def _on_message(self, event: WorkerMessage, now: float) -> None:
        message = event.message
        if not self.membership.is_current(event.worker, event.incarnation):
            self._fenced += 1
            stop = control.Stop("another worker has taken this one's place")
            self._commands.append(SendTo(event.worker, event.incarnation, stop))
            return
        slot = self.membership.slots[event.worker]
        self.membership.heard(slot, now)
        task = getattr(message, "task", None)
        if task is not None and task not in slot.tasks:
            self._misdirected += 1
        elif self.ending.stage is EndingStage.SERVING or not isinstance(message, _STARTS_SOMETHING):
            self._message_handlers[type(message)](slot, message, now)

    def _on_heartbeat(self, slot: Slot, message: control.Heartbeat, now: float) -> None:
        slot.busy_in = message.busy_in
        own = {task: figures for task, figures in message.tasks.items() if task in slot.tasks}
        self._misdirected += len(message.tasks) - len(own)
        self.figures.heard(own, now)

    def _on_closed(self, _slot: Slot, message: control.Closed, _now: float) -> None:
        # A worker that was asked to end by itself has closed its tasks, and another life of them follows.
        if self.ending.stage is EndingStage.CLOSING:
            self.ending.task_closed(message.task)

    def _on_component_error(self, slot: Slot, message: control.ComponentError, _now: float) -> None:
        row = RecordError(
            kind=message.kind,
            message=message.message,
            component=message.component,
            task=message.task,
            worker=slot.worker,
            traceback=message.traceback,
            file=message.file,
            line=message.line,
            count=message.count,
            at_ms=message.at_ms,
        )
        self._commands.append(row)

    def _on_position(self, _slot: Slot, message: control.PositionReport, now: float) -> None:
        self.positions.reported(message.task, message.position, message.attempts, now)

    def _on_dead_letter(self, slot: Slot, message: control.DeadLetter, now: float) -> None:
        assert slot.incarnation is not None
        waiting = Waiting(slot.worker, slot.incarnation, message.task, message.id)
        message = self.dead_letters.explained(message)
        if self.dead_letters.is_stored(waiting, message):
            self._confirm(waiting)
        elif self.dead_letters.is_new(waiting, message, now):
            self._commands.append(StoreDeadLetters(slot.worker, slot.incarnation, (message,)))

    def _on_dead_letters_written(self, event: DeadLettersWritten, _now: float) -> None:
        for waiting in self.dead_letters.written(event.letters):
            self._confirm(waiting)

    def _confirm(self, waiting: Waiting) -> None:
        # A later life of the task numbers its dead letters from the start.
        if self.membership.is_current(waiting.worker, waiting.incarnation):
            message = control.DeadLettersStored(waiting.task, [waiting.id])
            self._commands.append(SendTo(waiting.worker, waiting.incarnation, message))

    # -- what the operator asks for, and the end -------------------------------------------------------------------------

    def _set_active(self, active: bool) -> None:
        if self.is_active == active or self.ending.is_draining or self.ending.stage is not EndingStage.SERVING:
            return
        self.is_active = active
        self._tell_spouts(control.Activate() if active else control.Deactivate())

    def _on_drain(self, event: DrainAsked, now: float) -> None:
        if self.ending.stage is not EndingStage.SERVING:
            return
        if not self.recovery.epochs.has_run:
            self._close(Outcome(OutcomeKind.DRAINED, "ended before it began"), now)
            return
        if not self.ending.is_draining:
            self.quiescence.drain()
            self._tell_spouts(control.Drain())
        if event.savepoint:
            self._with_checkpoints(lambda it: it.want_savepoint(event.savepoint, at_end=True))
        self.ending.drain(event.timeout_s, now)

    def _tell_spouts(self, message: control.Activate | control.Deactivate | control.Drain) -> None:
        # Workers that register later get it with their routes.
        for slot in self.recovery.live_spouts():
            self.recovery.send(slot, message)

    def _cut_short(self, now: float) -> None:
        pending = self.quiescence.pending()
        why = self.quiescence.why_not() or "a worker was being replaced"
        reason = f"drained, not to the end: {pending} messages were pending ({why})"
        self._close(Outcome(OutcomeKind.CUT_SHORT, reason), now)

    def _close(self, outcome: Outcome | None, now: float) -> None:
        """Have components closed; None: the outcome is judged when their last figures are in."""
        self.ending.close(outcome, now)
        for slot in self.membership.slots.values():
            if slot.state is SlotState.LIVE:
                self.recovery.send(slot, control.Close(self.recovery.epochs.epoch, drain=outcome is not None))
            else:
                self._dismiss(slot)

    def _stop(self, outcome: Outcome | None, now: float) -> None:
        """Kill what is left. None: how the topology ended was decided before."""
        if self.ending.stage is not EndingStage.STOPPING:
            self.ending.stop(outcome, now)
            for slot in self.membership.slots.values():
                self._dismiss(slot)

    def _dismiss(self, slot: Slot) -> None:
        """End a slot's worker, if there is one, without a successor."""
        if slot.incarnation is None:
            self.membership.gone(slot)
        else:
            self._commands.append(StopWorker(slot.worker, slot.incarnation, kill=True))

    def _leave(self, now: float, *, all_is_heard: bool) -> None:
        """Give up workers that take too long to go."""
        slots = self.membership.slots.values()
        if self.ending.stage is EndingStage.CLOSING:
            for slot, why in self.membership.overdue(now) if all_is_heard else ():
                self._dismiss(slot)
                self._left(slot, why)
        if not self.ending.is_out_of_time(now):
            return
        if self.ending.stage is EndingStage.CLOSING:
            for slot in slots:
                if slot.incarnation is not None:
                    self.recovery.record("CloseTimeout", "its components did not close in time; it is killed", slot)
                    self.ending.never_closes(slot.tasks)
            self._stop(None, now)
        else:
            for slot in slots:
                self.membership.gone(slot)

    def _left(self, slot: Slot, why: str) -> None:
        # One that had not come up had nothing to close, and was ended by us.
        if self.ending.stage is EndingStage.CLOSING and slot.state is SlotState.LIVE and not self.ending.has_closed(slot.tasks):
            self.recovery.record("WorkerLost", f"ended before its components had closed: {why}", slot)
            self.ending.never_closes(slot.tasks)
        self.figures.ended(slot.tasks)
        self.membership.gone(slot)

    def _finish(self, now: float) -> None:
        if left := self.positions.take_all(now):
            self._commands.append(StorePositions(left))
        of_spouts = self.figures.together(self.plan.spouts).counters
        failed, refused = int(of_spouts.get("finally_failed", 0)), int(of_spouts.get("refused", 0))
        letters = self.dead_letters.count
        tracked = bool(self.plan.ackers)
        bolts = [] if tracked else [task.id for task in self.plan.tasks if task.id not in self.plan.spouts]
        dropped = int(self.figures.together(bolts).counters.get("failed", 0))
        everyone = [task.id for task in self.plan.tasks]
        of_all = self.figures.together(everyone).counters
        lost, unsent = int(of_all.get("lost_results", 0)), int(of_all.get("unsent", 0))
        if self.checkpoints is None:
            # With checkpoints, what sinks had to publish was published before.
            lost += len(self.ending.unclosed.difference(self.plan.ackers))
        unaccounted: dict[str, int] = {}
        for spout in self.plan.spouts:
            if count := int(self.figures.of(spout).counters.get("unaccounted", 0)):
                component = self.plan.task(spout).component
                unaccounted[component] = unaccounted.get(component, 0) + abs(count)
        outcome = self.ending.outcome or outcome_of_end(
            failed, letters, tracked=tracked, dropped=dropped, refused=refused, lost=lost, unsent=unsent, unaccounted=unaccounted
        )
        if outcome.kind is OutcomeKind.DRAINED and (problems := problems_of_engine(lost, unsent, unaccounted)):
            outcome = replace(outcome, reason="; ".join([outcome.reason, *problems]))
        unknown = sum(unaccounted.values())
        outcome = replace(outcome, finally_failed=failed, dead_letters=letters, refused=refused, unaccounted=unknown)
        self.ending.finish(outcome)
        self._commands.append(Finished(outcome))


_STARTS_SOMETHING = (control.Register, control.TaskReady, control.EdgeLost, control.Stuck, control.RestoreFailed)
"""What has no place any more when the topology ends."""
