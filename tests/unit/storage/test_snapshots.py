"""A worker's snapshots on their way to disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.unit.master.playbook import SINK, small_plan
from topo.checkpoint.alignment import Snapshot, StoredPart
from topo.operators.state.keyed_state import KeyContext, KeyedState
from topo.storage.checkpoint_store import PartStore
from topo.storage.files import LocalFiles
from topo.storage.snapshots import TaskSnapshots
from topo.wire.serializers import SerializerRegistry


def test_snapshots_that_come_faster_than_storage_takes_them_do_not_pile_up(tmp_path: Path) -> None:
    later: list[Callable[[], None]] = []
    files = LocalFiles(tmp_path)
    plan = small_plan(delivery="exactly_once")
    store = TaskSnapshots(plan, SINK, PartStore(files), SerializerRegistry(), later.append)
    answers: list[tuple[int, str]] = []

    def write(checkpoint: int) -> None:
        def stored(part: StoredPart | None, error: Exception | None) -> None:
            assert part is not None, error
            answers.append((checkpoint, part.file))

        store.write(checkpoint, Snapshot(values={"user": checkpoint}), stored)

    write(1)
    later.pop()()
    # The disk stands still meanwhile, and the master gives up one checkpoint after the other.
    for checkpoint in (2, 3, 4):
        write(checkpoint)
    for work in later:
        work()
    assert answers == [(1, "0000000001/task-00002.part"), (4, "0000000004/task-00002.part")]
    assert sorted(files.names()) == ["0000000001", "0000000004"]


def test_the_error_of_keyed_state_that_cannot_be_stored_names_the_state_and_its_key(tmp_path: Path) -> None:
    keys = KeyContext()
    state = KeyedState(keys, lambda: 0)
    keys.key = "ann"
    state.value("seen").set(3)
    state.value("small").set(range(3))
    errors: list[str] = []
    store = TaskSnapshots(
        small_plan(delivery="exactly_once"), SINK, PartStore(LocalFiles(tmp_path)), SerializerRegistry(), lambda work: work()
    )
    groups = {group: {"state": states, "timers": {}} for group, states in state.snapshot().items()}
    store.write(1, Snapshot(lambda: groups), lambda _part, error: errors.append(str(error)))
    assert errors[0].startswith("state 'small' of key 'ann' cannot be stored: range: topo carries")
