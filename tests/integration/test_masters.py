"""Masters that die, are interrupted or started twice; and what their workers do then."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.integration.support import (
    ENDLESS,
    PATIENCE_S,
    SINK,
    Scene,
    acked,
    eventually,
    flow,
    foreground_process,
    is_gone,
    kill,
    pid_of,
    processes_of,
    repeated,
)
from topo.errors import UserError
from topo.launch.running import RunningTopology
from topo.master.outcome import OutcomeKind
from topo.master_process.client import Unreachable
from topo.storage.state_folder import StateFolder, TopologyIsRunning

pytestmark = pytest.mark.integration

SPOUT = 'builder.set_spout("numbers", Endless(), max_spout_pending=20)'
FLOW = ENDLESS + flow(SPOUT, f'{SINK}.shuffle_grouping("numbers")')


def running_of(scene: Scene, name: str = "flow") -> RunningTopology:
    """The topology that another process runs."""
    eventually(lambda: name in StateFolder(scene.home).names())
    return RunningTopology(StateFolder(scene.home).find(name))


def test_workers_of_a_killed_foreground_command_are_gone_within_two_seconds(scene: Scene) -> None:
    with foreground_process(scene, scene.file(FLOW)) as command:
        status = running_of(scene).wait_until(lambda status: acked(status) > 50)
        workers = [worker["pid"] for worker in status["workers"]]
        killed_at = time.monotonic()
        kill(command.pid)
        eventually(lambda: all(map(is_gone, workers)))
        assert time.monotonic() - killed_at < 2.0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_drains_a_foreground_run_and_nothing_acked_is_missing(scene: Scene, number: int) -> None:
    with foreground_process(scene, scene.file(FLOW)) as command:
        running = running_of(scene)
        running.wait_until(lambda status: acked(status) > 50)
        kill(command.pid, number)
        output, _ = command.communicate(timeout=30)
    assert (command.returncode, output.decode().split(":")[0]) == (1, "drained"), output
    lines = scene.lines()
    assert sorted(set(lines)) == list(range(len(set(lines))))
    assert running.summary()["totals"]["acked"] == len(set(lines))
    assert running.summary()["totals"]["pending"] == 0


def test_the_second_ctrl_c_kills(scene: Scene) -> None:
    stubborn = """
class Stubborn(Bolt):
    '''Acks nothing, so that a drain cannot finish.'''

    def execute(self, tup):
        (HERE / "executed").touch()
"""
    declared = flow(SPOUT, 'builder.set_bolt("sink", Stubborn()).shuffle_grouping("numbers")')
    with foreground_process(scene, scene.file(ENDLESS + stubborn + declared)) as command:
        running = running_of(scene)
        eventually(lambda: scene.has("executed"))
        kill(command.pid, signal.SIGINT)
        running.wait_until(lambda status: status["status"] == "DRAINING")
        kill(command.pid, signal.SIGINT)
        output, _ = command.communicate(timeout=30)
    assert (command.returncode, output.decode().split(":")[0]) == (1, "killed"), output


def test_ctrl_c_while_the_workers_come_up_leaves_nothing(scene: Scene) -> None:
    slow = """
(HERE / f"importing-{os.getpid()}").touch()
if len(list(HERE.glob("importing-*"))) > 1:
    time.sleep(1.0)
"""
    with foreground_process(scene, scene.file(slow + FLOW)) as command:
        eventually(lambda: len(list(scene.folder.glob("importing-*"))) > 1)
        kill(command.pid, signal.SIGINT)
        output, _ = command.communicate(timeout=30)
    assert (command.returncode, output.decode().strip()) == (1, "drained: ended before it began")
    assert processes_of(scene.home) == []
    assert list((scene.home / "run").iterdir()) == []


def test_a_topology_without_master_flows_and_is_resumed_from_its_positions(scene: Scene) -> None:
    running = scene.submit_background(scene.file(FLOW))
    status = running.wait_until(lambda status: acked(status) > 100 and running.folder.positions.exists())
    old = [worker["pid"] for worker in status["workers"]]
    kill(status["master"]["pid"])
    eventually(lambda: is_gone(status["master"]["pid"]))
    with pytest.raises(Unreachable, match="topo resume flow"):
        running.status()
    before = len(scene.lines())
    eventually(lambda: len(scene.lines()) > before + 200)
    assert not any(map(is_gone, old))

    resumed = scene.resume("flow")
    after = resumed.wait_until(lambda status: status["status"] == "RUNNING" and acked(status) > 0)
    assert after["term"] == status["term"] + 1
    assert after["epoch"] > status["epoch"]
    assert all(map(is_gone, old))
    assert not {worker["pid"] for worker in after["workers"]} & set(old)
    scene.touch("stop")
    assert resumed.wait(timeout_s=30).kind is OutcomeKind.DONE
    lines = scene.lines()
    assert set(lines) == set(range(max(lines) + 1))
    assert 0 not in repeated(lines), "it went on from a stored position, not from the beginning"
    assert list((scene.home / "run").iterdir()) == []


def test_what_was_given_up_before_a_resume_still_makes_the_run_fail(scene: Scene) -> None:
    odd = """
