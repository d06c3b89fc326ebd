from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import zmq

from tests.cli.drive import call
from tests.submissions import small_plan, store_submission
from topo.ids import Epoch
from topo.launch.master_process import write_failure
from topo.master.commands import MasterRecord
from topo.storage.master_record import write_record
from topo.storage.state_folder import StateFolder, TopologyFolder


@pytest.fixture
def lost(topo_home: Path) -> TopologyFolder:
    """A topology whose master has gone without a word."""
    folder = StateFolder(topo_home).create("word-count")
    store_submission(folder, small_plan())
    return folder


def test_no_topologies_is_said_and_empty_json(capsys: pytest.CaptureFixture[str]) -> None:
    result = call(capsys, "list")
    assert (result.code, result.out) == (0, "")
    assert "no topology" in result.err
    assert json.loads(call(capsys, "list", "--json").out) == []


def test_a_topology_whose_submit_was_ended_is_not_to_be_resumed(capsys: pytest.CaptureFixture[str], topo_home: Path) -> None:
    StateFolder(topo_home).create("word-count")
    for command in (("status", "word-count"), ("list",)):
        words = "".join((printed := call(capsys, *command)).out + printed.err)
        assert "`topo submit` under that name starts it" in words and "topo resume" not in words


def test_a_topology_without_master_or_summary_is_lost(capsys: pytest.CaptureFixture[str], lost: TopologyFolder) -> None:
    (row,) = json.loads(call(capsys, "list", "--json").out)
    assert (row["topology"], row["status"]) == ("word-count", "LOST")
    assert "topo resume word-count" in row["reason"]


def test_a_topology_that_is_removed_while_another_is_asked_leaves_the_list(
    capsys: pytest.CaptureFixture[str], topo_home: Path
) -> None:
    mute, removed = (StateFolder(topo_home).create(name) for name in ("mute", "removed"))
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    master = context.socket(zmq.ROUTER)
    endpoint = f"ipc://{topo_home}/master"
    master.bind(endpoint)

    def take_a_question() -> None:
        master.recv_multipart()
        shutil.rmtree(removed.path)

    thread = threading.Thread(target=take_a_question)
    thread.start()
    with mute.lock():
        write_record(mute.master, MasterRecord(1, Epoch(1), {}), pid=os.getpid(), client_endpoint=endpoint)
        result = call(capsys, "list", "--json", "--deadline", "1s")
    thread.join()
    master.close(linger=0)
    context.term()
    assert (result.code, [row["topology"] for row in json.loads(result.out)]) == (0, ["mute"])


def test_asking_a_master_that_does_not_run_exits_3_and_names_the_way_on(
    capsys: pytest.CaptureFixture[str], lost: TopologyFolder
) -> None:
    for command in (("status",), ("activate",), ("deactivate",), ("kill", "--yes")):
        result = call(capsys, command[0], "word-count", *command[1:])
        assert result.code == 3, command
        assert "topo resume word-count" in result.err


@pytest.mark.parametrize("command", ["status", "logs", "errors", "dead-letters", "kill", "activate", "deactivate", "resume"])
def test_a_name_that_does_not_exist_exits_2_and_names_the_nearest(
    capsys: pytest.CaptureFixture[str], lost: TopologyFolder, command: str
) -> None:
    result = call(capsys, command, "wrod-count")
    assert result.code == 2
    assert "Did you mean 'word-count'?" in result.err


def test_a_part_of_a_name_will_do_for_reading_unless_it_fits_several(
    capsys: pytest.CaptureFixture[str], lost: TopologyFolder, topo_home: Path
) -> None:
    assert "no errors in word-count" in call(capsys, "errors", "count").err
    StateFolder(topo_home).create("click-count")
    result = call(capsys, "errors", "count")
    assert result.code == 2
    assert "'click-count', 'word-count'" in result.err


def test_a_part_of_a_name_ends_nothing(capsys: pytest.CaptureFixture[str], lost: TopologyFolder) -> None:
    assert call(capsys, "kill", "count", "--yes").code == 2


def test_a_topology_that_could_not_begin_says_why(capsys: pytest.CaptureFixture[str], lost: TopologyFolder) -> None:
    write_failure(lost, "the code is gone")
    result = call(capsys, "status", lost.name)
    assert result.code == 0
    assert "FAILED" in result.out and "the code is gone" in result.out
    assert "FAILED" in call(capsys, "list").out


def test_another_home_has_other_topologies(capsys: pytest.CaptureFixture[str], lost: TopologyFolder, tmp_path: Path) -> None:
    assert json.loads(call(capsys, "list", "--json", "--home", tmp_path / "other").out) == []


def test_a_home_that_others_can_look_into_is_refused(capsys: pytest.CaptureFixture[str], topo_home: Path) -> None:
    (topo_home / "topologies").mkdir(mode=0o755)
    result = call(capsys, "list")
    assert result.code == 2
    assert "chmod 700" in result.err
    doctor = call(capsys, "doctor")
    assert doctor.code == 1
    assert "chmod 700" in doctor.out


def test_the_doctor_finds_this_machine_well(capsys: pytest.CaptureFixture[str]) -> None:
    result = call(capsys, "doctor", "--json")
    found = {finding["check"]: finding["state"] for finding in json.loads(result.out)}
    assert result.code == 0
    assert {"per-tuple path", "libzmq", "state folder", "sockets", "loopback", "workers"} <= found.keys()
    assert "error" not in found.values()


def test_the_doctor_reports_a_folder_that_cannot_be_used_once(capsys: pytest.CaptureFixture[str]) -> None:
    result = call(capsys, "doctor", "--home", "/proc/x", "--json")
    found = {finding["check"]: finding["detail"] for finding in json.loads(result.out)}
    assert (result.code, "disk" in found) == (1, False)
    assert [detail for detail in found.values() if "/proc/x" in detail] == [found["state folder"]]


def test_logs_of_a_component_that_does_not_exist_are_an_error(capsys: pytest.CaptureFixture[str], lost: TopologyFolder) -> None:
    store_submission(lost, small_plan(bolt="split"))
    result = call(capsys, "logs", lost.name, "--component", "spilt")
    assert result.code == 2
    assert "Did you mean 'split'?" in result.err


def test_the_doctor_says_why_the_per_tuple_path_is_plain(tmp_path: Path) -> None:
    broken = (
        "import sys; sys.modules['topo.hot.compiled.acks'] = None; from topo_cli.doctor import _hot_path; print(*_hot_path(None))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "TOPO_PURE"}
    found = subprocess.run([sys.executable, "-c", broken], env=environment, capture_output=True, text=True, check=True).stdout
    assert found.startswith("warning plain Python (import of topo.hot.compiled.acks halted; None in sys.modules), which takes")
