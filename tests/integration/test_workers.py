"""Workers that crash in a loop, are asked to end, stand still, or never return from user code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.integration.support import (
    ENDLESS,
    SINK,
    Scene,
    Status,
    acked,
    counter,
    eventually,
    flow,
    is_gone,
    kill,
    pid_of,
    worker_of,
)
from topo.errors import TopoEnvironmentError
from topo.ids import Incarnation, WorkerId
from topo.launch.local import LocalLauncher
from topo.master.links import WorkerEnd
from topo.master.outcome import OutcomeKind
from topo.transport.security import AllowList
from topo.transport.zmq import IpcPlace, TcpPlace, ZmqTransport, new_key_pair

pytestmark = pytest.mark.integration

PASS = """
class Pass(BasicBolt):
    outputs = ("value",)

    def execute(self, tup, collector):
        collector.emit(tup.values)

"""
DECLARED = (
    'builder.set_spout("numbers", Endless(), max_spout_pending=50)',
    'builder.set_bolt("pass", Pass()).shuffle_grouping("numbers")',
    f'{SINK}.shuffle_grouping("pass")',
)
FLOW = ENDLESS + PASS + flow(*DECLARED)


def test_a_crash_loop_of_one_bolt_backs_off_and_leaves_the_others_running(scene: Scene) -> None:
    crashing = """
class Crashing(BasicBolt):
    '''Dies of its environment rather than of a message.'''

    def execute(self, tup, collector):
        if tup.is_tick and not (HERE / "well").exists():
            os._exit(9)

"""
    declared = flow(
        *DECLARED,
        'builder.set_bolt("crashing", Crashing(), tick_interval="20ms").shuffle_grouping("pass")',
        'builder.set_spout("others", Endless(), max_spout_pending=50)',
        'builder.set_bolt("end", Pass()).shuffle_grouping("others")',
    )
    file = scene.file(ENDLESS + PASS + crashing + declared)
    running = scene.submit(file, restart_backoff="100ms", restart_backoff_max="10s")
    status = running.wait_until(lambda status: status["status"] == "DEGRADED" and status["restarts"] >= 4)
    worker = worker_of(status, "crashing")
    assert "(crashing) was lost" in status["reason"] and "exit code 9" in status["reason"]
    assert worker["state"] == "waiting" or worker["losses"] >= 4
    losses = [error["message"] for error in running.errors() if error["kind"] == "WorkerLost"]
    assert [loss.split(" is restarted ")[-1] for loss in losses[:4]] == ["at once", "in 0.2 s", "in 0.4 s", "in 0.8 s"]
    # The fifth life begins after 0.8 s: others continue meanwhile, and no message is replayed again and again.
    running.wait_until(lambda later: counter(later, "others", "acked") > counter(status, "others", "acked") + 100)
    assert running.status()["totals"]["pending"] <= 100
    scene.touch("well")
    running.wait_until(lambda later: counter(later, "numbers", "acked") > counter(status, "numbers", "acked") + 100)
    scene.touch("stop")
    assert running.wait(timeout_s=30).kind is OutcomeKind.DONE
    assert running.dead_letters() == []


def test_a_worker_that_is_asked_to_end_finishes_what_it_has_and_is_replaced_at_once(scene: Scene) -> None:
    running = scene.submit(scene.file(FLOW), worker_timeout="20s")
    status = running.wait_until(lambda status: acked(status) > 100)
    before = pid_of(status, "pass")
    kill(before, signal.SIGTERM)
    asked_at = time.monotonic()
    eventually(lambda: is_gone(before))
    assert time.monotonic() - asked_at < 10.0
    running.wait_until(lambda status: status["epoch"] == 2 and status["status"] == "RUNNING")
    (error,) = running.errors()
    assert error["message"].startswith("exited; it is restarted") and error["message"].endswith("at once")
    assert "worker 1 ends: asked to end" in (running.folder.logs / "worker-1.log").read_text()
    scene.touch("stop")
    assert running.wait(timeout_s=30).kind is OutcomeKind.DONE
    assert set(scene.lines()) == set(range(max(scene.lines()) + 1))


def test_a_worker_that_is_asked_to_end_closes_its_components(scene: Scene) -> None:
    closing = """
