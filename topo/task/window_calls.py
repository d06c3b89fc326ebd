"""Calls of a window operator that may raise: for the elements of a slice, and for a timer.

A call knows the element or timer that an exception belongs to, and how to undo and repeat it. The guarantee of the task decides
whether that happens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from topo.hot import Row
from topo.operators.windows.column_windows import ColumnWindows
from topo.operators.windows.operator import WindowOperator, WindowTimer
from topo.operators.windows.scope import WindowScope
from topo.task.batch import Batch


class ElementCalls:
    """The calls for the elements of a slice, and the one of them that has raised.

    Args:
        windows: the operator, or its way of batches.
        batch: has the elements.
        first, last: the slice of it.
        keys, timestamps: of the elements.
        rows_of: returns the elements of a slice of the batch.

    Attributes:
        position: of the last element that a call was made for, in the slice.
    """

    __slots__ = ("_keys", "_rows", "_rows_of", "_timestamps", "_windows", "batch", "first", "last", "position")

    def __init__(
        self,
        windows: WindowOperator | ColumnWindows,
        batch: Batch,
        first: int,
        last: int,
        keys: Sequence[Any],
        timestamps: Sequence[int | None],
        rows_of: Callable[[Batch, int, int], list[Row]],
    ) -> None:
        self._windows = windows
        self.batch = batch
        self.first = first
        self.last = last
        self._keys = keys
        self._timestamps = timestamps
        self._rows_of = rows_of
        self._rows = batch.to_cut(rows_of(batch, first, last))
        self.position = -1

    def make(self) -> None:
        """Make the calls, up to the first that raises or a cut."""
        try:
            self._windows.process_batch(self._keys, self._rows, self._timestamps)
        finally:
            self.position = self._windows.position

    @property
    def is_cut(self) -> bool:
        """Whether the slice was cut short, be it during a call that raised or was repeated."""
        return not self._rows

    @property
    def current(self) -> int:
        """The place in the batch of the element whose call is being made."""
        return self.first + self._windows.position

    @property
    def subject(self) -> Row:
        """The element whose call has raised."""
        place = self.first + self.position
        return self._rows_of(self.batch, place, place + 1)[0]

    def repeat(self) -> None:
        """Make the call for this element again."""
        one = slice(self.position, self.position + 1)
        self._windows.process_batch(self._keys[one], [self.subject], self._timestamps[one])

    def undo(self) -> None:
        """Undo it."""
        self._windows.undo()


class TimerCall:
    """The call for a timer of a window.

    Args:
        windows: the operator.
        timer: whose call has raised.
    """

    __slots__ = ("_timer", "_windows")

    def __init__(self, windows: WindowOperator, timer: WindowTimer) -> None:
        self._windows = windows
        self._timer = timer

    @property
    def subject(self) -> tuple[Any, ...]:
        """Key, bounds and contents of the window."""
        return self._windows.contents_for(self._timer)

    def repeat(self) -> None:
        """Make the call again."""
        self._windows.call_for(self._timer)

    def undo(self) -> None:
        """Undo it."""
        self._windows.undo()

    def skip(self) -> None:
        """Continue without the call."""
        self._windows.skip(self._timer)


class WindowCalls(Protocol):
    """Makes the calls of a window operator, and acts on those that raise: by fails, or by attempts and dead letters."""

    @property
    def scope(self) -> WindowScope:
        """Of the operator."""

    def take(self, calls: ElementCalls, now: float) -> None:
        """Make the calls for a slice, up to the first that raises, and act on that."""

    def taken(self, batch: Batch, first: int, last: int, now: float) -> None:
        """All calls for a slice have been made."""

    def timer_raised(self, call: TimerCall | None, error: Exception, now: float) -> None:
        """The call for a timer has raised, or, with None, a call that belongs to no timer."""
