"""A task as a state machine. Spouts, bolts and ackers build on it.

A task knows the plan, the routes of its epoch, what it has received and not processed, what it has sent and not seen confirmed.
It knows no sockets, no threads, no wall clock, and nothing of other tasks' insides.

Its parts: `TaskState` (facts that all parts read), `Inbound` (in-edges, queue, confirmations, barriers), `Outbound` (outbox,
opening frames, event time), `Reports` (messages to the master, errors), `SnapshotTaker`. `TaskPhase` is the phase of its life.

An epoch begins with a RoutesChanged of a higher number: everything in flight is dropped, and every out-edge begins with an OPEN
frame. When the OPEN frame of every in-edge is processed, the task reports TaskReady.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from topo.checkpoint.alignment import Snapshot
from topo.ids import Epoch, TaskId
from topo.operators.mailbox.executor import CALL_PRIORITY, MailboxExecutor
from topo.operators.mailbox.mailbox import TaskMailbox
from topo.task.commands import TaskCommand
from topo.task.environment import TaskEnvironment, TaskSpec
from topo.task.error_reports import Reports
from topo.task.events import FrameArrived, Idle, RoutesChanged, TaskEvent, Turn
from topo.task.flow_control import InEdge
from topo.task.inbound import Inbound
from topo.task.outbound import Outbound
from topo.task.snapshot_taker import SnapshotTaker
from topo.task.state import TaskPhase, TaskState
from topo.wire.control import (
    Activate,
    BeginCheckpoint,
    CheckpointComplete,
    CheckpointPublished,
    Close,
    Closed,
    Deactivate,
    DeadLettersStored,
    Drain,
    Go,
    Probe,
    Quiet,
)
from topo.wire.frames import MIN_WATERMARK, Frame, FrameKind, SenderStatus
from topo.wire.statistics import TaskStatistics

TOUCHES = 4
"""How often, within `message_timeout`, the timeout of a message begins anew while one of its tuples waits on an edge."""


class Task(ABC):
    """Base of the three kinds of task."""

    ACCEPTS: ClassVar[frozenset[FrameKind]]
    """Kinds of frames that may come on its in-edges; anything else is malformed."""
    REST_S: ClassVar[float] = 0.0
    """How long what arrives may lie unread once the task has gone idle, so that more comes with it."""

    def __init__(self, setup: TaskSpec, ports: TaskEnvironment) -> None:
        state = self.state = TaskState(setup, ports)
        self.id = state.id
        self.component_id = state.component_id
        self.plan = state.plan
        self.config = state.config
        self.counters = state.counters
        self.is_checkpointed = state.is_checkpointed
        self.context = setup.context
        self.ports = ports
        self._observer = ports.observer
        self.worker = self.plan.worker_of(self.id)
        self.mailbox = TaskMailbox(wake=ports.wake, wait=ports.wait)
        self.executor = MailboxExecutor(self.mailbox)
        """For the task's own mails: only the main loop runs them, and an error ends the process."""
        object.__setattr__(self.context, "executor", MailboxExecutor(self.mailbox, CALL_PRIORITY, self._run_user_mail))
        senders, targets = self._edges_in(), self._edges_out()
        self.reports = Reports(state, setup.context, setup.hooks, setup.limits.causes)
        self.outbound = Outbound(state, self.reports, ports.codec, targets, self._reject_row)
        self.outbox = self.outbound.outbox
        receivers = [target for target, _ in targets]
        self.inbound = Inbound(state, self.reports, senders, receivers, self.ACCEPTS, self.outbox.confirm)
        self.snapshots = SnapshotTaker(state, self.reports, ports, self.executor.execute)
        timeout = self.plan.shortest_message_timeout_s if self.plan.ackers and not self.is_checkpointed else None
        self._touch_interval_s = timeout and timeout / TOUCHES
        self._touch_at = 0.0
        self._blocked_since: float | None = None
        self._quiet_reported: tuple[bool, bool] = (False, False)
        self._is_open = False
        """Whether the user's component has been opened in this process."""
        self._handlers: dict[type, Callable[[Any, float], None]] = {
            FrameArrived: self._on_frame,
            Turn: lambda _event, now: self._turn(now),
            Idle: lambda _event, now: self._on_idle(now),
            RoutesChanged: self._on_routes,
            Go: lambda event, now: self._on_go(event.epoch, now),
            Activate: lambda _event, now: self._on_activate(True, now),
            Deactivate: lambda _event, now: self._on_activate(False, now),
            Drain: lambda _event, now: self._on_activate(False, now),
            Probe: lambda event, _now: self._report_quiet(event.number),
            DeadLettersStored: lambda event, now: self._on_dead_letters_stored(event.ids, now),
            BeginCheckpoint: lambda event, now: self._on_begin_checkpoint(event, now),
            CheckpointComplete: lambda event, now: self._on_checkpoint_complete(event.checkpoint, now),
            Close: lambda _event, now: self._on_close(now),
        }

    # -- the only way in -------------------------------------------------------------------------------------------------

    def handle(self, event: TaskEvent, now: float) -> list[TaskCommand]:
        """Take an event at `now` (monotonic seconds); return what is to be performed, in order."""
        self.outbox.at(now)
        self._handlers[type(event)](event, now)
        if self._blocked_since is not None or not self._may_act:
            self._note_blocked(now)
        commands = self.state.commands[:]
        self.state.commands.clear()
        return commands

    def crashed(self, error: BaseException, now: float) -> list[TaskCommand]:
        """The task did not survive `error`: return what is still to be said."""
        self.state.commands.clear()
        self.reports.record(error, now)
        self.reports.flush(now)
        self.reports.flush_causes()
        return self.state.commands[:]

    def cut_short(self) -> None:  # noqa: B027
        """Return from user code after the call at hand rather than make the next one; any thread may call it."""

    @property
    def wants_data(self) -> bool:
        """Whether the shell may read the data inbox for this task. What can arrive is bounded by the edges' windows."""
        return not self.inbound.holds_newer_epoch

    @property
    def has_work(self) -> bool:
        """Whether a Turn would do something now, without an arrival and before the next deadline."""
        return self.state.is_working and ((bool(self.inbound.queue) and self._may_act) or self.mailbox.may_have_mail)

    def next_deadline(self, now: float) -> float | None:
        """When the task wants a Turn if nothing arrives before, in monotonic seconds."""
        if not self.state.is_working:
            return None
        deadlines = [at for at in self._deadlines(now) if at is not None]
        return min(deadlines) if deadlines else None

    def statistics(self) -> TaskStatistics:
        """Return a snapshot of what the task has counted."""
        self.counters.frames_out = self.outbox.frames_out
        if self._blocked_since is not None:
            self._note_blocked(self.ports.clock())
        levels = {"queue": float(len(self.inbound.queue)), "outbox": float(self.outbox.waiting), **self._levels()}
        user = self.context.metrics.snapshot()
        return TaskStatistics(replace(self.counters), levels, self._latencies(), {"metrics": user})

    def validate(self) -> None:
        """Assert the invariants."""
        self.outbound.validate()
        self.inbound.validate()

    @property
    def epoch(self) -> Epoch:
        """The epoch of the routes at hand."""
        return self.state.epoch

    @property
    def is_closed(self) -> bool:
        """Whether the component is closed."""
        return self.state.phase is TaskPhase.CLOSED

    # -- for the kinds of task -------------------------------------------------------------------------------------------

    @abstractmethod
    def _open(self, event: RoutesChanged, now: float) -> None:
        """The first routes have come: open the user's component."""

    def _epoch_begins(self, now: float) -> None:  # noqa: B027
        """The edges of an epoch, the first one too, are there."""

    @abstractmethod
    def _reset(self, event: RoutesChanged, now: float) -> None:
        """A later epoch begins: forget what was in flight."""

    @abstractmethod
    def _process(self, edge: InEdge, frame: Frame, now: float) -> bool:
        """Process the frame at the head of the queue, or a part of it; True when it is done."""

    @abstractmethod
    def _reject_row(self, stream: int, values: Any, roots: Any, error: Exception) -> None:
        """A row could not be sent: fail its roots."""

    def _edges_out(self) -> list[tuple[TaskId, bool]]:
        """Return targets and whether they are reached through their control inbox."""
        return [(target, False) for target in self.plan.downstream_tasks(self.id)]

    def _edges_in(self) -> list[TaskId]:
        return list(self.plan.upstream_tasks(self.id))

    def _status(self) -> SenderStatus:
        return SenderStatus.ACTIVE

    @property
    def _may_act(self) -> bool:
        return not self.outbox.is_full

    @property
    def _has_input(self) -> bool:
        """Whether there is something to take in, were there room for what comes of it."""
        return bool(self.inbound.queue)

    @property
    def _has_ended(self) -> bool:
        """Whether no input will come any more, replays aside."""
        return self.inbound.has_ended

    @property
    def _pending(self) -> int:
        """Messages whose fate is open."""
        return 0

    def _edges_are_open(self, now: float) -> None:  # noqa: B027
        """The out-edges of a new epoch have their opening frames: rows may follow."""

    def _run_user_mail(self, action: Callable[[], object]) -> None:
        """Run what user code has posted to this task."""
        action()

    def _act(self, now: float) -> None:
        """One default action."""
        head = self.inbound.head()
        if head is not None and self._may_act:
            edge, frame = head
            if self._process(edge, frame, now):
                self.inbound.done(edge, frame, now)

    def _flush(self, now: float) -> None:
        """Let out what is buffered."""
        self.outbox.flush()

    def _on_go(self, epoch: Epoch, now: float) -> None:  # noqa: B027
        """Every task is ready."""

    def _on_activate(self, active: bool, now: float) -> None:  # noqa: B027
        """The user pauses or resumes the topology."""

    def _on_dead_letters_stored(self, ids: Sequence[int], now: float) -> None:  # noqa: B027
        """Dead letters are on disk."""

    def _on_begin_checkpoint(self, event: BeginCheckpoint, now: float) -> None:  # noqa: B027
        """A checkpoint begins at the spouts."""

    def _snapshot(self, checkpoint: int) -> Snapshot:
        """Return what has to be remembered."""
        return Snapshot()

    @property
    def _has_passed_end(self) -> bool:
        """Whether readers have what came of the end of the input, so that a snapshot taken now is behind it."""
        return False

    def _publish(self, checkpoint: int, now: float) -> None:  # noqa: B027
        """Do what waited for the checkpoint."""

    def _opening_watermark(self) -> int:
        """The watermark that this task's output has reached before the epoch begins."""
        return MIN_WATERMARK

    def _close_component(self) -> None:  # noqa: B027
        """Call the user's last callback."""

    def _end_mails(self) -> None:
        """Refuse further mails, and run those that are there."""
        self.mailbox.quiesce()
        for mail in self.mailbox.drain():
            mail.run()

    def _deadlines(self, now: float) -> list[float | None]:
        flush, silence = self.outbound.deadlines()
        touch = None if silence is None or self._touch_interval_s is None else self._touch_at
        return [flush, silence, touch, self.reports.next_deadline, *self.inbound.deadlines()]

    def _levels(self) -> dict[str, float]:
        return {}

    def _latencies(self) -> dict[str, Any]:
        return {}

    # -- epochs ----------------------------------------------------------------------------------------------------------

    def _on_frame(self, event: FrameArrived, now: float) -> None:
        if not self.is_closed:
            self.inbound.receive(event.frame, event.inbox, now)

    def _on_routes(self, event: RoutesChanged, now: float) -> None:
        routes, state = event.routes, self.state
        if routes.epoch <= state.epoch or self.is_closed:
            return
        state.begin_epoch(routes.epoch, {route.task: route.incarnation for route in routes.routes}, event.local)
        self._quiet_reported = (False, False)
        if self._observer is not None:
            self._observer.routes_adopted(self.id, routes)
        self.inbound.begin_epoch()
        self.outbound.begin_epoch()
        is_readable = self.snapshots.load(routes)
        state.phase = TaskPhase.OPENING if is_readable else TaskPhase.UNREADABLE
        self._epoch_begins(now)
        if is_readable:
            self._begin(event, now)
        self.inbound.take_newer(now)

    def _begin(self, event: RoutesChanged, now: float) -> None:
        """Bring the user's component to where the epoch begins, and open the out-edges."""
        if self._is_open:
            self._reset(event, now)
        else:
            self._is_open = True
            self.reports.call_hooks("task_opens")
            self._open(event, now)
        self.outbound.send_opening(self._status(), self._opening_watermark())
        self._edges_are_open(now)
        if self.is_checkpointed and event.routes.checkpoint:
            self._on_checkpoint_complete(event.routes.checkpoint, now)
        self.inbound.report_ready()

    # -- checkpoints -----------------------------------------------------------------------------------------------------

    def _take_snapshot(self, checkpoint: int, waited_s: float, then: Callable[[], None]) -> None:
        """Take the snapshot of a checkpoint, whose first barrier has waited for the last; call `then` when it is stored."""
        self.snapshots.take(
            checkpoint, lambda: self._snapshot(checkpoint), has_ended=self._has_passed_end, waited_s=waited_s, then=then
        )

    def _on_checkpoint_complete(self, checkpoint: int, now: float) -> None:
        if not self.is_checkpointed or not self.state.is_working:
            return
        if self._observer is not None:
            self._observer.checkpoint_published(self.id, checkpoint)
        try:
            self._publish(checkpoint, now)
        except Exception as error:
            # Without an answer the master sends the message again.
            self.reports.record(error, now)
        else:
            self.reports.to_master(CheckpointPublished(task=self.id, epoch=self.state.epoch, checkpoint=checkpoint))

    # -- time ------------------------------------------------------------------------------------------------------------

    def _on_idle(self, now: float) -> None:
        if self.state.is_working:
            self._flush(now)
            self._watch_end()

    def _turn(self, now: float) -> None:
        """Do everything that is due, then one action.

        The letters say whose step it is: A all tasks, B bolts, H bolts that hold inputs, O operators, W tracked windows, Y async
        bolts, X batch bolts, S spouts, SC spouts with checkpoints, K ackers. Nothing happens before the component is open.

         1. O  processing-time timers become mails
         2. S  verdicts in the queue, before any timeout of this moment
         3. A  confirmations that are due
         4. A  FLUSH if the oldest buffered row is `flush_interval` old
         5. A  keep-alive confirmations to the senders of waiting frames
         6. A  touch: the timeouts of roots that wait on out-edges begin anew
         7. A  error reports that are due
         8. A  receivers that are silent for too long
         9. A  dead in-edges, again
        10. B  FLUSH if ids have been owed for `flush_interval`
        11. B  the tick: a user call, settled, then ids if they are due
        12. B  event time by the interval of the watermark strategy
            S  timeouts, positions to commit, event time, the watch for a stall
            K  expired trees, then verdicts that are due
        13. H  inputs still held `message_timeout` after the end are given up; W firings without verdict expire
        14. A  a batch of mails, if there are any, then the action:
               B  the head frame: a slice of its rows (RUN), or OPEN, END, event time, a barrier; then its confirmation
               X  a batch that is ready goes before input; BARRIER and END wait until nothing is held
               S  callbacks, rows that callbacks emitted, a replay or else a burst, END (SC: acks of covered messages first)
               K  all frames of the queue, then verdicts if a batch of them may be there
        15. O  settle, ids if they are due; Y END when the last call is done

        RUN     H restored inputs; user calls; SETTLE; then user errors are reported, which may end the process
        SETTLE  timestamps read; per stream: the strategy sees the rows, then they are routed; acks, fails, touches folded
        FLUSH   rows; then causes to the master; then FAIL, ACK, RESET (S: FAIL, INIT; K: verdicts, before rows)
        """
        if not self.state.is_working:
            return
        self.state.now = now
        self._run_due(now)
        if self.mailbox.may_have_mail:
            self.mailbox.run_batch()
        self._act(self.state.now)

    def _run_due(self, now: float) -> None:
        inbound = self.inbound
        inbound.confirm_due(now)
        if self.outbound.is_flush_due(now):
            self._flush(now)
        inbound.keep_alive(now)
        interval = self._touch_interval_s
        if interval is not None and now >= self._touch_at:
            self._touch_at = now + interval
            roots = self.outbox.waiting_roots(now - interval)
            if self._is_held_up:
                roots.update(self._held_roots())
            if roots:
                self._keep_waiting(roots)
        self.reports.on_time(now)
        self.outbound.report_silent_receiver(now)
        inbound.report_dead_edges(now)

    @property
    def _is_held_up(self) -> bool:
        """Whether what this task holds waits for others, or for work before it, and not for input that has not come."""
        return self.outbox.is_full

    def _held_roots(self) -> dict[int, None]:
        """Return the roots of inputs that this task holds until more input comes, or until they are due."""
        return {}

    def _keep_waiting(self, roots: dict[int, None]) -> None:  # noqa: B027
        """Have the timeouts of roots begin anew: tuples of them wait on or before edges of this task, so they are not lost."""

    def _note_blocked(self, now: float) -> None:
        """Count the time since the last call if the task was blocked then, and note whether it is now."""
        if self._blocked_since is not None:
            self.counters.blocked_s += now - self._blocked_since
        self._blocked_since = now if not self._may_act and self._has_input else None

    # -- the end ---------------------------------------------------------------------------------------------------------

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is in hand and everything sent has been processed by its receivers."""
        return self.inbound.is_empty and self.outbox.is_quiet and not self._pending

    def _watch_end(self) -> None:
        facts = (self._has_ended, self.is_quiet)
        if facts != self._quiet_reported and (facts == (True, True) or self._quiet_reported[1]):
            self._report_quiet(0)

    def _report_quiet(self, probe: int) -> None:
        facts = (self._has_ended, self.is_quiet)
        self._quiet_reported = facts
        self.reports.to_master(
            Quiet(
                task=self.id,
                epoch=self.state.epoch,
                probe=probe,
                ended=facts[0],
                quiet=facts[1],
                sent=self.outbox.sent,
                received=self.inbound.received,
                pending=self._pending,
                why=self._why_not_quiet(),
            )
        )

    def _why_not_quiet(self) -> str:
        if self.inbound.waiting:
            return f"{self.inbound.waiting} frames to process"
        if self._pending:
            return f"{self._pending} messages pending"
        return "" if self.outbox.is_quiet else "frames not confirmed by their receivers"

    def _on_close(self, now: float) -> None:
        if not self.is_closed:
            self.state.phase = TaskPhase.CLOSED
            self.inbound.queue.clear()
            if self._is_open:
                for step in (self._end_mails, self._close_component, self.mailbox.close):
                    try:
                        step()
                    except Exception as error:
                        # It may have held back what it was to write now, and nothing is replayed.
                        self.counters.lost_results += 1
                        self.reports.record(error, now)
                self.reports.call_hooks("task_closes")
            self.reports.flush(now)
            self.reports.to_master(Closed(task=self.id))
