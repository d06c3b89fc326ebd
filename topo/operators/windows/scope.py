"""The scope of a window operator's calls: which inputs and which pane a call belongs to, and what becomes of one that raises.

A pane is a key with the window that its contents lie under. The operator reports to one scope, set by its driver, and does not
know which: in a tracked topology the scope follows which inputs are held by which panes and firings; with checkpoints it marks
each call, so that the driver can undo and repeat it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from topo.operators.state.undo_log import UndoLog


class WindowTimer(NamedTuple):
    """A timer of a window."""

    key: Any
    window: Any
    timestamp: int
    is_event_time: bool


class WindowScope(Protocol):
    """Follows the calls of a window operator.

    Attributes:
        can_undo: a call that raises is undone: state that the operator changes in place has to be copied before.
    """

    can_undo: bool

    def begin_element(self, position: int) -> None:
        """A call begins for an element. Not called for elements taken a short way, which change nothing when they raise.

        Args:
            position: of the element in the batch at hand; 0 with `process_element`.
        """

    def begin_timer(self, key: Any, window: Any, timestamp: int, is_event_time: bool) -> None:
        """A call begins for a timer of a window."""

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
        """The pane has put out all results. Not called when it has raised for good."""

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


class NoWindowScope:
    """Follows nothing: calls are neither tracked nor repeated."""

    can_undo = False

    def begin_element(self, position: int) -> None: ...

    def begin_timer(self, key: Any, window: Any, timestamp: int, is_event_time: bool) -> None: ...

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


class UndoingWindowScope(NoWindowScope):
    """Marks each call, so that it can be undone: state and timers by the log, output by `rewind`.

    Args:
        log: the operator's.
        mark: returns how far the output has come.
        rewind: takes back the output since a mark.

    Attributes:
        timer: of the last call for a timer; after an exception in it, the timer that raised.
    """

    can_undo = True

    def __init__(self, log: UndoLog, mark: Callable[[], Any], rewind: Callable[[Any], object]) -> None:
        self._log = log
        self._take_mark = mark
        self._rewind = rewind
        self._position = -1
        self._mark: Any = None
        self.timer: WindowTimer | None = None

    def begin_batch(self) -> None:
        """A batch begins: no call for one of its elements has begun."""
        self._position = -1

    def begin_element(self, position: int) -> None:
        """Mark the call."""
        self._log.begin()
        self._position = position
        self._mark = self._take_mark()

    def begin_timer(self, key: Any, window: Any, timestamp: int, is_event_time: bool) -> None:
        """Mark the call."""
        self._log.begin()
        self.timer = WindowTimer(key, window, timestamp, is_event_time)
        self._mark = self._take_mark()

    def undo_element(self, position: int) -> None:
        """Undo the call for an element, if it was a call: the short way changes nothing when it raises."""
        if self._position == position:
            self.undo_timer()
        self._position = -1

    def undo_timer(self) -> None:
        """Undo the last call."""
        self._log.undo()
        self._rewind(self._mark)
