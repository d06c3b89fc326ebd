"""Why tuples have failed, told to the master by root, so that a dead letter can say more than that a task failed it.

Nothing is noted for a tuple that does not fail. A cause leaves before the FAIL that it explains. The verdict passes the acker and
the spout before a letter is written, so the cause mostly is there first; a letter that comes before it waits for a moment.
"""

from __future__ import annotations

from collections.abc import Iterable

from topo.ids import TaskId
from topo.user_errors import message_of, place_of
from topo.wire.control import Cause, TuplesFailed

MAX_TEXT = 300
"""Characters of an exception's own text that are kept for a dead letter; `topo errors` has more."""


class FailureCauses:
    """The causes of one task that have not been reported to the master.

    Args:
        task: which.
        component: its component.
        max_roots: of one report. What fails beyond that in one batch goes without a cause.
    """

    def __init__(self, task: TaskId, component: str, max_roots: int = 1_000) -> None:
        self._max_roots = max_roots
        self._task = task
        self._component = component
        self._by_hand = Cause("", "the bolt called fail", component)
        self._of_root: dict[int, Cause] = {}

    def note(self, roots: Iterable[int], error: BaseException | None) -> None:
        """Roots have failed by an exception, or because the user said so (None). The first cause of a root stays."""
        if len(self._of_root) >= self._max_roots:
            return
        cause = self._by_hand
        if error is not None:
            cause = Cause(type(error).__name__, message_of(error)[:MAX_TEXT], self._component, *place_of(error))
        for root in roots:
            self._of_root.setdefault(root, cause)

    def clear(self) -> None:
        """Forget what has not been told."""
        self._of_root.clear()

    def take(self) -> TuplesFailed | None:
        """Return what the master has not been told, once; None when that is nothing."""
        if not self._of_root:
            return None
        roots_of: dict[Cause, list[int]] = {}
        for root, cause in self._of_root.items():
            roots_of.setdefault(cause, []).append(root)
        self._of_root.clear()
        return TuplesFailed(self._task, list(roots_of.items()))
