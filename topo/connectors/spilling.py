"""When the rows of a transaction leave memory to be staged, and what becomes of them while they cannot be written."""

from __future__ import annotations

from collections.abc import Callable

from topo.errors import SinkBlockedError, TopoEnvironmentError

_MOST_ROWS = 100_000
"""Rows that a task keeps in memory at most while it cannot write."""


class Spilling:
    """Counts the rows in memory of one task.

    Attributes:
        at: the number of rows in memory at which they are to be written.
    """

    def __init__(self, target: object, every: int, report: Callable[[BaseException], None]) -> None:
        """Begin with no rows.

        Args:
            target: where the rows are to go, for messages.
            every: rows that leave memory together.
            report: called once when nothing can be written any more.
        """
        self.at = self._every = every
        self._target = target
        self._report = report
        self._is_refused = False

    def done(self) -> None:
        """All rows were written."""
        self.at = self._every
        self._is_refused = False

    def refused(self, error: Exception, rows: int) -> None:
        """The rows could not be written and stay in memory: try again when there are more, or at a checkpoint.

        Raises:
            SinkBlockedError: they are too many.
        """
        why = f"cannot write to {self._target}: {error}; {rows} rows wait in memory"
        if rows >= _MOST_ROWS:
            raise SinkBlockedError(f"{why}, no more are taken, and all tasks go back to the last checkpoint") from error
        self.at = rows + self._every
        if not self._is_refused:
            self._is_refused = True
            self._report(TopoEnvironmentError(f"{why}, and it is tried again"))
