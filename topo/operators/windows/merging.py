"""The windows in flight of the current key, for assigners that merge windows.

Theory: merging two sessions must not copy their contents each time. So every window in flight is mapped to a *state window*, the
namespace under which its contents are kept. When windows merge, the result inherits the state window of one of its members and
only the contents of the others are moved there. Triggers and clean-up timers, in contrast, always belong to the window in flight.

The assigner decides which windows merge: by default those that overlap or touch. Then no two windows in flight overlap, so in a
list sorted by start the windows that a new one meets lie side by side, and a binary search finds them however many there are. An
assigner with another merge rule gets all windows in flight instead.

Invariants: the windows in flight are sorted; nothing merges among them; no two of them have the same state window.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Protocol

from topo.api.windows import TimeWindow, merge_time_windows
from topo.errors import TopoInternalError
from topo.operators.state.keyed_state import SortedState
from topo.operators.time.clock import MAX_TIMESTAMP

InFlight = tuple[TimeWindow, TimeWindow]
"""A window in flight and its state window."""


class OnMerge(Protocol):
    """Called for each merge before it takes effect; a merge whose call raises does not happen."""

    def __call__(
        self, result: TimeWindow, members: list[TimeWindow], state_window: TimeWindow, merged_state_windows: list[TimeWindow]
    ) -> None:
        """Take note of a merge.

        Args:
            result: the window that is in flight from now on.
            members: the windows in flight that become it, in the order in which the assigner names them (by default that of their
                starts); the added one only if it was in flight before.
            state_window: where the contents of the result are.
            merged_state_windows: the other members' state windows, whose contents have to move there.
        """


Merge = Callable[[Sequence[TimeWindow]], Iterable[tuple[TimeWindow, Collection[TimeWindow]]]]
"""What `WindowAssigner.merge` is."""


class MergingWindowSet:
    """The windows in flight of the current key, kept in its state.

    Args:
        state: holds the pairs of each key.
        merge: a merge rule of the assigner's own; None for windows that overlap or touch.
    """

    def __init__(self, state: SortedState, merge: Merge | None = None) -> None:
        self._state = state
        self._merges_of = merge

    @property
    def in_flight(self) -> Sequence[InFlight]:
        """The windows in flight of the current key, by start; not to be changed."""
        return self._state.get()

    def state_window(self, window: TimeWindow) -> TimeWindow | None:
        """Return the namespace of the window's contents, or None when it is not in flight."""
        pairs = self._state.get()
        at = bisect_left(pairs, (window,))
        return pairs[at][1] if at < len(pairs) and pairs[at][0] == window else None

    def retire(self, window: TimeWindow) -> None:
        """Forget a window in flight.

        Raises:
            TopoInternalError: it is not in flight.
        """
        if not self._remove(window):
            raise TopoInternalError(f"window {window} is retired but is not in flight")

    def add(self, new: TimeWindow, on_merge: OnMerge) -> InFlight:
        """Add the window of an element and merge what there is to merge.

        Returns:
            The window in flight that the element belongs to now (`new` itself, or the result of a merge), and its state window.
        """
        return self._add_by_start(new, on_merge) if self._merges_of is None else self._add_by_rule(new, on_merge, self._merges_of)

    def _add_by_start(self, new: TimeWindow, on_merge: OnMerge) -> InFlight:
        pairs = self._state.get()
        start = stop = bisect_right(pairs, ((new.end, MAX_TIMESTAMP),))
        while start and pairs[start - 1][0].end >= new.start:
            start -= 1
        if start == stop:
            added = (new, new)
            self._state.splice(start, stop, (added,))
            return added
        met: Sequence[InFlight] = pairs[start:stop]
        first, state_window = met[0]
        result = TimeWindow(min(first.start, new.start), max(met[-1][0].end, new.end))
        if len(met) == 1 and result == first:
            return first, state_window
        on_merge(result, [window for window, _ in met], state_window, [merged for _, merged in met[1:]])
        grown = (result, state_window)
        self._state.splice(start, stop, (grown,))
        return grown

    def _add_by_rule(self, new: TimeWindow, on_merge: OnMerge, merges_of: Merge) -> InFlight:
        found = None
        for result, group in merges_of((*(window for window, _ in self._state.get()), new)):
            self._merge(result, group, on_merge)
            if new in group:
                found = result
        # The rule can give exactly a window that is in flight already; mapping it to itself would lose its contents.
        window = new if found is None else found
        state_window = self.state_window(window)
        if state_window is None:
            state_window = window
            self._insert((window, window))
        return window, state_window

    def _merge(self, result: TimeWindow, group: Collection[TimeWindow], on_merge: OnMerge) -> None:
        held = {window: self.state_window(window) for window in dict.fromkeys((*group, result))}
        members = {window: state_window for window, state_window in held.items() if state_window is not None}
        if not members:
            self._insert((result, result))
        elif list(members) != [result]:
            state_window, *merged = members.values()
            on_merge(result, list(members), state_window, merged)
            for member in members:
                self._remove(member)
            self._insert((result, state_window))

    def _insert(self, pair: InFlight) -> None:
        at = bisect_left(self._state.get(), pair)
        self._state.splice(at, at, (pair,))

    def _remove(self, window: TimeWindow) -> bool:
        pairs = self._state.get()
        at = bisect_left(pairs, (window,))
        if at == len(pairs) or pairs[at][0] != window:
            return False
        self._state.splice(at, at + 1, ())
        return True

    def validate(self) -> None:
        """Assert the invariants for the current key."""
        pairs = self._state.get()
        windows = [window for window, _ in pairs]
        assert windows == sorted(windows), f"windows in flight are out of order: {pairs}"
        merges = [*(self._merges_of or merge_time_windows)(windows)]
        assert not merges, f"windows in flight overlap or touch, or merge: {pairs}"
        assert len({state_window for _, state_window in pairs}) == len(pairs), f"a state window is shared: {pairs}"


def restored_pairs(pairs: Iterable[Iterable[Iterable[int]]]) -> list[InFlight]:
    """Return the pairs of a snapshot in order; their windows may have become plain sequences."""
    return sorted((TimeWindow(*window), TimeWindow(*state_window)) for window, state_window in pairs)