class Odd(BasicBolt):
    outputs = ("value",)

    def execute(self, tup, collector):
        if tup["value"] == 13:
            raise ValueError("unlucky")
        collector.emit(tup.values)
"""
    file = scene.file(ENDLESS + odd + flow(SPOUT, 'builder.set_bolt("odd", Odd()).shuffle_grouping("numbers")'))
    running = scene.submit_background(file, attempts=1)
    running.wait_until(lambda status: acked(status) > 100 and len(running.dead_letters()) == 1)
    running.drain(20.0)
    assert running.wait(timeout_s=30).exit_code == 1
    resumed = scene.resume("flow")
    resumed.wait_until(lambda status: acked(status) > 100)
    scene.touch("stop")
    outcome = resumed.wait(timeout_s=30)
    assert (outcome.kind, outcome.dead_letters, outcome.exit_code) == (OutcomeKind.DEAD_LETTERS, 1, 1)


def test_the_next_start_of_any_topology_removes_the_sockets_of_a_killed_run(scene: Scene) -> None:
    def sockets(name: str) -> Path:
        endpoint = json.loads(StateFolder(scene.home).find(name).master.read_bytes())["client_endpoint"]
        return Path(endpoint.removeprefix("ipc://")).parent

    with foreground_process(scene, scene.file(FLOW)) as command:
        running_of(scene).wait_until(lambda status: acked(status) > 50)
        kill(command.pid)
        # Spares count as well: sockets stay for as long as any worker lives.
        eventually(lambda: not processes_of(scene.home))
    left = sockets("flow")
    assert left.is_dir()
    scene.submit(scene.file(FLOW, "second"), "second").wait_until(lambda status: acked(status) > 50)
    assert not left.exists()
    third = scene.submit(scene.file(FLOW, "third"), "third")
    third.wait_until(lambda status: acked(status) > 50)
    assert sockets("second").is_dir() and sockets("third").is_dir()


def test_the_output_of_masters_is_kept_within_bounds(scene: Scene) -> None:
    running = scene.submit_background(scene.file(FLOW))
    running.drain(20.0)
    running.wait(timeout_s=30)
    output = running.folder.logs / "master.out"
    os.truncate(output, 5 << 20)
    scene.resume("flow")
    assert output.with_name("master.out.1").stat().st_size == 5 << 20
    assert output.stat().st_size < 1 << 20


def test_a_drained_topology_that_is_resumed_repeats_nothing(scene: Scene) -> None:
    running = scene.submit_background(scene.file(FLOW))
    running.wait_until(lambda status: acked(status) > 100)
    running.drain(20.0)
    assert running.wait(timeout_s=30).kind is OutcomeKind.DRAINED
    before = len(scene.lines())
    resumed = scene.resume("flow")
    resumed.wait_until(lambda status: acked(status) > 100)
    scene.touch("stop")
    assert resumed.wait(timeout_s=30).kind is OutcomeKind.DONE
    lines = scene.lines()
    assert len(lines) > before
    assert lines == list(range(len(lines)))


@pytest.mark.parametrize(("parent", "goes_on"), [("os.getppid()", True), ("os.getppid() + 1", False)])
def test_a_process_that_is_to_die_with_its_parent_notices_that_it_has_another_one(parent: str, goes_on: bool) -> None:
    program = f"import os; from topo.worker.parent import die_with; die_with({parent}); print('continues')"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S)
    assert (ended.returncode, ended.stdout) == (0, "continues\n" if goes_on else ""), ended.stderr


def test_workers_that_hear_of_no_master_for_master_timeout_end(scene: Scene) -> None:
    running = scene.submit_background(scene.file(FLOW), master_timeout="1s")
    status = running.wait_until(lambda status: acked(status) > 0)
    workers = [worker["pid"] for worker in status["workers"]]
    kill(status["master"]["pid"])
    # Sooner than by the master_timeout of the other tests, 20 s.
    eventually(lambda: all(map(is_gone, workers)), 15.0)
    assert "no master has sent a message for 1 s" in (running.folder.logs / "worker-0.log").read_text()


def test_a_stopped_master_that_continues_in_time_is_still_obeyed(scene: Scene) -> None:
    running = scene.submit_background(scene.file(FLOW), worker_timeout="2s")
    status = running.wait_until(lambda status: acked(status) > 0)
    kill(status["master"]["pid"], signal.SIGSTOP)
    before = len(scene.lines())
    eventually(lambda: len(scene.lines()) > before + 300)
    time.sleep(2.5)
    kill(status["master"]["pid"], signal.SIGCONT)
    after = running.wait_until(lambda status: acked(status) > before)
    assert (after["restarts"], after["epoch"]) == (0, 1), "the silence was the master's own"


def test_two_topologies_run_beside_each_other_and_a_name_is_taken_while_it_runs(scene: Scene) -> None:
    file = scene.file(FLOW)
    first = scene.submit(file)
    with pytest.raises(TopologyIsRunning, match="'flow' is running already"):
        scene.submit(file)
    with pytest.raises(TopologyIsRunning, match="'flow' is running already"):
        scene.run(file)
    second = scene.submit(file, name="other")
    assert second.wait_until(lambda status: acked(status) > 0)["topology"] == "other"
    kill(pid_of(second.status(), "numbers"))
    second.wait_until(lambda status: status["epoch"] == 2)
    assert first.wait_until(lambda status: acked(status) > 0)["epoch"] == 1
    first.kill()
    assert first.wait(timeout_s=30).kind is OutcomeKind.KILLED
    assert second.status()["status"] != "FINISHED"
    again = scene.submit(file)
    assert again.status()["term"] == 2


def test_a_topology_file_that_is_edited_while_it_runs_changes_nothing_that_runs(scene: Scene) -> None:
    running = scene.submit(scene.file(FLOW))
    status = running.wait_until(lambda status: acked(status) > 0)
    scene.file("raise SystemExit('this was not submitted')")
    kill(pid_of(status, "sink"))
    status = running.wait_until(lambda status: status["epoch"] == 2 and status["status"] == "RUNNING")
    before = acked(status)
    running.wait_until(lambda status: acked(status) > before)
    assert status["restarts"] == 1


@pytest.mark.parametrize(("component", "method"), [("numbers", "open"), ("sink", "prepare")])
def test_a_component_that_cannot_be_opened_ends_the_run_and_is_named(scene: Scene, component: str, method: str) -> None:
    kinds = {"numbers": "Endless", "sink": "PrintBolt"}
    broken = f"""
