"""Windows that fire whole: one timer for all keys of a window, which fire one after the other when the watermark reaches it.

So do tumbling and sliding windows of event time with the event-time trigger and no lateness. Their timers follow from their
contents, so no checkpoint has them. Results of functions with `put_result` leave in batches; a pane whose call raises, or whose
result cannot go that way, is fired alone, as the panes of all other windows are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import chain, repeat
from typing import Any

from topo.api.windows import TimeWindow
from topo.hot import ATOMS, stays
from topo.operators.base import Output
from topo.operators.state.deep_copy import independent
from topo.operators.time.timer_queue import TimerQueue
from topo.operators.time.timers import Brake
from topo.operators.windows.contents import Accumulated, WindowContents
from topo.operators.windows.functions import EmitResult, PutResult, WindowFunction
from topo.operators.windows.scope import WindowScope

_AT_ONCE = 1_024
"""Panes of one batch of results."""

Attempt = Callable[[], None]
EndPane = Callable[[Any, TimeWindow, Attempt | None], None]


class WindowEnds:
    """The windows of one operator that have not fired, in the order of their ends.

    Args:
        contents: of the windows.
        function: of the windows.
        end_pane: fires and clears one pane; `first`, if any, takes the place of its first attempt.
    """

    def __init__(self, contents: WindowContents, function: WindowFunction, end_pane: EndPane) -> None:
        self._contents = contents
        self._end_pane = end_pane
        self._function = function if isinstance(contents, Accumulated) else None
        self._copies = not isinstance(function, EmitResult)
        self._ends: list[tuple[int, TimeWindow]] = []
        self._known: set[TimeWindow] = set()

    def setup(self, output: Output, scope: WindowScope, brake: Brake, *, can_undo: bool) -> None:
        """Take the surroundings of the operator."""
        self._output = output
        self._scope = scope
        self._brake = brake
        # A further attempt has to find the accumulator as it was, and user code may change the result.
        self._copies |= can_undo

    def __len__(self) -> int:
        return len(self._ends)

    @property
    def windows(self) -> list[TimeWindow]:
        """The windows, by their ends."""
        return [window for _, window in sorted(self._ends)]

    def add(self, window: TimeWindow) -> None:
        """Have a window fire at its end; again changes nothing."""
        if window not in self._known:
            self._known.add(window)
            heappush(self._ends, (window.max_timestamp, window))

    def restore(self, timers: TimerQueue, has_none: Callable[[Any], bool]) -> None:
        """Have all windows fire that have contents, and forget all others.

        Args:
            timers: of panes. A pane without one for its end has fired, and was kept for late elements.
            has_none: whether the snapshot has no timers for the panes of a key.
        """
        table = self._contents.handle.table
        for window in table.namespaces():
            last = window.max_timestamp
            table.discard(window, [key for key in table.keys(window) if not (has_none(key) or timers.has(last, key, window))])
        self._known = set(table.namespaces())
        self._ends = [(window.max_timestamp, window) for window in self._known]
        heapify(self._ends)

    def fire(self, watermark: int) -> bool:
        """Fire all windows that a watermark has reached, the earliest first.

        Returns:
            Whether all have fired; False when the brake was pulled before: to be called again, as after an exception.
        """
        ends = self._ends
        while ends and ends[0][0] <= watermark:
            _, window = ends[0]
            if not self._fire_panes(window):
                return False
            # Panes are left whose accumulators were dropped.
            self._scope.released_all(window)
            heappop(ends)
            self._known.discard(window)
        return True

    def _fire_panes(self, window: TimeWindow) -> bool:
        keys = self._contents.handle.table.keys(window)
        put_result = None if self._function is None else self._function.put_result
        if put_result is None:
            for key in keys:
                if self._brake.is_on:
                    return False
                self._end_pane(key, window, None)
            return True
        return all(self._fire_some(window, keys[at : at + _AT_ONCE], put_result) for at in range(0, len(keys), _AT_ONCE))

    def _fire_some(self, window: TimeWindow, keys: Sequence[Any], put_result: PutResult) -> bool:
        """Fire the panes of some keys; False if the brake has left some."""
        last = window.max_timestamp
        while keys:
            rows, ends, error = self._results(window, keys, put_result)
            made, keys = keys[: len(ends)], keys[len(ends) :]
            if made and self._scope.fired_whole(made, window, rows, ends, last):
                self._contents.handle.table.discard(window, made)
            else:
                for key, first, end in zip(made, (0, *ends), ends):  # noqa: B905
                    self._end_pane(key, window, partial(self._emit, rows[first:end], last))
            if error is not None:
                self._end_pane(keys[0], window, partial(_raise, error))
                keys = keys[1:]
            elif keys:
                return False
        return True

    def _keep(self, rows: list[Any]) -> Callable[[Any], None]:
        """Return a function that appends a row as it is now: user code may change its values before all panes have fired."""

        def put(row: Any) -> None:
            rows.append(row if type(row) is tuple and ATOMS.issuperset(map(type, row)) else independent(row))

        return put

    def _emit(self, rows: Sequence[Any], timestamp: int) -> None:
        for row in rows:
            self._output.emit(row, timestamp)

    def _results(
        self, window: TimeWindow, keys: Sequence[Any], put_result: PutResult
    ) -> tuple[list[Any], list[int], Exception | None]:
        """Return the rows of the first keys, where those of each key end, and the error of the next key if its call raised."""
        contents = self._contents
        assert isinstance(contents, Accumulated)
        cells, result, brake = contents.handle.table.rows(window), contents.result, self._brake
        rows, ends = list[Any](), list[int]()
        if contents.is_result and isinstance(self._function, EmitResult) and not brake.is_on:
            results = [cells[key] for key in keys]
            if ATOMS.issuperset(map(type, results)):
                contents.handle.table.give_back(window)
                return self._rows_of(self._function, window, keys, results)
        put = self._keep(rows) if self._copies else rows.append
        try:
            for key in keys:
                if brake.is_on:
                    break
                kept = cells[key]
                if self._copies and not stays(kept):
                    kept = independent(kept)
                value = result(kept)
                if value is not None:
                    put_result(key, window, value, put)
                ends.append(len(rows))
        except Exception as error:
            del rows[ends[-1] if ends else 0 :]
            return rows, ends, error
        finally:
            contents.handle.table.give_back(window)
        return rows, ends, None

    def _rows_of(
        self, function: EmitResult, window: TimeWindow, keys: Sequence[Any], results: Sequence[Any]
    ) -> tuple[list[Any], list[int], Exception | None]:
        """As `_results`, of results that cannot change: a row each, all at once."""
        rows, error = list[Any](), None
        try:
            # Rows that were made before one raises stay in the list.
            rows.extend(map(function.result_of, keys, repeat(window), results))
        except Exception as raised:
            error = raised
        if self._copies and not ATOMS.issuperset(map(type, chain.from_iterable(rows))):
            rows = list(map(independent, rows))
        return rows, list(range(1, len(rows) + 1)), error


def _raise(error: Exception) -> None:
    raise error
