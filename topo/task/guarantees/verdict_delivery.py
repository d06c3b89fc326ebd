"""What an acker owes: its verdicts, to the tasks that have drawn the roots. They leave in batches, or with `flush_interval`."""

from __future__ import annotations

from topo.hot import Trees
from topo.task.events import RoutesChanged
from topo.task.guarantees.base import IdSender
from topo.task.parts import TaskParts
from topo.task.runners.base import MessageHandlers
from topo.wire.frames import FrameKind


class VerdictDelivery:
    """The guarantee of an acker task.

    Args:
        parts: of the task.
        tree_timeout_s: how long a message may take; None where trees end with their epoch, as those of barriers do.

    Attributes:
        trees: reach the verdicts.
        tree_timeout_s: see above.
        id_sender: the guarantee itself: verdicts are ids that the task owes.
        deadline: when verdicts that may have been reached are delivered at the latest; None while there are none.
    """

    def __init__(self, parts: TaskParts, tree_timeout_s: float | None) -> None:
        self._state = parts.state
        self.id_sender: IdSender | None = self
        self._put_ids = parts.outbound.outbox.put_ids
        self.trees = Trees()
        parts.checks.append(self.trees.validate)
        self.tree_timeout_s = tree_timeout_s
        self.messages: MessageHandlers = {}
        self._undelivered = 0
        self.deadline: float | None = None

    def begin_epoch(self, event: RoutesChanged, now: float) -> None:
        """Forget all trees."""
        self.trees.clear()
        self._undelivered = 0
        self.deadline = None

    def taken(self, ids: int, now: float) -> None:
        """The trees have taken a number of ids: verdicts may have been reached."""
        self._undelivered += ids
        if self.deadline is None and ids:
            self.deadline = now + self._state.config.flush_interval_s

    def deliver_batch(self) -> None:
        """Send the verdicts if a batch of them may be there."""
        if self._undelivered >= self._state.config.batch_size:
            self._deliver()

    def on_time(self, now: float) -> None:
        """Send the verdicts that are due."""
        if self.deadline is not None and now >= self.deadline:
            self._deliver()

    def flush(self, now: float) -> None:
        """Send all verdicts."""
        self._deliver()

    def on_idle(self, now: float) -> None:
        """Send all verdicts: the ids that have led to them have waited for each other."""
        self._deliver()

    def _deliver(self) -> None:
        """Send the verdicts reached since the last time."""
        self._undelivered = 0
        self.deadline = None
        observer = self._state.observer
        for origin, verdicts in self.trees.verdicts().items():
            if observer is not None:
                observer.verdicts_reached(self._state.id, verdicts)
            for kind, roots in (
                (FrameKind.FAILED, verdicts.failed),
                (FrameKind.ACKED, verdicts.acked),
                (FrameKind.TOUCHED, verdicts.reset),
            ):
                if roots:
                    self._put_ids(kind, origin, roots)

    @property
    def is_quiet(self) -> bool:
        """Whether all verdicts have been delivered."""
        return not self._undelivered
