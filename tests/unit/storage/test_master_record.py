"""The master's record: read, replaced when it is damaged, and kept rising when a run starts from the beginning."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.submissions import submission
from tests.unit.master.playbook import small_plan
from tests.unit.master_process.test_shell import NoLauncher
from topo.errors import TopoEnvironmentError
from topo.ids import Epoch
from topo.master.commands import MasterRecord
from topo.master.events import Started
from topo.master_process.job import Job
from topo.master_process.shell import MasterShell
from topo.storage.checkpoint_store import open_store
from topo.storage.master_record import RecordDamaged, read_record, reset_run, write_record
from topo.storage.state_folder import StateFolder

DAMAGED = pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"term": 3}', "\x00" * 50])


@DAMAGED
def test_a_damaged_record_is_noticed(tmp_path: Path, text: str) -> None:
    path = tmp_path / "master.json"
    assert read_record(path) is None
    path.write_text(text)
    with pytest.raises(RecordDamaged, match=r"master\.json is damaged"):
        read_record(path)


@DAMAGED
def test_a_run_that_begins_anew_replaces_a_damaged_record(tmp_path: Path, text: str) -> None:
    path = tmp_path / "master.json"
    path.write_text(text)
    reset_run(path)
    record = read_record(path)
    assert record is not None
    assert (record.completed, record.epoch) == (0, record.term)
    assert abs(record.term - time.time()) < 60


def test_a_run_that_begins_anew_keeps_the_numbers_and_where_the_sockets_are(tmp_path: Path) -> None:
    path = tmp_path / "master.json"
    reset_run(path)
    assert not path.exists()
    write_record(path, MasterRecord(3, Epoch(7), {}, False, 9, 8, has_run=True), client_endpoint="ipc:///x")
    reset_run(path, active=True)
    assert read_record(path) == MasterRecord(3, Epoch(7), {}, True, 9, 0)
    assert json.loads(path.read_bytes())["client_endpoint"] == "ipc:///x"


def test_a_master_with_positions_goes_on_over_a_damaged_record(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path / "home").create("small")
    folder.master.write_text("{")
    shell = MasterShell(Job(folder, submission(folder, small_plan(), reference="small.py", foreground=True)), NoLauncher())
    shell.loop.handle(Started())
    shell.link.close()
    assert shell.master.term > 1_000_000_000
    record = read_record(folder.master)
    assert record is not None and record.term == shell.master.term


def test_a_damaged_record_without_a_whole_checkpoint_is_refused_with_the_way_out(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path / "home").create("small")
    folder.master.write_text("{")
    plan = small_plan(delivery="exactly_once")
    checkpoints = str(folder.checkpoints / "1")
    open_store(checkpoints, plan.name)
    with pytest.raises(TopoEnvironmentError, match=r"master\.json is damaged.*no whole checkpoint.*resume \S+ --from-beginning"):
        MasterShell(Job(folder, submission(folder, plan, run_ms=1)), NoLauncher())
