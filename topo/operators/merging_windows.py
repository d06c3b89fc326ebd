"""The set of windows in flight of one key, for assigners that merge windows.

Theory: merging two sessions must not copy their contents each time. So every window in flight is mapped to a *state window*, the
namespace under which its contents are kept. When windows merge, the result inherits the state window of one of its members and
only the contents of the others are moved there. Triggers and clean-up timers, in contrast, always belong to the window in flight.

Which windows merge is for the assigner to say. By default those that overlap or touch.

Invariants: of the windows in flight alone nothing merges any more; no two of them have the same state window.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from topo.api.windows import TimeWindow, merge_time_windows
from topo.errors import FrameworkBug


class OnMerge(Protocol):
    """Called for each merge, when the set knows the result already."""

    def __call__(
        self, result: TimeWindow, members: list[TimeWindow], state_window: TimeWindow, merged_state_windows: list[TimeWindow]
    ) -> None:
        """Take note of a merge.

        Args:
            result: the window that is in flight from now on.
            members: the windows in flight that became it, in the order in which the assigner names them (by default that of their
                starts); the added one only if it was in flight before.
            state_window: where the contents of the result are.
            merged_state_windows: the other members' state windows, whose contents have to move there.
        """


Merge = Callable[[Sequence[TimeWindow]], Iterable[tuple[TimeWindow, Collection[TimeWindow]]]]
"""What `WindowAssigner.merge` is."""


class MergingWindowSet:
    """Maps the windows in flight of one key to their state windows.

    Args:
        mapping: windows in flight to state windows.
        merge: says which windows become one; the assigner's.
    """

    def __init__(self, mapping: Mapping[TimeWindow, TimeWindow] | None = None, merge: Merge = merge_time_windows) -> None:
        self._mapping = dict(mapping or {})
        self._merges_of = merge
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
        """Add the window of an element and merge what there is to merge.

        Returns:
            The window in flight that the element belongs to now: `new` itself, or what it was merged into.
        """
        found = None
        for result, group in self._merges_of((*self._mapping, new)):
            self._merge(result, group, on_merge)
            if new in group:
                found = result
        if found is not None:
            return found
        # Dynamic gaps can give exactly a window that merging made before; mapping it to itself would lose its contents.
        self._mapping.setdefault(new, new)
        return new

    def _merge(self, result: TimeWindow, group: Collection[TimeWindow], on_merge: OnMerge) -> None:
        mapping = self._mapping
        members = [window for window in dict.fromkeys((*group, result)) if window in mapping]
        state_windows = [mapping.pop(member) for member in members]
        mapping[result] = state_windows[0] if members else result
        if members and members != [result]:
            on_merge(result, members, state_windows[0], state_windows[1:])

    def validate(self) -> None:
        """Assert the invariants."""
        assert not [*self._merges_of((*self._mapping,))], f"windows in flight overlap or touch, or merge: {self._mapping}"
        assert len(set(self._mapping.values())) == len(self._mapping), f"a state window is shared: {self._mapping}"


def restored_mapping(pairs: Iterable[Iterable[Iterable[int]]]) -> dict[TimeWindow, TimeWindow]:
    """Rebuild a mapping from a snapshot, whose windows may have become plain sequences."""
    return {TimeWindow(*window): TimeWindow(*state_window) for window, state_window in pairs}
