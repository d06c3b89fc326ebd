"""Firings of tracked windows: each is a root of its task, and its verdict becomes that of the inputs in its window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from topo.config import TopologyConfig
from topo.emission.collectors import BoltCollector, Mark, TrackedTuple
from topo.errors import TopoInternalError
from topo.hot import Row
from topo.task.error_reports import Reports
from topo.task.state import TaskState
from topo.tracking.owed_ids import OwedIds
from topo.tracking.window_tracking import WindowTracker

SendWhole = Callable[[Sequence[Any], Any, Sequence[Row], Sequence[int], int], bool]


class WindowFirings:
    """The firings of one task. The guarantee of its inputs settles them, behind the rows that they emitted.

    Args:
        tracker: of the panes.
        state: of the task.
        reports: of the task.
        collector: takes the rows of the operator.
    """

    def __init__(self, tracker: WindowTracker, state: TaskState, reports: Reports, collector: BoltCollector) -> None:
        self._tracker = tracker
        self._state = state
        self._causes = reports.causes
        self._collector = collector
        self._refused: dict[int, Exception] = {}
        """By root: firings with a result that no task can be sent."""

    def begin_epoch(self) -> None:
        """Forget all panes and firings: their inputs are replayed."""
        self._tracker.reset(self._state.epoch)

    def refuse(self, anchors: Sequence[TrackedTuple], error: Exception) -> None:
        """No task can be sent a row of these firings."""
        self._refused.update(dict.fromkeys([root for anchor in anchors for root in anchor.roots], error))

    def settle(self, owed: OwedIds, now: float) -> None:
        """Start the firings whose rows have been routed, and owe the inputs of panes that are done."""
        tracker, counters = self._tracker, self._state.counters
        self._collector.current = ()
        # Behind their rows: an acker that knows a firing without them would find it complete.
        before = len(tracker.fails)
        owed.trees += tracker.take_firings(now, self._refused)
        if self._refused:
            self._causes.note(list(tracker.fails)[before:], next(iter(self._refused.values())))
            self._refused.clear()
        counters.acked += tracker.acked
        tracker.acked = 0
        owed.acks.merge(tracker.acks)
        if tracker.fails:
            owed.fail(tracker.fails)
            tracker.fails.clear()

    @property
    def is_quiet(self) -> bool:
        """Whether all values of inputs have been handed over."""
        return not self._tracker.acks and not self._tracker.fails


class FiringScope:
    """The scope of a window operator whose panes are tracked. A firing that raises is repeated in place.

    Args:
        tracker: of the panes.
        collector: takes the rows of the operator.
        config: has the number of attempts.
        send_whole: sends the only results of panes of one window; returns False if they have to fire one by one.

    Attributes:
        mark: how far the output had come when the current firing began.
    """

    def __init__(self, tracker: WindowTracker, collector: BoltCollector, config: TopologyConfig, send_whole: SendWhole) -> None:
        self._tracker = tracker
        self._collector = collector
        self._attempts = 1 if config.on_error == "crash" else config.attempts
        self._tries = 0
        self.mark: Mark = collector.mark()
        # What concerns inputs goes to the tracker as it is: some of these are called for each element.
        self.held, self.held_run, self.missed = tracker.held, tracker.held_run, tracker.missed
        self.merge, self.evicted, self.abandon = tracker.merge, tracker.evicted, tracker.abandon
        self.released, self.released_all, self.release_all = tracker.released, tracker.released_all, tracker.release_all
        self.fired, self.fired_whole = tracker.fired, send_whole

    def firing(self, key: Any, window: Any) -> None:
        """Anchor the results of a pane on its firing."""
        tracker = self._tracker
        tracker.firing(key, window)
        self._collector.current = () if tracker.current is None else (tracker.current.anchor,)
        self.mark = self._collector.mark()
        self._tries = 0

    def raised(self, error: Exception) -> bool:
        """Take back the results of the firing, if it may try again. Its changes of state stay."""
        self._tries += 1
        if self._tries >= self._attempts or isinstance(error, TopoInternalError):
            return self._tracker.raised(error)
        self._collector.rewind(self.mark)
        return True
