"""What strikes checkpoints, over real processes: everything at once, crashes within a snapshot and a restore, zombies, a second
master, disks that are full, slow or damaged, and sources that no longer have what a checkpoint points to.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.support import Scene, Status, counter, eventually, kill, pid_of
from tests.integration.test_exactly_once import (
    PACKED,
    QUICK,
    after_checkpoints,
    complete,
    counting,
    counts,
    ended_well,
    expected_counts,
)
from tests.integration.test_full_disk import FullDisk
from tests.integration.test_operator_bolts import TIMEOUTS, rows_of
from tests.integration.test_workers import OutOfReach
from topo.launch.running import RunningTopology
from topo.storage.checkpoint_store import open_store
from topo.storage.state_folder import TopologyIsRunning

pytestmark = pytest.mark.integration


def store_of(running: RunningTopology) -> Path:
    """Return the folder of the run's checkpoints."""
    (folder,) = (running.folder.path / "checkpoints").iterdir()
    return folder


def kill_everything(running: RunningTopology) -> None:
    status = running.wait_until(after_checkpoints(3))
    for pid in (status["master"]["pid"], *(worker["pid"] for worker in status["workers"])):
        kill(pid)
    eventually(lambda: not running.folder.is_running())


def kinds(running: RunningTopology) -> set[str]:
    return {error["kind"] for error in running.errors()}


# -- processes -----------------------------------------------------------------------------------------------------------------


def damage_nothing(part: Path) -> None:
    pass


def flip(part: Path) -> None:
    data = bytearray(part.read_bytes())
    data[-1] ^= 1
    part.write_bytes(bytes(data))


@pytest.mark.parametrize("damage", [damage_nothing, flip], ids=["whole", "flipped"])
def test_all_that_dies_at_once_goes_on_from_the_last_whole_checkpoint(scene: Scene, damage: Callable[[Path], None]) -> None:
    running = scene.submit_background(scene.file(counting(4000)), "flow", **PACKED)
    kill_everything(running)
    latest = open_store(str(store_of(running)), "flow").latest().manifest
    assert latest is not None
    damage(store_of(running) / max(latest.parts, key=lambda part: part.length).file)
    running = scene.resume("flow")
    ended_well(scene, running)
    assert counts(scene) == expected_counts(4000)
    reported = [error["message"] for error in running.errors() if error["kind"] == "CheckpointDamaged"]
    if damage is damage_nothing:
        assert reported == []
    else:
        assert f"checkpoint {latest.checkpoint} cannot be used" in reported[0] and "an earlier one is restored" in reported[0]


CRASHING = """
class Count(Count):
    def snapshot(self):
        if sum(self.counts.values()) > 1000 and any(once(f"snapshot-{number}") for number in range(SNAPSHOTS)):
            die()
        return super().snapshot()

    def restore(self, state):
        if state and any(once(f"restore-{number}") for number in range(RESTORES)):
            die()
        super().restore(state)
"""


def crashing(count: int, snapshots: int, restores: int) -> str:
    return counting(count) + f"SNAPSHOTS, RESTORES = {snapshots}, {restores}\n" + CRASHING


def test_a_bolt_that_dies_before_its_state_is_durable_loses_no_update(scene: Scene) -> None:
    running = scene.submit(scene.file(crashing(4000, snapshots=2, restores=0)), **QUICK)
    running.wait_until(lambda status: status["restarts"] == 2)
    ended_well(scene, running)
    assert counts(scene) == expected_counts(4000)
    assert running.summary()["restarts"] == 2


def test_crashes_during_a_restore_repeat_it_from_one_checkpoint(scene: Scene) -> None:
    running = scene.submit(scene.file(crashing(4000, snapshots=0, restores=3)), **QUICK)
    kill(pid_of(running.wait_until(after_checkpoints(2)), "spread"))
    ended_well(scene, running)
    assert counts(scene) == expected_counts(4000)
    assert running.summary()["restarts"] == 4


def test_a_zombie_that_wakes_after_the_recovery_changes_no_count_and_no_checkpoint(scene: Scene) -> None:
    OutOfReach.ends = []
    zombie: list[int] = []
    woken: list[int] = []

    def drive(status: Status) -> None:
        if not zombie and complete(status) >= 2:
            zombie.append(pid_of(status, "count"))
            kill(zombie[0], signal.SIGSTOP)
        elif zombie and not woken and status["epoch"] >= 2 and complete(status) >= 3:
            woken.append(complete(status))
            kill(zombie[0], signal.SIGCONT)

    run = scene.run_with(scene.file(counting(6000)), launcher=OutOfReach, on_status=drive, worker_timeout="2s", **QUICK)
    assert (run.outcome.exit_code, run.outcome.reason) == (0, "every message was processed")
    assert counts(scene) == expected_counts(6000)
    assert woken and run.summary["fenced"] > 0 and "exited" in [end.description for end in OutOfReach.ends]


def test_a_second_master_on_the_same_state_folder_is_refused_and_disturbs_nothing(scene: Scene) -> None:
    running = scene.submit_background(scene.file(counting(200_000)), "flow", **PACKED)
    before = running.wait_until(after_checkpoints(1))
    command = [sys.executable, "-P", "-m", "topo.launch.master_process", str(scene.home), "flow"]
    assert subprocess.run(command, check=False, timeout=60).returncode == 1
    refused = f"topology 'flow' is running already, under process {before['master']['pid']}"
    assert refused in (running.folder.logs / "master.log").read_text()
    with pytest.raises(TopologyIsRunning, match=refused):
        scene.resume("flow")
    after = running.wait_until(after_checkpoints(complete(running.status()) + 1))
    assert (after["restarts"], after["epoch"], after["term"]) == (0, 1, 1) and running.errors() == []


