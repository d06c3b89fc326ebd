"""Sources with partitions over real processes: another parallelism, deaths, partitions that come meanwhile; rows are counted at
both ends."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.support import Scene, acked, eventually, kill, pid_of
from topo.launch.running import RunningTopology

pytestmark = pytest.mark.integration

LOGS = """
class Logs(PartitionedSpout):
    outputs = ("n",)
    discovery_interval = "200ms"

    def partitions(self):
        return [path.name for path in HERE.glob("*.log")]

    def read(self, partition, position):
        begin = 0 if position is None else position
        with (HERE / partition.name).open("rb") as file:
            file.seek(begin)
            while True:
                line = file.readline()
                if line.endswith(b"\\n"):
                    yield SourceRow((int(line),), file.tell())
                    time.sleep(0.001)
                else:
                    file.seek(-len(line), 1)
                    yield None

class Sleepy(BasicBolt):
    outputs = ("n",)

    def execute(self, tup, collector):
        collector.emit(tup.values)

def topology():
    builder = TopologyBuilder("logs")
    builder.set_spout("logs", Logs())
    builder.set_bolt("pass", Sleepy(), parallelism=2).shuffle_grouping("logs")
    builder.set_bolt("out", JsonLinesSink(HERE / "out.jsonl")).shuffle_grouping("pass")
    return builder.build()
"""
PARTITIONS = 6
ROWS = 400


def write(scene: Scene, first: int, last: int) -> None:
    for partition in range(PARTITIONS):
        with (scene.folder / f"{partition}.log").open("a") as file:
            file.writelines(f"{partition * 10_000 + n}\n" for n in range(first, last))


def wanted(partitions: int = PARTITIONS) -> list[int]:
    return sorted(partition * 10_000 + n for partition in range(partitions) for n in range(ROWS))


def emitted(running: RunningTopology, number: int) -> dict[str, Any]:
    return running.wait_until(lambda status: int(status["totals"]["emitted"]) >= number)


def test_each_row_is_published_once_by_one_three_and_two_tasks_that_are_killed(scene: Scene) -> None:
    write(scene, 0, ROWS // 2)
    running = scene.submit(scene.file(LOGS), delivery="exactly_once", checkpoint_interval="200ms", checkpoint_pause="50ms")
    emitted(running, 200)
    running.rebalance({"logs": 3})
    write(scene, ROWS // 2, ROWS)
    kill(pid_of(running.wait_until(lambda status: status["checkpoints"]["complete"] >= 1), "logs", 1))
    running.wait_until(lambda status: status["restarts"] >= 1 and status["status"] == "RUNNING")
    (scene.folder / "new.log").write_text("".join(f"{PARTITIONS * 10_000 + n}\n" for n in range(ROWS)))
    running.rebalance({"logs": 2})
    eventually(lambda: len(scene.lines()) >= len(wanted(PARTITIONS + 1)), timeout_s=60)
    running.kill()
    assert sorted(scene.lines()) == wanted(PARTITIONS + 1)


def test_at_least_once_continues_with_another_parallelism_behind_each_position(scene: Scene) -> None:
    write(scene, 0, ROWS // 2)
    first = scene.submit_background(scene.file(LOGS), delivery="at_least_once")
    first.wait_until(lambda status: acked(status) == PARTITIONS * ROWS // 2)
    first.kill()
    eventually(lambda: not first.folder.is_running())
    write(scene, ROWS // 2, ROWS)
    again = scene.submit_background(scene.file(LOGS), parallelism={"logs": 3}, resume=True, delivery="at_least_once")
    eventually(lambda: set(scene.lines()) == set(wanted()))
    again.kill()
    eventually(lambda: not again.folder.is_running())
    assert len(scene.lines()) < len(wanted()) + PARTITIONS * ROWS // 4, "begins behind the stored positions"
