"""The receiving half of a task: in-edges, the queue of frames, confirmations, barriers, and event time of the input.

Frames are processed in order of arrival, each is confirmed to its sender once it is processed. Three things change that order:

    newer epoch     a frame of an epoch that this task has not adopted is held unread until the routes come
    barrier         frames of an edge whose barrier has come wait behind it until the barrier has come on all edges
    dead edge       after a gap in its numbers no more of an edge is processed; the master gets reports until the epoch changes

Frames of an older epoch, or of an incarnation that the routes do not name, are dropped and counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import cast

from topo.checkpoint.alignment import Aligned, Alignment
from topo.errors import FrameError
from topo.hot import Column
from topo.ids import TaskId
from topo.operators.time.watermarks import InputStatus, WatermarkCombiner
from topo.task.allowance import Allowance
from topo.task.commands import SendFrame
from topo.task.error_reports import Reports
from topo.task.flow_control import Arrival, EdgeStatus, InEdge
from topo.task.state import TaskPhase, TaskState
from topo.wire.batcher import PIECES
from topo.wire.control import TaskReady
from topo.wire.frames import MAX_WATERMARK, MIN_WATERMARK, Frame, FrameKind, SenderStatus, confirm_frame, encode, parse

CONFIRM_DELAY_S = 0.01
"""How long after the last frame of a row of frames they are confirmed, so that the last ones wait no longer."""
LATEST_CONFIRM_S = 0.04
"""How long a confirmation may wait for others to join it. A quarter of a window is confirmed at once, so no sender waits."""
KEEP_ALIVE_S = 1.0
"""Interval at which a receiver repeats its confirmations while frames wait in its queue."""
EDGE_LOST_REPEAT_S = 1.0

_STATUS = {
    SenderStatus.ACTIVE: EdgeStatus.ACTIVE,
    SenderStatus.IDLE: EdgeStatus.IDLE,
    SenderStatus.FINISHED: EdgeStatus.FINISHED,
}


class Inbound:
    """All edges that lead to one task.

    Args:
        state: of the task.
        reports: of the task.
        senders: of all in-edges; ackers among them send verdicts, the others data.
        receivers: the tasks that confirm frames to this one.
        accepts: kinds of frames that may come; anything else is malformed.
        confirmed: takes the confirmation of a receiver: task, number, allowance, load of its worker.

    Attributes:
        edges: by sender; made again in every epoch.
        queue: frames to process, in order of arrival.
        behind: frames that wait behind a barrier, in order of arrival.
        sender_count: how many edges bring data.
        received: frames processed in this epoch.
        busy_since: when the work at hand began: at an arrival at an empty queue, or when the work before it was done.
        allowance: the bound on what waits before this task; None when nothing bounds it but the windows.
        watermarks: event time of the input as a whole.
    """

    def __init__(
        self,
        state: TaskState,
        reports: Reports,
        senders: Collection[TaskId],
        receivers: Iterable[TaskId],
        accepts: Collection[FrameKind],
        confirmed: Callable[[TaskId, int, int, int], None],
    ) -> None:
        self._state = state
        self._reports = reports
        self._senders = senders
        self._data_senders = [sender for sender in senders if sender not in state.plan.ackers]
        self.sender_count = len(self._data_senders)
        self._peers = frozenset([*senders, *receivers])
        self._accepts = accepts
        self._confirmed = confirmed
        self.edges: dict[TaskId, InEdge] = {}
        self._data_edges: list[InEdge] = []
        self._unopened: set[TaskId] = set()
        self.queue: deque[tuple[InEdge, Frame]] = deque()
        self.behind: deque[tuple[InEdge, Frame]] = deque()
        self.received = 0
        self.busy_since = 0.0
        self.allowance: Allowance | None = None
        self.watermarks = WatermarkCombiner(())
        self._alignment = Alignment()
        self._newer: list[Frame] = []
        """Frames of an epoch that this task has not adopted."""
        self._owing: dict[TaskId, InEdge] = {}
        """Edges with frames that were processed and not confirmed."""
        self._confirm_at: float | None = None
        """When they are confirmed if no frame follows; None while there are none."""
        self._confirm_latest = 0.0
        """When they are confirmed at the latest."""
        self._keep_alive_at = 0.0
        self._loss_repeat_at: float | None = None
        """When dead edges are reported again; None while there is none."""

    @property
    def is_empty(self) -> bool:
        """Whether no frame waits, for whatever reason."""
        return not self.queue and not self.behind and not self._newer

    @property
    def waiting(self) -> int:
        """Frames of this epoch that are not processed."""
        return len(self.queue) + len(self.behind)

    @property
    def has_ended(self) -> bool:
        """Whether there are edges and all have ended; replays may still come."""
        edges = self._data_edges
        return bool(edges) and all(edge.status is EdgeStatus.FINISHED for edge in edges)

    # -- epochs ----------------------------------------------------------------------------------------------------------

    def begin_epoch(self) -> None:
        """Forget the epoch before; the edges of the new one wait for their OPEN frames."""
        self.queue.clear()
        self.behind.clear()
        self._owing.clear()
        self._confirm_at = self._loss_repeat_at = None
        self.received = 0
        self.edges = {sender: InEdge(sender) for sender in self._senders}
        self._data_edges = [self.edges[sender] for sender in self._data_senders]
        self._unopened = set(self.edges)
        self.watermarks = WatermarkCombiner(self._data_senders)
        self._alignment.reset()

    def take_newer(self, now: float) -> None:
        """Take the frames that came before the routes of their epoch."""
        newer, self._newer = self._newer, []
        for frame in newer:
            self.take(frame, now)

    def report_ready(self) -> None:
        """Report the task as ready once every in-edge is open."""
        state = self._state
        if state.phase is TaskPhase.OPENING and not self._unopened:
            state.enter(TaskPhase.RUNNING)
            self._reports.to_master(TaskReady(task=state.id, epoch=state.epoch))

    # -- arrivals --------------------------------------------------------------------------------------------------------

    def receive(self, frame: Frame | Column, now: float) -> None:
        """Take an arrival: bytes from another worker, a frame from a task of this one."""
        if not isinstance(frame, Frame):
            try:
                frame = parse(frame, self._state.config.max_frame_bytes)
            except FrameError:
                self._state.counters.malformed_frames += 1
                return
        self.take(frame, now)

    def take(self, frame: Frame, now: float) -> None:
        """Queue a frame, hold it, pass it to the outbox (a confirmation), or drop and count it."""
        state = self._state
        counters = state.counters
        if frame.epoch < state.epoch:
            counters.stale_frames += 1
            return
        sender = TaskId(frame.sender)
        if frame.target != state.id or sender not in self._peers:
            counters.fenced_frames += 1
            return
        if frame.epoch > state.epoch:
            self._newer.append(frame)
            if state.lookout is not None:
                state.lookout.frame_taken(state.id, frame, None)
            return
        if state.incarnations.get(sender) != frame.incarnation:
            counters.fenced_frames += 1
            return
        if frame.kind is FrameKind.CONFIRM:
            self._confirmed(sender, frame.number, frame.mark, frame.stream)
            return
        edge = self.edges.get(sender)
        if edge is None:
            counters.fenced_frames += 1
            return
        if frame.kind not in self._accepts:
            counters.malformed_frames += 1
            return
        arrival = edge.accept(frame.number)
        if state.lookout is not None:
            state.lookout.frame_taken(state.id, frame, arrival)
        if arrival is Arrival.NEXT:
            counters.frames_in += 1
            if not self.queue:
                self.busy_since = now
                if not self.behind:
                    self._keep_alive_at = now + KEEP_ALIVE_S
            self.queue.append((edge, frame))
        elif arrival is Arrival.DUPLICATE:
            counters.duplicate_frames += 1
        else:
            counters.gaps += 1
            if arrival is Arrival.GAP:
                self.kill(edge, f"frame {edge.expected} is missing, frame {frame.number} came", now)

    def kill(self, edge: InEdge, why: str, now: float) -> None:
        """Process nothing more on an edge, and report it until the epoch changes."""
        edge.status = EdgeStatus.DEAD
        self._unopened.discard(edge.sender)
        self._reports.edge_lost(edge.sender, why)
        self._loss_repeat_at = now + EDGE_LOST_REPEAT_S

    def drop_unreadable(self, frame: Frame, error: FrameError, now: float) -> None:
        """Kill the edge of a frame whose rows are lost; nothing that follows on it may be processed."""
        edge = self.edges[TaskId(frame.sender)]
        # A barrier behind the loss would put it into a checkpoint.
        self.queue = deque(waiting for waiting in self.queue if waiting[0] is not edge)
        self.kill(edge, f"frame {frame.number} cannot be read: {error}", now)

    # -- the frame at the head -------------------------------------------------------------------------------------------

    def head(self) -> tuple[InEdge, Frame] | None:
        """Return the next frame to process; frames behind a barrier are set aside."""
        while self.queue and self.queue[0][0].is_behind_barrier:
            self.behind.append(self.queue.popleft())
        return self.queue[0] if self.queue else None

    def done(self, edge: InEdge, frame: Frame, now: float) -> None:
        """Remove the head, which has been processed; frames that its barrier held up come back before the others."""
        # A failing callback may have begun another epoch, with an empty queue.
        if self.queue and self.queue[0][1] is frame:
            self.queue.popleft()
        self.processed(edge, frame, now)
        if self.behind and not self.behind[0][0].is_behind_barrier:
            self.busy_since = self._state.clock()
            self.queue.extendleft(reversed(self.behind))
            self.behind.clear()

    def opened(self, edge: InEdge, frame: Frame) -> None:
        """Process the OPEN frame of an edge."""
        edge.status = _STATUS[frame.status]
        edge.watermark = frame.mark
        self._unopened.discard(edge.sender)
        self.report_ready()

    def event_time(self, edge: InEdge, frame: Frame) -> list[int | InputStatus]:
        """Process a frame that opens or ends a data edge or carries its event time; return the news of the input as a whole."""
        time, sender = self.watermarks, edge.sender
        if frame.kind is FrameKind.OPEN:
            news = time.watermark(sender, frame.mark) if frame.mark > MIN_WATERMARK else []
            if edge.status is EdgeStatus.IDLE:
                news += time.idle(sender)
            elif edge.status is EdgeStatus.FINISHED:
                news += time.finish(sender)
            return news
        if frame.kind is FrameKind.END:
            edge.status = EdgeStatus.FINISHED
            return time.finish(sender)
        if frame.kind is FrameKind.WATERMARK:
            edge.watermark = frame.mark
            return time.watermark(sender, frame.mark)
        if frame.kind is FrameKind.IDLE:
            edge.status = EdgeStatus.IDLE
            return time.idle(sender)
        edge.status = EdgeStatus.ACTIVE
        return time.active(sender)

    def barrier(self, edge: InEdge, frame: Frame, now: float) -> Aligned | None:
        """Process a barrier; return it when it has come on all data edges."""
        aligned = self._alignment.arrived(edge, frame, self._data_edges, now)
        if self._state.observer is not None:
            waited_s = None if aligned is None else aligned.waited_s
            self._state.observer.barrier_arrived(self._state.id, frame.mark, waited_s)
        return aligned

    # -- confirmations ---------------------------------------------------------------------------------------------------

    def processed(self, edge: InEdge, frame: Frame, now: float) -> None:
        """Note that a frame is done, and confirm it soon."""
        if self._state.observer is not None:
            self._state.observer.frame_processed(self._state.id, frame)
        if self.edges.get(edge.sender) is not edge:
            return
        edge.processed = frame.number
        self.received += 1
        self._owing[edge.sender] = edge
        if frame.kind is FrameKind.DATA:
            edge.owed_tuples += frame.count
        if self._is_confirmed_now(edge):
            self._confirm(edge)
            del self._owing[edge.sender]
            if not self._owing:
                self._confirm_at = None
                return
        if self._confirm_at is None:
            self._confirm_latest = now + LATEST_CONFIRM_S
        self._confirm_at = min(now + CONFIRM_DELAY_S, self._confirm_latest)

    def confirm_due(self, now: float) -> None:
        """Send the confirmations that have waited for others to join them.

        A turn that comes shortly before their time sends them, so that it is not the time that wakes the worker.
        """
        if self._confirm_at is not None and now >= min(self._confirm_at, self._confirm_latest - CONFIRM_DELAY_S):
            self._confirm_at = None
            for edge in self._owing.values():
                self._confirm(edge)
            self._owing.clear()

    def keep_alive(self, now: float) -> None:
        """Show the senders of waiting frames that this task is alive."""
        if self.waiting and now >= self._keep_alive_at:
            self._keep_alive_at = now + KEEP_ALIVE_S
            for edge in {edge.sender: edge for edge, _ in (*self.queue, *self.behind)}.values():
                # Before the first frame there is no number to confirm.
                if edge.processed >= 0:
                    self._confirm(edge)

    def report_dead_edges(self, now: float) -> None:
        """Report dead edges again."""
        if self._loss_repeat_at is not None and now >= self._loss_repeat_at:
            self._loss_repeat_at = now + EDGE_LOST_REPEAT_S
            for edge in self.edges.values():
                if edge.status is EdgeStatus.DEAD:
                    self._reports.edge_lost(edge.sender, "frames were lost")

    def deadlines(self) -> list[float | None]:
        """Return the times at which one of the three wants to be called."""
        return [self._confirm_at, self._keep_alive_at if self.waiting else None, self._loss_repeat_at]

    def _is_confirmed_now(self, edge: InEdge) -> bool:
        """Whether a quarter of the sender's window or grant is processed, or the first frame: it brings the first grant.

        While no frame waits, half a window: its other half is free, and frames that come one by one need half as many.
        """
        window = self._state.config.edge_window
        pieces = PIECES if self.queue or window < 2 * PIECES else PIECES // 2
        if edge.owes_confirmation >= max(1, window // pieces):
            return True
        granted = self._granted(edge)
        return granted > 0 and (edge.confirmed < 0 or edge.owed_tuples * PIECES >= granted)

    def _granted(self, edge: InEdge) -> int:
        """Return how many tuples the sender may have out; 0 where nothing bounds them but its window."""
        if self.allowance is None or edge.sender in self._state.plan.ackers:
            return 0
        return self.allowance.share(self.sender_count)

    def _confirm(self, edge: InEdge) -> None:
        edge.confirmed = edge.processed
        edge.owed_tuples = 0
        state = self._state
        frame = confirm_frame(state.stamp, edge.sender, edge.processed, self._granted(edge), state.load())
        state.commands.append(SendFrame(edge.sender, frame if edge.sender in state.local else encode(frame)))

    # -- watching --------------------------------------------------------------------------------------------------------

    def levels(self) -> dict[str, float]:
        """Return the levels of the queue, of tuples without confirmation, and of the event time of the input."""
        levels: dict[str, float] = {}
        if unconfirmed := sum(edge.owed_tuples for edge in self.edges.values()):
            levels["unconfirmed"] = float(unconfirmed)
        if self.allowance is not None:
            tuples = sum(frame.count for _, frame in self.queue if frame.kind is FrameKind.DATA)
            levels |= {"allowance": float(self.allowance.size), "queue_s": tuples * self.allowance.each_s}
        watermark = self.watermarks.last_watermark
        if self._has_watermarks and watermark < MAX_WATERMARK:
            if watermark > MIN_WATERMARK:
                levels |= {"watermark_ms": watermark, "watermark_lag_s": (self._state.wall_ms() - watermark) / 1000}
            else:
                levels["watermark_ms"] = float(MIN_WATERMARK)
            held_back_by = self.watermarks.held_back_by
            if isinstance(held_back_by, int):
                levels["held_back_by"] = float(held_back_by)
        return levels

    def watermarks_by_source(self) -> dict[str, int]:
        """Return of each component that event time waits for the least watermark of its tasks; empty without event time."""
        found: dict[str, int] = {}
        for sender, watermark in self.watermarks.counting.items() if self._has_watermarks else ():
            source = self._state.plan.task(cast("TaskId", sender)).component
            found[source] = min(watermark, found.get(source, watermark))
        return found

    @property
    def _has_watermarks(self) -> bool:
        return any(edge.watermark is not None and edge.watermark > MIN_WATERMARK for edge in self.edges.values())

    def validate(self) -> None:
        """Assert the invariants."""
        for edge in self.edges.values():
            edge.validate()
        waiting = (*self.queue, *self.behind)
        assert all(edge is self.edges.get(edge.sender) for edge, _ in waiting), "a frame of an edge of another epoch"
        assert all(edge.is_behind_barrier for edge, _ in self.behind), "a frame waits for no barrier"
