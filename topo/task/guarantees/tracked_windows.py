"""Inputs of windows in a tracked topology: results are anchored on their firing, and a call that raises fails its inputs.

A firing is a root of the task, as a message is one of its spout. Its verdict becomes that of the inputs in its window.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from topo.checkpoint.held_inputs import HeldInputs
from topo.config import TopologyConfig
from topo.emission.collectors import BoltCollector, Mark, TrackedTuple
from topo.errors import LateReplayError, TopoInternalError
from topo.hot import Ids, Row, pack_words, unpack_words
from topo.task.batch import Batch
from topo.task.bolt_output import BoltOutput
from topo.task.events import RoutesChanged
from topo.task.guarantees.tracked import TrackedInputs
from topo.task.operator_output import OperatorOutput
from topo.task.parts import TaskParts
from topo.task.window_calls import ElementCalls, TimerCall
from topo.tracking.window_tracking import WindowTracker
from topo.wire.frames import Anchoring, Frame, FrameKind

SendOnly = Callable[[Sequence[Any], Any, Sequence[Row], int], bool]


class FiringScope(WindowTracker):
    """The panes of one task; the scope of its window operator. A firing that raises is repeated in place.

    Args:
        ids: draws shares and roots.
        output: of the operator; its rows are anchored on the current firing.
        config: has the number of attempts.
        send_only: sends the only results of panes of one window.
    """

    def __init__(self, ids: Ids, output: OperatorOutput, config: TopologyConfig, send_only: SendOnly) -> None:
        super().__init__(ids)
        self._send_only = send_only
        self._output = output
        self._collector = output.collector
        self._attempts = 1 if config.on_error == "crash" else config.attempts
        self._tries = 0
        self.mark: Mark = self._collector.mark()
        """How far the output had come when the current firing began."""

    def firing(self, key: Any, window: Any) -> None:
        """Anchor the results of a pane on its firing."""
        super().firing(key, window)
        self._output.anchors = () if self.current is None else (self.current.anchor,)
        self.mark = self._collector.mark()
        self._tries = 0

    def fired_whole(self, keys: Sequence[Any], window: Any, rows: Sequence[Row], timestamp: int) -> bool:
        """Send the only results of panes as one batch, each under a root; False if they have to fire one by one."""
        return self._send_only(keys, window, rows, timestamp)

    def raised(self, error: Exception) -> bool:
        """Take back the results of the firing, if it may try again. Its changes of state stay."""
        self._tries += 1
        if self._tries >= self._attempts or isinstance(error, TopoInternalError):
            return super().raised(error)
        self._collector.rewind(self.mark)
        return True


class TrackedWindowInputs(TrackedInputs):
    """Inputs of a window operator in a topology without checkpoints. Without ackers no input has ids, and losses are counted.

    Args:
        collector: takes the rows of the operator.
        late_stream: takes the elements that are too late.

    Attributes:
        scope: of the operator.
        operator_output: anchored on the current firing, or on a late element.
    """

    def __init__(
        self, parts: TaskParts, out: BoltOutput, held: HeldInputs, collector: BoltCollector, late_stream: str | None
    ) -> None:
        super().__init__(parts, out, held, self._roots_in_panes)
        self.operator_output = OperatorOutput(parts.state, collector, out, self, self._side_anchors)
        self.scope = FiringScope(parts.env.ids, self.operator_output, parts.state.config, self._send_only)
        parts.checks.append(self.scope.validate)
        self._is_tracked = bool(parts.state.plan.ackers)
        self._timeout_s = parts.state.plan.longest_message_timeout_s
        self._inbound = parts.inbound
        self._collector = collector
        self._late_stream = late_stream
        self._late: dict[int, TrackedTuple] = {}
        """By position: elements of the slice that went to the late stream."""
        self._calls: ElementCalls | None = None
        self._refused: dict[int, Exception] = {}
        """By root: firings with a result that no task can be sent."""

    # -- life ------------------------------------------------------------------------------------------------------------

    def begin_epoch(self, event: RoutesChanged, now: float) -> None:
        """Forget all panes and firings: their inputs are replayed."""
        super().begin_epoch(event, now)
        self.scope.reset(self._state.epoch)

    def on_time(self, now: float) -> None:
        """Fail the firings that have had no verdict for too long."""
        super().on_time(now)
        if self._timeout_s is None or self._inbound.queue or self.scope.oldest_firing() is None:
            # Verdicts that came while the process was held up count before the timeouts of the same time.
            return
        if expired := self.scope.expire(now, self._timeout_s):
            self._counters.timed_out += expired
            self.settle_calls(self._collector, now)

    def deadlines(self) -> list[float | None]:
        """Return when ids leave, and when the oldest firing without a verdict expires."""
        oldest = self.scope.oldest_firing()
        expires = None if oldest is None or self._timeout_s is None else oldest + self._timeout_s
        return [*super().deadlines(), expires]

    @property
    def pending(self) -> int:
        """How many firings have no verdict."""
        return self.scope.open_firings

    @property
    def is_quiet(self) -> bool:
        """Whether no value is owed, for inputs or for firings."""
        return super().is_quiet and not self.scope.acks and not self.scope.fails

    # -- calls -----------------------------------------------------------------------------------------------------------

    def take(self, calls: ElementCalls, now: float) -> None:
        """Make the calls for a slice, up to the first that raises; its element fails, and so do those of a firing that raised."""
        batch, first = calls.batch, calls.first
        if batch.anchoring is Anchoring.NONE:
            roots = edges = [()] * (calls.last - first)
        else:
            roots, edges = (ids[first : calls.last] for ids in batch.ids())
        self.scope.begin(roots, edges, is_single=batch.anchoring is Anchoring.SINGLE, are_replays=batch.is_replay)
        self._calls = calls
        try:
            calls.make()
        except TopoInternalError:
            raise
        except Exception as error:
            lost = self._discard_firing(error)
            self._ack_unheld(calls, calls.position, now)
            self.fail(batch.ids_at(first + calls.position)[0], error)
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
            self._state.observer.inputs_acked(self._state.id, [batch.ids_at(index) for index in range(first, last)])

    def timer_raised(self, call: TimerCall | None, error: Exception, now: float) -> None:
        """Fail the inputs of the firing that a timer has caused."""
        self._counters.failed += self._discard_firing(error)
        self._reports.user_error(error, now)

    def _discard_firing(self, error: Exception) -> int:
        """Discard the rows of a firing that has raised, and fail its inputs; return how many inputs without ids are lost."""
        scope = self.scope
        if scope.is_firing:
            self.roll_back(self._collector, scope.mark, None, error)
            scope.fail_current()
        if scope.fails:
            self._causes.note(scope.fails, error)
        return 0 if self._is_tracked else scope.take_lost()

    def _ack_unheld(self, calls: ElementCalls, count: int, now: float) -> None:
        """Ack those of the first inputs of a slice that no window took: late ones, and those in a gap between windows.

        A replay is not dropped: it fails again when it is too late for a window.
        """
        self.settle_calls(self._collector, now)
        scope, batch, first = self.scope, calls.batch, calls.first
        missed = {position for position in scope.missed_replays if position < count and position not in self._late}
        if missed:
            where = f"component {self._state.component_id!r}"
            error = LateReplayError(f"{where}: the replay of a failed message came too late for its window")
            for position in missed:
                self.fail(batch.ids_at(first + position)[0], error)
            self._counters.failed += len(missed)
            self._reports.record(error, now)
        for position in scope.unheld():
            if position < count and position not in missed:
                self._counters.acked += 1
                late = self._late.get(position)
                self.owed.acks.add(*batch.ids_at(first + position), 0 if late is None else late.out)
        self._late.clear()

    def _side_anchors(self, stream: str) -> tuple[TrackedTuple, ...]:
        """Return the anchors of a side output: the current element where it is a late one, else the firing."""
        calls = self._calls
        if stream != self._late_stream or calls is None:
            return self.operator_output.anchors
        batch, place = calls.batch, calls.current
        late = TrackedTuple.made((), batch.origin, None, self._state.epoch, *batch.ids_at(place))
        self._late[place - calls.first] = late
        return (late,)

    # -- firings ---------------------------------------------------------------------------------------------------------

    def settle_calls(self, collector: BoltCollector, now: float, undecided: list[TrackedTuple] | None = None) -> None:
        """Route the rows of firings, then start the firings, and owe the inputs of panes that are done."""
        super().settle_calls(collector, now, undecided)
        scope, owed = self.scope, self.owed
        self.operator_output.anchors = ()
        # Behind their rows: an acker that knows a firing without them would find it complete.
        before = len(scope.fails)
        owed.trees += scope.take_firings(now, self._refused)
        if self._refused:
            self._causes.note(list(scope.fails)[before:], next(iter(self._refused.values())))
            self._refused.clear()
        self._counters.acked += scope.acked
        scope.acked = 0
        owed.acks.merge(scope.acks)
        if scope.fails:
            owed.fail(scope.fails)
            scope.fails.clear()

    def _lose_anchored(self, values: Any, anchors: tuple[TrackedTuple, ...], error: Exception) -> None:
        super()._lose_anchored(values, anchors, error)
        self._refused.update(dict.fromkeys([root for anchor in anchors for root in anchor.roots], error))

    def _send_only(self, keys: Sequence[Any], window: Any, rows: Sequence[Row], timestamp: int) -> bool:
        now, scope, collector = self._state.now, self.scope, self._collector
        found = None if self._out.watermarks.is_used else scope.only_panes(keys, window)
        if found is None:
            return False
        if collector.count():
            self.settle_calls(collector, now)
        main = collector.put_plain(rows, timestamp)
        if main is None:
            return False
        panes, roots = found
        owed, refused = bytearray(8 * len(roots)), dict[int, Exception]()
        if self._state.observer is not None:
            self._state.observer.rows_emitted(self._state.id, collector.streams)
        if roots:
            main.ends = list(range(1, len(rows) + 1))
            self._emission.single(main, pack_words(roots), owed, refused.__setitem__, None)
        else:
            self._emission.untracked(main, self._reject_untracked(main))
        collector.clear()
        values = unpack_words(owed)
        for place, error in refused.items():
            values[place] = values[place] or 1
            self._causes.note(panes[place].roots, error)
            self._reports.record(error, now)
        scope.fired_once(keys, window, panes, roots, values, now)
        scope.failed([roots[place] for place in refused])
        followed = enumerate(zip(roots, values, strict=True))
        self.owed.trees += [tree for place, tree in followed if tree[1] and place not in refused]
        return True

    def on_verdicts(self, frame: Frame, now: float) -> None:
        """Pass the verdicts of firings on to their inputs."""
        if frame.kind is FrameKind.ACKED:
            self.scope.completed(frame.root_list())
        elif frame.kind is FrameKind.FAILED:
            self.scope.failed(frame.root_list())
        else:
            self.owed.touch(self.scope.touched(frame.root_list(), now))
        self.settle_calls(self._collector, now)

    def _roots_in_panes(self, waiting: dict[int, None], now: float) -> dict[int, None]:
        """Return the roots of inputs in panes while none can come, and those of firings whose rows or verdicts wait."""
        scope = self.scope
        held: dict[int, None] = {}
        if self._outbound.outbox.is_full or self._inbound.queue:
            kept = [frame for _, frame in self._inbound.queue if frame.kind in (FrameKind.ACKED, FrameKind.TOUCHED)]
            held = scope.held_roots() | scope.touched([root for frame in kept for root in frame.root_list()], now)
        # Firings are roots of this task: the verdict that they are kept need not come from the ackers.
        return held | scope.touched([*waiting, *held], now)
