"""The master's hand on the store: answers come, in order, and are certain."""

from __future__ import annotations

import select
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import pytest

from tests.unit.storage.test_checkpoint_store import complete, files_of, numbers, write
from topo.checkpoint.store_messages import (
    CheckpointFound,
    CheckpointStored,
    CommitCheckpoint,
    CopyCheckpoint,
    DiscardCheckpoint,
    FindCheckpoint,
    SavepointStored,
    StoreAnswer,
)
from topo.errors import TopoEnvironmentError
from topo.master_process.checkpoint_thread import CheckpointWriterThread
from topo.storage.checkpoint_store import CheckpointStore, open_store
from topo.storage.files import LocalFiles

CREATED_MS = 1_700_000_000_000


class FailingFiles(LocalFiles):
    """A folder whose storage fails: these numbers of writes and removals; a write that fails is stored all the same."""

    def __init__(self, root: Path, writes: int = 0, removals: int = 0) -> None:
        super().__init__(root)
        self.writes, self.removals = writes, removals

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        super().write(name, chunks)
        if name.endswith("manifest.json") and self.writes:
            self.writes -= 1
            raise TopoEnvironmentError("cannot sync the folder")

    def remove(self, name: str) -> None:
        if self.removals:
            self.removals -= 1
            raise TopoEnvironmentError("cannot remove it")
        super().remove(name)


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(LocalFiles(tmp_path / "checkpoints"), "words", keep=2)


@pytest.fixture
def keeper(store: CheckpointStore) -> Iterator[CheckpointWriterThread]:
    keeper = CheckpointWriterThread(store, "words", lambda: CREATED_MS)
    yield keeper
    keeper.close()


def wait_answers(keeper: CheckpointWriterThread, count: int) -> list[StoreAnswer]:
    found: list[StoreAnswer] = []
    while len(found) < count:
        assert select.select([keeper.descriptor], [], [], 10.0)[0], f"only {found} was answered"
        found += keeper.answers()
    return found


def test_a_commit_is_answered_with_the_moment_and_old_ones_go(store: CheckpointStore, keeper: CheckpointWriterThread) -> None:
    for number in (1, 2):
        complete(store, number)
    manifest = write(store, 3)
    keeper.do(CommitCheckpoint(manifest))
    stamped = msgspec.structs.replace(manifest, created_ms=CREATED_MS)
    assert wait_answers(keeper, 1) == [CheckpointStored(stamped)]
    assert store.latest().manifest == stamped
    assert numbers(store) == [2, 3]


def test_a_commit_has_gone_well_also_when_old_ones_cannot_be_looked_for(tmp_path: Path) -> None:
    class Odd(LocalFiles):
        """A file system with its own errors."""

        def names(self, folder: str = "") -> list[str]:
            raise ValueError("the session is closed")

    manifest = write(CheckpointStore(LocalFiles(tmp_path), "words"), 1)
    keeper = CheckpointWriterThread(CheckpointStore(Odd(tmp_path), "words"), "words", lambda: CREATED_MS)
    try:
        keeper.do(CommitCheckpoint(manifest))
        (answer,) = wait_answers(keeper, 1)
    finally:
        keeper.close()
    assert isinstance(answer, CheckpointStored) and answer.problem == ""


def test_answers_come_in_the_order_of_the_commands(
    store: CheckpointStore, keeper: CheckpointWriterThread, tmp_path: Path
) -> None:
    keeper.do(CommitCheckpoint(write(store, 1)))
    write(store, 2)
    keeper.do(DiscardCheckpoint(2))
    keeper.do(CopyCheckpoint(1, str(tmp_path / "save")))
    first, second = wait_answers(keeper, 2)
    assert isinstance(first, CheckpointStored) and first.problem == ""
    assert second == SavepointStored(str(tmp_path / "save"))
    assert store.highest() == 1
    saved = open_store(str(tmp_path / "save"), "words").latest().manifest
    assert saved is not None and saved.is_savepoint


