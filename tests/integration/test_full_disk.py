"""A disk that takes no more: nothing counts as stored that is not, nothing ends, and all continues when there is room again.

The master is given a file size limit of zero, under which every write fails as on a full disk.
"""

from __future__ import annotations

import psutil
import pytest

from tests.integration.support import SINK, Scene, counter, eventually, flow, kill, let_pass, pid_of
from topo.master.outcome import OutcomeKind

pytestmark = pytest.mark.integration

GATED = """
class Gated(IterableSpout):
    def next_tuple(self):
        if (HERE / "go").exists():
            super().next_tuple()

    def fail(self, message_id):
        (HERE / "given up").touch()

class Odd(BasicBolt):
    outputs = ("value",)

    def execute(self, tup, collector):
        if tup["value"] == 13 and (HERE / "poison").exists():
            raise ValueError("unlucky")
        collector.emit(tup.values)
"""
FLOW = GATED + flow(
    'builder.set_spout("numbers", Gated(range(100)))',
    'builder.set_bolt("odd", Odd()).shuffle_grouping("numbers")',
    f'{SINK}.shuffle_grouping("odd")',
)


class FullDisk:
    """For as long as the block lasts, a process can write nothing."""

    def __init__(self, pid: int) -> None:
        self.process = psutil.Process(pid)

    def __enter__(self) -> None:
        self.before = self.process.rlimit(psutil.RLIMIT_FSIZE)
        self.process.rlimit(psutil.RLIMIT_FSIZE, (0, self.before[1]))

    def __exit__(self, *_: object) -> None:
        self.process.rlimit(psutil.RLIMIT_FSIZE, self.before)


def test_a_dead_letter_that_cannot_be_stored_is_kept_by_its_spout_until_it_can(scene: Scene) -> None:
    running = scene.submit(scene.file(FLOW), attempts=2, backoff="20ms", workers=2)
    status = running.wait_until(lambda status: status["status"] == "RUNNING")
    scene.touch("poison")
    with FullDisk(status["master"]["pid"]):
        scene.touch("go")
        # The reason is that of the last error: the bolt's, then those of the disk, which has no room for positions either. These
        # change no more once 99 messages are acked.
        running.wait_until(lambda status: status["status"] == "DEGRADED" and status["reason"].startswith("DeadLettersNotStored"))
        status = running.wait_until(lambda status: counter(status, "numbers", "failed") == 2 and status["totals"]["acked"] == 99)
        assert (status["totals"]["dead_lettered"], status["totals"]["pending"]) == (0, 1)
        assert not scene.has("given up")
    assert running.wait(timeout_s=30).kind is OutcomeKind.DEAD_LETTERS
    assert [dead_letter["message"] for dead_letter in running.dead_letters()] == [13]
    assert scene.has("given up")
    assert "DeadLettersNotStored" in {error["kind"] for error in running.errors()}


def test_a_recovery_waits_until_its_epoch_can_be_stored(scene: Scene) -> None:
    running = scene.submit(scene.file(FLOW))
    status = running.wait_until(lambda status: status["status"] == "RUNNING")
    with FullDisk(status["master"]["pid"]):
        kill(pid_of(status, "odd"))
        scene.touch("go")
        let_pass(running, 0.7)
        status = running.status()
        assert (status["status"], status["epoch"], status["restarts"]) == ("DEGRADED", 1, 1)
        assert "cannot write" in status["reason"] and "stands still until it can be written" in status["reason"]
    assert running.wait(timeout_s=30).kind is OutcomeKind.DONE
    assert set(scene.lines()) == set(range(100))
    kinds = {error["kind"] for error in running.errors()}
    assert "StateNotStored" in kinds


def test_a_topology_that_cannot_store_anything_can_be_killed_all_the_same(scene: Scene) -> None:
    running = scene.submit(scene.file(FLOW))
    status = running.wait_until(lambda status: status["status"] == "RUNNING")
    with FullDisk(status["master"]["pid"]):
        kill(pid_of(status, "odd"))
        running.wait_until(lambda status: status["status"] == "DEGRADED")
        running.kill()
        eventually(lambda: not running.folder.is_running())
