"""Reports to the master from which a spout continues after a restart: its committed position, and the kills of suspects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from topo.api.partition_values import Partition, PartitionProgress
from topo.errors import UnsupportedValueError
from topo.tracking.partition_positions import MessageId, PartitionPositions, PartitionTracker
from topo.tracking.positions import PositionTracker
from topo.tracking.retries import RetryBook
from topo.tracking.spout_task import SentRow, SpoutReports, SpoutTask
from topo.wire.codec import Codec
from topo.wire.control import PositionReport

COMMIT_INTERVAL_S = 0.5
BYTES_A_SECOND = 1 << 20
"""Each report has the positions of all partitions of the task: the longer it is, the longer the next one waits."""
MOST_BYTES = 15 << 20
"""Of a report: within this limit the message is not too long for the master, and the process would end at a longer one."""


class PositionReports:
    """The position of one retrying spout, and its reports.

    Args:
        task: of the spout.
        reports: of the task.
        codec: what positions are stored with.
        book: the messages that are not done.
        on_committed: where positions go by partition: takes those that have moved, with each report. Else None.
    """

    def __init__(
        self,
        task: SpoutTask,
        reports: SpoutReports,
        codec: Codec,
        book: RetryBook[Any, SentRow],
        on_committed: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self._task = task
        self._reports = reports
        self._codec = codec
        self._book = book
        self._tracker: PositionTracker[Any] | PartitionTracker = PositionTracker(book.open_ids)
        self._on_committed = on_committed
        self._partitions: PartitionPositions | None = None
        self._due_at = 0.0
        self._begun_at: float | None = None
        """When partitions began whose beginning is not reported; None without any."""
        self._reported: tuple[Any, dict[Any, int]] = (None, {})

    def restore(self, committed: bytes | None, attempts: bytes | None) -> Any:
        """Take the position and the kills that were stored when the spout ran last; return the position."""
        position = None if committed is None else self._codec.unpack_value(committed)
        if attempts is not None:
            self._book.restore(dict(self._codec.unpack_value(attempts)))
        if self._on_committed is not None:
            position = None if position is None else PartitionProgress(position)
            self._partitions = PartitionPositions(position)
            self._tracker = PartitionTracker(self._book.open_ids, self._partitions)
            self._reported = (None, {})
            return position
        self._tracker = PositionTracker(self._book.open_ids, position)
        self._reported = (position, {})
        return position

    @property
    def partitions(self) -> PartitionPositions:
        """The positions by partition, of a spout with partitions that is open."""
        assert self._partitions is not None
        return self._partitions

    def partitions_found(self) -> None:
        """The partitions of the source are known: they are stored, even while there are none."""
        self.partitions.found()

    def begin_partition(self, partition: Partition, position: Any, now: float) -> None:
        """Keep where a partition begins. A report has it before a row does, or else in the next turn.

        One report has all partitions that begin together: each has the positions of all.
        """
        if self.partitions.begin(partition, position):
            self._by_partition.begin(partition.name)
            self._due_at = min(self._due_at, now)
            self._begun_at = now

    def forget_partition(self, name: str) -> None:
        """Store the position of a partition no more.

        Messages of it may be open. A later process must not read another partition of that name from behind them; if the
        same one comes back, its rows are read again. It does not wait until they are done: windows may hold them until a
        watermark comes that only its own rows bring.
        """
        self._by_partition.forget(name)

    def ids_of(self, messages: Sequence[MessageId]) -> Sequence[MessageId]:
        """Return the ids of messages that a spout with partitions has emitted."""
        return messages if self._on_committed is None else self._by_partition.ids_of(messages)

    def position_of(self, message: Any) -> Any:
        """Return the id that the spout has given to a message."""
        return message if self._on_committed is None else message[:2]

    def positions_of(self, messages: list[Any]) -> list[Any]:
        """Return the ids that the spout has given to messages."""
        return messages if self._on_committed is None else list(map(self.position_of, messages))

    @property
    def _by_partition(self) -> PartitionTracker:
        assert isinstance(self._tracker, PartitionTracker)
        return self._tracker

    def emitted(self, messages: Sequence[Any]) -> None:
        """Take positions in order of emission; the book has them before `advance` is called."""
        if self._begun_at is not None:
            self.send(self._begun_at, at_once=True)
        self._tracker.emitted(messages)

    def advance(self) -> None:
        """Move the position behind the messages that the book has not any more."""
        self._tracker.advance()

    @property
    def deadline(self) -> float | None:
        """When `send` is due; None while nothing has changed."""
        return self._due_at if self._has_changed else None

    @property
    def _has_changed(self) -> bool:
        position, attempts = self._reported
        return self._tracker.mark != position or self._book.kills != attempts

    def send(self, now: float, *, at_once: bool = False) -> None:
        """Report the position, now and then, when it or the kills have changed."""
        if not (at_once or now >= self._due_at) or not self._has_changed:
            return
        self._due_at = now + COMMIT_INTERVAL_S
        self._begun_at = None
        position = self._tracker.committed
        _, attempts = self._reported = (self._tracker.mark, dict(self._book.kills))
        try:
            packed = b"" if position is None else self._codec.pack_value(position)
            # A later process reads one partition of each name: its messages have no number.
            by_position = {self.position_of(message): kills for message, kills in attempts.items()}
            record = self._codec.pack_value(list(by_position.items())) if attempts else b""
        except UnsupportedValueError as error:
            what = f"component {self._task.component_id!r}: position {position!r} cannot be stored: {error}"
            advice = "use an int, a string or a tuple of these as message id"
            self._reports.user_error(UnsupportedValueError(f"{what}; {advice}"), now)
            return
        task = self._task
        self._due_at = max(self._due_at, now + len(packed) / BYTES_A_SECOND)
        if (size := len(packed) + len(record)) > MOST_BYTES:
            what = f"its positions take {size / (1 << 20):.1f} MiB"
            limit = f"with more than {MOST_BYTES >> 20} MiB they are not stored, and after a restart more is read again"
            advice = "give the spout more tasks, or have partitions that are done removed from the source"
            self._reports.user_error(UnsupportedValueError(f"component {task.component_id!r}: {what}; {limit}: {advice}"), now)
            return
        self._reports.to_master(PositionReport(task=task.id, epoch=task.epoch, position=packed, attempts=record))
        if self._on_committed is not None and (moved := self.partitions.take_changes()):
            try:
                self._on_committed(moved)
            except Exception as error:
                self._reports.user_error(error, now)

    def validate(self) -> None:
        """Assert the invariants."""
        self._tracker.validate()
