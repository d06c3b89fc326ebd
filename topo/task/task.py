"""A task as a state machine: edges, epochs, confirmations and the user's component. Spouts, bolts and ackers build on it.

What a task knows: the plan, the routes of its epoch, what it has received and not processed, what it has sent and not seen
confirmed. What it must not know: sockets, threads, the wall clock, other tasks' insides.

Life in an epoch:

    adopt       a RoutesChanged with a higher epoch: everything in flight is dropped, every out-edge begins with an OPEN frame
    opening     until the OPEN frame of every in-edge is processed; then the master is told TaskReady
    running     frames are processed one at a time, in order of arrival; each is confirmed to its sender when it is done
    (dead edge) a gap in an edge's numbers: the master is told EdgeLost until it raises the epoch

Frames of an older epoch, or of an incarnation that the routes do not name, are dropped and counted. A frame of a *newer* epoch
is held unread, and no more data is taken, until this task has adopted that epoch too.
"""

from __future__ import annotations

import gc
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, ClassVar

from topo.checkpoint.alignment import Snapshot, SnapshotStore, StoredPart
from topo.errors import CheckpointDamaged, EnvironmentFault, FrameError, FrameworkBug, SinkStuck, StagedRowsLost, TopoError
from topo.ids import Epoch, Incarnation, TaskId
from topo.operators.mailbox.executor import CALL_PRIORITY, MailboxExecutor
from topo.operators.mailbox.mailbox import RejectedExecution, TaskMailbox
from topo.task.commands import SendFrame, TaskCommand, TellMaster
from topo.task.environment import TaskEnvironment, TaskSpec
from topo.task.events import FrameArrived, Idle, Inbox, RoutesChanged, TaskEvent, Turn
from topo.task.flow_control import UNLIMITED_WINDOW, Arrival, EdgeStatus, InEdge, OutEdge
from topo.task.outbox import Outbox
from topo.task.process_faults import is_process_fault
from topo.tracking.failure_causes import FailureCauses
from topo.user_errors import CaughtError, ErrorBook
from topo.wire.batcher import PIECES
from topo.wire.control import (
    Activate,
    BeginCheckpoint,
    CheckpointComplete,
    CheckpointPublished,
    Close,
    Closed,
    ComponentError,
    Deactivate,
    DeadLettersStored,
    Drain,
    EdgeLost,
    Go,
    Probe,
    Quiet,
    RestoreFailed,
    Routes,
    SnapshotFailed,
    SnapshotTaken,
    TaskReady,
)
from topo.wire.frames import MIN_WATERMARK, Frame, FrameKind, SenderStamp, SenderStatus, confirm_frame, encode, open_frame, parse
from topo.wire.statistics import Counters, TaskStatistics

CONFIRM_DELAY_S = 0.01
"""How long a confirmation may wait for others to join it. A quarter of a window is confirmed at once, so no sender waits."""
KEEP_ALIVE_S = 1.0
"""How often a receiver that has frames in its queue tells their sender that it still works on them."""
EDGE_LOST_REPEAT_S = 1.0
TOUCHES = 4
"""How often, within `message_timeout`, the timeout of a message begins anew while one of its tuples waits on an edge."""
UNWATCHED_SILENCE_S = 3600.0
"""How long a receiver may be silent when `progress_timeout` is off: then user code may take as long as it likes."""


