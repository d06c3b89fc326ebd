"""Causes of failed tuples, reported to the master by root, so that a dead letter can show more than the task that failed it.

Nothing is noted for a tuple that does not fail. A cause leaves before the FAIL that it explains. The verdict passes the acker and
the spout before a dead letter is written, so the cause mostly arrives first; a dead letter without it waits for a moment.
"""

from __future__ import annotations

from collections.abc import Iterable

from topo.ids import TaskId
from topo.user_errors import message_of, place_of
from topo.wire.control import Cause, TuplesFailed

MAX_TEXT = 300
"""Characters of an exception's own text that are kept for a dead letter; `topo errors` has more."""


def cause_of(error: BaseException, component: str, declared: tuple[str, int] | None = None) -> Cause:
    """Return an exception of a component as a dead letter shows it."""
    return Cause(type(error).__name__, message_of(error)[:MAX_TEXT], component, *place_of(error, declared))


class FailureCauses:
    """The causes of one task that have not been reported to the master.

    Args:
        task: which.
        component: its component.
        max_roots: of one report. What fails beyond that in one batch goes without a cause.
        declared: file and line of the component, for errors without a frame of the user's own code.
    """

    def __init__(self, task: TaskId, component: str, max_roots: int = 1_000, declared: tuple[str, int] | None = None) -> None:
        self._declared = declared
        self._max_roots = max_roots
        self._task = task
        self._component = component
        self._by_hand = Cause("", "the bolt called fail", component)
        self._of_root: dict[int, Cause] = {}

    def of(self, error: BaseException) -> Cause:
        """Return an exception of the task as a dead letter shows it."""
        return cause_of(error, self._component, self._declared)

    def note(self, roots: Iterable[int], error: BaseException | None) -> None:
        """Roots have failed by an exception, or because user code called `fail` (None). The first cause of a root stays."""
        if len(self._of_root) >= self._max_roots:
            return
        cause = self._by_hand
        if error is not None:
            cause = self.of(error)
        for root in roots:
            self._of_root.setdefault(root, cause)

    def clear(self) -> None:
        """Forget the causes that have not been reported."""
        self._of_root.clear()

    def take(self) -> TuplesFailed | None:
        """Return the causes that have not been reported, once; None without any."""
        if not self._of_root:
            return None
        roots_of: dict[Cause, list[int]] = {}
        for root, cause in self._of_root.items():
            roots_of.setdefault(cause, []).append(root)
        self._of_root.clear()
        return TuplesFailed(self._task, list(roots_of.items()))
