"""The scope of a window operator: follows which inputs each pane holds, and which pane each result comes from.

A pane is a key with the window that its contents lie under. The operator reports to one scope, set by its driver. A scope in a
tracked topology ties the acks of inputs to the results of their panes; windows in checkpoints need none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class WindowScope(Protocol):
    """Follows the panes of a window operator. A position is that of an element in the current batch."""

    def held(self, position: int, key: Any, window: Any) -> None:
        """An element went into a pane."""

    def held_run(self, positions: Sequence[int], keys: Sequence[Any], window: Any) -> None:
        """Elements went into panes of one window, and each into no other.

        Args:
            positions: of the elements in the batch at hand.
            keys: of all elements of the batch.
            window: the panes' window.
        """

    def missed(self, position: int) -> None:
        """An element of the batch at hand was too late for one of its windows, which is over."""

    def merge(self, key: Any, target: Any, sources: Sequence[Any]) -> None:
        """The pane `target` holds the elements of the panes `sources` from now on, behind its own."""

    def firing(self, key: Any, window: Any) -> None:
        """The results put out next, until `fired`, come from this pane."""

    def raised(self, error: Exception) -> bool:
        """The function of the pane that fires has raised; return whether to call it again at once."""

    def fired(self) -> None:
        """The pane has put out all results. Not called when its last attempt has raised."""

    def abandon(self, key: Any, window: Any) -> None:
        """The pane is over, and a call for it has raised before it could fire; it is released next."""

    def evicted(self, key: Any, window: Any, positions: Sequence[int]) -> None:
        """Elements have left the pane.

        Args:
            key: the pane's key.
            window: the pane's window.
            positions: of the elements, in the order in which the pane holds them.
        """

    def released(self, key: Any, window: Any) -> None:
        """The pane holds nothing any more."""

    def fired_whole(self, keys: Sequence[Any], window: Any, rows: Sequence[Any], ends: Sequence[int], timestamp: int) -> bool:
        """Put out the only results of panes of one window, and release the panes.

        Args:
            keys: of the panes.
            window: the panes' window.
            rows: of all panes, in the order of the keys.
            ends: for each pane the number of rows up to its last.
            timestamp: of the rows.

        Returns:
            Whether that was done; False when nothing was, and the panes have to fire one by one.
        """

    def released_all(self, window: Any) -> None:
        """The panes of a window hold nothing any more."""

    def release_all(self) -> None:
        """The input has ended: no pane fires any more."""


class NoWindowScope:
    """Follows nothing."""

    def held(self, position: int, key: Any, window: Any) -> None: ...

    def held_run(self, positions: Sequence[int], keys: Sequence[Any], window: Any) -> None: ...

    def missed(self, position: int) -> None: ...

    def merge(self, key: Any, target: Any, sources: Sequence[Any]) -> None: ...

    def firing(self, key: Any, window: Any) -> None: ...

    def raised(self, error: Exception) -> bool:
        return False

    def fired(self) -> None: ...

    def abandon(self, key: Any, window: Any) -> None: ...

    def evicted(self, key: Any, window: Any, positions: Sequence[int]) -> None: ...

    def released(self, key: Any, window: Any) -> None: ...

    def fired_whole(self, keys: Sequence[Any], window: Any, rows: Sequence[Any], ends: Sequence[int], timestamp: int) -> bool:
        return False

    def released_all(self, window: Any) -> None: ...

    def release_all(self) -> None: ...