class Broken({kinds[component]}):
    def {method}(self, *given):
        raise ConnectionError("no such host: db\\n(more about this error: https://example.org/e3q8)")
"""
    made = {**{name: f"{kind}()" for name, kind in kinds.items()}, component: "Broken()"}
    declared = flow(
        f'builder.set_spout("numbers", {made["numbers"]})',
        f'builder.set_bolt("sink", {made["sink"]}).shuffle_grouping("numbers")',
    )
    file = scene.file(ENDLESS + broken + declared)
    run = scene.run(file)
    assert (run.outcome.kind, run.outcome.exit_code) == (OutcomeKind.CRASHED, 1)
    assert f"({component}) could not be started, tried 3 times" in run.outcome.reason
    assert "ConnectionError: no such host: db" in run.outcome.reason
    rows = [error for error in run.errors if error["kind"] == "ConnectionError"]
    assert len(rows) == 3
    line = next(number for number, text in enumerate(Path(file).read_text().splitlines(), 1) if "no such host" in text)
    assert (rows[0]["component"], rows[0]["file"], rows[0]["line"]) == (component, file, line)
    assert f'File "{file}", line {line}' in rows[0]["traceback"]


def test_a_topology_that_cannot_be_imported_is_refused_and_leaves_nothing(scene: Scene) -> None:
    with pytest.raises(UserError, match=r"importing flow\.py failed: ZeroDivisionError"):
        scene.submit(scene.file("1 / 0"))
    assert StateFolder(scene.home).names() == []


def test_a_resumed_topology_waits_until_each_of_its_bolts_can_be_opened(scene: Scene) -> None:
    needy = """
class Needy(BasicBolt):
    outputs = ("value",)

    def prepare(self, context):
        if (HERE / "broken").exists():
            raise ConnectionError("the database is away")

    def execute(self, tup, collector):
        collector.emit(tup.values)
"""
    bolts = 'builder.set_bolt("needy", Needy()).shuffle_grouping("numbers")'
    sink = f'{SINK}.shuffle_grouping("needy")'
    running = scene.submit_background(scene.file(ENDLESS + needy + flow(SPOUT, bolts, sink)), restart_backoff_max="200ms")
    status = running.wait_until(lambda status: acked(status) > 20)
    kill(status["master"]["pid"])
    scene.touch("broken")
    resumed = scene.resume("flow")
    waiting = resumed.wait_until(lambda status: status["restarts"] > 4)
    assert waiting["status"] == "STARTING" and "the database is away" in waiting["reason"]
    (scene.folder / "broken").unlink()
    resumed.wait_until(lambda status: acked(status) > 0)
    scene.touch("stop")
    assert resumed.wait(timeout_s=30).kind is OutcomeKind.DONE
