"""The panes of windows that take batches of columns, in a tracked topology: each is a whole window.

A batch has rows of many keys under one edge. So it is held by windows, not by keys in them; the results of a window leave
in a few firings, and a result that fails, or a call that raises for one key, fails all batches of its window.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from topo.config import TopologyConfig
from topo.emission.collectors import BoltCollector
from topo.emission.operator_rows import OperatorRows
from topo.hot import Row
from topo.task.guarantees.window_firings import FiringScope
from topo.tracking.window_tracking import WindowTracker


class WholeWindowScope(FiringScope):
    """As its base, for panes without keys. A window is released when all its keys have fired.

    Args:
        tracker: of the panes.
        collector: takes the rows of the operator.
        config: has the number of attempts.
    """

    def __init__(self, tracker: WindowTracker, collector: BoltCollector, config: TopologyConfig) -> None:
        super().__init__(tracker, collector, config, self._emit_together)
        self._rows = OperatorRows(collector)
        self.held = lambda position, key, window: tracker.held(position, None, window)
        self.abandon = lambda key, window: tracker.abandon(None, window)
        # Other keys may hold rows of the same batches: `released_all` comes behind the last of them.
        self.released = lambda key, window: None

    def firing(self, key: Any, window: Any) -> None:
        """Anchor the results of a key on a firing of its window."""
        super().firing(None, window)

    def _emit_together(self, keys: Sequence[Any], window: Any, rows: Sequence[Row], ends: Sequence[int], timestamp: int) -> bool:
        """Emit the results of some keys under one root; False if they have to fire one by one."""
        self.firing(None, window)
        is_done = self._rows.emit_together(rows, timestamp)
        self.fired()
        return is_done