class Closing(BasicBolt):
    '''Takes long over each input, and marks its close with a file.'''

    def execute(self, tup, collector):
        time.sleep(0.05)
        with open(HERE / "executed", "a") as executed:
            print(tup["value"], file=executed)

    def cleanup(self):
        (HERE / f"closed-{os.getpid()}").touch()

"""
    declared = flow(*DECLARED, 'builder.set_bolt("closing", Closing()).shuffle_grouping("pass")')
    running = scene.submit(scene.file(ENDLESS + PASS + closing + declared))
    eventually(lambda: scene.has("executed"))
    pid = pid_of(running.status(), "closing")
    kill(pid, signal.SIGTERM)
    eventually(lambda: is_gone(pid))
    assert scene.has(f"closed-{pid}")


def test_an_operator_can_have_a_worker_replaced(scene: Scene) -> None:
    running = scene.submit(scene.file(FLOW))
    status = running.wait_until(lambda status: acked(status) > 0)
    before = worker_of(status, "pass")
    running.restart(before["worker"])
    after = running.wait_until(lambda status: status["epoch"] == 2 and status["status"] == "RUNNING")
    assert worker_of(after, "pass")["pid"] != before["pid"]
    assert (after["restarts"], running.errors()) == (0, []), "an operator's wish is no loss"
    eventually(lambda: is_gone(before["pid"]))


def test_a_worker_that_stands_still_for_a_moment_costs_nothing_but_time(scene: Scene) -> None:
    running = scene.submit(scene.file(FLOW), worker_timeout="20s")
    status = running.wait_until(lambda status: acked(status) > 50)
    pid = pid_of(status, "pass")
    kill(pid, signal.SIGSTOP)
    time.sleep(2.0)
    kill(pid, signal.SIGCONT)
    continued = acked(running.status())
    after = running.wait_until(lambda status: acked(status) > continued + 100)
    assert (after["restarts"], after["epoch"], after["totals"]["failed"], after["totals"]["timed_out"]) == (0, 1, 0, 0)
    scene.touch("stop")
    assert running.wait(timeout_s=30).kind is OutcomeKind.DONE
    lines = scene.lines()
    assert sorted(lines) == list(range(len(lines))), "nothing was emitted twice"


class OutOfReach(LocalLauncher):
    """Cannot kill: as if the workers were on machines that cannot be reached."""

    def stop(self, worker: WorkerId, incarnation: Incarnation, *, kill: bool) -> None:
        if not kill or self.is_over:
            super().stop(worker, incarnation, kill=kill)

    is_over = False
    ends: list[WorkerEnd] = []

    def poll(self) -> list[WorkerEnd]:
        ended = super().poll()
        type(self).ends += ended
        return ended


def test_a_zombie_that_wakes_after_it_was_replaced_is_fenced_and_exits(scene: Scene) -> None:
    OutOfReach.ends = []
    zombie: list[int] = []
    counts: dict[str, int] = {}

    def drive(status: Status) -> None:
        if not zombie and acked(status) > 50:
            zombie.append(pid_of(status, "pass"))
            kill(zombie[0], signal.SIGSTOP)
        elif zombie and status["epoch"] >= 2 and "replaced" not in counts and status["status"] == "RUNNING":
            counts["replaced"] = acked(status)
            kill(zombie[0], signal.SIGCONT)
        elif OutOfReach.ends and acked(status) > counts["replaced"] + 100:
            scene.touch("stop")

    run = scene.run_with(scene.file(FLOW), launcher=OutOfReach, on_status=drive, worker_timeout="2s")
    assert run.outcome.kind is OutcomeKind.DONE
    assert [end.description for end in OutOfReach.ends][:1] == ["exited"]
    assert run.summary["fenced"] > 0
    assert set(scene.lines()) == set(range(max(scene.lines()) + 1))
    log = (scene.home / "topologies" / "flow" / "logs" / "worker-1.log").read_text()
    assert "stopped by the master: another worker has taken this one's place" in log


def test_user_code_that_never_returns_is_shown_with_its_stack_and_replaced(scene: Scene) -> None:
    looping = """
