"""Windows in a tracked topology: results are anchored on their firing, and a call that raises fails its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from topo.emission.collectors import BoltCollector, TrackedTuple
from topo.emission.router import owners_of
from topo.errors import LateReplayError, TopoInternalError
from topo.hot import Row, pack_words, unpack_words
from topo.task.batch import Batch
from topo.task.bolt_output import BoltOutput
from topo.task.guarantees.tracked import TrackedInputs
from topo.task.guarantees.whole_windows import WholeWindowScope
from topo.task.guarantees.window_firings import FiringScope
from topo.task.parts import TaskParts
from topo.task.window_calls import ElementCalls, TimerCall
from topo.tracking.window_tracking import WindowTracker
from topo.wire.frames import Anchoring, Frame, FrameKind


class TrackedWindows:
    """The windows of one task in a topology without checkpoints. Without ackers no input has ids, and losses are counted.

    Args:
        parts: of the task.
        out: its output.
        inputs: their guarantee.
        tracker: of the panes.
        collector: takes the rows of the operator.
        late_stream: takes the elements that are too late.
        takes_columns: the windows take batches of columns whole.

    Attributes:
        scope: of the operator.
    """

    def __init__(
        self,
        parts: TaskParts,
        out: BoltOutput,
        inputs: TrackedInputs,
        tracker: WindowTracker,
        collector: BoltCollector,
        late_stream: str | None,
        *,
        takes_columns: bool,
    ) -> None:
        state = self._state = parts.state
        self._counters = state.counters
        self._reports = parts.reports
        self._causes = parts.reports.causes
        self._inbound = parts.inbound
        self._outbox = parts.outbound.outbox
        self._out = out
        self._inputs = inputs
        self._owed = inputs.owed
        self._tracker = tracker
        self._collector = collector
        self._late_stream = late_stream
        self.scope: FiringScope
        if takes_columns:
            self.scope = WholeWindowScope(tracker, collector, state.config)
        else:
            self.scope = FiringScope(tracker, collector, state.config, self._send_whole)
        parts.checks.append(tracker.validate)
        parts.waiting.append(self._waiting_roots)
        self._is_tracked = bool(state.plan.ackers)
        self._timeout_s = state.plan.longest_message_timeout_s
        self._late: dict[int, TrackedTuple] = {}
        """By position: elements of the slice that went to the late stream."""
        self._calls: ElementCalls | None = None

    # -- calls -----------------------------------------------------------------------------------------------------------

    def take(self, calls: ElementCalls, now: float) -> None:
        """Make the calls for a slice, up to the first that raises; its element fails, and so do those of a firing that raised."""
        batch, first = calls.batch, calls.first
        roots: Sequence[Any]
        edges: Sequence[Any]
        if batch.anchoring is Anchoring.NONE:
            roots = edges = [()] * (calls.last - first)
        elif batch.anchoring is Anchoring.SINGLE:
            roots, edges = batch.word_columns(first, calls.last)
        else:
            roots, edges = (ids[first : calls.last] for ids in batch.ids())
        self._tracker.begin(roots, edges, is_single=batch.anchoring is Anchoring.SINGLE, are_replays=batch.is_replay)
        self._calls = calls
        try:
            calls.make()
        except TopoInternalError:
            raise
        except Exception as error:
            lost = self._discard_firing(error)
            self._ack_unheld(calls, calls.position, now)
            self._inputs.fail(batch.ids_at(first + calls.position)[0], error)
            # The element may be in the pane that has fired.
            self._counters.failed += max(1, lost)
            self._reports.user_error(error, now)
            return
        finally:
            self._calls = None
        self._ack_unheld(calls, calls.position + 1, now)

    def taken(self, batch: Batch, first: int, last: int, now: float) -> None:
        """Show the observer the inputs of a slice: acked, or held by panes."""
        if self._state.observer is not None:
            self._state.observer.inputs_acked(self._state.id, (batch.ids_at(index) for index in range(first, last)))

    def timer_raised(self, call: TimerCall | None, error: Exception, now: float) -> None:
        """Fail the inputs of the firing that a timer has caused."""
        self._counters.failed += self._discard_firing(error)
        self._reports.user_error(error, now)

    def _discard_firing(self, error: Exception) -> int:
        """Discard the rows of a firing that has raised, and fail its inputs; return how many inputs without ids are lost."""
        tracker = self._tracker
        if tracker.is_firing:
            self._inputs.roll_back(self._collector, self.scope.mark, None, error)
            tracker.fail_current()
        if tracker.fails:
            self._causes.note(tracker.fails, error)
        return 0 if self._is_tracked else tracker.take_lost()

    def _ack_unheld(self, calls: ElementCalls, count: int, now: float) -> None:
        """Ack those of the first inputs of a slice that no window took: late ones, and those in a gap between windows.

        A replay is not dropped: it fails again when it is too late for a window.
        """
        self._settle(now)
        tracker, batch, first = self._tracker, calls.batch, calls.first
        unheld = tracker.unheld()
        missed = {
            position
            for position in tracker.missed_replays
            if position < count and not (position in self._late and position in unheld)
        }
        if missed:
            where = f"component {self._state.component_id!r}"
            error = LateReplayError(f"{where}: the replay of a failed message came too late for its window")
            for position in missed:
                self._inputs.fail(batch.ids_at(first + position)[0], error)
            self._counters.failed += len(missed)
            self._reports.record(error, now)
        for position in unheld:
            if position < count and position not in missed:
                self._counters.acked += 1
                self._owed.acks.add(*batch.ids_at(first + position))
        for position, late in self._late.items():
            if position >= count:
                break
            # Some rows of a batch of columns may be late, and windows hold the others.
            self._owed.acks.add(late.roots, [0] * len(late.roots), late.out)
        self._late.clear()

    def side_anchors(self, stream: str) -> tuple[TrackedTuple, ...]:
        """Return the anchors of a side output: the current element where it is a late one, else the firing."""
        calls = self._calls
        if stream != self._late_stream or calls is None:
            return self._collector.current
        batch, place = calls.batch, calls.current
        late = self._late.get(place - calls.first)
        if late is None:
            late = TrackedTuple.made((), batch.origin, None, self._state.epoch, *batch.ids_at(place))
            self._late[place - calls.first] = late
        return (late,)

    # -- firings ---------------------------------------------------------------------------------------------------------

    def _settle(self, now: float) -> None:
        self._inputs.settle_calls(self._collector, now)

    def _send_whole(self, keys: Sequence[Any], window: Any, rows: Sequence[Row], ends: Sequence[int], timestamp: int) -> bool:
        """Send the only results of panes as one batch, each under a root; False if they have to fire one by one."""
        now, tracker, collector = self._state.now, self._tracker, self._collector
        found = None if self._out.watermarks.is_used else tracker.only_panes(keys, window)
        if found is None:
            return False
        if collector.count():
            self._settle(now)
        collector.current = ()
        if not collector.put_rows(rows, timestamp):
            return False
        panes, roots = found
        owed, refused = bytearray(8 * len(roots)), dict[int, Exception]()
        if self._state.observer is not None:
            self._state.observer.rows_emitted(self._state.id, collector.streams)
        if rows and roots:
            collector.main.ends = list(ends)
            self._out.emission.single(collector.main, pack_words(roots), owed, refused.__setitem__, None)
        elif rows:
            self._out.emission.untracked(collector.main, self._inputs.reject_untracked(collector.main))
        collector.clear()
        values = unpack_words(owed)
        if refused:
            # From the places of rows to those of their panes.
            refused = {place: refused[row] for row, place in enumerate(owners_of(ends)) if row in refused}
        for place, error in refused.items():
            self._causes.note(panes[place].roots, error)
            self._reports.record(error, now)
        tracker.fired_once(keys, window, panes, roots, values, now, refused)
        followed = enumerate(zip(roots, values, strict=True))
        self._owed.trees += [tree for place, tree in followed if tree[1] and place not in refused]
        return True

    @property
    def pending(self) -> int:
        """How many firings have no verdict."""
        return self._tracker.open_firings

    def on_verdicts(self, frame: Frame, now: float) -> None:
        """Pass the verdicts of firings on to their inputs."""
        if frame.kind is FrameKind.ACKED:
            self._tracker.completed(frame.root_list())
        elif frame.kind is FrameKind.FAILED:
            self._tracker.failed(frame.root_list())
        else:
            self._owed.touch(self._tracker.touched(frame.root_list(), now))
        self._settle(now)

    def on_time(self, now: float) -> None:
        """Fail the firings that have had no verdict for too long."""
        if self._timeout_s is None or self._inbound.queue or self._tracker.oldest_firing() is None:
            # Verdicts that came while the process was held up count before the timeouts of the same time.
            return
        if expired := self._tracker.expire(now, self._timeout_s):
            self._counters.timed_out += expired
            self._settle(now)

    def deadlines(self) -> list[float | None]:
        """Return when the oldest firing without a verdict expires."""
        oldest = self._tracker.oldest_firing()
        return [None if oldest is None or self._timeout_s is None else oldest + self._timeout_s]

    def _waiting_roots(self, waiting: dict[int, None], now: float) -> dict[int, None]:
        """Return the roots of inputs in panes while none can come, and those of firings whose rows or verdicts wait."""
        tracker = self._tracker
        held: dict[int, None] = {}
        if self._outbox.is_full or self._inbound.queue:
            kept = [frame for _, frame in self._inbound.queue if frame.kind in (FrameKind.ACKED, FrameKind.TOUCHED)]
            held = tracker.held_roots() | tracker.touched([root for frame in kept for root in frame.root_list()], now)
        # Firings are roots of this task: the verdict that they are kept need not come from the ackers.
        return held | tracker.touched([*waiting, *held], now)
