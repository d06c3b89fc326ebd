"""The short way through the window operator for its commonest use.

Tumbling event-time windows with the event-time trigger and an accumulator need no trigger to be asked, for its answers are
known: an element in a window that is still open registers the two timers of (key, window) if it is the first, and nothing else;
a timer at the window's last millisecond fires; one at the clean-up time clears. State, timers and snapshots are those of
`WindowOperator`, which also takes every element that is not in an open window, so the two differ in speed alone. A contract
test runs both on the same input.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping, Sequence
from typing import Any

from topo.api.windows import TimeWindow
from topo.hot import ATOMS
from topo.operators.base import OperatorContext
from topo.operators.state.deep_copy import independent
from topo.operators.time.clock import MAX_TIMESTAMP
from topo.operators.windows.assigners import TumblingAssigner
from topo.operators.windows.contents import Accumulated
from topo.operators.windows.functions import EmitResult
from topo.operators.windows.operator import WindowOperator, WindowTimer


class TumblingFastPath(WindowOperator):
    """Tumbling event-time windows that accumulate and fire at their end; made by `build_window_operator`."""

    assigner: TumblingAssigner
    _contents: Accumulated

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        self._result_of = self._function.result_of if isinstance(self._function, EmitResult) else None
        # Windows that the watermark has not reached, by start. What they hold may be changed without asking further.
        self._open: dict[int, MutableMapping[Any, Any]] = {}
        self._open_windows: dict[int, TimeWindow] = {}
        self._taken: dict[int, list[int]] = {}
        """By start: the positions of the batch that have gone into the window and are not known to the scope."""

    def process_batch(self, keys: Sequence[Any], values: Sequence[Any], timestamps: Sequence[int | None]) -> None:
        """Take several elements; most cost two look-ups and a call of the aggregate."""
        if not len(keys):
            return
        size, offset = self.assigner.size_ms, self.assigner.effective_offset(self._now_ms)
        rows_of, more, taken = self._open.get, self._contents.more, self._taken
        if not self._keyed:
            keys = [None] * len(keys)
        # Should `more` raise, the stored value has to be the former one.
        can_undo = self.undo_log is not None
        copies = can_undo and not self._contents.is_atomic
        elements: Iterable[Any] = values
        if can_undo:
            self._contents.look_at(values)
            if self._contents.copies:
                elements = map(independent, values)
        position = self.position = -1
        try:
            for position, (key, value, timestamp) in enumerate(zip(keys, elements, timestamps)):  # noqa: B905
                if timestamp is None or (rows := rows_of(start := timestamp - (timestamp - offset) % size)) is None:
                    self._take_into_unopened(position, key, value, timestamp)
                    continue
                kept = rows.get(key)
                if kept is None:
                    self._take_first(rows, key, value, start)
                else:
                    if copies and type(kept) not in ATOMS:
                        kept = independent(kept)
                    rows[key] = kept = more(value, kept)
                    if kept is None:
                        self._forget(key, start)
                taken[start].append(position)
        finally:
            if self.position != position:
                # The last element went the short way, which changes nothing when it raises: there is nothing to undo.
                self.begin_call()
            self.position = position
            self._report_held(keys)

    def _report_held(self, keys: Sequence[Any]) -> None:
        for start, positions in self._taken.items():
            if positions:
                self.scope.held_run(positions, keys, self._open_windows[start])
                positions.clear()
        if len(self._taken) > len(self._open):
            self._taken = {start: self._taken[start] for start in self._open}

    def on_event_time(self, key: Any, namespace: Any, timestamp: int) -> None:
        self._open.clear()
        self._open_windows.clear()
        self._taken.clear()
        if self.undo_log is not None:
            self._begin_timer(WindowTimer(key, namespace, timestamp, True))
        last = namespace.end - 1
        try:
            if timestamp == last:
                if self._result_of is None:
                    self._fire(key, namespace, namespace)
                else:
                    self._put_out(key, namespace, lambda: self._emit(key, namespace, last))
        finally:
            if timestamp == min(last + self._lateness_ms, MAX_TIMESTAMP):
                self._clear_contents(key, namespace)
                self._function.clear(key, namespace)

    def _emit(self, key: Any, window: Any, last: int) -> None:
        handle = self._contents.handle
        handle.namespace = window
        result = handle.get()
        if result is not None:
            self.output.emit(self._result_of(key, window, result), last)  # type: ignore[misc]

    def _take_into_unopened(self, position: int, key: Any, value: Any, timestamp: int | None) -> None:
        self.position = position
        self._take(key, value, timestamp)
        (window,) = self.assigner.assign(value, timestamp, self._now_ms)  # type: ignore[arg-type]
        if window.max_timestamp > self._timers.current_watermark:
            self._open[window.start] = self._contents.handle.rows(window)
            self._open_windows[window.start] = window
            self._taken.setdefault(window.start, [])

    def _take_first(self, rows: MutableMapping[Any, Any], key: Any, value: Any, start: int) -> None:
        first = self._contents.first(value)
        if first is not None:
            rows[key] = first
        window = self._open_windows[start]
        self.keys.key = key
        self._timers.register_event_timer(window, window.end - 1)
        if self._lateness_ms:
            self._register_cleanup(window)

    def _forget(self, key: Any, start: int) -> None:
        # State holds no None: an aggregate that gives it has dropped the window's contents.
        self.keys.key = key
        self._contents.clear(self._open_windows[start])
        self._open.pop(start)
