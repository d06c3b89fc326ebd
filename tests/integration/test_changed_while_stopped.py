"""Other numbers of tasks and workers, and other code, for topologies that keep positions and no checkpoints."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.integration.support import ENDLESS, SINK, Scene, acked, eventually, flow, kill, pid_of
from topo.errors import UserError
from topo.launch.cluster import resume_with_code
from topo.storage.state_folder import TopologyIsRunning

pytestmark = pytest.mark.integration

TIMES = """
class Times(BasicBolt):
    outputs = ("value",)

    def execute(self, tup, collector):
        collector.emit((tup["value"] * {factor},))

"""
PARTS = (
    'builder.set_spout("numbers", Endless())',
    'builder.set_bolt("times", Times()).shuffle_grouping("numbers")',
    SINK + '.shuffle_grouping("times")',
)


def code(factor: int, *parts: str) -> str:
    return ENDLESS + TIMES.format(factor=factor) + flow(*(parts or PARTS))


def test_nothing_is_lost_over_two_rebalances_and_a_kill_between_them(scene: Scene) -> None:
    running = scene.submit_background(scene.file(code(1)), workers=1)
    running.wait_until(lambda status: acked(status) > 100)
    change = running.rebalance({"times": 3}, workers=2)
    assert ([(move.before, move.after) for move in change.moves], change.workers) == ([(1, 3)], (1, 2))
    status = running.wait_until(lambda status: acked(status) > 100)
    assert len(status["workers"]) == 2
    # A drain that was complete repeats nothing.
    assert scene.lines().count(0) == 1
    kill(pid_of(status, "times", 2))
    running.wait_until(lambda status: status["restarts"] == 1 and status["status"] == "RUNNING")
    running.rebalance({"times": 1}, workers=1)
    running.wait_until(lambda status: acked(status) > 100)
    scene.touch("stop")
    eventually(lambda: not running.folder.is_running())
    lines = set(scene.lines())
    assert lines == set(range(len(lines)))
    assert len(lines) > 300


def test_a_rebalance_waits_for_components_that_take_long_to_close(scene: Scene) -> None:
    slow = TIMES.format(factor=1) + "    def cleanup(self):\n        time.sleep(3)\n\n"
    running = scene.submit_background(scene.file(ENDLESS + slow + flow(*PARTS)), workers=1)
    running.wait_until(lambda status: acked(status) > 10)
    running.rebalance({"times": 2}, timeout_s=1.0)
    running.wait_until(lambda status: acked(status) > 10)


@pytest.mark.parametrize(
    ("arguments", "stated"),
    [
        (["rebalance", "flow", "-e", "times=2"], "nothing starts it again; `topo resume flow` continues it"),
        (["kill", "flow", "-w", "30s", "--yes"], "flow ends anyway; `topo status flow`"),
    ],
    ids=["rebalance", "kill"],
)
def test_ctrl_c_while_a_topology_ends_states_that_it_does(scene: Scene, arguments: list[str], stated: str) -> None:
    long = TIMES.format(factor=1) + "    def cleanup(self):\n        once('closing'), time.sleep(3)\n\n"
    path = scene.file(ENDLESS + long + flow(*PARTS))
    running = scene.submit_background(path, workers=1)
    running.wait_until(lambda status: acked(status) > 10)
    command = [sys.executable, "-m", "topo_cli", *arguments, "--home", str(scene.home)]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    eventually(lambda: scene.has("closing"))
    child.send_signal(signal.SIGINT)
    words = child.communicate(timeout=30)[1]
    assert child.returncode == 130 and stated in words, words


def test_a_topology_that_is_ending_is_not_rebalanced(scene: Scene) -> None:
    """The rebalance would start it again, and the user who has ended it would find it running."""
    long = TIMES.format(factor=1) + "    def cleanup(self):\n        once('closing'), time.sleep(3)\n\n"
    running = scene.submit_background(scene.file(ENDLESS + long + flow(*PARTS)), workers=1)
    running.wait_until(lambda status: acked(status) > 10)
    running.drain(30)
    eventually(lambda: scene.has("closing"))
    with pytest.raises(UserError, match="flow is ending"):
        running.rebalance({"times": 2})
    eventually(lambda: not running.folder.is_running())
    assert running.summary()["status"] == "KILLED"


def test_a_kill_fails_when_its_master_is_killed_meanwhile(scene: Scene) -> None:
    long = TIMES.format(factor=1) + "    def cleanup(self):\n        once('closing'), time.sleep(3)\n\n"
    running = scene.submit_background(scene.file(ENDLESS + long + flow(*PARTS)), workers=1)
    running.wait_until(lambda status: acked(status) > 10)
    command = [sys.executable, "-m", "topo_cli", "kill", "flow", "-w", "30s", "--yes", "--home", str(scene.home)]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    eventually(lambda: scene.has("closing"))
    kill(int(running.folder.owner()))
    words = child.communicate(timeout=30)[1]
    assert child.returncode == 1 and "the master of 'flow' is gone and left no summary" in words, words


def test_other_code_goes_on_behind_the_positions_and_keeps_the_numbers_of_tasks(scene: Scene) -> None:
    running = scene.submit_background(scene.file(code(1)), parallelism={"times": 2}, workers=1)
    running.wait_until(lambda status: acked(status) > 100)
    other = scene.file(code(-1), "other")
    with pytest.raises(TopologyIsRunning):
        resume_with_code("flow", other, scene.home)
    running.drain(10)
    eventually(lambda: not running.folder.is_running())
    done = max(scene.lines())
    spoutless = scene.file(code(1, *(part.replace("numbers", "figures") for part in PARTS)), "spoutless")
    with pytest.raises(UserError, match="spout 'numbers' had 1 tasks with a position each, and now has 0"):
        resume_with_code("flow", spoutless, scene.home)

    running = resume_with_code("flow", other, scene.home)
    running.wait_until(lambda status: acked(status) > 100)
    scene.touch("stop")
    eventually(lambda: not running.folder.is_running())

    lines = scene.lines()
    assert [line for line in lines if line < 0][:1] == [-done - 1]
    assert len(lines) == len(set(lines))
    tasks = {row["component"]: row["parallelism"] for row in running.summary()["components"]}
    assert tasks["times"] == 2
