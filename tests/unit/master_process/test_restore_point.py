"""Which checkpoint a run continues from."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.simulator.memory_files import MemoryFileSystem, WriteEnding
from tests.unit.master.playbook import small_plan
from topo.checkpoint.assignment import shapes_of
from topo.checkpoint.encoding import TaskSnapshot, encode_snapshot
from topo.checkpoint.manifest import Manifest, Part
from topo.errors import CheckpointDamagedError, CheckpointMissingError, CheckpointRefusedError, TopoEnvironmentError
from topo.ids import TaskId
from topo.master_process.restore_point import Restored, checkpoint_to_restore, settle
from topo.storage.checkpoint_store import CheckpointStore, open_store
from topo.storage.files import LocalFiles
from topo.wire.serializers import SerializerRegistry

PLAN = small_plan(delivery="exactly_once")


def write(store: CheckpointStore, checkpoint: int, topology: str = "small") -> Manifest:
    """Store the parts of a checkpoint; return the manifest that makes it complete."""
    parts = []
    for task, component in ((1, "lines"), (2, "sink")):
        snapshot = TaskSnapshot(component, TaskId(task), 0, 1)
        encoded = encode_snapshot(snapshot, topology, checkpoint, SerializerRegistry())
        file = store.write_part(checkpoint, TaskId(task), encoded)
        part = Part(file=file, length=encoded.length, checksum=encoded.checksum, component=component, task=TaskId(task), index=0)
        parts.append(part)
    return Manifest(topology=topology, checkpoint=checkpoint, components=shapes_of(PLAN), parts=tuple(parts))


def complete(store: CheckpointStore, checkpoint: int, topology: str = "small") -> Manifest:
    manifest = write(store, checkpoint, topology)
    store.commit(manifest)
    return manifest


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return open_store(str(tmp_path / "own"), "small")


@pytest.fixture
def saved(tmp_path: Path) -> CheckpointStore:
    return open_store(str(tmp_path / "save"), "small")


def test_a_new_run_begins_at_the_beginning(store: CheckpointStore) -> None:
    assert checkpoint_to_restore(store, PLAN) == Restored(None)


def test_a_run_goes_on_from_its_own_last_checkpoint(store: CheckpointStore) -> None:
    complete(store, 1)
    manifest = complete(store, 2)
    assert checkpoint_to_restore(store, PLAN, expected=1) == Restored(manifest)


def test_a_run_whose_checkpoints_are_gone_is_not_restarted_from_the_beginning(store: CheckpointStore) -> None:
    with pytest.raises(CheckpointMissingError, match="once its files can be read, `topo resume "):
        checkpoint_to_restore(store, PLAN, expected=4)


def test_a_savepoint_is_gone_on_from_where_it_lies(store: CheckpointStore, saved: CheckpointStore) -> None:
    manifest = complete(saved, 7)
    assert checkpoint_to_restore(store, PLAN, start_from=saved.url) == Restored(manifest, saved.url)


def test_its_own_checkpoint_goes_before_the_savepoint_that_a_run_was_started_from(
    store: CheckpointStore, saved: CheckpointStore
) -> None:
    complete(saved, 7)
    assert checkpoint_to_restore(store, PLAN, start_from=saved.url) == Restored(saved.load(7), saved.url)
    own = complete(store, 8)
    assert checkpoint_to_restore(store, PLAN, start_from=saved.url, expected=8) == Restored(own)


def test_one_of_several_checkpoints_can_be_named(store: CheckpointStore, saved: CheckpointStore) -> None:
    manifest = complete(saved, 7)
    complete(saved, 8)
    assert checkpoint_to_restore(store, PLAN, start_from=f"{saved.url}/0000000007").manifest == manifest


def test_a_folder_without_a_checkpoint_is_refused(store: CheckpointStore, tmp_path: Path) -> None:
    for folder in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(CheckpointMissingError, match=r"no complete checkpoint in "):
            checkpoint_to_restore(store, PLAN, start_from=str(folder))


@pytest.mark.parametrize("below", ["", "/0000000007"])
def test_a_savepoint_of_another_topology_names_the_way_to_continue_from_it(
    store: CheckpointStore, tmp_path: Path, below: str
) -> None:
    other = open_store(str(tmp_path / "other"), "large")
    complete(other, 7, "large")
    with pytest.raises(CheckpointRefusedError, match="topology 'large', not of 'small'; run it as --name large to continue"):
        checkpoint_to_restore(store, PLAN, start_from=f"{other.url}{below}")


def test_a_savepoint_that_is_named_and_damaged_is_not_replaced_by_another(store: CheckpointStore, saved: CheckpointStore) -> None:
    complete(saved, 6)
    complete(saved, 7)
    (Path(saved.url) / "0000000007" / "task-00002.part").unlink()
    with pytest.raises(CheckpointDamagedError):
        checkpoint_to_restore(store, PLAN, start_from=f"{saved.url}/0000000007")


def test_the_last_but_one_is_used_with_a_problem_to_be_said(store: CheckpointStore) -> None:
    manifest = complete(store, 1)
    complete(store, 2)
    (Path(store.url) / "0000000002" / "task-00002.part").unlink()
    restored = checkpoint_to_restore(store, PLAN, expected=2)
    assert restored.manifest == manifest
    assert "checkpoint 2 cannot be used" in restored.problems[0]


def test_dropped_state_stays_dropped_until_the_run_has_a_checkpoint(store: CheckpointStore, saved: CheckpointStore) -> None:
    complete(saved, 7)
    manifest = checkpoint_to_restore(store, PLAN, start_from=saved.url, drop=["sink"]).manifest
    assert manifest is not None
    assert [part.component for part in manifest.parts] == ["lines"] and list(manifest.components) == ["lines"]
    own = complete(store, 8)
    assert checkpoint_to_restore(store, PLAN, start_from=saved.url, drop=["sink"], expected=8) == Restored(own)


def test_what_does_not_fit_the_plan_is_refused_in_full(store: CheckpointStore) -> None:
    manifest = complete(store, 1)
    sink = msgspec.structs.replace(manifest.components["sink"], max_parallelism=4)
    store.commit(msgspec.structs.replace(manifest, components={"sink": sink, "gone": sink}))
    with pytest.raises(CheckpointRefusedError, match=r"set max_parallelism=4 for it; no task takes the state of 'gone'"):
        checkpoint_to_restore(store, PLAN)


def test_state_that_nobody_takes_is_dropped_when_told(store: CheckpointStore, saved: CheckpointStore) -> None:
    manifest = complete(saved, 1)
    saved.commit(msgspec.structs.replace(manifest, components={**manifest.components, "gone": manifest.components["sink"]}))
    with pytest.raises(CheckpointRefusedError):
        checkpoint_to_restore(store, PLAN, start_from=saved.url)
    assert checkpoint_to_restore(store, PLAN, start_from=saved.url, drop=["gone"]).manifest == manifest


def test_a_savepoint_of_another_topology_is_refused(store: CheckpointStore, tmp_path: Path) -> None:
    other = open_store(str(tmp_path / "other"), "large")
    complete(other, 1, topology="large")
    with pytest.raises(CheckpointRefusedError, match="of topology 'large', not of 'small'"):
        checkpoint_to_restore(store, PLAN, start_from=other.url)


def test_a_restored_manifest_whose_writer_died_unsynced_survives_a_power_cut() -> None:
    """Sinks publish on a checkpoint that is restored: a power cut after that must not take it away."""
    system = MemoryFileSystem()
    store = CheckpointStore(LocalFiles(Path("checkpoints"), system), "small")
    manifest = write(store, 1)
    system.ending = WriteEnding.WHOLE
    with pytest.raises(TopoEnvironmentError):
        store.commit(manifest)
    system.ending = None
    restored = checkpoint_to_restore(store, PLAN)
    assert restored == Restored(manifest)
    settle(store, restored)
    left = CheckpointStore(LocalFiles(Path("checkpoints"), system.after_power_cut()), "small")
    assert checkpoint_to_restore(left, PLAN) == Restored(manifest)


def test_a_storage_that_cannot_be_synced_keeps_a_run_from_continuing() -> None:
    system = MemoryFileSystem()
    store = CheckpointStore(LocalFiles(Path("checkpoints"), system), "small")
    manifest = complete(store, 1)
    system.ending = WriteEnding.WHOLE
    with pytest.raises(TopoEnvironmentError, match=r"cannot sync the folder of .*manifest\.json"):
        settle(store, Restored(manifest))
