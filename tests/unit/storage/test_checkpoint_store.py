"""The store of checkpoints: killed between any two steps, torn, damaged, foreign; only complete checkpoints are found."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import fsspec
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.children import run_child
from tests.unit.storage.checkpoint_files import GROUPS, complete, counts, numbers, read, write
from topo.checkpoint.encoding import SCHEMA_VERSION
from topo.checkpoint.manifest import encode_manifest
from topo.errors import CheckpointDamagedError, CheckpointMissingError, CheckpointRefusedError
from topo.keys import key_group, range_of, route_of
from topo.storage.checkpoint_store import CheckpointStore, Found, locate, open_store, topology_of
from topo.storage.files import LocalFiles


@pytest.fixture(params=["local", "remote"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CheckpointStore]:
    if request.param == "local":
        yield open_store(str(tmp_path / "checkpoints"), "words")
        return
    url = f"memory://{tmp_path.name}/checkpoints"
    yield open_store(url, "words")
    fsspec.filesystem("memory").store.clear()


# -- complete or not ---------------------------------------------------------------------------------------------------------


def test_a_store_that_is_not_there_yet_holds_nothing(store: CheckpointStore) -> None:
    assert store.latest() == Found(None)
    assert store.checkpoints() == []
    assert store.highest() == 0


def test_a_committed_checkpoint_is_the_latest(store: CheckpointStore) -> None:
    complete(store, 1)
    manifest = complete(store, 2)
    assert store.latest(expected=2) == Found(manifest)
    assert read(store, manifest) == [
        {key: value for key, value in counts(2).items() if route_of(key, GROUPS, 2) == index} for index in range(2)
    ]


def test_parts_without_a_manifest_are_no_checkpoint(store: CheckpointStore) -> None:
    manifest = complete(store, 1)
    write(store, 2)
    assert store.latest(expected=1) == Found(manifest)
    assert numbers(store) == [1]
    assert store.highest() == 2


def test_a_commit_may_be_repeated(store: CheckpointStore) -> None:
    manifest = complete(store, 1)
    store.commit(manifest)
    assert store.latest() == Found(manifest)


def test_a_discarded_checkpoint_is_gone_and_may_be_discarded_again(store: CheckpointStore) -> None:
    complete(store, 1)
    complete(store, 2)
    for _ in range(2):
        store.discard(2)
    assert numbers(store) == [1]
    store.discard(7)


# -- damage ------------------------------------------------------------------------------------------------------------------


def files_of(tmp_path: Path, checkpoint: int) -> dict[str, Path]:
    return {path.name: path for path in (tmp_path / f"{checkpoint:010d}").iterdir()}


@pytest.mark.parametrize("file", ["task-00001.part", "task-00002.part", "manifest.json"])
@pytest.mark.parametrize("how", ["flipped", "torn", "empty"])
def test_the_last_but_one_is_used_loudly_when_the_last_is_damaged(tmp_path: Path, file: str, how: str) -> None:
    store = open_store(str(tmp_path), "words")
    first = complete(store, 1)
    complete(store, 2)
    path = files_of(tmp_path, 2)[file]
    data = path.read_bytes()
    changes = {"flipped": data[:-20] + bytes([data[-20] ^ 1]) + data[-19:], "torn": data[:-1], "empty": b""}
    path.write_bytes(changes[how])
    found = store.latest(expected=2)
    assert found.manifest == first
    (problem,) = found.problems
    assert problem.startswith("checkpoint 2 cannot be used:") and file in problem


@pytest.mark.parametrize("lost", ["task-00001.part", "task-00002.part"])
def test_a_checkpoint_that_has_lost_a_part_is_not_used(tmp_path: Path, lost: str) -> None:
    store = open_store(str(tmp_path), "words")
    first = complete(store, 1)
    second = complete(store, 2)
    files_of(tmp_path, 2)[lost].unlink()
    assert store.latest().manifest == first
    with pytest.raises(CheckpointDamagedError, match="it is not there"):
        read(store, second)


def test_a_checkpoint_that_was_complete_and_is_gone_is_missed_loudly(tmp_path: Path) -> None:
    store = open_store(str(tmp_path), "words")
    first = complete(store, 1)
    complete(store, 2)
    store.discard(2)
    found = store.latest(expected=2)
    assert found.manifest == first
    assert "checkpoint 2 was complete and is gone" in found.problems[0]


def test_nothing_is_never_restored_where_something_was_expected(tmp_path: Path) -> None:
    store = open_store(str(tmp_path), "words")
    with pytest.raises(CheckpointMissingError, match="checkpoint 3 was complete and is gone"):
        store.latest(expected=3)
    complete(store, 3)
    files_of(tmp_path, 3)["task-00001.part"].unlink()
    with pytest.raises(CheckpointMissingError, match=r"task-00001\.part is damaged: it is not there"):
        store.latest()


def test_an_earlier_one_is_found_below_one_that_cannot_be_restored(store: CheckpointStore) -> None:
    first = complete(store, 1)
    complete(store, 2)
    assert store.latest(expected=2, below=2).manifest == first
    with pytest.raises(CheckpointMissingError):
        store.latest(expected=1, below=1)


def test_the_manifest_of_another_checkpoint_is_damage(tmp_path: Path) -> None:
    store = open_store(str(tmp_path), "words")
    manifest = complete(store, 1)
    complete(store, 2)
    files_of(tmp_path, 2)["manifest.json"].write_bytes(encode_manifest(manifest))
    with pytest.raises(CheckpointDamagedError, match="it is that of checkpoint 1"):
        store.load(2)


def test_checkpoints_of_another_topology_are_refused_by_name(store: CheckpointStore) -> None:
    complete(store, 1, topology="verses")
    with pytest.raises(CheckpointRefusedError, match="of topology 'verses', not of 'words'"):
        store.latest()


def test_a_checkpoint_of_a_newer_version_is_refused_and_no_older_one_taken(store: CheckpointStore) -> None:
    complete(store, 1)
    store.commit(msgspec.structs.replace(write(store, 2), schema=SCHEMA_VERSION + 1, topo="9.0"))
    with pytest.raises(CheckpointRefusedError, match=r"topo 9\.0"):
        store.latest()


# -- retention ---------------------------------------------------------------------------------------------------------------


def test_so_many_complete_ones_are_kept_and_aborted_ones_are_not(store: CheckpointStore) -> None:
    for number in (1, 2, 4, 5, 6):
        complete(store, number)
    write(store, 3)
    assert store.prune(under_way=7) == [1, 2, 3]
    assert numbers(store) == [4, 5, 6]


def test_what_is_not_older_than_the_one_under_way_is_not_touched(store: CheckpointStore) -> None:
    complete(store, 1)
    manifest = write(store, 2)
    assert store.prune(under_way=2) == []
    store.commit(manifest)
    assert store.latest() == Found(manifest)


def test_the_last_complete_one_is_kept_when_none_has_to_be(tmp_path: Path) -> None:
    store = CheckpointStore(LocalFiles(tmp_path), "words", keep=1)
    complete(store, 1)
    write(store, 2)
    write(store, 3)
    assert store.prune(under_way=4) == [2, 3]
    assert numbers(store) == [1]


def test_a_savepoint_is_never_pruned(tmp_path: Path) -> None:
    store = CheckpointStore(LocalFiles(tmp_path), "words", keep=1)
    store.commit(msgspec.structs.replace(write(store, 1), is_savepoint=True))
    for number in (2, 3):
        complete(store, number)
    assert store.prune(under_way=4) == [2]
    assert numbers(store) == [1, 3]


def test_a_damaged_one_does_not_count_among_those_that_are_kept(tmp_path: Path) -> None:
    store = CheckpointStore(LocalFiles(tmp_path), "words", keep=2)
    for number in (1, 2, 3, 4):
        complete(store, number)
    files_of(tmp_path, 4)["manifest.json"].write_bytes(b"{}")
    assert store.prune(under_way=5) == [1]
    assert [(stored.checkpoint, stored.manifest is None) for stored in store.checkpoints()] == [(2, False), (3, False), (4, True)]


# -- savepoints --------------------------------------------------------------------------------------------------------------


def test_a_savepoint_is_a_copy_that_outlives_the_original(tmp_path: Path) -> None:
    store, target = open_store(str(tmp_path / "a"), "words"), open_store(str(tmp_path / "b"), "words")
    manifest = complete(store, 5)
    assert store.copy(5, target) == msgspec.structs.replace(manifest, is_savepoint=True)
    store.discard(5)
    found = target.latest()
    assert found.manifest is not None and found.manifest.is_savepoint
    assert read(target, found.manifest) == [
        {key: value for key, value in counts(5).items() if route_of(key, GROUPS, 2) == index} for index in range(2)
    ]


def test_a_savepoint_replaces_nothing(tmp_path: Path) -> None:
    store, target = open_store(str(tmp_path / "a"), "words"), open_store(str(tmp_path / "b"), "words")
    complete(store, 5)
    kept = complete(target, 5, state={"other": 1})
    with pytest.raises(CheckpointRefusedError, match="has a checkpoint 5 already"):
        store.copy(5, target)
    assert read(target, kept)[route_of("other", GROUPS, 2)] == {"other": 1}


def test_no_savepoint_is_made_among_checkpoints_of_another_topology(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "a"), "words")
    complete(store, 5)
    complete(open_store(str(tmp_path / "b"), "verses"), 1, topology="verses")
    with pytest.raises(CheckpointRefusedError, match="'verses'"):
        store.copy(5, open_store(str(tmp_path / "b"), "words"))


def test_no_savepoint_is_made_of_a_damaged_checkpoint(tmp_path: Path) -> None:
    store, target = open_store(str(tmp_path / "a"), "words"), open_store(str(tmp_path / "b"), "words")
    complete(store, 5)
    files_of(tmp_path / "a", 5)["task-00002.part"].write_bytes(b"nothing of the sort")
    with pytest.raises(CheckpointDamagedError):
        store.copy(5, target)
    assert target.checkpoints() == []


def test_a_path_names_a_store_or_one_checkpoint_in_it(tmp_path: Path) -> None:
    store = open_store(str(tmp_path), "words")
    complete(store, 5)
    assert locate(str(tmp_path)) == (str(tmp_path), None)
    assert locate(f"{tmp_path}/0000000005/") == (str(tmp_path), 5)
    assert topology_of(str(tmp_path)) == "words"
    with pytest.raises(CheckpointMissingError, match="no complete checkpoint in"):
        topology_of(str(tmp_path / "nowhere"))


def test_the_folder_above_those_of_runs_names_the_newest_that_has_a_checkpoint(tmp_path: Path) -> None:
    for run in ("999", "1001"):
        complete(open_store(str(tmp_path / run), "words"), 5)
    (tmp_path / "1002" / "0000000001").mkdir(parents=True)
    (tmp_path / "1002" / "task-00001.part").write_bytes(b"of a checkpoint that was not completed")
    with pytest.raises(CheckpointMissingError, match=f"the newest are in {tmp_path}/1001$"):
        topology_of(str(tmp_path))


# -- another parallelism -----------------------------------------------------------------------------------------------------


def test_rescaled_from_two_to_three_to_one_every_key_is_there_once(store: CheckpointStore) -> None:
    state = {f"user {number}": number for number in range(500)}
    before = 2
    complete(store, 1, state=state, parallelism=before)
    for checkpoint, now in ((2, 3), (3, 1)):
        manifest = store.latest().manifest
        assert manifest is not None
        parts = read(store, manifest, now)
        for index, part in enumerate(parts):
            assert all(key_group(key, GROUPS) in range_of(index, GROUPS, now) for key in part)
        union = {key: value for part in parts for key, value in part.items()}
        assert union == state and sum(map(len, parts)) == len(state)
        complete(store, checkpoint, state=union, parallelism=now)


# -- killed between any two steps --------------------------------------------------------------------------------------------


def run_and_die(work: Callable[[], None], after: int) -> bool:
    """Run something in a child process that dies after that many lines of the store's code; True if it got through."""
    code = run_child(partial(_die, work, after))
    assert code in (0, 9), "the child failed without a kill"
    return code == 0


