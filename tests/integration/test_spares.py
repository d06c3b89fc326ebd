"""Workers that are prepared before they are needed. Each test ends its own processes only."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.integration.support import ENDLESS, Scene, acked, eventually, flow, is_gone, kill, pid_of, processes_of, words_of
from topo.launch.launchers import launcher_of
from topo.launch.request import RunRequest
from topo.launch.spares import SETTLED_S, ForkedProcess, Spares, WorkerProcess, early_spares
from topo.launch.submission import new_job
from topo.launch.worker_command import WORKER_COMMAND
from topo.worker.parent import adopting
from topo.worker.spec import STAND_BY
from topo.worker.stand_by import CAN_FORK, FAILED, READY, WorkerOrder

pytestmark = pytest.mark.integration

WORKER = (
    sys.executable,
    "-c",
    "import os, sys, time; from topo.worker.stand_by import stand_by; print(stand_by(), sys.stdin.read(), 'up', flush=True); "
    "time.sleep(1000)",
)
"""A worker that does nothing but print its start file."""
forks = pytest.mark.skipif(not CAN_FORK, reason="spares fork workers on Linux alone")
BROKEN = (sys.executable, "-c", "raise SystemExit('broken')")


@pytest.fixture
def spares(tmp_path: Path) -> Iterator[Callable[..., Spares]]:
    made: list[Spares] = []

    def make(count: int = 1, command: tuple[str, ...] = WORKER, can_fork: bool = CAN_FORK) -> Spares:
        now = iter(range(0, 1000, 10))
        made.append(Spares(command, tmp_path, count, lambda: os.environ, lambda: float(next(now)), can_fork=can_fork))
        return made[-1]

    yield make
    for one in made:
        one.close()


def wait_for_worker(process: WorkerProcess | None, output: Path, start_file: Path) -> None:
    """Wait until it has written its start file, and then its stdin, which is empty. Then end it."""
    eventually(lambda: output.exists() and "up" in output.read_text())
    assert output.read_text().splitlines()[-1] == f"{start_file}  up"
    end(process)


def end(process: WorkerProcess | None) -> None:
    assert process is not None
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait(10) == -signal.SIGKILL


@forks
def test_a_spare_forks_workers_which_are_children_of_the_launcher(spares: Callable[..., Spares], tmp_path: Path) -> None:
    one = spares()
    (pid,) = one.pids()
    output = tmp_path / "worker-1.out"
    output.write_text("before\n")

    first = one.take(tmp_path / "a start file", output)
    second = one.take(tmp_path / "another", tmp_path / "worker-2.out")

    assert first is not None and second is not None and one.pids() == [pid]
    assert len({first.pid, second.pid, pid}) == 3
    for process in (first, second):
        assert psutil.Process(process.pid).ppid() == os.getpid()
        assert os.getpgid(process.pid) == process.pid
    shown = words_of(psutil.Process(first.pid))
    assert shown[-3:] == str(tmp_path / "a start file").split() and STAND_BY not in shown
    wait_for_worker(first, output, tmp_path / "a start file")
    wait_for_worker(second, tmp_path / "worker-2.out", tmp_path / "another")
    assert output.read_text().startswith("before\n")
    assert psutil.Process(pid).num_threads() == 1


@forks
def test_a_worker_that_the_launcher_does_not_adopt_ends_and_the_spare_stays(
    spares: Callable[..., Spares], tmp_path: Path
) -> None:
    one = spares()
    end(one.take(tmp_path / "first", tmp_path / "out"))
    (spare,) = one.waiting
    # Process 1, or what stands in for it here, adopts it.
    assert spare.order(WorkerOrder("second", os.fspath(tmp_path / "out"), os.getpid()))
    assert spare.answer(10.0) == FAILED
    end(one.take(tmp_path / "third", tmp_path / "out"))


def children() -> list[psutil.Process]:
    return psutil.Process().children()


@forks
def test_a_forked_worker_begins_when_the_launcher_has_its_id(spares: Callable[..., Spares], tmp_path: Path) -> None:
    """A launcher that has waited too long for it starts another, and ends the forked one."""
    one, before, output = spares(), children(), tmp_path / "out"
    (spare,) = one.waiting
    assert spare.comes_up()
    with adopting():
        assert spare.order(WorkerOrder("start", os.fspath(output), os.getpid()))
        worker = int(spare.answer(10.0))
        assert psutil.Process(worker).ppid() == os.getpid() and not output.exists()
        os.kill(worker, signal.SIGKILL)
        assert ForkedProcess(worker).wait(10.0) == -signal.SIGKILL
        assert spare.order(WorkerOrder("start", os.fspath(output), os.getpid()))
        eventually(lambda: len(children()) == len(before) + 1)
        spare.end_with_forks()
    assert [child for child in children() if child not in before] == [] and not psutil.pid_exists(spare.pid)
    assert not output.exists()


@forks
def test_a_spare_that_does_not_answer_is_done_without(spares: Callable[..., Spares], tmp_path: Path) -> None:
    before, one = children(), spares()
    end(one.take(tmp_path / "start", tmp_path / "out"))
    os.kill(one.waiting[0].pid, signal.SIGSTOP)
    assert one.take(tmp_path / "start", tmp_path / "out") is None
    assert one.pids() == [] and [child for child in children() if child not in before] == []


@forks
def test_a_spare_that_cannot_fork_is_done_without(spares: Callable[..., Spares], tmp_path: Path) -> None:
    program = f"import os; os.write(1, {READY!r}); input(); os.write(1, {FAILED!r}); input()"
    one = spares(1, (sys.executable, "-c", program))
    (pid,) = one.pids()
    assert one.take(tmp_path / "start", tmp_path / "out") is None
    assert one.pids() == [] and not psutil.pid_exists(pid)


@forks
def test_what_a_module_prints_at_the_start_of_python_is_no_answer(spares: Callable[..., Spares], tmp_path: Path) -> None:
    command = (sys.executable, "-c", f"import os; os.write(1, b'welcome\\n'); {WORKER[2]}")
    end(spares(1, command).take(tmp_path / "start", tmp_path / "out"))


@forks
def test_pipes_with_high_numbers_have_answers(spares: Callable[..., Spares], tmp_path: Path) -> None:
    """`select` knows descriptors below 1024 alone."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 1200:
        pytest.skip(f"this process may open {hard} files")
    opened: list[int] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1200), hard))
        opened += [os.open(os.devnull, os.O_RDONLY) for _ in range(1024)]
        end(spares().take(tmp_path / "start", tmp_path / "out"))
    finally:
        for descriptor in opened:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@forks
