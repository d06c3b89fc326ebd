"""Files and checkpoints in an object store: on a real server of S3."""

from __future__ import annotations

import gzip
import json
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.s3_store import server
from tests.connectors.sink_tasks import ReportingTask
from tests.contract import test_part_files
from tests.contract.two_phase_sinks import IN_A_STORE, KindContract, SinkKind, SinkTask
from tests.servers import s3
from tests.servers.server import Server
from tests.unit.connectors.drive import TICK, tracked
from tests.unit.storage import test_checkpoint_store
from topo import FilesSink, FilesSpout
from topo.emission.collectors import TupleState
from topo.errors import TopoEnvironmentError
from topo.storage.checkpoint_store import open_store
from topo.storage.files import open_files
from topo.testing.partition_harness import PartitionHarness

__all__ = ["server"]

pytestmark = [pytest.mark.integration, pytest.mark.server]


@pytest.fixture
def bucket(server: Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """A new bucket, which clients without settings reach as well."""
    for name, value in {
        "AWS_ENDPOINT_URL": server.address,
        "AWS_ACCESS_KEY_ID": "topo",
        "AWS_SECRET_ACCESS_KEY": "planted",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    name = f"test-{secrets.token_hex(6)}"
    store(server).mkdir(name)
    return name


def options(server: Server) -> dict[str, Any]:
    return {"key": "topo", "secret": "planted", "endpoint_url": server.address}


def store(server: Server) -> Any:
    """The store as another program sees it."""
    from s3fs import S3FileSystem

    return S3FileSystem(**options(server), use_listings_cache=False, skip_instance_cache=True)


# -- FilesSink ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def kind(server: Server, bucket: str) -> SinkKind:
    """A sink whose folder is a prefix of the bucket."""

    def names(folder: Path, below: str) -> list[str]:
        files = store(server)
        root = f"{bucket}/{folder.name}{below}"
        return sorted(files.ls(root, detail=False)) if files.exists(root) else []

    def rows(folder: Path) -> list[int]:
        files = store(server)
        shown = [name for name in names(folder, "") if not name.endswith("/.staged")]
        return sorted(json.loads(line)["n"] for name in shown for line in files.cat_file(name).splitlines())

    return SinkKind(
        "S3",
        lambda folder: FilesSink(f"s3://{bucket}/{folder.name}", storage_options=options(server)),
        rows,
        lambda folder: names(folder, "/.staged"),
    )


@pytest.mark.parametrize("test", IN_A_STORE, ids=lambda test: test.__name__)
def test_the_sink_keeps_the_contract(kind: SinkKind, tmp_path: Path, test: Callable[..., None]) -> None:
    test(KindContract().take(kind), tmp_path)


def test_rows_wait_while_the_store_takes_nothing(kind: SinkKind, server: Server, bucket: str, tmp_path: Path) -> None:
    task = SinkTask(kind, tmp_path)
    task.write(1, 2)
    store(server).rmdir(bucket)
    with pytest.raises(TopoEnvironmentError, match=f"cannot write to s3://{bucket}/.*: The specified bucket does not exist"):
        task.snapshot(1)
    store(server).mkdir(bucket)
    task.write(3)
    task.snapshot(2)
    task.output.complete(2)
    assert kind.rows(tmp_path) == [1, 2, 3] and kind.staged(tmp_path) == []


def test_without_checkpoints_no_tuple_fails_while_the_store_is_away(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = s3.start(tmp_path)
    # One attempt, and no waits between several.
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    settings = {**options(own), "config_kwargs": {"retries": {"max_attempts": 1}}}
    store(own).mkdir(bucket)
    task = ReportingTask(FilesSink(f"s3://{bucket}/out", storage_options=settings), "at_least_once")
    rows = [tracked(n=n) for n in range(3)]
    for row in rows:
        task.sink.execute(row)
    own.kill()
    task.sink.execute(TICK)
    (text,) = task.texts()
    assert f"cannot write to s3://{bucket}/out: Could not connect" in text
    assert [row.state for row in rows] == [TupleState.OPEN] * 3


# -- FilesSpout --------------------------------------------------------------------------------------------------------------


def test_objects_are_read_as_they_come_and_removed_when_they_are_done(server: Server, bucket: str) -> None:
    files = store(server)
    files.pipe_file(f"{bucket}/in/a.json.gz", gzip.compress(b'{"n": 1}\n{"n": 2}\n'))

    def spout() -> FilesSpout:
        return FilesSpout(f"s3://{bucket}/in", format="json", fields=("n",), on_done="delete", storage_options=options(server))

    harness = PartitionHarness(spout)
    harness.turns(20)
    files.pipe_file(f"{bucket}/in/sub/b.json", b'{"n": 3}\n')
    harness.discover()
    assert harness.read == {"a.json.gz": [1, 2], "sub/b.json": [3]} and harness.errors == []
    harness.tasks[0].commit()
    assert files.find(f"{bucket}/in") == []


def test_objects_that_mark_folders_are_left_out_and_odd_names_are_read_as_they_are(server: Server, bucket: str) -> None:
    names = ("a%20b", "a b#?", "/a", "a", "a[1]", "ä&b=c+d")
    for name in ("", "sub/", *names):
        store(server).call_s3("put_object", Bucket=bucket, Key=f"in/{name}", Body=f"{name}\n".encode() if name in names else b"")
    url, done = f"s3://{bucket}/in", f"s3://{bucket}/done"
    harness = PartitionHarness(lambda: FilesSpout(url, storage_options=options(server), on_done=f"move:{done}"))
    harness.turns(40)
    assert harness.read == {name: [name] for name in names} and harness.errors == []
    harness.tasks[0].commit()
    found = store(server).find(bucket)
    assert sorted(found) == sorted(f"{bucket}/{path}" for path in ("in/", "in/sub/", *(f"done/{name}" for name in names)))


@pytest.mark.parametrize("interval", ["10s", None])
def test_a_bucket_that_does_not_exist_is_reported_until_it_comes(server: Server, interval: Any) -> None:
    name = f"test-{secrets.token_hex(6)}"
    url = f"s3://{name}/in"
    harness = PartitionHarness(lambda: FilesSpout(url, discovery_interval=interval, storage_options=options(server)))
    harness.turns(5)
    assert f"there is no '{name}/in', and it is looked for again: The specified bucket does not exist" in str(harness.errors[0])
    assert not harness.tasks[0].has_ended
    files = store(server)
    files.mkdir(name)
    files.pipe_file(f"{name}/in/a", b"1\n")
    harness.discover()
    assert harness.read == {"a": ["1"]}


@pytest.mark.parametrize(("length", "when"), [(3, "after all of it had been read"), (10_000, "while it was read")])
def test_an_object_that_is_written_again_while_it_is_read_is_reported(
    server: Server, bucket: str, length: int, when: str
) -> None:
    def lines(mark: str) -> bytes:
        return b"".join(f"{mark}{n:0{length}}\n".encode() for n in range(250))

    files = store(server)
    files.pipe_file(f"{bucket}/in/a", lines("a"))
    harness = PartitionHarness(lambda: FilesSpout(f"s3://{bucket}/in", storage_options=options(server)))
    harness.turns(3)
    assert 0 < len(harness.all_rows()) < 250
    files.pipe_file(f"{bucket}/in/a", lines("b"))
    harness.turns(20)
    harness.discover()
    assert f"'a' was written again {when}" in str(harness.errors[0])
    assert all(row.startswith("a") for row in harness.read["a"])


def test_an_error_of_a_store_that_refuses_the_user_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INITIAL_NO_AUTH_ACTION_COUNT", "0")
    strict = s3.start(tmp_path)
    harness = PartitionHarness(lambda: FilesSpout("s3://bucket/in", storage_options=options(strict)))
    harness.turns(5)
    strict.stop()
    assert "s3://bucket/in cannot be listed, and is listed again: The AWS Access Key Id" in str(harness.errors[0])


def test_what_the_sink_has_written_the_spout_reads(kind: SinkKind, server: Server, bucket: str, tmp_path: Path) -> None:
    task = SinkTask(kind, tmp_path)
    task.write(1, 2)
    task.snapshot(1)
    task.output.complete(1)
    task.write(3)
    task.snapshot(2)
    url = f"s3://{bucket}/{tmp_path.name}"
    harness = PartitionHarness(lambda: FilesSpout(url, format="json", fields=("n",), storage_options=options(server)))
    harness.turns(20)
    assert [values for _, _, values in harness.all_rows()] == [(1,), (2,)], "staged rows are not seen"


# -- checkpoints -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "test",
    [
        test_checkpoint_store.test_a_committed_checkpoint_is_the_latest,
        test_checkpoint_store.test_parts_without_a_manifest_are_no_checkpoint,
        test_checkpoint_store.test_a_discarded_checkpoint_is_gone_and_may_be_discarded_again,
    ],
    ids=lambda test: test.__name__,
)
def test_the_store_of_checkpoints_keeps_its_promises(bucket: str, test: Callable[..., None]) -> None:
    test(open_store(f"s3://{bucket}/checkpoints", "words"))


def test_parts_of_checkpoints_are_kept(bucket: str) -> None:
    files = open_files(f"s3://{bucket}/checkpoints")
    test_part_files.test_a_part_is_read_whole_and_in_ranges(files, [b"head", bytes(3 << 20), b"tail"])
    test_part_files.test_a_part_that_is_not_there_is_said_to_be_missing(files)
    assert files.names("0000000007") == ["task-00003.part"]
    files.remove("0000000007/task-00003.part")
    files.remove("0000000007/task-00003.part")
    assert files.names("0000000007") == []
    files.write("0000000009/a", [b"a"])
    files.remove_folder("0000000009")
    files.remove_folder("0000000009")
    assert files.names() == []