def _die(work: Callable[[], None], after: int) -> None:
    left = after

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename.endswith(("files.py", "checkpoint_store.py", "state_folder.py", "shutil.py")):
            if event == "line":
                left -= 1
                if left < 0:
                    os._exit(9)
            return trace
        return None

    sys.settrace(trace)
    work()
    sys.settrace(None)


def test_killed_at_any_step_either_the_old_or_the_new_checkpoint_is_complete(tmp_path: Path) -> None:
    seen = set()
    step, is_through = 0, False
    while not is_through:
        store = CheckpointStore(LocalFiles(tmp_path / str(step)), "words", keep=1)
        first = complete(store, 1)

        def work(store: CheckpointStore = store) -> None:
            store.commit(write(store, 2, state={"a": 1}))
            store.prune(under_way=3)

        is_through = run_and_die(work, step)
        found = store.latest(expected=1)
        assert found.manifest is not None and found.problems == ()
        seen.add(found.manifest.checkpoint)
        expected = counts(1) if found.manifest == first else {"a": 1}
        assert {key: value for part in read(store, found.manifest) for key, value in part.items()} == expected
        step += 5
    assert seen == {1, 2}
    assert numbers(store) == [2]


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32))
def test_killed_at_random_again_and_again_the_latest_is_always_whole(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    draws = random.Random(seed)
    root = tmp_path_factory.mktemp("random")
    store = CheckpointStore(LocalFiles(root), "words", keep=draws.randint(1, 3))
    committed = 0
    for number in range(1, 8):

        def work(number: int = number) -> None:
            manifest = write(store, number, state={"n": number}, parallelism=draws.randint(1, 3))
            store.commit(manifest)
            store.prune(under_way=number + 1)

        is_through = run_and_die(work, draws.choice((20, 100, 300, 10_000)))
        found = store.latest(expected=committed)
        assert found.problems == ()
        now = 0 if found.manifest is None else found.manifest.checkpoint
        assert now == number if is_through else now in (committed, number)
        committed = now
        if found.manifest is not None:
            parts = read(store, found.manifest, draws.randint(1, 4))
            assert {key: value for part in parts for key, value in part.items()} == {"n": now}
        if draws.random() < 0.3:
            store.discard(number + 50)
            store.prune(under_way=number + 1)
            assert store.latest(expected=committed).manifest == found.manifest
