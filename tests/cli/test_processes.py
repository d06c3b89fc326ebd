"""Commands that start processes: through pipes, in the background, two at once."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.cli.drive import EXAMPLES, PATIENCE_S, TOPO, Terminal, call, piped
from topo.storage.state_folder import StateFolder

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.fixture
def background(topo_home: Path) -> Iterator[None]:
    """Ends what a test has started in the background."""
    yield
    for row in json.loads(piped("list", "--json").out):
        if row["pid"]:
            piped("kill", row["topology"], "--yes")


def test_a_run_through_pipes_has_data_on_stdout_and_talk_on_stderr(flow: Path) -> None:
    result = piped("run", flow)
    printed, _, summary = result.out.partition("\n\n")
    assert result.code == 0
    assert sorted(printed.splitlines()) == ["value 0", "value 2", "value 4"]
    assert summary.startswith("flow ended after ") and "acked           3\n" in summary
    assert "flow: starting" in result.err and "flow: finished" in result.err
    assert "\x1b" not in result.out + result.err


def test_a_quiet_run_as_json_prints_the_summary_alone(flow: Path) -> None:
    result = piped("run", flow, "--json", "-q", "-p", "items=5", "--workers", "1", "--name", "other")
    summary = json.loads(result.out)
    assert result.code == 0
    assert (summary["topology"], len(summary["workers"]), summary["totals"]["acked"]) == ("other", 1, 5)
    start, code, *printed = result.err.splitlines()
    assert (start, code) == ("other starts from the beginning", "code: a copy of flow.py")
    assert sorted(printed) == [f"value {2 * number}" for number in range(5)]


UNREACHABLE = """
from topo import PrintBolt, Spout, TopologyBuilder
from topo.errors import TopoEnvironmentError


class Orders(Spout):
    outputs = ("order",)

    def open(self, context, collector):
        raise TopoEnvironmentError("no broker answers")

    def next_tuple(self): ...


builder = TopologyBuilder("orders")
builder.set_spout("orders", Orders())
builder.set_bolt("print", PrintBolt()).shuffle_grouping("orders")
topology = builder.build()
"""


def test_a_quiet_run_shows_an_error_that_comes_again_once(topo_home: Path, tmp_path: Path) -> None:
    """The source is opened three times; who reads the log of a job must not wait for the last."""
    path = tmp_path / "orders.py"
    path.write_text(UNREACHABLE)
    result = piped("run", path, "-q")
    assert result.code == 1
    shown = [line for line in result.err.splitlines() if line.startswith("orders: ") and "no broker answers" in line]
    assert [line.split()[1] for line in shown] == ["TopoEnvironmentError:", "WorkerLost:"]
    assert {row["count"] for row in json.loads(piped("errors", "orders", "--json").out)} == {3}


def test_a_run_that_gives_messages_up_exits_1_says_why_and_names_the_way_on() -> None:
    result = piped("run", EXAMPLES / "enrichment.py", "-p", "visitors=30", "-p", "unknown=2", "-q")
    assert result.code == 1
    assert "2 messages were given up" in result.out
    assert "LookupError: unknown visitor 28" in result.err
    assert "topo dead-letters enrichment" in result.err
    assert [row["values"] for row in json.loads(piped("dead-letters", "enrichment", "--json").out)] == [[28], [29]]
    assert {row["kind"] for row in json.loads(piped("errors", "enrichment", "--json").out)} == {"LookupError", "TimeoutError"}


def test_a_topology_with_mistakes_is_not_started(tmp_path: Path, topo_home: Path) -> None:
    path = tmp_path / "empty.py"
    path.write_text("from topo import TopologyBuilder\n\ndef topology():\n    return TopologyBuilder('empty').build()\n")
    result = piped("run", path)
    assert result.code == 2
    assert "has no spout" in result.err


def test_sigterm_lets_what_is_in_flight_finish_and_leaves_nothing_pending(flow: Path) -> None:
    run = subprocess.Popen(
        [*TOPO, "run", flow, "--json", "-q", "-p", "items=100000", "-p", "pause=0.001"], stdout=subprocess.PIPE
    )
    assert run.stdout is not None
    deadline = time.monotonic() + PATIENCE_S
    while "RUNNING" not in piped("status", "flow").out and time.monotonic() < deadline:
        time.sleep(0.1)
    run.send_signal(signal.SIGTERM)
    summary = json.loads(run.communicate(timeout=PATIENCE_S)[0])
    assert run.returncode == 130
    assert summary["outcome"]["kind"] == "drained"
    assert 0 < summary["totals"]["acked"] == summary["totals"]["emitted"] < 100000


CONTAINER = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc")
"""Makes a command the first process of a namespace."""


def test_sigterm_ends_the_first_process_of_a_container_while_it_imports_the_topology(topo_home: Path, tmp_path: Path) -> None:
    if shutil.which("unshare") is None or subprocess.run([*CONTAINER, "true"], capture_output=True).returncode:
        pytest.skip("process namespaces may not be made here")
    path = tmp_path / "slow.py"
    path.write_text("import time\nprint('importing', flush=True)\ntime.sleep(300)\n")
    with subprocess.Popen([*CONTAINER, *TOPO, "run", path], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None and run.stdout.readline() == "importing\n"
        (first,) = psutil.Process(run.pid).children()
        first.terminate()
        try:
            assert run.wait(PATIENCE_S) == 128 + signal.SIGTERM
        finally:
            run.kill()


@pytest.mark.parametrize("how", ["the reader ends", "the disk is full"])
def test_a_run_whose_output_is_taken_no_more_drains_and_names_the_way_on(how: str, flow: Path) -> None:
    reader, output = (
        os.pipe() if how == "the reader ends" else (os.open(os.devnull, os.O_RDONLY), os.open("/dev/full", os.O_WRONLY))
    )
    os.close(reader)
    arguments = ["run", flow, "-q", "-p", "items=100000", "-p", "pause=0.001"]
    run = subprocess.Popen([*TOPO, *arguments], stdout=output, stderr=subprocess.PIPE, text=True)
    os.close(output)
    shown = run.communicate(timeout=PATIENCE_S)[1]
    assert run.returncode == 130
    assert "Traceback" not in shown
    assert "so flow was drained; `topo resume flow` continues it in the background" in shown
    found = piped("status", "flow", "--json")
    assert found.code == 0, found
    summary = json.loads(found.out)
    assert summary["outcome"]["kind"] == "drained"
    assert 0 < summary["totals"]["acked"] == summary["totals"]["emitted"] < 100000


LAST_WORDS = """
from topo import BasicBolt, IterableSpout, TopologyBuilder