class Task(ABC):
    """Base of the three kinds of task."""

    ACCEPTS: ClassVar[frozenset[FrameKind]]
    """What may come on its in-edges; anything else is malformed."""
    REST_S: ClassVar[float] = 0.0
    """How long what arrives may lie unread once the task has gone idle, so that more comes with it."""

    def __init__(self, setup: TaskSpec, ports: TaskEnvironment) -> None:
        self.id = setup.task
        self.plan = setup.plan
        self.config = setup.config
        self.context = setup.context
        self._hooks = setup.hooks
        self.ports = ports
        self._observer = ports.observer
        spec = setup.plan.task(setup.task)
        self.component_id = spec.component
        self.consumers = tuple(target for target in self.plan.downstream_tasks(self.id) if target not in self.plan.ackers)
        self.worker = self.plan.worker_of(self.id)
        self.is_checkpointed = self.config.delivery == "exactly_once" and self.id not in self.plan.ackers
        self.restored: list[Snapshot] = []
        """What this epoch begins with, of each task that it is taken over from."""
        self._is_unreadable = False
        """Whether that could not be read: then no call reaches the user's component until other Routes come."""
        self._restore_point = 0
        """The checkpoint that this epoch begins with; 0: none."""
        self._restored_ended = False
        """Whether that was taken behind the end of this task's input."""
        self.epoch = Epoch(0)
        self.incarnation = Incarnation(0)
        self.counters = Counters()
        self.inputs: dict[TaskId, InEdge] = {}
        self.queue: deque[tuple[InEdge, Frame]] = deque()
        self.behind: deque[tuple[InEdge, Frame]] = deque()
        """Frames that wait behind a barrier, in order of arrival."""
        self.is_closed = False
        self.mailbox = TaskMailbox(wake=ports.wake, wait=ports.wait)
        self.executor = MailboxExecutor(self.mailbox)
        """For the task's own mails: only the main loop runs them, and an error ends the process."""
        object.__setattr__(self.context, "executor", MailboxExecutor(self.mailbox, CALL_PRIORITY, self._run_user_mail))
        self._now = 0.0
        self._busy_since = 0.0
        """When the work at hand began: at an arrival at an empty queue, or when the work before it was done."""
        timeout = self.plan.shortest_message_timeout_s if self.plan.ackers and not self.is_checkpointed else None
        self._touch_interval_s = timeout and timeout / TOUCHES
        self._touch_at = 0.0
        self._peers = frozenset([*self._edges_in(), *(target for target, _ in self._edges_out())])
        self._incarnations: Mapping[TaskId, Incarnation] = {}
        self._local: frozenset[TaskId] = frozenset()
        self._held: list[tuple[Frame, Inbox]] = []
        self._owing: dict[TaskId, InEdge] = {}
        self._confirm_at: float | None = None
        self._keep_alive_at = 0.0
        self._loss_repeat_at: float | None = None
        """When dead edges are reported again; None while there is none."""
        self._blocked_since: float | None = None
        self._ready_reported = False
        self._quiet_reported: tuple[bool, bool] = (False, False)
        self._received = 0
        self._is_open = False
        self._commands: list[TaskCommand] = []
        self._errors = ErrorBook(self._report_error)
        self._causes = FailureCauses(self.id, self.component_id)
        self.outbox = Outbox(
            ports.codec,
            self._commands,
            self._reject_row,
            lambda stream: self.plan.streams(self.component_id)[stream].fields,
            batch_size=self.config.batch_size,
            batch_bytes=self.config.batch_bytes,
            limit=self.config.outbox_limit,
            max_frame=self.config.max_frame_bytes,
            max_control_frame=self.config.max_control_frame_bytes,
            observer=ports.observer,
        )
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
        commands = self._commands[:]
        self._commands.clear()
        return commands

    def crashed(self, error: BaseException, now: float) -> list[TaskCommand]:
        """The task did not survive `error`: return what is still to be said."""
        self._commands.clear()
        self._record_error(error, now)
        self._errors.flush(now, all_of_them=True)
        self._report_causes()
        return self._commands[:]

    def cut_short(self) -> None:  # noqa: B027
        """Return from user code after the call at hand rather than make the next one; any thread may call it."""

    @property
    def wants_data(self) -> bool:
        """Whether the shell may read the data inbox for this task. What can arrive is bounded by the edges' windows."""
        return not self._held

    @property
    def has_work(self) -> bool:
        """Whether a Turn would do something now, without an arrival and before the next deadline."""
        return self._is_working and ((bool(self.queue) and self._may_act) or self.mailbox.may_have_mail)

    def next_deadline(self, now: float) -> float | None:
        """When the task wants a Turn if nothing arrives before, in monotonic seconds."""
        if not self._is_working:
            return None
        deadlines = [at for at in self._deadlines(now) if at is not None]
        return min(deadlines) if deadlines else None

    def statistics(self) -> TaskStatistics:
        """Return a snapshot of what the task has counted."""
        self.counters.frames_out = self.outbox.frames_out
        if self._blocked_since is not None:
            self._note_blocked(self.ports.clock())
        levels = {"queue": float(len(self.queue)), "outbox": float(self.outbox.waiting), **self._levels()}
        user = self.context.metrics.snapshot()
        return TaskStatistics(replace(self.counters), levels, self._latencies(), {"metrics": user})

    def validate(self) -> None:
        """Assert the invariants."""
        for out in self.outbox.edges.values():
            out.validate()
        for edge in self.inputs.values():
            edge.validate()
        assert self.outbox.waiting == sum(len(out.waiting) for out in self.outbox.edges.values())
        waiting = (*self.queue, *self.behind)
        assert all(edge is self.inputs.get(edge.sender) for edge, _ in waiting), "a frame of an edge of another epoch"
        assert all(edge.is_behind_barrier for edge, _ in self.behind), "a frame waits for no barrier"

    @property
    def _is_working(self) -> bool:
        """Whether the user's component is open, where the epoch begins or further."""
        return self._is_open and not self._is_unreadable and not self.is_closed

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
        return bool(self.queue)

    @property
    def _has_ended(self) -> bool:
        """Whether no input will come any more, replays aside."""
        return bool(self.inputs) and all(edge.status is EdgeStatus.FINISHED for edge in self.inputs.values())

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
        while self.queue and self.queue[0][0].is_behind_barrier:
            self.behind.append(self.queue.popleft())
        if self.queue and self._may_act:
            edge, frame = self.queue[0]
            if self._process(edge, frame, now):
                # A failing user callback may have ended the epoch's queue; look again.
                if self.queue and self.queue[0][1] is frame:
                    self.queue.popleft()
                self._processed(edge, frame, now)
                if self.behind and not self.behind[0][0].is_behind_barrier:
                    self._busy_since = self.ports.clock()
                    self.queue.extendleft(reversed(self.behind))
                    self.behind.clear()

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
        oldest = self.outbox.oldest
        flush = None if oldest is None else oldest + self.config.flush_interval_s
        silent = self.outbox.unconfirmed_since()
        lost = None if silent is None else silent[1] + self._silence_limit_s
        keep_alive = self._keep_alive_at if self.queue or self.behind else None
        touch = None if silent is None or self._touch_interval_s is None else self._touch_at
        return [flush, self._confirm_at, self._errors.next_deadline, lost, keep_alive, self._loss_repeat_at, touch]

    def _levels(self) -> dict[str, float]:
        return {}

    def _latencies(self) -> dict[str, Any]:
        return {}

    # -- frames ----------------------------------------------------------------------------------------------------------

    def _on_frame(self, event: FrameArrived, now: float) -> None:
        if self.is_closed:
            return
        frame = event.frame
        if not isinstance(frame, Frame):
            try:
                frame = parse(frame, self.config.max_frame_bytes)
            except FrameError:
                self.counters.malformed_frames += 1
                return
        self._take(frame, event.inbox, now)

    def _take(self, frame: Frame, inbox: Inbox, now: float) -> None:
        if frame.epoch < self.epoch:
            self.counters.stale_frames += 1
            return
        sender = TaskId(frame.sender)
        if frame.target != self.id or sender not in self._peers:
            self.counters.fenced_frames += 1
            return
        if frame.epoch > self.epoch:
            self._held.append((frame, inbox))
            if self._observer is not None:
                self._observer.frame_taken(self.id, frame, None)
            return
        if self._incarnations.get(sender) != frame.incarnation:
            self.counters.fenced_frames += 1
            return
        if frame.kind is FrameKind.CONFIRM:
            self.outbox.confirm(sender, frame.number, frame.mark)
            return
        edge = self.inputs.get(sender)
        if edge is None:
            self.counters.fenced_frames += 1
            return
        if frame.kind not in self.ACCEPTS:
            self.counters.malformed_frames += 1
            return
        arrival = edge.accept(frame.number)
        if self._observer is not None:
            self._observer.frame_taken(self.id, frame, arrival)
        if arrival is Arrival.NEXT:
            self.counters.frames_in += 1
            if not self.queue:
                self._busy_since = now
                if not self.behind:
                    self._keep_alive_at = now + KEEP_ALIVE_S
            self.queue.append((edge, frame))
        elif arrival is Arrival.DUPLICATE:
            self.counters.duplicate_frames += 1
        else:
            self.counters.gaps += 1
            if arrival is Arrival.GAP:
                self._edge_died(edge, f"frame {edge.expected} is missing, frame {frame.number} came", now)

    def _processed(self, edge: InEdge, frame: Frame, now: float) -> None:
        """Note that a frame is done, and confirm it soon."""
        if self._observer is not None:
            self._observer.frame_processed(self.id, frame)
        if self.inputs.get(edge.sender) is not edge:
            return
        edge.processed = frame.number
        self._received += 1
        self._owing[edge.sender] = edge
        if frame.kind is FrameKind.DATA:
            edge.owed_tuples += frame.count
        if self._is_confirmed_now(edge):
            self._confirm(edge)
            del self._owing[edge.sender]
        if self._owing and self._confirm_at is None:
            self._confirm_at = now + CONFIRM_DELAY_S

    def _is_confirmed_now(self, edge: InEdge) -> bool:
        """Whether a quarter of what the sender may have out is processed; and the first frame, which brings the first grant."""
        if edge.owes_confirmation >= max(1, self.config.edge_window // PIECES):
            return True
        granted = self._granted(edge)
        return granted > 0 and (edge.confirmed < 0 or edge.owed_tuples * PIECES >= granted)

    def _granted(self, edge: InEdge) -> int:
        """Return how many tuples the sender may have out; 0 where nothing bounds them but its window."""
        return 0

    def _confirm(self, edge: InEdge) -> None:
        edge.confirmed = edge.processed
        edge.owed_tuples = 0
        frame = confirm_frame(self._stamp, edge.sender, edge.processed, self._granted(edge))
        local = edge.sender in self._local
        self._commands.append(SendFrame(edge.sender, Inbox.CONTROL, frame if local else encode(frame)))

    def _opened(self, edge: InEdge, frame: Frame) -> None:
        edge.status = {
            SenderStatus.ACTIVE: EdgeStatus.ACTIVE,
            SenderStatus.IDLE: EdgeStatus.IDLE,
            SenderStatus.FINISHED: EdgeStatus.FINISHED,
        }[frame.status]
        edge.watermark = frame.mark
        self._report_ready()

    def _report_ready(self) -> None:
        if not self._ready_reported and all(edge.status is not EdgeStatus.OPENING for edge in self.inputs.values()):
            self._ready_reported = True
            self._report_to_master(TaskReady(task=self.id, epoch=self.epoch))

    # -- epochs ----------------------------------------------------------------------------------------------------------

    @property
    def _stamp(self) -> SenderStamp:
        return SenderStamp(self.epoch, self.id, self.incarnation)

    @property
    def _silence_limit_s(self) -> float:
        return (self.config.progress_timeout_s or UNWATCHED_SILENCE_S) + KEEP_ALIVE_S

    def _on_routes(self, event: RoutesChanged, now: float) -> None:
        routes = event.routes
        if routes.epoch <= self.epoch or self.is_closed:
            return
        self._incarnations = {route.task: route.incarnation for route in routes.routes}
        self.incarnation = self._incarnations[self.id]
        self._local = event.local
        self.queue.clear()
        self.behind.clear()
        self._owing.clear()
        self._confirm_at = self._loss_repeat_at = None
        self._ready_reported = False
        self._quiet_reported = (False, False)
        self._received = 0
        self.epoch = routes.epoch
        if self._observer is not None:
            self._observer.routes_adopted(self.id, routes)
        self.inputs = {sender: InEdge(sender) for sender in self._edges_in()}
        self.outbox.open(self._stamp, [self._out_edge(target, control) for target, control in self._edges_out()])
        self._load_snapshot(routes)
        self._epoch_begins(now)
        if not self._is_unreadable:
            self._begin(event, now)
        held, self._held = self._held, []
        for frame, inbox in held:
            self._take(frame, inbox, now)

    def _begin(self, event: RoutesChanged, now: float) -> None:
        """Bring the user's component to where the epoch begins, and open the out-edges."""
        if self._is_open:
            self._reset(event, now)
        else:
            self._is_open = True
            self._call_hooks("task_opens")
            self._open(event, now)
        status, watermark = self._status(), self._opening_watermark()
        for target in self.outbox.edges:
            self.outbox.signal(target, lambda stamp, to, _number: open_frame(stamp, to, status, watermark))
        self._edges_are_open(now)
        if self.is_checkpointed and event.routes.checkpoint:
            self._on_checkpoint_complete(event.routes.checkpoint, now)
        self._report_ready()

    def _out_edge(self, target: TaskId, control: bool) -> OutEdge:
        window = UNLIMITED_WINDOW if control else self.config.edge_window
        return OutEdge(target, window, local=target in self._local, inbox_is_control=control)

    # -- checkpoints -----------------------------------------------------------------------------------------------------

    @property
    def _store(self) -> SnapshotStore:
        if self.ports.snapshots is None:
            raise FrameworkBug("a checkpoint without a place to store it")
        return self.ports.snapshots

    def _load_snapshot(self, routes: Routes) -> None:
        """Read what the epoch begins with."""
        self._restore_point = routes.checkpoint
        self._restored_ended = self.is_checkpointed and self.id in routes.ended
        parts = routes.restore.get(self.id, []) if self.is_checkpointed else []
        self.restored = []
        self._is_unreadable = False
        if parts:
            try:
                self.restored = self._store.read(routes.folder, routes.checkpoint, parts)
            except TopoError as error:
                # Never ready: it waits for other Routes.
                self._is_unreadable = True
                is_transient = isinstance(error, EnvironmentFault) and not isinstance(error, CheckpointDamaged)
                self._report_to_master(RestoreFailed(self.id, self.epoch, routes.checkpoint, str(error), is_transient))

    def _take_snapshot(self, checkpoint: int, waited_s: float, then: Callable[[], None], now: float) -> None:
        """Take the snapshot of a checkpoint; when it is stored, tell the master and call `then`.

        Args:
            checkpoint: which.
            waited_s: how long the first barrier has waited for the last.
            then: called on the task's thread, in the same epoch only.
            now: monotonic seconds.
        """
        epoch, clock, has_ended = self.epoch, self.ports.clock, self._has_passed_end
        began = clock()
        if self._observer is not None:
            self._observer.snapshot_taken(self.id, checkpoint)

        def failed(error: Exception) -> None:
            if is_process_fault(error):
                # No later snapshot of this process would fare better.
                raise error
            # Why the storage failed is in the master's report of the checkpoint, if that has not been given up already.
            if not isinstance(error, EnvironmentFault):
                self._record_error(error, clock())
            self._report_to_master(SnapshotFailed(task=self.id, epoch=epoch, checkpoint=checkpoint, why=str(error)))

        def settle(part: StoredPart | None, error: Exception | None) -> None:
            if self.epoch != epoch:
                return
            if part is None:
                failed(error or FrameworkBug("a snapshot was stored nowhere"))
                return
            self._report_to_master(
                SnapshotTaken(
                    task=self.id,
                    epoch=epoch,
                    checkpoint=checkpoint,
                    file=part.file,
                    length=part.length,
                    checksum=part.checksum,
                    alignment_ms=waited_s * 1000,
                    pause_ms=pause_s * 1000,
                    duration_ms=(clock() - began) * 1000,
                    ended=has_ended,
                )
            )
            then()

        def stored(part: StoredPart | None, error: Exception | None) -> None:
            with suppress(RejectedExecution):
                self.executor.execute(lambda: settle(part, error), "a snapshot is stored")

        collects = gc.isenabled()
        gc.disable()  # what is copied is garbage only when it is written, and looking for it doubles the pause
        try:
            snapshot = self._snapshot(checkpoint)
        except SinkStuck:
            raise
        except Exception as error:
            failed(error)
            return
        finally:
            if collects:
                gc.enable()
        pause_s = clock() - began
        self._store.write(checkpoint, snapshot, stored)

    def _on_checkpoint_complete(self, checkpoint: int, now: float) -> None:
        if not self.is_checkpointed or not self._is_working:
            return
        if self._observer is not None:
            self._observer.checkpoint_published(self.id, checkpoint)
        try:
            self._publish(checkpoint, now)
        except Exception as error:
            # Not told: the master tells of the checkpoint again.
            self._record_error(error, now)
        else:
            self._report_to_master(CheckpointPublished(task=self.id, epoch=self.epoch, checkpoint=checkpoint))

    # -- time ------------------------------------------------------------------------------------------------------------

    def _on_idle(self, now: float) -> None:
        if self._is_working:
            self._flush(now)
            self._watch_end()

    def _turn(self, now: float) -> None:
        if not self._is_working:
            return
        self._now = now
        self._run_due(now)
        if self.mailbox.may_have_mail:
            self.mailbox.run_batch()
        self._act(self._now)

    def _run_due(self, now: float) -> None:
        if self._confirm_at is not None and now >= self._confirm_at:
            self._confirm_at = None
            for edge in self._owing.values():
                self._confirm(edge)
            self._owing.clear()
        oldest = self.outbox.oldest
        if oldest is not None and now >= oldest + self.config.flush_interval_s:
            self._flush(now)
        if (self.queue or self.behind) and now >= self._keep_alive_at:
            self._keep_alive_at = now + KEEP_ALIVE_S
            for edge in {edge.sender: edge for edge, _ in (*self.queue, *self.behind)}.values():
                self._confirm(edge)
        interval = self._touch_interval_s
        if interval is not None and now >= self._touch_at:
            self._touch_at = now + interval
            roots = self.outbox.waiting_roots(now - interval)
            if self._is_held_up:
                roots.update(self._held_roots())
            if roots:
                self._keep_waiting(roots)
        self._errors.flush(now)
        silent = self.outbox.unconfirmed_since()
        if silent is not None and now >= silent[1] + self._silence_limit_s:
            target, since = silent
            self.outbox.edges[target].unconfirmed_since = now
            self._report_lost(target, f"task {target} confirmed nothing for {now - since:.0f} s")
        if self._loss_repeat_at is not None and now >= self._loss_repeat_at:
            self._loss_repeat_at = now + EDGE_LOST_REPEAT_S
            for edge in self.inputs.values():
                if edge.status is EdgeStatus.DEAD:
                    self._report_lost(edge.sender, "frames were lost")

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

    def _edge_died(self, edge: InEdge, why: str, now: float) -> None:
        """Process nothing more on an edge, and report it until the epoch changes."""
        edge.status = EdgeStatus.DEAD
        self._report_lost(edge.sender, why)
        self._loss_repeat_at = now + EDGE_LOST_REPEAT_S

    def _report_lost(self, peer: TaskId, why: str) -> None:
        self._report_to_master(EdgeLost(task=self.id, epoch=self.epoch, sender=peer, why=why))

    # -- the end ---------------------------------------------------------------------------------------------------------

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is in hand and everything sent has been processed by its receivers."""
        return not self.queue and not self.behind and not self._held and self.outbox.is_quiet and not self._pending

    def _watch_end(self) -> None:
        facts = (self._has_ended, self.is_quiet)
        if facts != self._quiet_reported and (facts == (True, True) or self._quiet_reported[1]):
            self._report_quiet(0)

    def _report_quiet(self, probe: int) -> None:
        facts = (self._has_ended, self.is_quiet)
        self._quiet_reported = facts
        self._report_to_master(
            Quiet(
                task=self.id,
                epoch=self.epoch,
                probe=probe,
                ended=facts[0],
                quiet=facts[1],
                sent=self.outbox.sent,
                received=self._received,
                pending=self._pending,
                why=self._why_not_quiet(),
            )
        )

    def _why_not_quiet(self) -> str:
        if self.queue or self.behind:
            return f"{len(self.queue) + len(self.behind)} frames to process"
        if self._pending:
            return f"{self._pending} messages pending"
        return "" if self.outbox.is_quiet else "frames not confirmed by their receivers"

    def _on_close(self, now: float) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.queue.clear()
            if self._is_open:
                for step in (self._end_mails, self._close_component, self.mailbox.close):
                    try:
                        step()
                    except Exception as error:
                        # It may have held back what it was to write now, and nothing comes again.
                        self.counters.lost_results += 1
                        self._record_error(error, now)
                self._call_hooks("task_closes")
            self._errors.flush(now, all_of_them=True)
            self._report_to_master(Closed(task=self.id))

    # -- talk ------------------------------------------------------------------------------------------------------------

    def _report_to_master(self, message: Any) -> None:
        self._commands.append(TellMaster(message))

    def _report_causes(self) -> None:
        """Tell why roots have failed; to be called before their FAIL leaves."""
        if (told := self._causes.take()) is not None:
            self._report_to_master(told)

    def _record_error(self, error: BaseException, now: float) -> None:
        self.counters.errors += 1
        self._errors.record(error, now)
        self._call_hooks("error", error)

    def _call_hooks(self, what: str, *about: object) -> None:
        for raised in self._hooks.call(what, self.context, *about):
            self._errors.record(raised, self.ports.clock())

    def _report(self, error: BaseException) -> None:
        self.counters.lost_results += isinstance(error, StagedRowsLost)
        self._record_error(error, self.ports.clock())

    def _report_error(self, caught: CaughtError) -> None:
        self._report_to_master(
            ComponentError(
                task=self.id,
                component=self.component_id,
                kind=caught.kind,
                message=caught.message,
                traceback=caught.trace,
                file=caught.file,
                line=caught.line,
                count=caught.count,
                at_ms=self.ports.wall_ms(),
            )
        )
