"""The calls of a window task in a tracked topology: results are anchored on their firing, a call that raises fails its inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from topo.api.operator_bolts import WindowBolt
from topo.emission.collectors import Mark, TrackedTuple
from topo.errors import FrameworkBug, TooLate
from topo.operators.windows.operator import WindowOperator
from topo.task.batch import Batch
from topo.task.runners.operator import OperatorTask
from topo.tracking.window_tracking import WindowTracker
from topo.wire.frames import Anchoring, Frame, FrameKind, pack_words


class TrackedWindowScope(WindowTracker):
    """The scope of a window operator whose firings are roots of the task.

    Args:
        task: runs the operator.
    """

    def __init__(self, task: OperatorTask) -> None:
        super().__init__(task.ports.ids)
        self._task = task
        self._collector = task._collector
        self._firing_mark: Mark = self._collector.mark()
        self._tries = 0
        """How often the firing at hand has raised."""
        self._late: dict[int, TrackedTuple] = {}
        """By position: elements of the slice that went to the late stream."""
        self._slice: tuple[Batch, int] | None = None
        self._inits: list[tuple[int, int]] = []
        task._output.side_anchors = self._side_anchors

    def reset(self, epoch: int) -> None:
        """Forget everything: inputs that were held are replayed."""
        super().reset(epoch)
        self._inits.clear()

    # -- firings ---------------------------------------------------------------------------------------------------------

    def firing(self, key: Any, window: Any) -> None:
        """Anchor the results of a pane on its firing."""
        super().firing(key, window)
        self._task._output.anchors = () if self.current is None else (self.current.anchor,)
        self._firing_mark = self._collector.mark()
        self._tries = 0

    def raised(self, error: Exception) -> bool:
        """Take back the results of the firing, if it may try again. Its changes of state stay."""
        config = self._task.config
        self._tries += 1
        if self._tries >= config.attempts or config.on_error == "crash" or isinstance(error, FrameworkBug):
            return super().raised(error)
        self._collector.rewind(self._firing_mark)
        return True

    def _discard_firing(self, error: Exception) -> int:
        """Discard the results of the firing that has raised, if one has; its inputs fail.

        Returns how many of them are lost, since nobody tracks them.
        """
        if self.is_firing:
            self._task._roll_back(self._firing_mark, None, error)
            self.fail_current()
        if self.fails:
            self._task.reports.causes.note(self.fails, error)
        return 0 if self._task._ackers else self.take_lost()

    def _side_anchors(self, stream: str) -> tuple[TrackedTuple, ...]:
        """Return the anchors of a side output: the element at hand where it is a late one, else the firing."""
        task = self._task
        bolt, operator = task.component, task._operator
        assert isinstance(bolt, WindowBolt) and isinstance(operator, WindowOperator)
        if stream != bolt.late_stream or self._slice is None:
            return task._output.anchors
        batch, first = self._slice
        position = operator.position
        late = TrackedTuple.made((), batch.origin, None, task.epoch, *batch.ids_at(first + position))
        self._late[position] = late
        return (late,)

    # -- calls -----------------------------------------------------------------------------------------------------------

    def begin_slice(self, batch: Batch, first: int, last: int) -> None:
        """The operator gets inputs of a batch next."""
        if batch.anchoring is Anchoring.NONE:
            roots = edges = [()] * (last - first)
        else:
            roots, edges = batch.roots[first:last], batch.edges[first:last]
        self.begin(roots, edges, is_single=batch.anchoring is Anchoring.SINGLE, are_replays=batch.is_replay)
        self._slice = (batch, first)

    def took(self, count: int, now: float) -> None:
        """Ack the inputs that no window took: late, and dropped or put out on the late stream, or in a gap between windows.

        A replay is not dropped: it fails again when it is too late for a window.
        """
        assert self._slice is not None
        task, (batch, first) = self._task, self._slice
        task._settle(now)
        acks = task._acks
        missed = {position for position in self.missed_replays if position < count and position not in self._late}
        if missed:
            error = TooLate(f"component {task.component_id!r}: a message that had failed came again too late for its window")
            for position in missed:
                task._fail(batch.ids_at(first + position)[0], error)
            task.counters.failed += len(missed)
            task.reports.record(error, now)
        for position in self.unheld():
            if position < count and position not in missed:
                task.counters.acked += 1
                late = self._late.get(position)
                out = 0 if late is None else late.out
                for root, edge in zip(*batch.ids_at(first + position), strict=True):
                    acks[root] = acks.get(root, 0) ^ edge ^ out
        self._late.clear()

    def element_raised(self, place: int, _again: Callable[[], object], _row: Any, error: Exception, now: float) -> None:
        """Fail the input at a place of the slice, and the inputs of the firing that it has caused, if that has raised."""
        assert self._slice is not None
        task, (batch, first) = self._task, self._slice
        lost = self._discard_firing(error)
        self.took(place, now)
        task._fail(batch.ids_at(first + place)[0], error)
        # The element at hand may be in the pane that has fired.
        task.counters.failed += max(1, lost)
        task._user_error(error, now)

    def end_slices(self, batch: Batch, begin: int, now: float) -> None:
        """The inputs of a batch from `begin` on have been taken."""
        task, self._slice = self._task, None
        if task._ended_in_epoch:
            task._user_end()
        task._settle(now)
        if task._observer is not None:
            task._observer.inputs_acked(task.id, [batch.ids_at(index) for index in range(begin, batch.done)])

    def call_raised(self, error: Exception, now: float) -> None:
        """Fail the inputs of a firing that a timer has caused."""
        self._task.counters.failed += self._discard_firing(error)
        self._task._user_error(error, now)

    def end_of_input(self) -> None:
        """Release the panes that will never fire."""
        self.release_all()

    # -- verdicts --------------------------------------------------------------------------------------------------------

    @property
    def owes(self) -> bool:
        """There are acks or fails that the task has not taken."""
        return bool(self.acks or self.fails)

    def settle(self, now: float) -> None:
        """Start new firings behind their results; give the task the acks and fails of inputs."""
        task = self._task
        task._output.anchors = ()
        self._inits += self.take_firings(now)
        task.counters.acked += self.acked
        self.acked = 0
        if not task._acks:
            task._acks, self.acks = self.acks, task._acks
        elif self.acks:
            acks = task._acks
            for root, value in self.acks.items():
                acks[root] = acks.get(root, 0) ^ value
            self.acks.clear()
        if self.fails:
            task._fails.update(self.fails)
            self.fails.clear()

    def on_verdicts(self, frame: Frame, now: float) -> None:
        """Pass the verdicts of firings on to their inputs."""
        if frame.kind is FrameKind.ACKED:
            self.completed(frame.root_list())
        elif frame.kind is FrameKind.FAILED:
            self.failed(frame.root_list())
        else:
            self._task._touches.update(self.touched(frame.root_list(), now))
        self._task._settle(now)

    def held_roots(self) -> dict[int, None]:
        """Return the roots of the inputs of all panes, and of the firings whose verdicts wait behind the input."""
        kept = [frame for _, frame in self._task.inbound.queue if frame.kind in (FrameKind.ACKED, FrameKind.TOUCHED)]
        return super().held_roots() | self.touched([root for frame in kept for root in frame.root_list()], self._task.state.now)

    def deadline(self) -> float | None:
        """When the oldest firing without a verdict expires, in monotonic seconds."""
        oldest, timeout = self.oldest_firing(), self._task.plan.longest_message_timeout_s
        return None if oldest is None or timeout is None else oldest + timeout

    def on_time(self, now: float) -> None:
        """Fail the firings that have had no verdict for too long."""
        task = self._task
        timeout = task.plan.longest_message_timeout_s
        # Verdicts that came while the process was held up count before the timeouts of the same time.
        if timeout is not None and not task.inbound.queue and self.oldest_firing() is not None:
            task.counters.timed_out += self.expire(now, timeout)

    def flush_is_due(self) -> bool:
        """There are firings that the ackers do not know."""
        return bool(self._inits)

    def flush(self) -> None:
        """Send the ackers the new firings."""
        if self._inits and self._task._ackers:
            roots, values = zip(*self._inits, strict=True)
            self._inits = []
            self._task._acker_routes.send(FrameKind.INIT, pack_words(roots), pack_words(values))
