"""Faults planted into how partitions are read, stored and reported, one at a time. Undone by `monkeypatch`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.simulation.planted import Plant
from topo.api.partition_loop import PartitionLoop
from topo.api.partition_states import HeldPartition, PartitionState
from topo.api.partition_values import StoredPartition
from topo.emission.partition_messages import PartitionMessages
from topo.emission.partition_watermarks import PartitionWatermarks
from topo.launch import resuming
from topo.task.guarantees import checkpointed_partitions
from topo.task.guarantees.checkpointed_partitions import CheckpointedPartitions
from topo.tracking.partition_positions import PartitionPositions, PartitionTracker
from topo.tracking.source_messages import SourceMessages


def positions_pass_open_messages(patch: pytest.MonkeyPatch) -> None:
    """The committed position of a partition is that of its last message, done or not."""

    def advance(self: PartitionTracker) -> None:
        for name, order in self._orders.items():
            self._positions.reach(name, order[-1][1])
        self._orders.clear()

    patch.setattr(PartitionTracker, "advance", advance)


def committed_is_not_called(patch: pytest.MonkeyPatch) -> None:
    """The source does not learn which rows are done."""
    patch.setattr(PartitionPositions, "take_changes", lambda self: {})


def bad_records_are_dropped(patch: pytest.MonkeyPatch) -> None:
    """A record that cannot be decoded is passed over without a dead letter."""
    give_up = PartitionMessages.give_up
    patch.setattr(PartitionMessages, "give_up", lambda self, name, at, record, _: give_up(self, name, at, record, None))


def positions_pass_unwritten_dead_letters(patch: pytest.MonkeyPatch) -> None:
    """The position passes a bad record before its dead letter is stored."""
    pass_over = SourceMessages.pass_over

    def early(self: SourceMessages, message: tuple[str, Any], record: Any, error: Exception | None) -> None:
        pass_over(self, message, record, error)
        self.positions.partitions.reach(*message)

    patch.setattr(SourceMessages, "pass_over", early)


def ended_partitions_hold_event_time_back(patch: pytest.MonkeyPatch) -> None:
    """The watermark of a partition that has ended or is gone counts for ever."""

    def end(self: PartitionWatermarks, name: str) -> None:
        self._generators.pop(name, None)

    def expect_again(self: PartitionWatermarks, name: str, watermark: int | None) -> None:
        self._combined.unregister(name)
        expect(self, name, watermark)

    expect = PartitionWatermarks.expect
    patch.setattr(PartitionWatermarks, "end", end)
    patch.setattr(PartitionWatermarks, "expect", expect_again)


def silent_partitions_hold_event_time_back(patch: pytest.MonkeyPatch) -> None:
    """A partition counts although it is idle."""
    init = PartitionWatermarks.__init__

    def busy(self: Any, make: Any, output: Any, **options: Any) -> None:
        init(self, lambda: make()._inner, output, **options)

    patch.setattr(PartitionWatermarks, "__init__", busy)


def tasks_without_partitions_hold_event_time_back(patch: pytest.MonkeyPatch) -> None:
    """A task to which no partition belongs is waited for."""
    patch.setattr(PartitionMessages, "mark_idle", lambda self: None)


def committed_with_the_snapshot(patch: pytest.MonkeyPatch) -> None:
    """The source learns that rows are done with their snapshot, before the checkpoint is complete."""
    snapshot = CheckpointedPartitions.snapshot

    def early(self: CheckpointedPartitions, checkpoint: int, watermarks: Any) -> dict[str, Any]:
        taken = snapshot(self, checkpoint, watermarks)
        self.publish(checkpoint)
        return taken

    patch.setattr(CheckpointedPartitions, "snapshot", early)


def a_living_reader_is_not_reset(patch: pytest.MonkeyPatch) -> None:
    """A reader whose process lives on continues where it was, and not at the checkpoint."""
    patch.setattr(PartitionLoop, "restart", lambda self, stored: None)


def a_partition_that_returns_is_read_again(patch: pytest.MonkeyPatch) -> None:
    """The position of a partition that is gone is dropped, also where it was not read to its end."""
    leave = PartitionLoop._leave

    def dropping(self: PartitionLoop, held: HeldPartition) -> None:
        leave(self, held)
        self._stored.pop(held.partition.name, None)

    patch.setattr(PartitionLoop, "_leave", dropping)


def rows_of_a_failed_poll_are_skipped(patch: pytest.MonkeyPatch) -> None:
    """Partitions are not read again behind their last row when a poll has raised."""
    fail = PartitionLoop._fail

    def careless(self: PartitionLoop, held: HeldPartition, now: float, error: Exception | None = None) -> None:
        if error is not None or held.state is not PartitionState.ASSIGNED:
            fail(self, held, now, error)

    patch.setattr(PartitionLoop, "_fail", careless)


def paused_partitions_stay_paused(patch: pytest.MonkeyPatch) -> None:
    """A partition that was too far ahead in event time is never read again."""
    set_ahead = PartitionLoop.set_ahead
    ahead = set[str]()

    def growing(self: PartitionLoop, names: Any) -> None:
        ahead.update(names)
        set_ahead(self, ahead)

    patch.setattr(PartitionLoop, "set_ahead", growing)


def one_position_is_restored(patch: pytest.MonkeyPatch) -> None:
    """A task that resumes finds the position of one of its partitions, and reads the others from their beginning."""

    def first_of(stored: Mapping[str, Any], index: int, parallelism: int) -> dict[str, StoredPartition]:
        return dict(list(owned(stored, index, parallelism).items())[:1])

    owned = checkpointed_partitions.owned
    patch.setattr(checkpointed_partitions, "owned", first_of)
    patch.setattr(resuming, "owned", first_of)


PLANTS: dict[Plant, tuple[set[int], tuple[int, ...]]] = {
    positions_pass_open_messages: ({4}, (5,)),
    committed_is_not_called: ({4}, (1,)),
    bad_records_are_dropped: ({1}, (2,)),
    positions_pass_unwritten_dead_letters: ({4}, (7,)),
    ended_partitions_hold_event_time_back: ({17}, (0,)),
    silent_partitions_hold_event_time_back: ({17}, (4,)),
    tasks_without_partitions_hold_event_time_back: ({17}, (0,)),
    committed_with_the_snapshot: ({4}, (0,)),
    a_living_reader_is_not_reset: ({1, 7, 17}, (0,)),
    a_partition_that_returns_is_read_again: ({4, 7}, (28,)),
    rows_of_a_failed_poll_are_skipped: ({1, 4, 17}, (116, 143)),
    paused_partitions_stay_paused: ({10, 17}, (19,)),
    one_position_is_restored: ({4, 7}, (2,)),
}
"""Each planted fault with the oracles that may catch it, and seeds that have: they are tried first, then all the others."""