class Pass(BasicBolt):
    outputs = ("value",)

    def execute(self, tup, collector):
        if tup["value"] == 30 and once("looped"):
            self.loop()
        collector.emit(tup.values)

    def loop(self):
        while True:
            time.sleep(0.01)
"""
    running = scene.submit(scene.file(ENDLESS + looping + flow(*DECLARED)), progress_timeout="1s")
    busy = running.wait_until(lambda status: worker_of(status, "pass")["busy_in"] == "pass")
    assert busy["restarts"] == 0, "it lives, and is not taken for dead"
    after = running.wait_until(lambda status: status["epoch"] == 2 and status["status"] == "RUNNING")
    stuck = next(error for error in running.errors() if error["kind"] == "TaskStuck")
    assert stuck["component"] == "pass"
    assert stuck["message"].startswith("stuck in pass for 1 s")
    assert "in loop" in stuck["traceback"] and str(scene.folder / "flow.py") in stuck["traceback"]
    assert stuck["file"] == str(scene.folder / "flow.py") and stuck["line"] > 0
    assert after["stuck"] == 1
    scene.touch("stop")
    assert running.wait(timeout_s=30).kind is OutcomeKind.DONE
    assert set(scene.lines()) == set(range(max(scene.lines()) + 1))


def test_long_but_honest_work_is_not_taken_for_a_fault(scene: Scene) -> None:
    slow = """
class Pass(BasicBolt):
    outputs = ("value",)

    def execute(self, tup, collector):
        if tup["value"] == 30:
            time.sleep(4.5)
            (HERE / "worked").touch()
        collector.emit(tup.values)
"""
    running = scene.submit(scene.file(ENDLESS + slow + flow(*DECLARED)), worker_timeout="2s", progress_timeout="off")
    eventually(lambda: scene.has("worked"))
    status = running.wait_until(lambda status: acked(status) > 50)
    assert (status["restarts"], status["epoch"], running.errors()) == (0, 1, [])


def test_a_worker_that_breaks_by_a_fault_of_the_engine_says_what_it_was(scene: Scene) -> None:
    script = scene.folder / "broken_worker.py"
    script.write_text(
        "import sys; from topo.worker import process\n"
        "class Broken(process.ZmqTransport):\n"
        "    def bind(self, *_, **__): raise RuntimeError('planted')\n"
        "process.ZmqTransport = Broken\n"
        "sys.exit(process.main(sys.argv[1:]))\n"
    )
    run = scene.run_with(scene.file(FLOW), (sys.executable, "-P", str(script)))
    assert run.outcome.kind is OutcomeKind.CRASHED
    assert run.outcome.reason.endswith("exit code 70: RuntimeError: planted")
    output = (scene.home / "topologies" / "flow" / "logs" / "worker-0.out").read_text()
    assert "Traceback" in output and "in bind" in output


def test_a_port_or_path_that_another_process_has_taken_is_refused_loudly(scene: Scene, tmp_path: Path) -> None:
    folder = scene.home / "run"
    program = (
        "import sys; from pathlib import Path\n"
        "from topo.transport.zmq import *; from topo.transport.security import AllowList\n"
        "ipc, tcp = ZmqTransport(IpcPlace(Path(sys.argv[1]))), ZmqTransport(TcpPlace(), new_key_pair(), AllowList())\n"
        "print(ipc.bind('data'), tcp.bind('data'), flush=True)\n"
        "sys.stdin.read()\n"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", program, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=os.getcwd()
    )
    assert owner.stdin is not None and owner.stdout is not None
    ipc, tcp = owner.stdout.readline().split()
    mine = ZmqTransport(IpcPlace(folder))
    with pytest.raises(TopoEnvironmentError, match="is in use"):
        mine.bind("data", endpoint=ipc)
    mine.close()
    mine = ZmqTransport(TcpPlace(), new_key_pair(), AllowList())
    with pytest.raises(TopoEnvironmentError, match="Address already in use"):
        mine.bind("data", endpoint=tcp)
    mine.close()
    owner.stdin.close()
    owner.wait(timeout=10)