def test_a_worker_waits_for_the_imports_of_the_first_spare_and_of_no_later_one(
    spares: Callable[..., Spares], tmp_path: Path
) -> None:
    one = spares()
    end(one.take(tmp_path / "start", tmp_path / "out"))
    one.waiting[0].process.kill()
    one.waiting[0].process.wait()
    assert one.take(tmp_path / "start", tmp_path / "out") is None
    one.worker_started()
    one.prepare()
    (pid,) = one.pids()
    os.kill(pid, signal.SIGSTOP)
    assert one.take(tmp_path / "start", tmp_path / "out") is None
    assert one.pids() == [pid]
    os.kill(pid, signal.SIGCONT)
    taken: list[WorkerProcess | None] = []

    def is_taken() -> bool:
        taken.append(one.take(tmp_path / "start", tmp_path / "out"))
        return taken[-1] is not None

    eventually(is_taken)
    end(taken[-1])


def test_elsewhere_a_spare_becomes_the_worker_of_a_start_file(spares: Callable[..., Spares], tmp_path: Path) -> None:
    one = spares(can_fork=False)
    assert one.pids() == []
    one.worker_started()
    one.prepare()
    (pid,) = one.pids()
    output = tmp_path / "worker-1.out"
    output.touch()

    process = one.take(tmp_path / "a start file", output)

    assert process is not None and process.pid == pid and one.pids() == []
    wait_for_worker(process, output, tmp_path / "a start file")


def test_elsewhere_none_is_prepared_before_the_first_worker_nor_while_workers_start(tmp_path: Path) -> None:
    now = [0.0]
    one = Spares(WORKER, tmp_path, 1, lambda: os.environ, lambda: now[0], can_fork=False)
    one.prepare()
    assert one.pids() == []
    one.worker_started()
    now[0] = SETTLED_S - 0.1
    one.prepare()
    assert one.pids() == []
    now[0] = SETTLED_S
    one.prepare()
    assert len(one.pids()) == 1
    one.close()
    assert one.pids() == []


def test_where_none_are_wanted_there_are_none(spares: Callable[..., Spares], tmp_path: Path) -> None:
    none = spares(0)
    none.worker_started()
    none.prepare()
    assert none.pids() == []
    assert none.take(tmp_path / "start", tmp_path / "out") is None


@pytest.mark.parametrize("can_fork", [False, pytest.param(True, marks=forks)])
def test_a_spare_that_has_died_is_done_without_and_not_replaced_over_and_over(
    spares: Callable[..., Spares], tmp_path: Path, can_fork: bool
) -> None:
    one = spares(2, BROKEN, can_fork)
    one.worker_started()
    one.prepare()
    pids = one.pids()
    eventually(lambda: all(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE for pid in pids))
    one.prepare()
    assert one.pids() == pids
    assert one.take(tmp_path / "start", tmp_path / "out") is None
    assert one.pids() == []
    one.worker_started()
    one.prepare()
    assert len(one.pids()) == 2


