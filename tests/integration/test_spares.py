"""Workers that are prepared before they are needed. Each test ends its own processes only."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.integration.support import ENDLESS, Scene, acked, eventually, flow, is_gone, kill, pid_of, processes_of, words_of
from topo.launch.spares import SETTLED_S, Spares, early_spares
from topo.launch.worker_command import WORKER_COMMAND
from topo.worker.spec import STAND_BY

pytestmark = pytest.mark.integration

WORKER = (
    sys.executable,
    "-c",
    "import os, sys, time; from topo.worker.process import stand_by; print(stand_by(), sys.stdin.read(), 'up', flush=True); "
    "time.sleep(1000)",
)
"""A worker that does nothing but print its start file."""


@pytest.fixture
def spares(tmp_path: Path) -> Iterator[Callable[..., Spares]]:
    made: list[Spares] = []

    def make(count: int = 1, command: tuple[str, ...] = WORKER) -> Spares:
        now = iter(range(0, 1000, 10))
        made.append(Spares(command, tmp_path, count, lambda: os.environ, lambda: float(next(now))))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_a_spare_becomes_the_worker_of_a_start_file_and_writes_where_workers_write(
    spares: Callable[..., Spares], tmp_path: Path
) -> None:
    one = spares()
    one.worker_started()
    one.prepare()
    (pid,) = one.pids()
    output = tmp_path / "worker-1.out"
    output.write_text("before\n")

    process = one.take(tmp_path / "a start file", output)

    assert process is not None and process.pid == pid and one.pids() == []
    eventually(lambda: "up" in output.read_text())
    assert output.read_text() == f"before\n{tmp_path / 'a start file'}  up\n"
    process.kill()
    process.wait()


def test_none_is_prepared_before_the_first_worker_nor_while_workers_start(tmp_path: Path) -> None:
    now = [0.0]
    one = Spares(WORKER, tmp_path, 1, lambda: os.environ, lambda: now[0])
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


def test_a_spare_that_has_died_is_done_without_and_not_replaced_over_and_over(
    spares: Callable[..., Spares], tmp_path: Path
) -> None:
    one = spares(2, (sys.executable, "-c", "raise SystemExit('broken')"))
    one.worker_started()
    one.prepare()
    pids = one.pids()
    eventually(lambda: all(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE for pid in pids))
    one.prepare()
    assert one.pids() == pids
    assert one.take(tmp_path / "start", tmp_path / "out") is None
    one.worker_started()
    one.prepare()
    assert len(one.pids()) == 2


def test_a_spare_ends_with_the_process_that_prepared_it_however_that_ends(tmp_path: Path) -> None:
    program = f"""
import os, sys, time
from pathlib import Path
from topo.launch.spares import Spares
spares = Spares({WORKER_COMMAND!r}, Path({str(tmp_path)!r}), 1, lambda: os.environ, lambda: 0.0)
spares._missing = 1
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


def test_early_spares_become_workers_and_those_that_are_too_many_end(tmp_path: Path) -> None:
    with early_spares(tmp_path, 2) as early:
        now = iter(range(0, 1000, 10))
        one = Spares(WORKER, tmp_path, 0, clock=lambda: float(next(now)), early=early)
        first, second = early.processes
        assert one.pids() == [first.pid, second.pid]
        assert one.take(tmp_path / "missing", tmp_path / "out") is first
        one.worker_started()
        one.prepare()
        assert one.pids() == [] and second.returncode == -signal.SIGKILL
        # It gets the name of a start file that does not exist.
        assert first.wait(30) != 0
        assert "FileNotFoundError" in (tmp_path / "out").read_text()


def test_early_spares_end_with_the_block(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), early_spares(tmp_path, 2) as early:
        assert [process.poll() for process in early.processes] == [None, None]
        raise RuntimeError
    assert [process.returncode for process in early.processes] == [-signal.SIGKILL] * 2


def test_early_spares_end_when_the_topology_has_changed_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with early_spares(tmp_path, 1) as early:
        monkeypatch.setenv("SET_BY_A_TOPOLOGY", "as it is imported")
        assert Spares(WORKER, tmp_path, 1, early=early).pids() == []
        assert early.processes[0].returncode == -signal.SIGKILL


FLOW = ENDLESS + flow(
    'builder.set_spout("numbers", Endless())', 'builder.set_bolt("print", PrintBolt()).shuffle_grouping("numbers")'
)


def spares_of(scene: Scene) -> list[int]:
    return [process.pid for process in processes_of(scene.home) if STAND_BY in words_of(process)]


def test_a_killed_worker_of_a_running_topology_is_replaced_by_the_spare(scene: Scene) -> None:
    """The status names the spare by its pid; the spare is gone with the topology, or the check for leaks fails."""
    running = scene.submit(scene.file(FLOW), spare_workers=1)
    eventually(lambda: len(spares_of(scene)) == 1)
    (spare,) = spares_of(scene)

    kill(pid_of(running.wait_until(lambda status: status["status"] == "RUNNING"), "print"))
    running.wait_until(lambda status: pid_of(status, "print") == spare)
    before = acked(running.status())
    running.wait_until(lambda status: acked(status) > before)

    eventually(lambda: len(spares_of(scene)) == 2)
    scene.touch("stop")
    assert running.wait().exit_code == 0


def test_a_worker_that_has_been_a_spare_is_found_when_its_master_was_lost(scene: Scene) -> None:
    running = scene.submit_background(scene.file(FLOW), spare_workers=1)
    eventually(lambda: len(spares_of(scene)) == 1)
    (spare,) = spares_of(scene)
    kill(pid_of(running.wait_until(lambda status: status["status"] == "RUNNING"), "print"))
    running.wait_until(lambda status: pid_of(status, "print") == spare)

    kill(running.status()["master"]["pid"])
    again = scene.resume(running.name)

    assert is_gone(spare)
    before = acked(again.status())
    again.wait_until(lambda status: acked(status) > before)
