"""The panes of one task that hold inputs, by window and key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from topo.tracking.firings import Pane


class PaneTable:
    """Panes by window, then by key. No window is without panes, but while `of_window` is in use."""

    __slots__ = ("_windows",)

    def __init__(self) -> None:
        self._windows: dict[Any, dict[Any, Pane]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._windows.values()))

    def __iter__(self) -> Iterator[Pane]:
        return (pane for panes in self._windows.values() for pane in panes.values())

    def of_window(self, window: Any) -> dict[Any, Pane]:
        """Return the panes of a window by key; the caller adds one if there is none."""
        panes = self._windows.get(window)
        if panes is None:
            panes = self._windows[window] = {}
        return panes

    def open(self, key: Any, window: Any) -> Pane:
        """Return a pane, a new one if there was none."""
        panes = self.of_window(window)
        pane = panes.get(key)
        if pane is None:
            pane = panes[key] = Pane()
        return pane

    def find(self, key: Any, window: Any) -> Pane | None:
        """Return a pane if there is one."""
        panes = self._windows.get(window)
        return None if panes is None else panes.get(key)

    def find_all(self, keys: Sequence[Any], window: Any) -> list[Pane | None]:
        """Return the panes of some keys, None where there is none."""
        return list(map(self._windows.get(window, {}).get, keys))

    def take(self, key: Any, window: Any) -> Pane | None:
        """Remove a pane, and return it."""
        panes = self._windows.get(window)
        pane = None if panes is None else panes.pop(key, None)
        if panes is not None and not panes:
            del self._windows[window]
        return pane

    def remove_all(self, keys: Sequence[Any], window: Any) -> None:
        """Remove panes of one window, all of which are there."""
        panes = self._windows[window]
        for key in keys:
            del panes[key]
        if not panes:
            del self._windows[window]

    def take_window(self, window: Any) -> list[Pane]:
        """Remove all panes of a window, and return them."""
        return list(self._windows.pop(window, {}).values())

    def take_all(self) -> list[Pane]:
        """Remove all panes, and return them."""
        panes = list(self)
        self._windows.clear()
        return panes

    def validate(self) -> None:
        """Check that no window is without panes."""
        assert all(self._windows.values()), "a window without panes"
