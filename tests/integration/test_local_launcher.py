"""Real processes under the local launcher. Each test ends its own processes only."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from topo.errors import TopoEnvironmentError
from topo.ids import Incarnation, WorkerId
from topo.launch.local import LocalLauncher
from topo.launch.worker_command import worker_environment
from topo.master.links import WorkerEnd
from topo.storage.state_folder import StateFolder, TopologyFolder
from topo.worker.spec import WorkerSpec

pytestmark = pytest.mark.integration

PATIENCE_S = 20.0
PR_SET_CHILD_SUBREAPER = 36
ONE, TWO = WorkerId(1), WorkerId(2)
FIRST, SECOND = Incarnation(11), Incarnation(22)
SLEEP = "import time; print('up', flush=True); time.sleep(1000)"

Launch = Callable[[str], LocalLauncher]


@pytest.fixture
def folder(tmp_path: Path) -> TopologyFolder:
    return StateFolder(tmp_path / "home").create("words")


@pytest.fixture
def launch(folder: TopologyFolder) -> Iterator[Launch]:
    """Makes a launcher whose workers run a program."""
    made: list[LocalLauncher] = []

    def make(program: str) -> LocalLauncher:
        made.append(LocalLauncher(folder, [sys.executable, "-c", program]))
        return made[-1]

    yield make
    for launcher in made:
        launcher.close()


def start(launcher: LocalLauncher, worker: WorkerId = ONE, incarnation: Incarnation = FIRST) -> None:
    spec = WorkerSpec(
        topology="words",
        worker=worker,
        incarnation=incarnation,
        term=1,
        reference="words.py",
        digest="",
        master_endpoint="",
    )
    launcher.start(worker, incarnation, spec)


def ends(launcher: LocalLauncher, count: int = 1) -> list[WorkerEnd]:
    found: list[WorkerEnd] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"only {found} ended"
        select.select(list(launcher.descriptors()), [], [], 0.2)
        found += launcher.poll()
    return sorted(found, key=lambda end: end.worker)


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline, "gave up waiting"
        time.sleep(0.01)


def output(folder: TopologyFolder, worker: WorkerId = ONE) -> str:
    path = folder.logs / f"worker-{worker}.out"
    return path.read_text() if path.exists() else ""


def test_a_worker_that_is_killed_is_told_apart_from_one_that_exits(launch: Launch, folder: TopologyFolder) -> None:
    launcher = launch(SLEEP)
    start(launcher, ONE, FIRST)
    start(launcher, TWO, SECOND)
    assert launcher.poll() == []
    os.kill(launcher.pids()[ONE], signal.SIGKILL)
    assert ends(launcher) == [WorkerEnd(ONE, FIRST, "killed by signal 9 (SIGKILL)")]
    launcher.stop(TWO, SECOND, kill=False)
    assert ends(launcher) == [WorkerEnd(TWO, SECOND, "killed by signal 15 (SIGTERM)")]
    assert launcher.poll() == []
    assert list(launcher.descriptors()) == []


@pytest.mark.parametrize(
    ("program", "described"),
    [
        ("pass", "exited"),
        ("raise SystemExit(3)", "exit code 3"),
        ("raise ValueError('odd')", "exit code 1: ValueError: odd"),
        ("x = [0] * (1 << 60)", "exit code 1, out of memory: MemoryError"),
        ("import ctypes; ctypes.string_at(0)", "killed by signal 11 (SIGSEGV) in "),
    ],
)
def test_how_a_worker_ended_is_told_in_words(launch: Launch, program: str, described: str) -> None:
    launcher = launch(program)
    start(launcher)
    assert ends(launcher)[0].description.startswith(described)


def test_the_last_words_are_those_of_this_life(launch: Launch) -> None:
    launcher = launch("import sys; sys.exit('once')")
    start(launcher)
    assert ends(launcher)[0].description == "exit code 1: once"
    silent = launch("raise SystemExit(1)")
    start(silent)
    assert ends(silent)[0].description == "exit code 1"


def test_a_worker_is_told_its_start_file_and_nothing_secret(
    launch: Launch, folder: TopologyFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOPO_API_TOKEN", "hush")
    monkeypatch.setenv("MY_SERVICE_TOKEN", "mine")
    launcher = launch("import os, sys; print(sys.argv[1:], os.environ.get('TOPO_API_TOKEN'), os.environ['MY_SERVICE_TOKEN'])")
    start(launcher)
    ends(launcher)
    assert output(folder).strip() == f"['{folder.workers}/1-11.json'] None mine"


def test_a_worker_can_import_topo_wherever_it_is_started(
    launch: Launch, folder: TopologyFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    launcher = launch("import topo, topo.worker.spec")
    start(launcher)
    assert ends(launcher)[0].description == "exited"
    assert worker_environment({"PYTHONPATH": "/mine"})["PYTHONPATH"].startswith("/mine")


def test_a_worker_is_out_of_reach_of_the_terminals_ctrl_c(launch: Launch, folder: TopologyFolder) -> None:
    launcher = launch(SLEEP)
    start(launcher)
    pid = launcher.pids()[ONE]
    assert os.getsid(pid) == pid != os.getsid(0)
    assert os.getpgid(pid) == pid


def test_a_killed_worker_takes_its_own_children_with_it(launch: Launch, folder: TopologyFolder) -> None:
    launcher = launch("import subprocess, time; print(subprocess.Popen(['sleep', '1000']).pid, flush=True); time.sleep(1000)")
    for kill in (True, False):
        begin = len(output(folder))
        start(launcher)
        until(lambda begin=begin: output(folder)[begin:].endswith("\n"))
        child = psutil.Process(int(output(folder)[begin:]))
        if kill:
            launcher.stop(ONE, FIRST, kill=True)
        else:
            os.kill(launcher.pids()[ONE], signal.SIGKILL)
        ends(launcher)
        until(lambda child=child: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for the orphans")
def test_orphans_of_a_killed_worker_are_collected_where_topo_is_given_them(launch: Launch, folder: TopologyFolder) -> None:
    """As to the first process of a container. Else each killed worker would leave its children behind as zombies."""
    linux = ctypes.CDLL(None)
    assert linux.prctl(PR_SET_CHILD_SUBREAPER, 1) == 0
    try:
        launcher = launch("import subprocess, time; print(subprocess.Popen(['sleep', '1000']).pid, flush=True); time.sleep(1000)")
        start(launcher)
        until(lambda: output(folder).endswith("\n"))
        orphan = int(output(folder))
        os.kill(launcher.pids()[ONE], signal.SIGKILL)
        ends(launcher)
        until(lambda: launcher.poll() == [] and not psutil.pid_exists(orphan))
    finally:
        linux.prctl(PR_SET_CHILD_SUBREAPER, 0)


def test_a_stopped_process_can_be_killed(launch: Launch, folder: TopologyFolder) -> None:
    launcher = launch(SLEEP)
    start(launcher)
    until(lambda: "up" in output(folder))
    os.kill(launcher.pids()[ONE], signal.SIGSTOP)
    launcher.stop(ONE, FIRST, kill=True)
    assert ends(launcher) == [WorkerEnd(ONE, FIRST, "killed by signal 9 (SIGKILL)")]


def test_closing_leaves_no_process(launch: Launch) -> None:
    launcher = launch(SLEEP)
    for number in range(3):
        start(launcher, WorkerId(number), Incarnation(number))
    processes = [psutil.Process(pid) for pid in launcher.pids().values()]
    launcher.close()
    launcher.close()
    assert not any(process.is_running() for process in processes)
    assert launcher.poll() == []


def test_stopping_another_life_of_the_slot_does_nothing(launch: Launch) -> None:
    launcher = launch(SLEEP)
    start(launcher, ONE, FIRST)
    launcher.stop(ONE, SECOND, kill=True)
    launcher.stop(TWO, FIRST, kill=True)
    assert launcher.poll() == []
    assert psutil.pid_exists(launcher.pids()[ONE])


def test_a_command_that_is_not_there_is_the_environments_fault(folder: TopologyFolder) -> None:
    launcher = LocalLauncher(folder, ["/nowhere/python"])
    with pytest.raises(TopoEnvironmentError, match="cannot start worker 1 of words"):
        start(launcher)
    assert launcher.poll() == []


def test_output_that_has_grown_too_large_is_put_aside(launch: Launch, folder: TopologyFolder) -> None:
    (folder.logs / "worker-1.out").write_bytes(bytes(5 * 1024 * 1024))
    launcher = launch("print('new')")
    start(launcher)
    ends(launcher)
    assert output(folder) == "new\n"
    assert (folder.logs / "worker-1.out.1").stat().st_size == 5 * 1024 * 1024
