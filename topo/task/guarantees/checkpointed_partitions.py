"""The partitions of a spout whose positions are in the checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from topo.api.partition_values import Partition, PartitionProgress, joined, owned
from topo.api.partitions import PartitionedSpout
from topo.task.parts import TaskParts
from topo.tracking.partition_positions import PartitionPositions


class CheckpointedPartitions:
    """The position that each partition of one spout task was read up to.

    Args:
        parts: of the task.
        spout: its `on_committed` is called.
        want_checkpoint: asks the master for a checkpoint soon.
    """

    def __init__(
        self,
        parts: TaskParts,
        spout: PartitionedSpout,
        want_checkpoint: Callable[[], None],
    ) -> None:
        self._state = parts.state
        self._context = parts.spec.context
        self._reports = parts.reports
        self._spout = spout
        self._want_checkpoint = want_checkpoint
        self._positions = PartitionPositions()
        self._changes: list[tuple[int, dict[str, Any]]] = []
        """For each snapshot since the last complete one: its checkpoint, and the positions that had moved."""

    # -- read ------------------------------------------------------------------------------------------------------------

    def emitted(self, messages: Sequence[Any]) -> None:
        """Take the positions that the spout has come to."""
        self._positions.emitted(messages)

    def partitions_found(self) -> None:
        """Have a checkpoint note soon that they are known, and where they begin: the beginning of an empty one counts, too."""
        if self._positions.found():
            self._want_checkpoint()

    def begin_partition(self, partition: Partition, position: Any, now: float) -> None:
        """Keep where a partition begins; have it stored soon where that is not its beginning."""
        if self._positions.begin(partition, position) and position is not None:
            self._want_checkpoint()

    def forget_partition(self, name: str) -> None:
        """Leave a partition out of the next checkpoint."""
        self._positions.forget(name)

    def pass_over(self, message: tuple[str, Any]) -> None:
        """Take the position of a record that is no row."""
        self._positions.reach(*message)

    # -- checkpoints -----------------------------------------------------------------------------------------------------

    def restore(self) -> PartitionProgress | None:
        """Take over the partitions of this task; None without a checkpoint, so that they begin where the settings say."""
        found = [part.values.get("source", {}).get("partitions") for part in self._state.restored]
        context = self._context
        stored = None if found.count(None) == len(found) else owned(joined(found), context.task_index, context.parallelism)
        self._positions = PartitionPositions(stored)
        self._changes.clear()
        return stored

    def snapshot(self, checkpoint: int, watermarks: Mapping[str, int] | None) -> dict[str, Any]:
        """Return the positions under "partitions", with these watermarks; nothing while the partitions are not known."""
        if not self._positions.is_known:
            return {}
        record = self._positions.record(watermarks)
        self._changes.append((checkpoint, self._positions.take_changes()))
        return {"partitions": record}

    def publish(self, checkpoint: int) -> None:
        """Call `on_committed` of the spout for the positions that have moved up to a complete checkpoint."""
        committed: dict[str, Any] = {}
        while self._changes and self._changes[0][0] <= checkpoint:
            committed |= self._changes.pop(0)[1]
        if committed:
            self._reports.guard(self._spout.on_committed, self._state.clock(), committed)
