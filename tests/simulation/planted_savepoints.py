"""Faults planted into how savepoints are taken, one at a time. Undone by `monkeypatch`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from topo.checkpoint.attempt import Phase
from topo.checkpoint.coordinator import CheckpointCoordinator
from topo.checkpoint.manifest import Manifest
from topo.checkpoint.store_messages import SavepointStored
from topo.storage.checkpoint_store import CheckpointStore

Plant = Callable[[pytest.MonkeyPatch], None]


def a_recovery_forgets_savepoints(patch: pytest.MonkeyPatch) -> None:
    """A savepoint that waits for its checkpoint when an epoch breaks is never taken."""
    epoch_broken = CheckpointCoordinator.epoch_broken

    def forgetful(self: CheckpointCoordinator, now: float) -> None:
        epoch_broken(self, now)
        self.savepoints = {folder: one for folder, one in self.savepoints.items() if one.state != "waiting"}

    patch.setattr(CheckpointCoordinator, "epoch_broken", forgetful)


def the_checkpoint_under_way_is_the_savepoint(patch: pytest.MonkeyPatch) -> None:
    """A savepoint is a copy of a checkpoint that had begun before it was asked for."""
    want_savepoint = CheckpointCoordinator.want_savepoint

    def at_once(self: CheckpointCoordinator, folder: str, *, at_end: bool = False) -> None:
        want_savepoint(self, folder, at_end=at_end)
        if self._attempt is not None and self.phase is Phase.UNDER_WAY and folder not in self._attempt.savepoints:
            self._attempt.savepoints.append(folder)

    patch.setattr(CheckpointCoordinator, "want_savepoint", at_once)


def a_lost_worker_leaves_the_savepoint_of_the_end(patch: pytest.MonkeyPatch) -> None:
    """The savepoint of the end stays that of the first final checkpoint, when a recovery makes another one necessary."""
    epoch_broken = CheckpointCoordinator.epoch_broken

    def contented(self: CheckpointCoordinator, now: float) -> None:
        savepoints = dict(self.savepoints)
        epoch_broken(self, now)
        self.savepoints = savepoints

    patch.setattr(CheckpointCoordinator, "epoch_broken", contented)


def a_failed_copy_is_not_noticed(patch: pytest.MonkeyPatch) -> None:
    """A savepoint whose copying has failed is reported as written."""
    stored = CheckpointCoordinator.savepoint_stored
    patch.setattr(CheckpointCoordinator, "savepoint_stored", lambda self, event: stored(self, SavepointStored(event.folder)))


def retention_reaches_savepoints(patch: pytest.MonkeyPatch) -> None:
    """A savepoint is removed when the checkpoint that it copies is no longer needed."""
    copy, prune = CheckpointStore.copy, CheckpointStore.prune
    copies: list[tuple[CheckpointStore, CheckpointStore, int]] = []

    def copy_and_note(self: CheckpointStore, checkpoint: int, target: CheckpointStore) -> Manifest:
        copies.append((self, target, checkpoint))
        return copy(self, checkpoint, target)

    def prune_both(self: CheckpointStore, under_way: int) -> list[int]:
        gone = prune(self, under_way)
        for source, target, checkpoint in copies:
            if source is self and checkpoint in gone:
                target.discard(checkpoint)
        return gone

    patch.setattr(CheckpointStore, "copy", copy_and_note)
    patch.setattr(CheckpointStore, "prune", prune_both)


PLANTS: dict[Plant, tuple[set[int], tuple[int, ...]]] = {
    a_recovery_forgets_savepoints: ({18}, (3,)),
    the_checkpoint_under_way_is_the_savepoint: ({18}, (4,)),
    a_lost_worker_leaves_the_savepoint_of_the_end: ({18}, (25,)),
    a_failed_copy_is_not_noticed: ({18}, (2,)),
    retention_reaches_savepoints: ({18}, (5,)),
}
"""Each planted fault with the oracles that may catch it, and seeds that have: they are tried first, then all the others."""
