"""`topo checkpoints` and `topo state`: checkpoints, read from their files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgpack
import pytest
from msgspec.structs import asdict

from tests.cli.drive import call
from tests.submissions import ended_summary, small_plan, store_submission
from topo.checkpoint.encoding import TaskSnapshot, encode_snapshot, pack
from topo.checkpoint.manifest import ComponentFigures, ComponentShape, Manifest, Part
from topo.checkpoint.rows import CheckpointRow
from topo.dead_letters.pending import STATE_KEY
from topo.ids import TaskId
from topo.storage.checkpoint_store import CheckpointStore, open_store
from topo.storage.state_folder import StateFolder, TopologyFolder, write_atomically
from topo.wire.serializers import SerializerRegistry

TYPES = SerializerRegistry()
KEYED = {
    "state": {
        "sum": {"kind": "value", "ttl": False, "rows": [("JFK", None, 12), ("LGA", ("w", 0, 60), msgpack.ExtType(40, b"ab"))]}
    },
    "timers": {"windows": ([("JFK", None, 60_000)], [])},
}


def complete(store: CheckpointStore, number: int, *, is_savepoint: bool = False) -> Manifest:
    snapshots = [
        TaskSnapshot("lines", TaskId(1), 0, 1, {}, {"source": {"position": 17}}),
        TaskSnapshot("delays", TaskId(2), 0, 2, {3: pack(KEYED, TYPES)}, {"own": ()}),
        TaskSnapshot("delays", TaskId(3), 1, 2, {}, {"own": ("waiting",)}),
        TaskSnapshot("mine", TaskId(4), 0, 1, {5: pack(pack([("a", 1), ("b", 2)], TYPES), TYPES)}, {STATE_KEY: ()}),
    ]
    parts = []
    for snapshot in snapshots:
        encoded = encode_snapshot(snapshot, "flights", number, TYPES)
        file = store.write_part(number, snapshot.task, encoded)
        parts.append(
            Part(
                file=file,
                length=encoded.length,
                checksum=encoded.checksum,
                component=snapshot.component,
                task=snapshot.task,
                index=snapshot.index,
            )
        )
    shapes = {
        name: ComponentShape(kind=kind, parallelism=parallelism, max_parallelism=128)
        for name, kind, parallelism in (("lines", "spout", 1), ("delays", "bolt", 2), ("mine", "bolt", 1))
    }
    manifest = Manifest(
        topology="flights",
        checkpoint=number,
        components=shapes,
        parts=tuple(parts),
        figures=ComponentFigures(bytes=1234, duration_ms=1500.0, alignment_ms=20.0, pause_ms=3.0),
        created_ms=1_700_000_000_000,
        is_savepoint=is_savepoint,
    )
    store.commit(manifest)
    return manifest


@pytest.fixture
def save(tmp_path: Path) -> Path:
    path = tmp_path / "save"
    store = open_store(str(path), "flights")
    complete(store, 6, is_savepoint=True)
    complete(store, 7, is_savepoint=True)
    return path


def submitted(topo_home: Path, **config: Any) -> TopologyFolder:
    folder = StateFolder(topo_home).create("flights")
    store_submission(folder, small_plan("flights", **{"delivery": "exactly_once", **config}))
    return folder


def test_the_checkpoints_of_a_topology_are_listed_with_those_that_failed(
    capsys: pytest.CaptureFixture[str], topo_home: Path
) -> None:
    folder = submitted(topo_home)
    store = open_store(str(folder.checkpoints / "5"), "flights")
    for number in (1, 3, 4):
        complete(store, number)
    (folder.checkpoints / "5" / "0000000004" / "manifest.json").write_bytes(b"{")
    latest = [CheckpointRow(1, "complete", 1.5), CheckpointRow(2, "failed", 60.0, why="the disk is full")]
    known = {"complete": 1, "failed": 1, "restores": 0, "latest": [asdict(row) for row in latest]}
    write_atomically(folder.summary, json.dumps(ended_summary("flights", checkpoints=known)).encode())
    found = json.loads(call(capsys, "checkpoints", "flights", "--json").out)
    assert [(row["checkpoint"], row["state"]) for row in found["checkpoints"]] == [
        (1, "complete"),
        (2, "failed"),
        (3, "complete"),
        (4, "damaged"),
    ]
    assert found["checkpoints"][0] == {
        "checkpoint": 1,
        "state": "complete",
        "created_ms": 1_700_000_000_000,
        "bytes": 1234,
        "duration_s": 1.5,
        "alignment_s": 0.02,
        "pause_s": 0.003,
        "parts": 4,
        "why": "",
    }
    result = call(capsys, "checkpoints", "fligh")
    assert result.code == 0
    assert "1,234" in result.out and "the disk is full" in result.out
    assert "topo state show PATH shows the content of one" in result.err and str(folder.checkpoints / "5") in result.err


def test_a_topology_without_checkpoints_says_so(capsys: pytest.CaptureFixture[str], topo_home: Path) -> None:
    submitted(topo_home)
    assert "no checkpoint of flights is complete yet" in call(capsys, "checkpoints", "flights").err
    submitted(topo_home, delivery="at_least_once")
    result = call(capsys, "checkpoints", "flights")
    assert (result.code, result.out) == (0, "")
    assert "delivery=exactly_once" in result.err


def test_checkpoints_in_a_folder_of_their_own_are_found(
    capsys: pytest.CaptureFixture[str], topo_home: Path, tmp_path: Path
) -> None:
    submitted(topo_home, checkpoint_folder=str(tmp_path / "shared"))
    complete(open_store(str(tmp_path / "shared" / "flights" / "5"), "flights"), 9)
    (row,) = json.loads(call(capsys, "checkpoints", "flights", "--json").out)["checkpoints"]
    assert row["checkpoint"] == 9


def test_a_savepoint_is_shown_task_by_task(capsys: pytest.CaptureFixture[str], save: Path) -> None:
    found = json.loads(call(capsys, "state", "show", save, "--json").out)
    assert (found["topology"], found["checkpoint"], found["is_savepoint"]) == ("flights", 7, True)
    rows = {f"{row['component']}[{row['index']}]": row for row in found["tasks"]}
    assert list(rows) == ["lines[0]", "delays[0]", "delays[1]", "mine[0]"]
    assert (rows["delays[0]"]["states"], rows["delays[0]"]["timers"], rows["delays[0]"]["key_groups"]) == ({"sum": 2}, 1, 1)
    assert rows["mine[0]"]["states"] == {"user": 2}
    assert rows["lines[0]"]["values"] == {"source": "{'position': 17}"}
    assert rows["mine[0]"]["values"] == {"dead_letters": "()"}
    result = call(capsys, "state", "show", save)
    assert call(capsys, "state", save).out == result.out
    assert "savepoint 7 of flights" in result.err
    assert "delays[0]" in result.out and "sum: 2" in result.out


def test_one_of_several_checkpoints_is_shown_by_its_folder(capsys: pytest.CaptureFixture[str], save: Path) -> None:
    assert json.loads(call(capsys, "state", "show", save / "0000000006", "--json").out)["checkpoint"] == 6


def test_the_state_of_a_component_is_shown_entry_by_entry(capsys: pytest.CaptureFixture[str], save: Path) -> None:
    entries = json.loads(call(capsys, "state", "show", save, "--component", "delays", "--json").out)
    assert [(entry["index"], entry["state"], entry["key"], entry["namespace"], entry["value"]) for entry in entries] == [
        (0, "sum", "'JFK'", "", "12"),
        (0, "sum", "'LGA'", "('w', 0, 60)", "<type 40, 2 bytes>"),
        (0, "timer windows", "'JFK'", "", "event time 60000"),
        (0, "own", "", "", "()"),
        (1, "own", "", "", "('waiting',)"),
    ]
    result = call(capsys, "state", "show", save, "--component", "mine", "-n", "1")
    assert "'a'" in result.out and "'b'" not in result.out
    assert "the first 1 of 3" in result.err


def test_looking_changes_nothing(capsys: pytest.CaptureFixture[str], save: Path) -> None:
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in save.rglob("*") if path.is_file()}
    call(capsys, "state", "show", save)
    call(capsys, "state", "show", save, "--component", "delays")
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in save.rglob("*") if path.is_file()} == before


def test_what_is_no_checkpoint_or_damaged_is_said(capsys: pytest.CaptureFixture[str], save: Path, tmp_path: Path) -> None:
    result = call(capsys, "state", "show", tmp_path)
    assert result.code == 2
    assert "there is no complete checkpoint in" in result.err
    result = call(capsys, "state", "show", "flights")
    assert "no complete checkpoint in flights; `topo checkpoints NAME` shows the folder of a topology's" in result.err
    result = call(capsys, "state", "show", save, "--component", "delay")
    assert result.code == 2
    assert "Did you mean 'delays'?" in result.err
    (save / "0000000007" / "task-00003.part").write_bytes(b"x" * 100)
    result = call(capsys, "state", "show", save)
    assert result.code == 1
    assert "task-00003.part is damaged" in result.err