# -- disks ---------------------------------------------------------------------------------------------------------------------


def executed(status: Status) -> int:
    return counter(status, "count", "executed")


def test_a_full_disk_fails_checkpoints_aloud_and_the_next_one_after_it_succeeds(scene: Scene) -> None:
    running = scene.submit(scene.file(counting(7000)), **QUICK)
    status = running.wait_until(after_checkpoints(2))
    with FullDisk(pid_of(status, "count")):
        full = running.wait_until(lambda status: status["checkpoints"]["failed"] >= 2)
        later = running.wait_until(lambda status: executed(status) > executed(full) + 500)
        assert "No space" in later["reason"] or "too large" in later["reason"], "the status has the reason"
        assert any(error["kind"] == "CheckpointFailed" for error in running.errors())
        last = later["checkpoints"]["last_complete"]
        assert open_store(str(store_of(running)), "flow").latest().manifest.checkpoint == last  # type: ignore[union-attr]
    after = running.wait_until(after_checkpoints(complete(later) + 1))
    assert (after["restarts"], after["status"], after["reason"]) == (0, "RUNNING", "")
    kill(pid_of(after, "count"))
    ended_well(scene, running)
    assert counts(scene) == expected_counts(7000)


def test_a_full_disk_of_the_master_fails_checkpoints_until_it_has_room(scene: Scene) -> None:
    running = scene.submit(scene.file(counting(7000)), **PACKED)
    status = running.wait_until(after_checkpoints(2))
    with FullDisk(status["master"]["pid"]):
        full = running.wait_until(lambda now: executed(now) > executed(status) + 2000)
        assert open_store(str(store_of(running)), "flow").latest().manifest is not None
    after = running.wait_until(after_checkpoints(complete(full) + 1))
    assert (after["restarts"], after["status"]) == (0, "RUNNING")
    assert kinds(running) & {"CheckpointFailed", "StateNotStored"}
    ended_well(scene, running)
    assert counts(scene) == expected_counts(7000)


SLOW = """
import threading

class Count(Count):
    def prepare(self, context):
        super().prepare(context)
        fsync = os.fsync

        def slow(descriptor):
            until = time.monotonic() + 5
            is_in_the_background = threading.current_thread() is not threading.main_thread()
            while is_in_the_background and (HERE / "slow").exists() and time.monotonic() < until:
                time.sleep(0.01)
            fsync(descriptor)

        os.fsync = slow
"""


def test_a_disk_that_takes_seconds_holds_up_checkpoints_alone(scene: Scene) -> None:
    running = scene.submit(scene.file(counting(7000) + SLOW), **{**QUICK, "checkpoint_timeout": "1s"})
    running.wait_until(after_checkpoints(2))
    scene.touch("slow")
    slow = running.wait_until(lambda status: status["checkpoints"]["failed"] >= 1)
    later = running.wait_until(lambda status: executed(status) > executed(slow) + 500)
    assert any(error["kind"] == "CheckpointFailed" for error in running.errors())
    (scene.folder / "slow").unlink()
    after = running.wait_until(after_checkpoints(complete(later) + 2))
    assert (after["restarts"], after["status"]) == (0, "RUNNING")
    ended_well(scene, running)
    assert counts(scene) == expected_counts(7000)


# -- what a checkpoint points to -----------------------------------------------------------------------------------------------


def test_timers_that_were_set_before_a_kill_fire_after_it_once(scene: Scene) -> None:
    text = TIMEOUTS.replace('by_clock="yes"', 'by_clock="no"').replace("number % 7", "number // 100")
    running = scene.submit(scene.file(text.replace("Events(700)", "Events(3000, 0.0005)")), **QUICK)
    for number in (2, 4):
        kill(pid_of(running.wait_until(after_checkpoints(number)), "unseen"))
    ended_well(scene, running)
    rows = rows_of(scene.folder, "out")
    assert sorted((row["key"], row["seen"]) for row in rows) == sorted((f"k{key}", 100) for key in range(30))


LINES = """
class Lines(TextFileSpout):
    outputs = ("key",)

    def next_tuple(self):
        take_time(0.0004)
        super().next_tuple()

def topology():
    builder = TopologyBuilder("flow")
    builder.set_spout("lines", Lines(HERE / "text"))
    builder.set_bolt("count", Count(), parallelism=2).fields_grouping("lines", "key")
    builder.set_bolt("out", JsonLinesSink(HERE / "out.jsonl")).global_grouping("count")
    return builder.build()
"""


def test_a_source_without_the_position_of_a_checkpoint_is_named_until_it_has_it(scene: Scene) -> None:
    text = scene.folder / "text"
    text.write_text("".join(f"k{number % 17}\n" for number in range(8000)))
    settings = {**PACKED, "restart_backoff_max": "200ms"}
    running = scene.submit_background(scene.file(counting(0) + LINES), "flow", **settings)
    kill_everything(running)
    whole = text.read_text()
    text.write_text(whole[:100])
    resumed = scene.resume("flow")
    waiting = resumed.wait_until(lambda status: status["restarts"] > 3)
    why = r"component 'lines' raised TopoEnvironmentError: .* no longer has position .*text has 100 bytes"
    assert waiting["status"] == "STARTING" and re.search(why, waiting["reason"]), waiting["reason"]
    text.write_text(whole)
    ended_well(scene, resumed)
    assert sum(counts(scene).values()) == 8000
