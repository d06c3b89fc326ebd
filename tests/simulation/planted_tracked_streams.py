"""Faults planted into programs of streams with `at_least_once`. Undone by `monkeypatch`."""

from __future__ import annotations

import pytest

from tests.simulation.planted import Plant
from topo.streams import process_bolts
from topo.streams.process_bolts import FirstBolt
from topo.task.guarantees.tracked_windows import TrackedWindows
from topo.tracking.source_messages import SourceMessages


def replays_are_second_records(patch: pytest.MonkeyPatch) -> None:
    """`dedupe` drops the replay of a failed message, and a late one of a join meets the records that are left."""
    patch.setattr(process_bolts, "is_replayed", lambda roots: False)


def keys_outlive_a_loss(patch: pytest.MonkeyPatch) -> None:
    """`dedupe` knows after a loss the keys that it knew before."""
    patch.setattr(FirstBolt, "forgets_at_a_loss", False)


def replays_have_no_mark(patch: pytest.MonkeyPatch) -> None:
    """A message that has failed is replayed as if it were emitted for the first time."""
    patch.setattr(SourceMessages, "previously_failed", lambda self, messages: [])


def late_replays_fail_all_the_same(patch: pytest.MonkeyPatch) -> None:
    """A late replay fails although the late stream of its window has it."""
    patch.setattr(TrackedWindows, "side_anchors", lambda self, stream: ())


PLANTS: dict[Plant, tuple[set[int], tuple[int, ...]]] = {
    replays_are_second_records: ({1}, (43, 12)),
    keys_outlive_a_loss: ({1}, (32,)),
    replays_have_no_mark: ({1}, (12,)),
    late_replays_fail_all_the_same: ({1}, (10,)),
}
"""Each planted fault with the oracles that may catch it, and seeds that have: they are tried first, then all the others."""