def test_a_commit_that_fails_is_answered_only_when_it_is_certainly_not_there(tmp_path: Path) -> None:
    store = CheckpointStore(FailingFiles(tmp_path, writes=1, removals=1), "words")
    keeper = CheckpointWriterThread(store, "words")
    keeper.do(CommitCheckpoint(write(store, 1)))
    (answer,) = wait_answers(keeper, 1)
    assert isinstance(answer, CheckpointStored) and answer.problem == "cannot sync the folder"
    assert numbers(store) == []
    keeper.close()


def test_a_master_that_ends_while_a_commit_is_undecided_answers_nothing(tmp_path: Path) -> None:
    store = CheckpointStore(FailingFiles(tmp_path, writes=1, removals=10**9), "words")
    keeper = CheckpointWriterThread(store, "words")
    keeper.do(CommitCheckpoint(write(store, 1)))
    keeper.close()
    assert keeper._answers == type(keeper._answers)()


def test_a_savepoint_that_cannot_be_written_says_why(
    store: CheckpointStore, keeper: CheckpointWriterThread, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"")
    complete(store, 1)
    keeper.do(CopyCheckpoint(1, str(tmp_path / "file")))
    keeper.do(CopyCheckpoint(9, str(tmp_path / "save")))
    first, second = wait_answers(keeper, 2)
    assert isinstance(first, SavepointStored) and "cannot write" in first.problem
    assert isinstance(second, SavepointStored) and "checkpoint 9 is not complete" in second.problem


def test_an_earlier_checkpoint_is_found(store: CheckpointStore, keeper: CheckpointWriterThread, tmp_path: Path) -> None:
    first = complete(store, 1)
    complete(store, 2)
    complete(store, 3)
    files_of(tmp_path / "checkpoints", 2)["task-00001.part"].unlink()
    files_of(tmp_path / "checkpoints", 3)["task-00002.part"].unlink()
    keeper.do(FindCheckpoint(upto=3))
    assert wait_answers(keeper, 1) == [CheckpointFound(first)]
    files_of(tmp_path / "checkpoints", 1)["task-00001.part"].unlink()
    keeper.do(FindCheckpoint(upto=1))
    (missing,) = wait_answers(keeper, 1)
    assert isinstance(missing, CheckpointFound) and missing.manifest is None
    assert "no checkpoint to restore" in missing.problem


def test_a_checkpoint_that_is_whole_is_its_own_answer(
    store: CheckpointStore, keeper: CheckpointWriterThread, tmp_path: Path
) -> None:
    complete(store, 1)
    second = complete(store, 2)
    elsewhere = open_store(str(tmp_path / "save"), "words")
    kept = complete(elsewhere, 7)
    keeper.do(FindCheckpoint(upto=2))
    keeper.do(FindCheckpoint(upto=7, folder=elsewhere.url))
    assert wait_answers(keeper, 2) == [CheckpointFound(second), CheckpointFound(kept)]


def test_a_savepoint_that_is_damaged_has_no_earlier_one(
    store: CheckpointStore, keeper: CheckpointWriterThread, tmp_path: Path
) -> None:
    complete(store, 1)
    elsewhere = open_store(str(tmp_path / "save"), "words")
    complete(elsewhere, 7)
    files_of(tmp_path / "save", 7)["task-00001.part"].unlink()
    keeper.do(FindCheckpoint(upto=7, folder=elsewhere.url))
    (answer,) = wait_answers(keeper, 1)
    assert isinstance(answer, CheckpointFound) and answer.manifest is None and "it is not there" in answer.problem


def test_a_checkpoint_that_an_earlier_one_has_replaced_is_not_used_when_readable(
    store: CheckpointStore, keeper: CheckpointWriterThread, tmp_path: Path
) -> None:
    first = complete(store, 1)
    complete(store, 2)
    part = files_of(tmp_path / "checkpoints", 2)["task-00001.part"]
    away = part.rename(tmp_path / "away")
    keeper.do(FindCheckpoint(upto=2))
    assert wait_answers(keeper, 1) == [CheckpointFound(first)]
    away.rename(part)
    assert store.latest(expected=2).manifest == first
    assert part.with_name("manifest.abandoned.json").exists()
