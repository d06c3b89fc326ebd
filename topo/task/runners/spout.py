"""Runs a spout: bursts of `next_tuple`, replays, event time, the end of the input; and the life of the component.

What becomes of the messages is the guarantee's concern.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from topo.api.partitions import PartitionedSpout
from topo.api.spout import Spout
from topo.emission.batch_messages import given_collector
from topo.emission.message_collectors import PassedOver
from topo.errors import SpoutStalledError
from topo.ids import Epoch
from topo.task.events import RoutesChanged
from topo.task.guarantees.source import SourceCheckpoints, SourceGuarantee, SourceStart
from topo.task.parts import TaskParts
from topo.task.runners.base import MessageHandlers
from topo.task.runners.polling import Polling
from topo.task.runners.spout_output import SpoutOutput
from topo.task.runners.stall_watch import STALL_S, StallWatch
from topo.task.slice_size import AdaptiveSliceSize
from topo.task.state import TaskPhase
from topo.user_errors import returned
from topo.wire.control import Activate, BeginCheckpoint, Deactivate, Drain, Go
from topo.wire.frames import MIN_WATERMARK, FrameKind, SenderStatus

SPOUT_FRAMES = frozenset((FrameKind.OPEN, FrameKind.ACKED, FrameKind.FAILED, FrameKind.TOUCHED))
_LAST_POLLS = 250
"""Polls without a message, 5 s in all, after which an ended source is not expected to deliver covered messages again."""


class SpoutRunner:
    """Runs the spout of one task.

    Args:
        parts: of the task.
        spout: the user's component.
        output: the collector, and the way from there.
        source: the guarantee that messages have.
    """

    def __init__(self, parts: TaskParts, spout: Spout, output: SpoutOutput, source: SourceGuarantee) -> None:
        self._spout = spout
        self._partitioned = spout if isinstance(spout, PartitionedSpout) else None
        self._drift_ms = None if self._partitioned is None else self._partitioned.max_drift_ms
        self._output = output
        self._source = source
        self._context = parts.spec.context
        self._clock = parts.env.clock
        self._state = state = parts.state
        self._streams = state.plan.emitted_streams(state.component_id)
        self._config = state.config
        self._reports = parts.reports
        self._inbound = parts.inbound
        self._outbound = parts.outbound
        self._outbox = parts.outbound.outbox
        self._pace = AdaptiveSliceSize(self._config.flush_interval_s, self._config.batch_size)
        self._polling = Polling()
        self._heard_at = 0.0
        """When the last verdict came, in monotonic seconds."""
        self._feeds_windows = state.plan.has_tracked_windows
        self._stall = StallWatch()
        self._is_user_open = False
        self._is_going = False
        """Whether all tasks are ready in this epoch."""
        self._is_wanted = True
        """Whether the user has the topology run, rather than pause."""
        self._is_active = False
        self._is_ended_by_checkpoint = False
        """Whether the engine has ended the input, since the checkpoint is behind its end; the spout has not."""
        self.messages: MessageHandlers = {
            Go: lambda event, now: self._on_go(event.epoch, now),
            Activate: lambda _event, now: self._on_activity(now, is_wanted=True),
            Deactivate: lambda _event, now: self._on_activity(now, is_wanted=False),
            Drain: lambda _event, now: self._on_activity(now, is_wanted=False),
        }
        if source.checkpoints is not None:
            self.messages = {**self.messages, BeginCheckpoint: partial(self._on_begin_checkpoint, source.checkpoints)}

    # -- life ------------------------------------------------------------------------------------------------------------

    def begin_epoch(self, event: RoutesChanged, now: float, *, is_first: bool) -> None:
        """Have the spout begin where the guarantee wants it, and open the edges."""
        self._is_going = False
        # Ahead of `start`, which fails the messages that are lost.
        object.__setattr__(self._context, "epoch", self._state.epoch)
        self._output.watermarks.reset(now, forget=False)
        if (chained := self._output.chained) is not None:
            chained.forget()
            if is_first:
                chained.open()
        if self._is_ended_by_checkpoint and not self._state.restored_ended:
            # An earlier checkpoint has taken the place of a damaged one.
            self._output.collector.ended = self._is_ended_by_checkpoint = False
        start = self._source.start(event, now)
        if start is not None:
            self._open(start, now)
        self._output.has_ended = self._source.opens_finished and self._may_send_end
        status = SenderStatus.FINISHED if self._output.has_ended else SenderStatus.ACTIVE
        watermark = self._output.watermarks.latest if self._state.restored else MIN_WATERMARK
        self._outbound.send_opening(status, watermark)

    def _open(self, start: SourceStart, now: float) -> None:
        """Open the spout where it begins to read. An open spout is closed before, as if the process had ended."""
        collector = self._output.collector
        if self._is_user_open and self._partitioned is not None and not start.is_ended:
            # Its reader lives on, with its connections.
            collector.clear()
            collector.ended = False
            self._partitioned.restart(start.position)
            return
        if self._is_active:
            self._is_active = False
            self._reports.guard(self._spout.deactivate, now)
        if self._is_user_open:
            self._is_user_open = False
            self._reports.guard(self._spout.close, now)
        # Rows that are not sent lie behind that position.
        collector.clear()
        collector.ended = start.is_ended
        if not start.is_ended:
            self._is_user_open = True
            object.__setattr__(self._context, "committed_position", start.position)
            self._spout.open(self._context, given_collector(self._spout, collector, self._state.component_id, self._streams))

    def _on_go(self, epoch: Epoch, now: float) -> None:
        if epoch == self._state.epoch:
            self._is_going = True
            self._apply_activity(now)

    def _on_activity(self, now: float, *, is_wanted: bool) -> None:
        self._is_wanted = is_wanted
        self._apply_activity(now)

    def _apply_activity(self, now: float) -> None:
        """Activate or deactivate the spout as the user wants.

        No callback is called while its part of a checkpoint is unread; the next Go makes up for it.
        """
        may_call = self._is_user_open and self._state.is_working and (self._is_going or not self._is_wanted)
        if not may_call or self._is_active == self._is_wanted:
            return
        self._is_active = self._is_wanted
        if self._is_active:
            self._polling.at = now
        self._reports.guard(self._spout.activate if self._is_active else self._spout.deactivate, now)

    def run_user_mail(self, action: Callable[[], object]) -> None:
        """Run a mail that user code has posted."""
        now = self._state.now
        try:
            action()
        except Exception as error:
            self._reports.user_error(error, now)
            # Nothing repeats it.
            self._state.counters.lost_results += 1
        # It may have brought the message that `next_tuple` waits for.
        self._polling.wake(now)

    def _on_begin_checkpoint(self, checkpoints: SourceCheckpoints, event: BeginCheckpoint, now: float) -> None:
        state = self._state
        if event.epoch != state.epoch or not self._is_going or state.phase is TaskPhase.CLOSED:
            return
        if state.observer is not None:
            state.observer.checkpoint_begun(state.id, event.checkpoint)
        # Rows that have been emitted are before the barrier, wherever they wait.
        self._output.send(self._source, now, first_time=True)
        self._output.then(partial(self._send_barrier, checkpoints, event.checkpoint))

    def _send_barrier(self, checkpoints: SourceCheckpoints, checkpoint: int) -> None:
        self._source.flush(self._state.now)
        checkpoints.begin_checkpoint(checkpoint, has_ended=self._output.has_ended)

    def close(self) -> None:
        """Close the spout."""
        self._source.close(self._clock())
        if self._is_user_open:
            self._spout.close()

    # -- state -----------------------------------------------------------------------------------------------------------

    @property
    def pending(self) -> int:
        """How many messages' outcome is open, those included that are not sent."""
        return self._source.pending + self._output.collector.count() + self._output.is_behind

    @property
    def has_ended(self) -> bool:
        """Whether the readers know that nothing follows."""
        return self._output.has_ended

    def unfinished(self) -> str:
        """Return that messages may follow, unless the source has ended or the topology is paused."""
        return "" if self._output.collector.ended or not self._is_active else "the source has not ended"

    def refusal(self) -> str:
        return ""

    @property
    def _has_way(self) -> bool:
        return self._is_going and not self._outbox.is_full

    @property
    def _may_send(self) -> bool:
        return self._has_way and not self._output.is_behind

    @property
    def _has_room(self) -> bool:
        return self._output.collector.count() < self._source.room

    @property
    def _may_emit(self) -> bool:
        replays = self._source.replays
        return (
            self._may_send
            and self._is_active
            and not self._output.collector.ended
            and self._has_room
            and not (replays is not None and replays.holds_back)
        )

    @property
    def _may_send_end(self) -> bool:
        """Whether the input has ended, for windows too: they are over with its end, so replays go before it."""
        collector, replays = self._output.collector, self._source.replays
        if not collector.ended or not self._feeds_windows:
            return collector.ended
        return not collector.count() and not (replays is not None and replays.is_waiting)

    @property
    def _is_behind_end(self) -> bool:
        """Whether the checkpoint is behind the end of the input, and no message comes that it covers."""
        checkpoints = self._source.checkpoints
        if checkpoints is None or not self._state.restored_ended:
            return False
        return not checkpoints.redelivers or self._polling.idle_polls > _LAST_POLLS

    @property
    def _has_leftovers(self) -> bool:
        """Whether other callbacks than `next_tuple` have emitted something, such as a replay by `fail`, or ended the input."""
        return self._output.has_news or (self._may_send_end and not self._output.has_ended)

    @property
    def is_blocked(self) -> bool:
        """Whether the spout is kept from emitting because receivers have no room."""
        if not self._outbox.is_full or not self._is_going:
            return False
        is_reading = self._is_active and not self._output.collector.ended
        return is_reading or self._has_leftovers or self._replay_is_due(self._clock())

    @property
    def has_work(self) -> bool:
        """Whether there are verdicts, callbacks, or messages to send now."""
        if self._inbound.queue or self._source.has_callbacks:
            return True
        if not self._may_send:
            return self._has_way
        if self._has_leftovers:
            return True
        now = self._clock()
        # The time first: most often there is nothing to do yet, and the worker asks several times in a turn.
        return (now >= self._polling.at and self._may_emit) or self._replay_is_due(now)

    def _replay_is_due(self, now: float) -> bool:
        replays = self._source.replays
        at = None if replays is None else replays.replay_at(now)
        return at is not None and at <= now

    def deadlines(self, now: float) -> Iterable[float | None]:
        """Return when the next poll, replay and watermark are due, a stall is reported, and the guarantee wants a turn."""
        replays, timed = self._source.replays, self._source.timed
        return (
            self._polling.at if self._may_emit else None,
            replays.replay_at(now) if replays is not None and self._may_send else None,
            self._output.watermarks.next_probe if self._is_going else None,
            self._stall.deadline,
            *(() if timed is None else timed.deadlines()),
        )

    def levels(self) -> dict[str, float]:
        """Return how many messages are pending, and the levels of the guarantee."""
        return {"pending": float(self.pending)} | self._source.levels()

    def latencies(self) -> dict[str, Any]:
        """Return how long messages took."""
        return self._source.latencies()

    # -- a turn ----------------------------------------------------------------------------------------------------------

    def on_time(self, now: float) -> None:
        """Pass verdicts on, send event time at its interval, and watch for a stall."""
        self._pass_verdicts(now)
        output = self._output
        if output.watermarks.is_used and self._is_going:
            if self._may_emit:
                output.idle_clock.resume()
            else:
                output.idle_clock.pause()
            output.on_time(now)
            self._hold_back_drift(now)
        if self._feeds_windows:
            self._watch_stall(now)

    def _pass_verdicts(self, now: float) -> None:
        """Give the guarantee its verdicts, then the time: those that have arrived count before the timeouts of this moment."""
        inbound, source = self._inbound, self._source
        while inbound.queue:
            edge, frame = inbound.queue.popleft()
            self._heard_at = now
            if frame.kind is FrameKind.OPEN:
                inbound.opened(edge, frame)
            else:
                source.on_verdicts(frame.kind, frame.roots, now)
            inbound.processed(edge, frame, now)
        if source.timed is not None:
            source.timed.on_time(now)

    def _hold_back_drift(self, now: float) -> None:
        """Pause partitions that are further ahead of the others in event time than the spout wants."""
        spout, partitions = self._partitioned, self._output.watermarks.partitions
        if spout is not None and self._drift_ms is not None and partitions is not None and self._is_user_open:
            self._reports.guard(spout.set_ahead, now, partitions.ahead(self._drift_ms))

    def _watch_stall(self, now: float) -> None:
        """Report that windows wait for a watermark which does not come, since the spout has no room for more messages."""
        if self._output.collector.ended or not self._is_going or self._has_room or not self.pending:
            self._stall.has_room()
        elif self._stall.is_full(self._heard_at, now):
            held = f"{self.pending} messages in flight (max_spout_pending) and no verdict"
            self._reports.record(
                SpoutStalledError(
                    f"component {self._state.component_id!r} has {held} for {STALL_S:g} s: windows hold them, and wait for a "
                    "watermark, or for the count of a count window, that only further messages bring; set max_spout_pending to "
                    "more than the messages of all open windows, or make the windows shorter"
                ),
                now,
            )

    def act(self, now: float) -> None:
        """Make callbacks, send what they have emitted, then replay, or else call `next_tuple`; send END if all is sent."""
        source, output = self._source, self._output
        source.call_back(now)
        if output.chained is not None and output.is_behind and self._has_way:
            output.chained.catch_up()
        if self._may_send and output.has_news:
            output.send(source, now, first_time=True)
        if self._may_send and self._replay_is_due(now):
            self._replay(now)
        elif now >= self._polling.at and self._may_emit:
            self._burst(now)
        if now < self._polling.at and self._outbound.is_flush_due(now, is_dry=True):
            # As in an idle worker: with verdicts and calls of `ack` to take it is not idle for long.
            self._outbox.flush()
            if source.id_sender is not None:
                source.id_sender.on_idle(now)
        if self._is_behind_end and not output.collector.ended:
            output.collector.ended = self._is_ended_by_checkpoint = True
        if self._may_send_end and not output.has_ended and self._may_send:
            source.flush(now)
            output.send_end()

    def _replay(self, now: float) -> None:
        replays, output = self._source.replays, self._output
        assert replays is not None
        collector = output.collector
        for message, (values, index, stamp, target) in replays.due(now, min(self._config.batch_size, self._outbox.room)):
            stream = collector.streams[index]
            if stamp is not None:
                stream.stamps[len(stream.rows)] = stamp
            if target is not None:
                stream.targets.append(target)
            stream.rows.append(values)
            collector.messages[index].append(message)
        output.send(self._source, now, first_time=False)
        output.send_event_time()
        if replays.holds_back:
            self._source.flush(now)

    def _burst(self, now: float) -> None:
        """Call `next_tuple` until a slice is full, nothing came, the source ended, or enough messages are pending."""
        output, next_tuple, clock = self._output, self._spout.next_tuple, self._clock
        collector, most = output.collector, self._config.max_task_emit
        streams = collector.streams
        several = len(streams) != 1
        count: Callable[[], int] = collector.count if several else streams[0].rows.__len__
        signals = collector.signals
        room = self._source.room - collector.count()
        limit = min(self._pace.size, room, self._outbox.room)
        if output.emission.runs_singly:
            limit = min(1, room)
        collector.wanted = limit
        began = clock()
        size = passed = signal_count = 0
        marks: list[int] = []
        failure: Exception | None = None
        while size + passed < limit:
            if several:
                marks = [len(stream.rows) for stream in streams]
            try:
                if (value := next_tuple()) is not None:
                    raise returned(next_tuple, value)
                grown = count()
                # All rows so far are seldom more than one call may emit: one comparison is enough then.
                if grown > most and grown - size > most:
                    collector.check_emitted(grown - size, most)
            except Exception as error:
                collector.roll_back(marks if several else [size], signal_count)
                failure = error
                break
            if grown == size:
                if len(signals) == signal_count or not isinstance(signals[-1][1], PassedOver):
                    break
                passed += 1
            size = grown
            if collector.silent_s is not None:
                break
            if signals:
                signal_count = len(signals)
                if collector.ended:
                    break
        seconds, silent_s = clock() - began, collector.take_silence()
        later = now + seconds
        self._state.counters.busy_s += seconds
        self._state.counters.overshoot += max(0, size - room)
        if size or passed:
            self._polling.emitted()
            # A call may have taken long: its messages are as old as now, and no older.
            self._pass_verdicts(later)
        if size or signals:
            output.send(self._source, later, first_time=True)
        if size:
            # A chain takes its time when the rows are sent.
            self._pace.note(size, seconds if output.chained is None else clock() - began)
        if failure is not None:
            self._polling.raised(later)
            self._reports.user_error(failure, later)
        elif silent_s is not None:
            self._polling.silent(later, silent_s)
        elif size + passed < limit:
            self._polling.idle(later)
        output.send_event_time()