def test_a_spare_ends_with_the_process_that_prepared_it_however_that_ends(tmp_path: Path) -> None:
    program = f"""
import os, sys, time
from pathlib import Path
from topo.launch.spares import Spares
spares = Spares({WORKER_COMMAND!r}, Path({str(tmp_path)!r}), 1, lambda: os.environ, lambda: 0.0)
spares._missing = 1 - len(spares.pids())
spares.prepare()
print(*spares.pids(), flush=True)
time.sleep(1000)
"""
    launcher = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert launcher.stdout is not None
    spare = psutil.Process(int(launcher.stdout.readline()))
    launcher.send_signal(signal.SIGKILL)
    launcher.wait()
    launcher.stdout.close()
    eventually(lambda: not spare.is_running() or spare.status() == psutil.STATUS_ZOMBIE)


def test_a_worker_is_made_of_an_early_spare(tmp_path: Path) -> None:
    with early_spares() as early:
        one = Spares(WORKER, tmp_path, 1, early=early)
        assert one.pids() == [early.spares[0].pid]
        first = one.take(tmp_path / "missing", tmp_path / "out")
        assert first is not None and (CAN_FORK or first is early.spares[0].process)
        # It gets the name of a start file that does not exist.
        assert first.wait(30) != 0
        assert "FileNotFoundError" in (tmp_path / "out").read_text()


def test_an_early_spare_ends_where_none_is_wanted(tmp_path: Path) -> None:
    with early_spares() as early:
        assert Spares(WORKER, tmp_path, 0, early=early).pids() == []
        assert early.spares[0].process.returncode == -signal.SIGKILL


def test_an_early_spare_ends_with_the_block() -> None:
    with pytest.raises(RuntimeError), early_spares() as early:
        assert early.spares[0].process.poll() is None
        raise RuntimeError
    assert early.spares[0].process.returncode == -signal.SIGKILL


def test_an_early_spare_ends_when_the_topology_has_changed_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with early_spares() as early:
        monkeypatch.setenv("SET_BY_A_TOPOLOGY", "as it is imported")
        one = Spares(WORKER, tmp_path, 1, early=early)
        (before,) = early.spares
        assert before.pid not in one.pids() and before.process.returncode == -signal.SIGKILL
        one.close()


def test_no_spare_is_left_where_the_start_of_a_topology_raises(scene: Scene) -> None:
    job = new_job(RunRequest(scene.file(FLOW), home=scene.home, foreground=True))
    with pytest.raises(ZeroDivisionError), launcher_of(job, lambda: False):
        eventually(lambda: len(spares_of(scene)) == 1, what="the command line of the spare")
        raise ZeroDivisionError
    assert spares_of(scene) == []


FLOW = ENDLESS + flow(
    'builder.set_spout("numbers", Endless())', 'builder.set_bolt("print", PrintBolt()).shuffle_grouping("numbers")'
)


def spares_of(scene: Scene) -> list[int]:
    return [process.pid for process in processes_of(scene.home) if STAND_BY in words_of(process)]


@forks
def test_all_workers_of_a_running_topology_are_forked_by_its_spare(scene: Scene) -> None:
    """Those that replace killed ones, too; the spare is gone with the topology, or the check for leaks fails."""
    running = scene.submit(scene.file(FLOW), spare_workers=1)
    status = running.wait_until(lambda status: status["status"] == "RUNNING")
    (spare,) = spares_of(scene)
    master = psutil.Process(spare).ppid()
    killed = pid_of(status, "print")
    assert all(worker["pid"] != spare and psutil.Process(worker["pid"]).ppid() == master for worker in status["workers"])

    kill(killed)
    status = running.wait_until(lambda status: pid_of(status, "print") not in (0, killed))
    assert psutil.Process(pid_of(status, "print")).ppid() == master
    before = acked(running.status())
    running.wait_until(lambda status: acked(status) > before)

    assert spares_of(scene) == [spare]
    scene.touch("stop")
    assert running.wait().exit_code == 0


@pytest.mark.parametrize("home", ["home", "a home"])
def test_a_forked_worker_is_found_when_its_master_was_lost(scene: Scene, home: str) -> None:
    """Its command line is one text."""
    scene.home = scene.home / home
    scene.home.mkdir()
    running = scene.submit_background(scene.file(FLOW), spare_workers=1)
    worker = pid_of(running.wait_until(lambda status: status["status"] == "RUNNING"), "print")

    kill(running.status()["master"]["pid"])
    again = scene.resume(running.name)

    assert is_gone(worker)
    before = acked(again.status())
    again.wait_until(lambda status: acked(status) > before)