class End(BasicBolt):
    def execute(self, tup, collector):
        pass

    def cleanup(self):
        print("the end")


def topology():
    builder = TopologyBuilder("last-words")
    builder.set_spout("source", IterableSpout([1]))
    builder.set_bolt("end", End()).shuffle_grouping("source")
    return builder.build()
"""


def test_a_run_that_has_ended_before_its_output_was_taken_no_more_has_not_failed(tmp_path: Path, topo_home: Path) -> None:
    path = tmp_path / "last_words.py"
    path.write_text(LAST_WORDS)
    reader, output = os.pipe()
    os.close(reader)
    run = subprocess.Popen([*TOPO, "run", path, "-q"], stdout=output, stderr=subprocess.PIPE, text=True)
    os.close(output)
    shown = run.communicate(timeout=PATIENCE_S)[1]
    assert (run.returncode, "`topo logs last-words` has all of it" in shown) == (141, True), shown
    assert json.loads(piped("status", "last-words", "--json").out)["outcome"]["kind"] == "done"


def test_a_run_whose_terminal_is_closed_drains(flow: Path) -> None:
    with Terminal("run", flow, "-p", "items=100000", "-p", "pause=0.001") as terminal:
        terminal.wait_for("value")
        terminal.hang_up()
        assert terminal.process.wait(PATIENCE_S) == 130
    assert json.loads(piped("status", "flow", "--json").out)["outcome"]["kind"] == "drained"


def test_when_nobody_reads_the_output_any_more_nothing_is_said_about_it(flow: Path) -> None:
    piped("run", flow, "-q")
    command = subprocess.Popen([*TOPO, "logs", "flow"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert command.stdout is not None and command.stderr is not None
    command.stdout.close()
    shown = command.stderr.read()
    command.stderr.close()
    assert (command.wait(PATIENCE_S), shown) == (141, b"")


def test_a_topology_in_the_background_from_submit_to_kill(flow: Path, background: None) -> None:
    started = piped("submit", flow, "--wait", "-p", "items=1000000", "-p", "pause=0.001")
    assert started.code == 0
    assert started.out.startswith("flow is running under process ")
    assert "topo status flow --watch" in started.err

    again = piped("submit", flow)
    assert again.code == 2
    assert "'flow' is running already" in again.err

    assert piped("deactivate", "flow").code == 0
    assert json.loads(piped("status", "flow", "--json").out)["status"] == "INACTIVE"
    assert piped("activate", "flow").code == 0
    assert json.loads(piped("status", "flow", "--json").out)["status"] == "RUNNING"
    assert "double" in piped("status", "flo", "--tasks").out
    assert "emitted" in piped("graph", "flow").out

    assert piped("kill", "flow").code == 2  # there is no terminal to ask on
    ended = piped("kill", "flow", "-w", "20s", "--yes")
    assert ended.code == 0
    assert "drained; nothing was left in flight" in ended.err
    over = json.loads(piped("status", "flow", "--json").out)
    assert over["status"] == "KILLED"

    assert piped("resume", "flow", "--wait").code == 0
    assert piped("kill", "flow", "--yes").code == 0
    resumed = json.loads(piped("status", "flow", "--json").out)
    assert resumed["term"] == over["term"] + 1


def test_a_file_that_is_edited_while_it_runs_changes_nothing_that_runs(flow: Path, background: None) -> None:
    piped("submit", flow, "--wait", "-p", "items=1000000", "-p", "pause=0.001")
    flow.write_text("raise SystemExit('edited')\n")
    status = json.loads(piped("status", "flow", "--json").out)
    (double,) = (task["worker"] for task in status["tasks"] if task["component"] == "double")
    (pid,) = (worker["pid"] for worker in status["workers"] if worker["worker"] == double)
    signal_worker(pid)
    deadline = time.monotonic() + PATIENCE_S
    while not is_running_again(json.loads(piped("status", "flow", "--json").out)):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert json.loads(piped("errors", "flow", "--json").out)[-1]["kind"] == "WorkerLost"


def signal_worker(pid: int) -> None:
    """Kill a worker that this test has started."""
    import os

    os.kill(pid, signal.SIGKILL)


def is_running_again(status: dict[str, object]) -> bool:
    """Whether a worker was replaced and all is well."""
    return status["restarts"] == 1 and status["status"] == "RUNNING"


def test_of_two_submits_at_one_moment_one_is_refused(flow: Path, background: None) -> None:
    command = [*TOPO, "submit", flow, "-p", "items=100000", "-p", "pause=0.01"]
    submits = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    shown = [submit.communicate(timeout=PATIENCE_S)[1] for submit in submits]
    assert sorted(submit.returncode == 0 for submit in submits) == [False, True], shown
    assert "Traceback" not in "".join(shown)


def test_two_topologies_at_once_do_not_meet(flow: Path, background: None) -> None:
    for name in ("one", "two"):
        assert piped("submit", flow, "--name", name, "--wait", "-p", "items=1000000", "-p", "pause=0.001").code == 0
    assert [row["status"] for row in json.loads(piped("list", "--json").out)] == ["RUNNING", "RUNNING"]
    assert piped("kill", "one", "--yes").code == 0
    rows = {row["topology"]: row["status"] for row in json.loads(piped("list", "--json").out)}
    assert rows == {"one": "KILLED", "two": "RUNNING"}


def test_logs_are_followed_until_the_topology_ends(flow: Path, background: None) -> None:
    piped("submit", flow, "-p", "items=300", "-p", "pause=0.005")
    followed = piped("logs", "flow", "-f", "--component", "show", "--json")
    assert followed.code == 0
    rows = [json.loads(line) for line in followed.out.splitlines()]
    assert [row["message"] for row in rows] == [f"value {2 * number}" for number in range(300)]
    assert "value 598" in piped("logs", "flow", "-n", "20").out
    assert piped("logs", "flow", "--since", "1ms").out == ""
    for command in ("logs", "errors"):
        refused = piped(command, "flow", "--component", "shown")
        assert refused.code == 2 and "there is no component 'shown'" in refused.err and "Did you mean 'show'?" in refused.err


def test_relative_paths_mean_the_same_in_the_background(tmp_path: Path, background: None) -> None:
    (tmp_path / "text").write_text("one two two\n")
    arguments = (EXAMPLES / "word_count.py", "-p", "path=text")
    assert piped("submit", *arguments, "--wait", cwd=tmp_path).code == 0
    assert "2  two" in piped("logs", "word-count", "-f").out


def test_a_project_without_a_folder_is_refused(tmp_path: Path) -> None:
    """As by a variable of a script that is not set: it would be written here."""
    refused = piped("init", "", cwd=tmp_path)
    assert refused.code == 2 and "it is empty; name a place" in refused.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("options", "counted"), [((), "     3 river"), (("--streams",), "     4 a")])
def test_a_project_that_init_writes_runs_and_its_test_passes(tmp_path: Path, options: tuple[str, ...], counted: str) -> None:
    made = piped("init", *options, tmp_path / "my first")
    assert made.code == 0 and f"next: cd '{tmp_path / 'my first'}' && " in made.err
    assert sorted(path.name for path in (tmp_path / "my first").iterdir()) == ["test_wordcount.py", "wordcount.py"]

    ran = piped("run", "wordcount.py", "-q", cwd=tmp_path / "my first")
    assert ran.code == 0
    assert counted in ran.out.splitlines()

    tested = subprocess.run(
        [TOPO[0], "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path / "my first",
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert tested.returncode == 0, tested.stdout

    again = piped("init", tmp_path / "my first")
    assert again.code == 2
    assert "has test_wordcount.py and wordcount.py already" in again.err


def test_a_submit_whose_page_needs_an_extra_starts_nothing(
    background: None, capsys: pytest.CaptureFixture[str], flow: Path, topo_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "starlette", None)
    result = call(capsys, "submit", flow, "--ui")
    assert result.code == 2 and "--ui needs starlette" in result.err
    assert not StateFolder(topo_home).names()


def test_ctrl_c_in_a_submit_names_the_topology_that_keeps_running(background: None, flow: Path, topo_home: Path) -> None:
    waiting = flow.read_text().replace(
        "    def __init__", "    def prepare(self, context):\n        time.sleep(600)\n\n    def __init__"
    )
    flow.write_text(waiting)
    child = subprocess.Popen([*TOPO, "submit", flow, "--wait", "--deadline", "10m"], stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + PATIENCE_S
    while not (topo_home / "topologies" / "flow" / "master.json").exists():
        assert time.monotonic() < until
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    words = child.communicate(timeout=PATIENCE_S)[1]
    assert child.returncode == 130 and "a topology that was started keeps running in the background" in words, words
