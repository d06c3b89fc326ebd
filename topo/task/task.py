"""A task as a state machine: the same for spouts, bolts and ackers.

A task knows the plan, the routes of its epoch, the frames that it has not processed, and those that its receivers have not
confirmed. It knows no sockets, no threads, no wall clock, and nothing of other tasks' insides. It has

    a `Runner`      the work of its kind of component: calls of user code, or the trees of an acker
    a `Guarantee`   the delivery mode: values owed to ackers, checkpoints, or neither
    `TaskParts`     the parts of every task: state, inbound, outbound, reports, snapshots, mailbox

and decides alone in which order these are called.

An epoch begins with a RoutesChanged of a higher number: everything in flight is dropped, and every out-edge begins with an OPEN
frame. When the OPEN frame of every in-edge is processed, the task reports TaskReady.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, final

from topo.ids import Epoch, TaskId
from topo.task.commands import TaskCommand
from topo.task.events import FrameArrived, Idle, RoutesChanged, TaskEvent, Turn
from topo.task.guarantees.base import Guarantee
from topo.task.observer import TaskObserver
from topo.task.parts import TaskParts
from topo.task.runners.base import Runner, UserRunner
from topo.task.state import TaskPhase
from topo.wire.control import CheckpointComplete, Close, Closed, Probe, Quiet
from topo.wire.statistics import EdgeFigures, TaskStatistics


@final
class Task:
    """One task.

    Args:
        parts: what every task has.
        runner: of its kind of component.
        guarantee: of the topology's delivery mode.
        user: the runner, where it runs user code.
        rest_s: how long what arrives may lie unread once the task has gone idle, so that more comes with it.
    """

    def __init__(
        self, parts: TaskParts, runner: Runner, guarantee: Guarantee, *, user: UserRunner | None = None, rest_s: float = 0.0
    ) -> None:
        state = self.state = parts.state
        self.id = state.id
        self.component_id = state.component_id
        self.plan = state.plan
        self.config = state.config
        self.counters = state.counters
        self.runner = runner
        self.guarantee = guarantee
        self.inbound = parts.inbound
        self.outbound = parts.outbound
        self.reports = parts.reports
        self.rest_s = rest_s
        self._user = user
        self._id_sender = guarantee.id_sender
        self._checks = parts.checks
        self.mailbox = parts.mailbox
        self.taps = parts.taps
        self._snapshots = parts.snapshots
        self._cuts = parts.cuts
        self._metrics = parts.spec.context.metrics
        self._readers: dict[str, list[TaskId]] = {}
        """The tasks that read the output, by component."""
        for target in self.outbound.consumers:
            self._readers.setdefault(self.plan.task(target).component, []).append(target)
        self._is_open = False
        """Whether the component has been opened in this process."""
        self._blocked_since: float | None = None
        self._quiet_reported: tuple[bool, bool] = (False, False)
        self._handlers: dict[type, Callable[[Any, float], None]] = {
            FrameArrived: self._on_frame,
            Turn: lambda _event, now: self.turn(now),
            Idle: self._on_idle,
            RoutesChanged: self._on_routes,
            Probe: lambda event, _now: self._report_quiet(event.number),
            Close: lambda _event, now: self.close(now),
            **guarantee.messages,
            **({} if user is None else user.messages),
        }

    # -- the only way in -------------------------------------------------------------------------------------------------

    def handle(self, event: TaskEvent, now: float) -> list[TaskCommand]:
        """Take an event at `now` (monotonic seconds); return the commands to perform, in order."""
        self.outbound.outbox.now = now
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(event, now)
        user = self._user
        if user is not None and (self._blocked_since is not None or user.is_blocked):
            self._note_blocked(user, now)
        commands = self.state.commands[:]
        self.state.commands.clear()
        return commands

    def crashed(self, error: BaseException, now: float) -> list[TaskCommand]:
        """The task did not survive `error`: return its last reports."""
        self.state.commands.clear()
        self.reports.record(error, now)
        self.reports.flush(now)
        self.reports.flush_causes()
        return self.state.commands[:]

    def cut_short(self) -> None:
        """Return from user code after the call at hand rather than make the next one; any thread may call it."""
        for cut in self._cuts:
            cut()

    @property
    def has_work(self) -> bool:
        """Whether a Turn would do something now, without an arrival and before the next deadline."""
        return self.state.is_working and (self.runner.has_work or self.mailbox.may_have_mail)

    def next_deadline(self, now: float) -> float | None:
        """When the task wants a Turn if nothing arrives before, in monotonic seconds."""
        if not self.state.is_working:
            return None
        sending, receiving = self.outbound.deadlines(), self.inbound.deadlines()
        deadlines = [*sending, *receiving, *self.reports.deadlines(), *self.runner.deadlines(now)]
        return min([at for at in deadlines if at is not None], default=None)

    def statistics(self) -> TaskStatistics:
        """Return a snapshot of the task's counters and levels."""
        outbox = self.outbound.outbox
        outbox.now = self.state.clock()
        self.counters.frames_out = outbox.frames_out
        if self._user is not None and self._blocked_since is not None:
            self._note_blocked(self._user, self.state.clock())
        levels = {"queue": float(len(self.inbound.queue)), "outbox": float(outbox.waiting)}
        levels |= self.runner.levels()
        latencies = {} if self._user is None else self._user.latencies()
        user = {"metrics": self._metrics.snapshot()}
        return TaskStatistics(replace(self.counters), levels, latencies, user, self._edges(), self.inbound.watermarks_by_source())

    def _edges(self) -> dict[str, EdgeFigures]:
        """Return the figures of the out-edges by the component that they lead to."""
        outbox = self.outbound.outbox
        return {component: outbox.edge_figures(*targets) for component, targets in self._readers.items()}

    def observed_by(self, observer: TaskObserver | None, lookout: TaskObserver | None = None) -> None:
        """Have an observer watch the task from now on; None ends it. A lookout is called for frames taken and roots drawn."""
        self.state.observer = self.outbound.outbox.observer = observer
        self.state.lookout = lookout or observer

    def validate(self) -> None:
        self.outbound.validate()
        self.inbound.validate()
        for check in self._checks:
            check()

    @property
    def epoch(self) -> Epoch:
        """The epoch of the routes at hand."""
        return self.state.epoch

    @property
    def is_closed(self) -> bool:
        """Whether the component is closed."""
        return self.state.phase is TaskPhase.CLOSED

    @property
    def is_quiet(self) -> bool:
        """Whether no work is left and everything sent has been processed by its receivers."""
        is_quiet = self.has_passed_on and self.outbound.outbox.is_quiet
        return is_quiet and (self._id_sender is None or self._id_sender.is_quiet)

    @property
    def has_passed_on(self) -> bool:
        """Whether no work is left and everything has been sent, confirmed or not."""
        user, is_empty = self._user, self.inbound.is_empty and self.outbound.outbox.has_left
        return is_empty and (user is None or not (user.pending or user.unfinished()))

    @property
    def _has_ended(self) -> bool:
        return self._user is None or self._user.has_ended

    # -- a turn ----------------------------------------------------------------------------------------------------------

    def turn(self, now: float) -> None:
        """Do everything that is due, then one action. Nothing happens before the component is open.

        1. confirmations that are due
        2. FLUSH, if the oldest buffered row is `flush_interval` old
        3. keep-alive confirmations to the senders of waiting frames
        4. error reports that are due; receivers that are silent for too long; dead in-edges, again
        5. the runner has its guarantee act by the clock: roots that wait on edges are kept from timing out; values owed for
           `flush_interval` leave, and so do the verdicts of an acker; a source takes its verdicts, then its messages time out,
           and its positions are committed
        6. the runner: ticks, timers (which become mails), event time by the interval of the watermark strategy, expired trees
        7. a batch of mails, if there are any
        8. the runner acts: a slice of input (one frame, or several small ones) or another frame; a burst of messages;
           all frames of an acker

        SLICE of input: mark it as in flight, call user code, settle, clear the mark, FLUSH if it is due.
        SETTLE: read timestamps, route the rows of each stream, then account for inputs; report errors of user code last.
        FLUSH: rows first, then ids; causes to the master ahead of the FAILs.
        BARRIER on all edges: settle, send all rows, take the snapshot, send the barrier on; ack it when the snapshot is stored.
        """
        state, inbound, outbound = self.state, self.inbound, self.outbound
        if not state.is_working:
            return
        state.now = now
        # Confirmations first: their receivers have room again while this task is in user code, which may take long.
        inbound.confirm_due(now)
        if outbound.is_flush_due(now):
            self.guarantee.flush(now)
        inbound.keep_alive(now)
        self.reports.on_time(now)
        outbound.report_silent_receiver(now)
        inbound.report_dead_edges(now)
        if self._user is not None and self._blocked_since is not None:
            # The runner counts it as time of its input.
            self._note_blocked(self._user, now)
        # Timers become mails, so those that are due run before further input, as their time comes before it.
        self.runner.on_time(now)
        if self.mailbox.may_have_mail:
            self.mailbox.run_batch()
        self.runner.act(state.now)

    def _on_idle(self, event: Idle, now: float) -> None:
        """Nothing is left to do or to read: send all rows that are buffered, and the ids that should not wait."""
        if self.state.is_working:
            has_ended, was_quiet = self._has_ended, self._quiet_reported[1]
            if event.ids_may_wait and not has_ended:
                self.outbound.on_idle()
                if self._id_sender is not None:
                    self._id_sender.on_idle(now)
            else:
                self.guarantee.flush(now)
            if has_ended or was_quiet:
                facts = (has_ended, self.is_quiet)
                if facts != self._quiet_reported and (facts == (True, True) or was_quiet):
                    self._report_quiet(0)

    def _note_blocked(self, user: UserRunner, now: float) -> None:
        """Count the time since the last call if the task was blocked then, and note whether it is now."""
        if self._blocked_since is not None:
            self.counters.blocked_s += now - self._blocked_since
        self._blocked_since = now if user.is_blocked else None

    # -- epochs ----------------------------------------------------------------------------------------------------------

    def _on_frame(self, event: FrameArrived, now: float) -> None:
        if not self.is_closed:
            self.inbound.receive(event.frame, now)

    def _on_routes(self, event: RoutesChanged, now: float) -> None:
        """Drop everything in flight; bring the component to where the epoch begins; open the edges."""
        routes, state = event.routes, self.state
        if routes.epoch <= state.epoch or self.is_closed:
            return
        state.begin_epoch(routes.epoch, {route.task: route.incarnation for route in routes.routes}, event.local)
        self._quiet_reported = (False, False)
        if state.observer is not None:
            state.observer.routes_adopted(self.id, routes)
        self.inbound.begin_epoch()
        self.outbound.begin_epoch()
        is_readable = self._snapshots.load(routes)
        state.enter(TaskPhase.OPENING if is_readable else TaskPhase.UNREADABLE)
        # Before the runner, which opens the out-edges with the watermark that the guarantee has restored.
        self.guarantee.begin_epoch(event, now)
        # With an unreadable part user code is not called at all: a sink that is begun without it would remove its staged rows.
        if is_readable:
            self._begin_epoch(event, now)
        # Frames of this epoch that have overtaken its routes.
        self.inbound.take_newer(now)

    def _begin_epoch(self, event: RoutesChanged, now: float) -> None:
        is_first = not self._is_open
        if is_first:
            self._is_open = True
            self.reports.call_hooks("task_opens")
        self.runner.begin_epoch(event, now, is_first=is_first)
        complete = self._handlers.get(CheckpointComplete)
        if complete is not None and event.routes.checkpoint:
            # The routes may be the first to say that it is complete.
            complete(CheckpointComplete(event.routes.checkpoint), now)
        self.inbound.report_ready()

    # -- the end ---------------------------------------------------------------------------------------------------------

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
                sent=self.outbound.outbox.sent,
                received=self.inbound.received,
                pending=0 if self._user is None else self._user.pending,
                why=self._why_not_quiet(),
                refused="" if self._user is None else self._user.refusal(),
            )
        )

    def _why_not_quiet(self) -> str:
        if self.inbound.waiting:
            return f"{self.inbound.waiting} frames to process"
        user = self._user
        if user is not None and user.pending:
            return f"{user.pending} messages pending"
        if not self.outbound.outbox.is_quiet:
            return "frames not confirmed by their receivers"
        return "" if user is None else user.unfinished()

    def close(self, now: float) -> None:
        """Run the mails that are there, refuse others, and close the component."""
        if self.is_closed:
            return
        self.state.enter(TaskPhase.CLOSED)
        self.inbound.queue.clear()
        if self._is_open:
            for step in (self._end_mails, *([] if self._user is None else [self._user.close]), self.mailbox.close):
                try:
                    step()
                except Exception as error:
                    # It may have held back rows that it was to write now, and nothing is replayed.
                    self.counters.lost_results += 1
                    self.reports.record(error, now)
            self.reports.call_hooks("task_closes")
        self.reports.flush(now)
        self.reports.to_master(Closed(task=self.id))

    def _end_mails(self) -> None:
        self.mailbox.quiesce()
        for mail in self.mailbox.drain():
            mail.run()
