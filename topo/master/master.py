"""The topology master: one state machine, composed of the parts beside it.

Knows: the plan, the lives of workers, the epoch, positions that spouts have committed, counters of tasks. Does not know:
processes, sockets, files, the wall clock; the loop performs its commands.

Rules that hold whatever happens:

- At most one incarnation of a slot is current. A message of any other is counted, and answered with an order to stop.
- What others rely on (term, epoch, incarnations, activity) is persisted before anything that rests on it is done: the record is
  compared after every event, and a changed one goes to the front of the commands.
- Close goes out when two probe rounds agree that nothing moves, or when the operator's time for a drain is up; from then on no
  worker is replaced.
- Finished is the last command.

The parts: `recovery` (workers, epochs), `checkpoints` (what tasks continue from, in mode exactly_once), `quiescence` and `ending`
(the end), `positions` and `dead_letters` (stored for spouts), `statistics` (for users).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, get_args

from topo.checkpoint.coordinator import CheckpointCoordinator
from topo.checkpoint.manifest import Manifest
from topo.checkpoint.store_messages import StoreAnswer
from topo.dead_letters.registry import DeadLetters
from topo.ids import Incarnation, TaskId
from topo.master import events
from topo.master.checkpoints import CheckpointDriver, CheckpointMessage, CheckpointReport
from topo.master.commands import (
    Finished,
    MasterCommand,
    MasterRecord,
    Persist,
    SendTo,
    StopWorker,
    StorePositions,
)
from topo.master.counts import MasterCounts
from topo.master.cut_short import why_not_drained
from topo.master.ending import Ending, EndingStage
from topo.master.epochs import EpochState
from topo.master.membership import Slot, SlotState
from topo.master.outcome import DRAINED, Outcome, OutcomeKind, end_counts, final_outcome
from topo.master.positions import Positions, SpoutProgress
from topo.master.quiescence import Quiescence
from topo.master.recovery import Mode, Recovery
from topo.master.replaying import Replaying
from topo.master.statistics import TopologyStatistics
from topo.master.storing import StoringDeadLetters
from topo.plan.physical import PhysicalPlan
from topo.wire import control
from topo.wire.codec import Codec

LATE_S = 1.0
"""Called so much later than it asked to be, the master stood still, and the silence of workers is not theirs. With a short
`worker_timeout` a quarter of that is enough."""


class TopologyMaster:
    """Runs one topology.

    Args:
        plan: the topology, with its settings.
        digest: of the plan and the code; a worker that has built another one does not take part.
        new_incarnation: draws the number of a worker's life.
        previous: the record of the last master; None for a topology that has never run.
        progress: the positions that its spout tasks resume from.
        codec: reads positions and writes records of kills.
        dead_letters: the state of those on disk.
        completed: the checkpoint to continue from, which fits the plan; None: from the beginning.
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
        self.counts = MasterCounts()
        self.positions = Positions(codec or Codec(), progress or {})
        self.figures = TopologyStatistics({task.id: task.component for task in plan.tasks}, plan.config.heartbeat_s)
        self.checkpoints: CheckpointCoordinator | None = None
        if plan.config.delivery == "exactly_once":
            # A later master must not give a number again that the restored one has, wherever that came from.
            last = max(0 if previous is None else previous.checkpoint, 0 if completed is None else completed.checkpoint)
            self.checkpoints = CheckpointCoordinator(plan, last, completed, completed_in)
        self.recovery = Recovery(
            plan, digest, new_incarnation, previous, self.positions, self.figures, self._commands, self.counts, self.checkpoints
        )
        self._checkpoint_driver: CheckpointDriver | None = None
        if self.checkpoints is not None:
            self._checkpoint_driver = CheckpointDriver(self.checkpoints, plan, self.recovery, self._commands)
        self.membership = self.recovery.membership
        self.quiescence = Quiescence(tasks)
        self.ending = Ending(plan.config.drain_timeout_s)
        self.dead_letters = dead_letters or DeadLetters()
        self._storing = StoringDeadLetters(self.dead_letters, self.membership, self._commands)
        self.replays = Replaying(plan, self.recovery, self.dead_letters, self._commands)
        self._persisted = previous
        self._deadline: float | None = None
        self._late_s = min(LATE_S, plan.config.worker_timeout_s / 4)
        self._called_at = 0.0
        self._handlers: dict[type, Callable[[Any, float], None]] = {
            events.Tick: lambda _event, _now: None,
            events.WorkerMessage: self._on_message,
            events.Started: lambda _event, now: setattr(self, "started_at", now),
            events.WorkerLaunched: self._on_launched,
            events.LaunchFailed: self._on_launch_failed,
            events.WorkerExited: self._on_exited,
            events.DeadLettersWritten: lambda event, _now: self._storing.written(event),
            events.ReplayAsked: lambda event, _now: self.replays.asked(event),
            events.ActivateAsked: lambda _event, _now: self._set_active(True),
            events.DeactivateAsked: lambda _event, _now: self._set_active(False),
            events.DrainAsked: self._on_drain,
            events.KillAsked: self._on_kill,
            events.RestartAsked: self._on_restart,
            events.MessagesLost: self._on_messages_lost,
            **dict.fromkeys(get_args(StoreAnswer), self._about_checkpoint),
            events.SavepointAsked: self._about_checkpoint,
        }
        self._message_handlers: dict[type, Callable[[Slot, Any, float], None]] = {
            control.Register: self.recovery.registered,
            control.Heartbeat: self._on_heartbeat,
            control.Stuck: self.recovery.stuck,
            control.TaskReady: lambda _slot, message, _now: self.recovery.task_ready(message),
            control.EdgeLost: self.recovery.edge_lost,
            control.ComponentError: lambda slot, message, _now: self.recovery.component_error(slot, message),
            control.TuplesFailed: lambda _slot, message, _now: self.dead_letters.failed(message.causes),
            control.PositionReport: lambda _slot, m, now: self.positions.reported(m.task, m.position, m.attempts, now),
            control.DeadLetter: lambda slot, message, now: self._storing.reported(slot, message, now),
            control.LettersReplayed: lambda _slot, message, _now: self.replays.replayed(message),
            control.Quiet: lambda _slot, message, now: self.quiescence.on_report(message, now),
            control.Closed: self._on_closed,
            **dict.fromkeys(get_args(CheckpointMessage), lambda _slot, message, now: self._about_checkpoint(message, now)),
        }

    # -- the only way in -------------------------------------------------------------------------------------------------

    def handle(self, event: events.MasterEvent, now: float) -> list[MasterCommand]:
        """Take an event at `now` (monotonic seconds); return the commands to perform, in order.

        Nothing has an effect before Started or after Finished.
        """
        if self.ending.stage is EndingStage.FINISHED or (self.started_at is None and not isinstance(event, events.Started)):
            return []
        if self._deadline is not None and now - self._deadline > self._late_s:
            # A master that was itself stopped could read no heartbeat: that silence is not the workers'.
            self.membership.forgive(now - self._called_at)
        self._handlers[type(event)](event, now)
        # The shell reads all messages before it ticks: after a stall of the master they hold the heartbeats of all workers.
        self._advance(now, has_read_all=isinstance(event, events.Tick))
        record = self._record()
        if record != self._persisted:
            self._persisted = record
            # In front: a worker must not act on a term, epoch or incarnation that the next master would not know.
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
            deadlines += (self.recovery.next_deadline(), self.replays.next_deadline(is_paused=not self.is_active))
            if self.checkpoints is not None:
                deadlines.append(self.checkpoints.next_deadline())
            if self._may_probe:
                deadlines.append(self.quiescence.next_deadline())
        elif self.ending.stage is EndingStage.CLOSING:
            deadlines.append(self.membership.next_deadline())
        return min((at for at in deadlines if at is not None), default=None)

    def validate(self) -> None:
        for part in (self.recovery, self.quiescence, self.ending, self.figures, self.checkpoints):
            if part is not None:
                part.validate()
        assert not self._commands, "commands were left behind"
        if self.ending.stage is EndingStage.SERVING and self.recovery.epochs.state is not EpochState.FORMING:
            assert self.membership.is_complete, "an epoch runs without all its workers"

    # -- what time and circumstances ask for -----------------------------------------------------------------------------

    def _advance(self, now: float, *, has_read_all: bool) -> None:
        if self.ending.stage is EndingStage.SERVING:
            # Recovery first: it may break the epoch, and the checkpoint under way and the rounds of probes end with it.
            self.recovery.serve(self._mode, now, has_read_all=has_read_all)
            if self._checkpoint_driver is not None:
                self._checkpoint_driver.advance(now, is_ending=self.quiescence.has_ended)
            self.replays.serve(now, is_paused=not self.is_active)
            self.quiescence.follow(self.recovery.epochs.epoch, self.recovery.epochs.breaks)
            if hopeless := self.recovery.given_up or (self.checkpoints.lost if self.checkpoints is not None else ""):
                self._stop(Outcome(OutcomeKind.CRASHED, hopeless), now)
            elif self.ending.may_continue and self.checkpoints is not None and (why := self.checkpoints.failed_end):
                self._give_up_drain(why, now)
            elif self._may_probe:
                self._probe(now)
            if self.ending.stage is EndingStage.SERVING and self.ending.is_out_of_time(now):
                self._cut_short(now)
        else:
            self._leave(now, has_read_all=has_read_all)
        self._storing.store_overdue(now)
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
        # A dead letter is pending until it is stored. The drain of a paused topology leaves replays to its next master.
        waits = self.dead_letters.in_flight or (self.replays.count and (self.is_active or not self.ending.is_draining))
        return self.recovery.epochs.state is EpochState.RUNNING and not waits

    def _probe(self, now: float) -> None:
        if self.quiescence.is_still and self._has_final_checkpoint(now):
            self._close(DRAINED if self.ending.is_draining else None, now)
        elif self.quiescence.refusal and (self.checkpoints is None or self.checkpoints.is_settled or self.checkpoints.problem):
            self._cut_short(now)
        elif (number := self.quiescence.begin_due(now)) is not None:
            for slot in self.membership.live():
                self.recovery.send(slot, control.Probe(number, self.recovery.epochs.epoch))

    # -- checkpoints -----------------------------------------------------------------------------------------------------

    def _record(self) -> MasterRecord:
        checkpoints = self.checkpoints
        # A checkpoint of another folder is not expected among this run's own.
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

    def _about_checkpoint(self, report: CheckpointReport, now: float) -> None:
        if self._checkpoint_driver is not None and self.ending.stage is EndingStage.SERVING:
            self._checkpoint_driver.take(report, now)

    def _has_final_checkpoint(self, now: float) -> bool:
        """Whether all results are stored and published; requests it if not."""
        if self.checkpoints is None or self._checkpoint_driver is None or self.checkpoints.may_close:
            return True
        self.checkpoints.want_final()
        self._checkpoint_driver.advance(now, is_ending=self.quiescence.has_ended)
        return False

    # -- lives of workers ------------------------------------------------------------------------------------------------

    def _on_launched(self, event: events.WorkerLaunched, now: float) -> None:
        if self.membership.is_current(event.worker, event.incarnation):
            self.membership.sign_of_life(self.membership.slots[event.worker], now)

    def _on_launch_failed(self, event: events.LaunchFailed, now: float) -> None:
        self._on_exited(events.WorkerExited(event.worker, event.incarnation, f"could not be launched: {event.why}"), now)

    def _on_exited(self, event: events.WorkerExited, now: float) -> None:
        if self.ending.stage is EndingStage.SERVING:
            self.recovery.exited(event, now)
        elif self.membership.is_current(event.worker, event.incarnation):
            self._left(self.membership.slots[event.worker], event.description)

    def _on_restart(self, event: events.RestartAsked, now: float) -> None:
        slot = self.membership.slots.get(event.worker)
        if slot is not None and self.ending.stage is EndingStage.SERVING:
            self.recovery.restart(slot, now)

    def _on_messages_lost(self, event: events.MessagesLost, now: float) -> None:
        slot = self.membership.slots[event.worker] if self.membership.is_current(event.worker, event.incarnation) else None
        if slot is not None and self.ending.stage is EndingStage.SERVING and not event.is_unreadable:
            self.recovery.lose(slot, event.why, now, kill=True)
        elif slot is not None and self.ending.stage is EndingStage.CLOSING and event.is_unreadable:
            self.recovery.record("MessageUnreadable", f"its last figures may be missing: {event.why}", slot)
            self.ending.unclosed.update(slot.tasks)

    # -- messages of workers ------------------------------------------------------------------------------------------------

    def _on_message(self, event: events.WorkerMessage, now: float) -> None:
        message = event.message
        if not self.membership.is_current(event.worker, event.incarnation):
            self.counts.fenced += 1
            stop = control.Stop("another worker has taken this one's place")
            self._commands.append(SendTo(event.worker, event.incarnation, stop))
            return
        slot = self.membership.slots[event.worker]
        self.membership.sign_of_life(slot, now)
        task = getattr(message, "task", None)
        if task is not None and task not in slot.tasks:
            self.counts.misdirected += 1
        elif self.ending.stage is EndingStage.SERVING or not isinstance(message, _STARTS_SOMETHING):
            self._message_handlers[type(message)](slot, message, now)

    def _on_heartbeat(self, slot: Slot, message: control.Heartbeat, now: float) -> None:
        slot.busy_in = message.busy_in
        own = {task: figures for task, figures in message.tasks.items() if task in slot.tasks}
        self.counts.misdirected += len(message.tasks) - len(own)
        self.figures.add(own, now)
        self.figures.processes.add(slot.worker, message.incarnation, message.process, now)

    def _on_closed(self, _slot: Slot, message: control.Closed, _now: float) -> None:
        # A worker that was asked to end has closed its tasks, and another life of them follows.
        if self.ending.stage is EndingStage.CLOSING:
            self.ending.task_closed(message.task)

    # -- the operator's requests, and the end -------------------------------------------------------------------------

    def _set_active(self, active: bool) -> None:
        if self.is_active == active or self.ending.is_draining or self.ending.stage is not EndingStage.SERVING:
            return
        self.is_active = active
        self.recovery.tell_spouts(control.Activate() if active else control.Deactivate())

    def _on_kill(self, _event: events.KillAsked, now: float) -> None:
        self.ending.stays_ended = True
        self._stop(Outcome(OutcomeKind.KILLED, "killed by the operator"), now)

    def _on_drain(self, event: events.DrainAsked, now: float) -> None:
        self.ending.stays_ended |= not event.restarts
        if self.ending.stage is not EndingStage.SERVING:
            return
        if not self.recovery.epochs.has_run:
            self._close(Outcome(OutcomeKind.DRAINED, "ended before it began"), now)
            return
        if not self.ending.is_draining:
            self.quiescence.drain()
            self.recovery.tell_spouts(control.Drain())
        has_savepoint = bool(event.savepoint) and self.checkpoints is not None
        if has_savepoint and self.checkpoints is not None:
            self.checkpoints.want_savepoint(event.savepoint, at_end=True)
        self.ending.drain(event.timeout_s, now, has_savepoint=has_savepoint)

    def _cut_short(self, now: float) -> None:
        unstored, replays = self.dead_letters.in_flight, self.replays.count
        why = why_not_drained(self.plan, self.recovery, self.quiescence, self.checkpoints, unstored=unstored, replays=replays)
        if self.ending.may_continue:
            self._give_up_drain(f"not drained in time, which `--wait` or `--deadline` can lengthen: {why}", now)
        else:
            self._close(Outcome(OutcomeKind.CUT_SHORT, f"drained, not to the end: {why}"), now)

    def _give_up_drain(self, why: str, now: float) -> None:
        """Have the topology continue: none of the savepoints that it was to end with could be written."""
        assert self.checkpoints is not None and self._checkpoint_driver is not None
        self.ending.give_up()
        self.quiescence.give_up_drain()
        self.checkpoints.give_up_end(why)
        self._checkpoint_driver.advance(now, is_ending=False)
        if self.is_active:
            self.recovery.tell_spouts(control.Activate())

    def _close(self, outcome: Outcome | None, now: float) -> None:
        """Have components closed; None: the outcome is judged when their last figures are in."""
        self.ending.close(outcome, now)
        for slot in self.membership.slots.values():
            if slot.state is SlotState.LIVE:
                self.recovery.send(slot, control.Close(self.recovery.epochs.epoch, drain=outcome is not None))
            else:
                self._dismiss(slot)

    def _stop(self, outcome: Outcome | None, now: float) -> None:
        """Kill the remaining workers. None: the outcome was decided before."""
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

    def _leave(self, now: float, *, has_read_all: bool) -> None:
        """Give up workers that take too long to go."""
        slots = self.membership.slots.values()
        if self.ending.stage is EndingStage.CLOSING:
            for slot, why in self.membership.overdue(now) if has_read_all else ():
                self._dismiss(slot)
                self._left(slot, why)
        if not self.ending.is_out_of_time(now):
            return
        if self.ending.stage is EndingStage.CLOSING:
            for slot in slots:
                if slot.incarnation is not None:
                    self.recovery.record("CloseTimeout", f"{self.ending.why_overdue(slot.tasks)}; it is killed", slot)
                    self.ending.never_closes(slot.tasks)
            self._stop(None, now)
        else:
            for slot in slots:
                self.membership.gone(slot)

    def _left(self, slot: Slot, why: str) -> None:
        # A worker that had not come up had nothing to close, and was ended by this master.
        if self.ending.stage is EndingStage.CLOSING and slot.state is SlotState.LIVE and not self.ending.has_closed(slot.tasks):
            self.recovery.record("WorkerLost", f"ended before its components had closed: {why}", slot)
            self.ending.never_closes(slot.tasks)
        self.figures.ended(slot.tasks)
        self.membership.gone(slot)

    def _finish(self, now: float) -> None:
        if left := self.positions.take_all(now):
            self._commands.append(StorePositions(left))
        # With checkpoints, what sinks had to publish was published before.
        unclosed = self.ending.unclosed.difference(self.plan.ackers) if self.checkpoints is None else ()
        counts = end_counts(self.plan, self.figures, self.dead_letters.count, len(unclosed))
        outcome = final_outcome(self.ending.outcome, counts)
        self.ending.finish(outcome)
        self._commands.append(Finished(outcome))


_STARTS_SOMETHING = (control.Register, control.TaskReady, control.EdgeLost, control.Stuck, control.RestoreFailed)
"""Messages that are ignored while the topology ends."""
