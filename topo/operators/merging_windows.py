"""The set of windows in flight of one key, for assigners that merge windows.

Theory: merging two sessions must not copy their contents each time. So every window in flight is mapped to a *state window*, the
namespace under which its contents are kept. When windows merge, the result inherits the state window of one of its members and
only the contents of the others are moved there. Triggers and clean-up timers, in contrast, always belong to the window in flight.

Invariants: no two windows in flight overlap or touch; no two have the same state window.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from topo.api.windows import TimeWindow
from topo.errors import FrameworkBug
from topo.operators.assigners import merge_time_windows


class OnMerge(Protocol):
    """Called for each merge, when the set knows the result already."""

    def __call__(
        self, result: TimeWindow, members: list[TimeWindow], state_window: TimeWindow, merged_state_windows: list[TimeWindow]
    ) -> None:
        """Take note of a merge.

        Args:
            result: the window that is in flight from now on.
            members: the windows that were in flight and are not any more, in order of their starts; never the added one.
            state_window: where the contents of the result are.
            merged_state_windows: the other members' state windows, whose contents have to move there.
        """


class MergingWindowSet:
    """Maps the windows in flight of one key to their state windows."""

    def __init__(self, mapping: Mapping[TimeWindow, TimeWindow] | None = None) -> None:
        self._mapping = dict(mapping or {})
        self._loaded = dict(self._mapping)

    @property
    def mapping(self) -> Mapping[TimeWindow, TimeWindow]:
        """Windows in flight to state windows."""
        return self._mapping

    @property
    def is_changed(self) -> bool:
        """Whether the mapping differs from what the set was made with, so that it has to be written back."""
        return self._mapping != self._loaded

    def state_window(self, window: TimeWindow) -> TimeWindow | None:
        """Return the namespace of the window's contents, or None when it is not in flight."""
        return self._mapping.get(window)

    def retire(self, window: TimeWindow) -> None:
        """Forget a window in flight.

        Raises:
            FrameworkBug: it is not in flight.
        """
        if self._mapping.pop(window, None) is None:
            raise FrameworkBug(f"window {window} is retired but is not in flight")

    def add(self, new: TimeWindow, on_merge: OnMerge) -> TimeWindow:
        """Add the window of an element and merge what overlaps or touches.

        Returns:
            The window in flight that the element belongs to now: `new` itself, or what it was merged into.
        """
        if new in self._mapping:
            # Dynamic gaps can give exactly a window that merging made before; mapping it to itself would lose its contents.
            return new
        for result, group in merge_time_windows((*self._mapping, new)):
            self._merge(result, [window for window in group if window != new], on_merge)
            if new in group:
                return result
        self._mapping[new] = new
        return new

    def _merge(self, result: TimeWindow, members: list[TimeWindow], on_merge: OnMerge) -> None:
        state_windows = [self._mapping.pop(member) for member in members]
        self._mapping[result] = state_windows[0]
        if members != [result]:
            on_merge(result, members, state_windows[0], state_windows[1:])

    def validate(self) -> None:
        """Assert the invariants."""
        assert not merge_time_windows(self._mapping), f"windows in flight overlap or touch: {self._mapping}"
        assert len(set(self._mapping.values())) == len(self._mapping), f"a state window is shared: {self._mapping}"


def restored_mapping(pairs: Iterable[Iterable[Iterable[int]]]) -> dict[TimeWindow, TimeWindow]:
    """Rebuild a mapping from a snapshot, whose windows may have become plain sequences."""
    return {TimeWindow(*window): TimeWindow(*state_window) for window, state_window in pairs}
