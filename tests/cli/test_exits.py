from __future__ import annotations

import errno
import json
import os
import re
import subprocess
from pathlib import Path

import click
import pytest

from tests.cli.drive import PATIENCE_S, TOPO, piped
from tests.cli.test_damaged_files import DEAD_LETTER, ERROR
from topo.errors import ConfigError, FrameError, NotFoundError, TopoEnvironmentError, TopoInternalError, TopologyError
from topo.launch.cluster import run_foreground
from topo.launch.request import RunRequest
from topo.master_process.client import AnswerTimeout, Unreachable
from topo.storage.state_folder import StateFolder
from topo.storage.submitted import checkpoints_of
from topo.user_code.load import CodeError
from topo_cli.exits import Exit, Failed, TimedOut, exit_of

NAMES = """
from topo import BasicBolt, IterableSpout, TopologyBuilder


class Read(BasicBolt):
    def execute(self, tup, collector):
        print("printed \\udcff")
        raise ValueError("raised \\udcff")


def topology():
    builder = TopologyBuilder("names")
    builder.set_spout("numbers", IterableSpout([1]), attempts=1)
    builder.set_bolt("bolt", Read()).shuffle_grouping("numbers")
    return builder.build()
"""


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("no such setting"), 2),
        (TopologyError(["one", "two"]), 2),
        (NotFoundError("no topology is called 'x'.", ("y",)), 2),
        (CodeError("importing x.py failed"), 2),
        (click.UsageError("wrong"), 2),
        (TopoEnvironmentError("the disk is full"), 1),
        (FrameError("not a frame"), 1),
        (Failed("it ended"), 1),
        (Unreachable("no master runs"), 3),
        (AnswerTimeout("no answer"), 4),
        (TimedOut("still starting"), 4),
    ],
)
def test_each_kind_of_error_has_its_exit_code_and_is_told_on_stderr(
    capsys: pytest.CaptureFixture[str], error: Exception, code: int
) -> None:
    assert exit_of(error) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    shown = error.format_message() if isinstance(error, click.ClickException) else str(error)
    assert shown in printed.err


def test_an_interrupt_is_130() -> None:
    assert exit_of(KeyboardInterrupt()) == 130
    assert exit_of(click.Abort()) == 130


def test_user_code_that_raised_is_shown_with_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_of(CodeError("importing x.py failed", "x.py", 3, "  File x.py, line 3\nValueError: no\n")) == 2
    assert "File x.py, line 3" in capsys.readouterr().err


@pytest.mark.parametrize("error", [TopoInternalError("impossible"), ZeroDivisionError()])
def test_a_fault_of_topo_itself_is_not_swallowed(error: Exception) -> None:
    with pytest.raises(type(error)):
        exit_of(error)


def test_a_file_that_the_system_refuses_is_named_and_no_traceback_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_of(PermissionError(errno.EACCES, "Permission denied", "/srv/topo/logs")) == Exit.FAILED
    assert capsys.readouterr().err == "Error: cannot use /srv/topo/logs: Permission denied\n"
    with pytest.raises(PermissionError):
        exit_of(PermissionError(errno.EPERM, "Operation not permitted"))


def test_a_removed_working_folder_is_named_and_no_traceback_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder := tmp_path / "gone").mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    try:
        Path.cwd()
    except FileNotFoundError as error:
        assert exit_of(error) == 2
    assert capsys.readouterr().err == "Error: the folder in which this command was started was removed: cd into another one\n"
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError):
        exit_of(FileNotFoundError())


COMMANDS = (
    "list", "list --json", "status flow", "status flow --json", "status flow --tasks", "logs flow", "logs flow --json",
    "logs flow -f", "history flow", "history flow --json", "errors flow", "errors flow --json", "dead-letters flow",
    "dead-letters flow --json", "dead-letters --help", "checkpoints flow", "checkpoints flow --json", "state show CHECKPOINTS",
    "state show CHECKPOINTS --json", "graph flow", "validate FILE", "doctor", "version", "--help", "list --help",
)  # fmt: skip


