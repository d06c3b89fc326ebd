"""What a `Task` asks of its delivery guarantee."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from topo.task.events import RoutesChanged
from topo.task.runners.base import MessageHandlers, Timed


class IdSender(Protocol):
    """Ids that the task owes: values of rows and inputs to ackers, verdicts to spouts."""

    def flush(self, now: float) -> None:
        """Send all ids. The rows that they stand for have just left."""

    def on_idle(self, now: float) -> None:
        """Send ids that should not wait, and note since when the others do. The task has sent all rows, and has nothing to do."""

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is owed."""


class Guarantee(Protocol):
    """What delivery means for one task: values owed to ackers, checkpoints, and failures.

    Attributes:
        messages: the master's messages that this guarantee acts on.
        timed: the guarantee itself, where it has work that is due by the clock; else None.
        id_sender: the guarantee itself, where the task owes ids; None where rows carry none.
    """

    messages: MessageHandlers

    @property
    def timed(self) -> Timed | None: ...

    @property
    def id_sender(self) -> IdSender | None: ...

    def begin_epoch(self, event: RoutesChanged, now: float) -> None:
        """Forget the epoch before. Comes ahead of the runner's, and also where the checkpoint cannot be read."""

    def reject_row(self, values: Any, roots: Sequence[int], error: Exception) -> None:
        """A row that was routed cannot be carried: fail its roots."""
