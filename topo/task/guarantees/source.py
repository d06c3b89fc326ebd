"""What delivery means for the messages of a spout: how a message is kept, when it is done, and when the spout is called back.

The runner calls `next_tuple` and leaves rows in a collector; a guarantee takes them from there, stream by stream, and
routes them. The only user code that a guarantee calls is `ack` and `fail` of the spout, and never while rows are being routed:
both may emit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from topo.api.partition_values import Partition
from topo.api.partitions import PartitionedSpout
from topo.api.spout import RetryingSpout, Spout
from topo.emission.emission import Emission
from topo.emission.emitter import StreamRows
from topo.hot import Column
from topo.task.events import RoutesChanged
from topo.task.guarantees.base import IdSender
from topo.task.parts import TaskParts
from topo.task.runners.base import MessageHandlers, Timed
from topo.task.state import TaskPhase
from topo.tracking.acker_routes import AckerRoutes
from topo.tracking.message_ids import MessageIds
from topo.tracking.source_messages import SourceMessages
from topo.wire.frames import FrameKind


class SourceStart(NamedTuple):
    """Where a spout begins to read.

    Attributes:
        position: id of the last message before; None at the beginning of the source. With partitions: their stored progress;
            None where none of them was ever read.
        is_ended: nothing is left to read: the spout stays closed, and END is passed on.
    """

    position: Any
    is_ended: bool = False


class SourceCheckpoints(Protocol):
    """Checkpoints of one spout task."""

    def begin_checkpoint(self, checkpoint: int, *, has_ended: bool) -> None:
        """Take a snapshot, and send the barrier behind all rows that were emitted. An order that arrives twice does so once.

        Args:
            checkpoint: its number.
            has_ended: END has been sent in this epoch.
        """

    @property
    def redelivers(self) -> bool:
        """Whether the source may deliver messages again that a checkpoint covers."""


class SourcePartitions(Protocol):
    """The positions of the partitions that one spout task reads."""

    def partitions_found(self) -> None:
        """The partitions of the source are known: those that are found from here on begin at their beginning."""

    def begin_partition(self, partition: Partition, position: Any, now: float) -> None:
        """A partition is read from here on behind a position, which is stored if the partition is new."""

    def forget_partition(self, name: str) -> None:
        """A partition that has ended is gone: its position is stored no more."""


class SourceGuarantee(ABC):
    """Delivery of the messages of one spout task.

    Args:
        parts: of the task.
        spout: its `ack` and `fail` are called.
        emission: routes the output of the task.
        is_open: whether a message of a retrying spout is kept under an id.

    Attributes:
        opens_finished: whether the opening frames of an epoch mark a source that has ended, rather than END behind them.
        stores_ids: whether the ids of plain spouts are stored, too.
        is_retrying: whether message ids are positions in the source, so that the engine can read on from one.
        is_open: see above.
        ids: which message ids can be used.
        replays: the messages that are emitted again when they fail; None where that is left to the spout, or to checkpoints.
        timed: the guarantee itself, where it has work that is due by the clock; else None.
        id_sender: the guarantee itself, where messages have ids; else None.
        checkpoints: the guarantee itself, where there are checkpoints; else None.
        partitions: of the spout, where it reads partitions; else None.
        messages: handlers of the master's messages.
    """

    opens_finished: bool
    stores_ids: bool
    replays: SourceMessages | None = None
    timed: Timed | None = None
    id_sender: IdSender | None = None
    checkpoints: SourceCheckpoints | None = None
    partitions: SourcePartitions | None = None

    def __init__(self, parts: TaskParts, spout: Spout, emission: Emission, is_open: Callable[[Any], bool]) -> None:
        state = self._state = parts.state
        codec = parts.env.codec
        self._counters = state.counters
        self._reports = parts.reports
        self._outbound = parts.outbound
        self._emission = emission
        self._spout = spout
        self._acker_routes = AckerRoutes(state.plan.ackers, parts.outbound.outbox.put_ids)
        self.is_retrying = isinstance(spout, RetryingSpout | PartitionedSpout)
        self.is_open = is_open
        are_stored = self.is_retrying or self.stores_ids
        component = state.component_id
        self.ids = MessageIds(component, codec, are_positions=self.is_retrying, are_stored=are_stored, is_open=is_open)
        self.messages: MessageHandlers = {}
        self._limit = state.config.max_spout_pending or 1 << 60
        self._is_started = False
        """Whether the spout was given a place to begin."""

    # -- life ------------------------------------------------------------------------------------------------------------

    @abstractmethod
    def begin_epoch(self, event: RoutesChanged, now: float) -> None:
        """Forget the ids that are owed: an epoch begins."""

    @abstractmethod
    def start(self, event: RoutesChanged, now: float) -> SourceStart | None:
        """Forget the messages that are in flight, and call the spout back for them.

        Returns:
            Where the spout is to be opened, or closed and opened again; None if it continues as it is.
        """

    @abstractmethod
    def close(self, now: float) -> None:
        """Store or call back what cannot wait, since the spout is about to be closed."""

    def flush(self, now: float) -> None:
        """Send all rows that are buffered."""
        self._outbound.outbox.flush()

    # -- messages --------------------------------------------------------------------------------------------------------

    @abstractmethod
    def note_order(self, messages: Sequence[Any]) -> None:
        """Take the ids that a retrying spout has emitted over all its streams, in order, before `admit` has them by stream."""

    @abstractmethod
    def pass_over(self, message: Any, record: Any, error: Exception | None) -> None:
        """Have the position pass a record that is no row.

        Args:
            message: its position; of a spout with partitions, partition and position.
            record: its values or bytes.
            error: why it is a dead letter; None: it is none.
        """

    @abstractmethod
    def admit(self, stream: StreamRows, messages: list[Any], *, first_time: bool, now: float) -> None:
        """Take over and route messages.

        Args:
            stream: the values.
            messages: the ids.
            first_time: the spout has just emitted them; else they come from `replays`.
            now: monotonic seconds.
        """

    def admit_untracked(self, stream: StreamRows) -> None:
        """Route rows with which no message fails."""
        for _, values, error in self._emission.drop_unreadable(stream):
            self._lose_row(values, (), error)
        rows = stream.rows[:]
        self._emission.untracked_messages(stream, lambda row, error: self.reject_row(rows[row], (), error))

    def reject_row(self, values: Any, roots: Sequence[int], error: Exception) -> None:
        """A row that was routed cannot be carried: fail its roots."""
        self._reports.record(error, self._state.clock())
        self._lose_row(values, roots, error)

    @abstractmethod
    def _lose_row(self, values: Any, roots: Sequence[int], error: Exception) -> None:
        """Give up a row that was sent, or is to be sent, under these roots."""

    @abstractmethod
    def on_verdicts(self, kind: FrameKind, roots: Column, now: float) -> None:
        """An acker has decided on roots that were drawn here."""

    @abstractmethod
    def call_back(self, now: float) -> None:
        """Make calls of `ack` that wait, or a part of them."""

    @property
    @abstractmethod
    def has_callbacks(self) -> bool:
        """Whether `call_back` would do something."""

    @property
    @abstractmethod
    def pending(self) -> int:
        """How many messages keep the topology from ending."""

    @property
    @abstractmethod
    def room(self) -> int:
        """How many messages the spout may emit."""

    @property
    @abstractmethod
    def _unaccounted(self) -> int:
        """How many messages were taken, less those whose outcome is known or open. Other than 0 is a bug of the engine."""

    def levels(self) -> dict[str, float]:
        """Update the counters that are kept elsewhere; return what there is of messages now, by name of the statistic."""
        # A worker that dies while it closes has reported nothing yet.
        self._counters.unaccounted = self._unaccounted if self._state.phase is TaskPhase.CLOSED else 0
        return self._levels()

    @abstractmethod
    def _levels(self) -> dict[str, float]: ...

    @abstractmethod
    def latencies(self) -> dict[str, Any]:
        """Return how long messages took, by name of the statistic."""