def test_each_command_ends_quietly_when_nothing_reads_its_output(flow: Path, topo_home: Path) -> None:
    settings = {"delivery": "exactly_once"}
    run_foreground(RunRequest(topology=str(flow), settings=settings, foreground=True, home=topo_home))
    folder = StateFolder(topo_home).find("flow")
    folder.errors.write_text(json.dumps(ERROR) + "\n")
    folder.dead_letters.write_text(json.dumps(DEAD_LETTER) + "\n")
    reader, writer = os.pipe()
    os.close(reader)
    texts = [text.replace("CHECKPOINTS", checkpoints_of(folder)).replace("FILE", str(flow)) for text in COMMANDS]
    begun = [(text, subprocess.Popen([*TOPO, *text.split()], stdout=writer, stderr=subprocess.PIPE, text=True)) for text in texts]
    os.close(writer)
    talk = {text: process.communicate(timeout=PATIENCE_S)[1] for text, process in begun}
    assert {text: process.returncode for text, process in begun} == dict.fromkeys(texts, Exit.UNREAD)
    # It names the checkpoint on stderr before its rows.
    assert [text for text in texts if talk[text]] == [
        text for text in texts if text.startswith("state show") and "json" not in text
    ]
    assert not [lines for lines in talk.values() if "rror" in lines]


def test_a_file_name_that_the_locale_cannot_write_is_named_and_no_traceback_shown(tmp_path: Path, topo_home: Path) -> None:
    file = tmp_path / "zähler.py"
    file.write_text(NAMES)
    plain = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "TOPO_HOME": str(topo_home)}
    done = subprocess.run([*TOPO, "run", file], env=plain, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 2
    assert re.fullmatch(
        r"Error: the encoding of this locale, ascii, cannot write '.*'; set PYTHONUTF8=1, or a locale such as LC_ALL=C.UTF-8\n",
        done.stderr,
    )


def test_output_that_the_disk_has_no_room_for_is_a_failure_and_no_traceback() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([*TOPO, "version"], stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=PATIENCE_S)
    assert (done.returncode, done.stderr) == (1, "Error: cannot write: No space left on device; free the disk\n")


def test_a_disk_without_room_is_named_by_what_cannot_be_written(capfd: pytest.CaptureFixture[str]) -> None:
    assert exit_of(OSError(errno.ENOSPC, "No space left on device", "/full/topo-1")) == 1
    assert capfd.readouterr().err == "Error: cannot write /full/topo-1: No space left on device; free the disk\n"


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_as_devnull(closed: str, topo_home: Path, flow: Path) -> None:
    """Of a cron job or a service: the command did its work, and failed at its words."""
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", *TOPO]
    for arguments, code in ((["list", "--json"], 0), (["status", "missing"], 2), (["run", str(flow)], 0)):
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False, timeout=PATIENCE_S)
        assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr


@pytest.mark.parametrize("encoding", ["ascii", "utf-8:strict"])
def test_what_a_terminal_cannot_show_is_escaped(encoding: str, tmp_path: Path) -> None:
    topology = tmp_path / "names.py"
    topology.write_text(NAMES)
    environment = {**os.environ, "TOPO_HOME": str(tmp_path / "state"), "PYTHONIOENCODING": encoding}

    ran = piped("run", "-q", topology, env=environment)

    assert ran.code == 1, ran.err
    assert "printed \\udcff" in ran.out and "bolt: ValueError: raised \\udcff" in ran.err
    assert "Traceback" not in ran.err
    assert "raised \\udcff" in piped("errors", "names", env=environment).out
    assert [row["values"] for row in json.loads(piped("dead-letters", "names", "--json", env=environment).out)] == [[1]]


def test_a_run_that_cannot_be_started_has_failed_and_is_not_lost(tmp_path: Path, flow: Path) -> None:
    """Lost, it would be an alert of `deploy/prometheus` until it is started again."""
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    environment = {**os.environ, "TOPO_HOME": str(tmp_path / "state"), "TMPDIR": str(folder)}

    assert piped("run", "-q", flow, env=environment).code == Exit.USAGE

    (row,) = json.loads(piped("list", "--json", env=environment).out)
    assert (row["status"], "set TMPDIR to a folder with a short path" in row["reason"]) == ("FAILED", True), row
