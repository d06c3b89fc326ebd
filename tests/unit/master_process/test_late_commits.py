"""Remote stores on which a manifest appears long after it was asked for: when its master has died, or has given it up."""

from __future__ import annotations

import select
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from tests.unit.master_process.test_restore_point import PLAN, complete, write
from topo.checkpoint.store_messages import CheckpointStored, CommitCheckpoint
from topo.errors import TopoEnvironmentError
from topo.master_process.checkpoint_thread import CheckpointWriterThread
from topo.master_process.restore_point import Restored, checkpoint_to_restore, settle
from topo.storage.checkpoint_store import CheckpointStore
from topo.storage.files import RemoteFiles


class Late:
    """A store in memory. While `is_slow`, requests to copy time out; `arrive` has them take effect.

    As on an object store, which renames by a copy, the source was read when it began: removing that does not stop it.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.system: Any = fsspec.filesystem("memory")
        self.is_slow = False
        self.under_way: list[tuple[str, bytes]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.system, name)

    def cp_file(self, source: str, target: str) -> None:
        if not self.is_slow:
            self.system.cp_file(source, target)
            return
        self.under_way.append((target, self.system.cat_file(source)))
        raise TimeoutError("no answer")

    def arrive(self) -> None:
        for target, data in self.under_way:
            self.system.pipe_file(target, data)

    def store(self) -> CheckpointStore:
        """Return the store as another process opens it."""
        files = RemoteFiles(self.url)
        files._system = self
        return CheckpointStore(files, PLAN.name)

    def successor(self, expected: int, begun: int) -> Restored:
        """Have a master start; return its restore point."""
        store = self.store()
        restored = checkpoint_to_restore(store, PLAN, expected=expected)
        settle(store, restored, begun)
        return restored


@pytest.fixture
def late(tmp_path: Path) -> Iterator[Late]:
    yield Late(f"memory://{tmp_path.name}/checkpoints")
    fsspec.filesystem("memory").store.clear()


def test_a_manifest_of_a_dead_master_does_not_count_once_its_successor_has_restored_an_earlier_one(late: Late) -> None:
    first = complete(late.store(), 1)
    second = write(late.store(), 2)
    late.is_slow = True
    with pytest.raises(TopoEnvironmentError, match="no answer"):
        late.store().commit(second)
    late.is_slow = False
    assert late.successor(expected=1, begun=2) == Restored(first)
    late.arrive()
    # The sinks have removed the data that checkpoint 2 has staged.
    assert late.successor(expected=1, begun=2) == Restored(first)
    third = complete(late.store(), 3)
    late.store().prune(4)
    late.arrive()
    assert late.successor(expected=3, begun=3) == Restored(third)
    late.system.rm(f"{late.url}/0000000003/task-00001.part")
    assert late.successor(expected=3, begun=3).manifest == first, "nor is it the next best to a damaged one"


def test_a_manifest_that_appears_after_its_commit_has_failed_does_not_count(late: Late) -> None:
    store = late.store()
    first = complete(store, 1)
    second = write(store, 2)

    keeper = CheckpointWriterThread(store, PLAN.name)
    late.is_slow = True
    keeper.do(CommitCheckpoint(second))
    assert not select.select([keeper.descriptor], [], [], 0.1)[0], "no answer before it is known that it does not count"
    late.is_slow = False
    assert select.select([keeper.descriptor], [], [], 10.0)[0]
    (answer,) = keeper.answers()
    assert isinstance(answer, CheckpointStored) and "no answer" in answer.problem
    keeper.close()
    late.arrive()
    assert late.successor(expected=1, begun=2) == Restored(first)
