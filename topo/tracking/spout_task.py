"""Terms that the parts of `SourceMessages` share: the row of a message, what they need of the task, their observer."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from topo.api.streams import StreamDeclaration
from topo.config import TopologyConfig
from topo.ids import Epoch, TaskId
from topo.wire.statistics import Counters


class SentRow(NamedTuple):
    """Enough to emit a message again, or to call the spout back with its values."""

    values: tuple[Any, ...]
    stream: int
    stamp: int | None
    target: int | None


class MessageObserver:
    """Watches what becomes of the messages of spout tasks; part of `topo.task.observer.TaskObserver`."""

    def messages_decided(self, task: TaskId, verdict: str, roots: Sequence[int], pending: Container[int]) -> None:
        """Pending messages are about to be removed, or with "reset" have just been.

        Args:
            task: of the spout.
            verdict: "acked", "failed", or "reset" when an epoch begins.
            roots: that the verdict names.
            pending: has those of them that are pending; the others come too late.
        """

    def messages_expired(self, task: TaskId, roots: Sequence[int], due: float, now: float) -> None:
        """Messages whose timeout was due at `due` have been removed at `now`, both in monotonic seconds."""

    def message_failed(self, task: TaskId, message_id: Any) -> None:
        """A message of a retrying spout has failed or timed out; `fail` is not called."""

    def messages_kept(self, task: TaskId, roots: Iterable[int]) -> None:
        """The timeouts of those messages that are pending begin again."""


class SpoutTask(Protocol):
    """Facts of the spout's task; `topo.task.state.TaskState` has them."""

    id: TaskId
    component_id: str
    config: TopologyConfig
    counters: Counters
    epoch: Epoch
    streams: tuple[StreamDeclaration, ...]

    @property
    def observer(self) -> MessageObserver | None:
        """Watches the messages, in tests and while they are traced."""

    def clock(self) -> float:
        """Return monotonic seconds."""


class SpoutReports(Protocol):
    """Reports of the spout's task; `topo.task.error_reports.Reports` has them."""

    def to_master(self, message: Any) -> None:
        """Send a message to the master."""

    def user_error(self, error: Exception, now: float) -> None:
        """Report an error of user code, or raise it again where it ends the process."""
