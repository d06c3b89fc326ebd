"""What a `Task` asks of its delivery guarantee."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from topo.config import TopologyConfig
from topo.task.events import RoutesChanged
from topo.task.runners.base import MessageHandlers


class IdSender(Protocol):
    """Ids that the task owes: values of rows and inputs to ackers, verdicts to spouts."""

    def on_idle(self, now: float) -> None:
        """Send ids that should not wait, and note since when the others do. The task has sent all rows, and has nothing to do."""

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is owed."""


class Guarantee(Protocol):
    """What delivery means for one task: values owed to ackers, checkpoints, and failures.

    Attributes:
        messages: the master's messages that this guarantee acts on.
        id_sender: the guarantee itself, where the task owes ids; None where rows carry none.
    """

    messages: MessageHandlers

    @property
    def id_sender(self) -> IdSender | None: ...

    def begin_epoch(self, event: RoutesChanged, now: float) -> None:
        """Forget the epoch before. Comes ahead of the runner's, and also where the checkpoint cannot be read."""

    def flush(self, now: float) -> None:
        """Send all rows that are buffered, then all ids."""


def repeated(
    config: TopologyConfig, error: Exception, call: Callable[[], object], undo: Callable[[], object]
) -> Exception | None:
    """Repeat a call that has been taken back, as often as attempts allow. Returns the last error, None when it has gone well."""
    # The traceback of a repetition has this frame, and those of all callers: a variable of theirs that kept the error would
    # make a cycle, which keeps inputs alive that user code has forgotten. So here and there the error is only passed on.
    try:
        if config.on_error != "crash":
            for _ in range(config.attempts - 1):
                try:
                    call()
                except Exception as again:
                    undo()
                    error = again
                else:
                    return None
        return error
    finally:
        del error
