"""A tail source and a batching bolt over real processes: a log is rotated while workers are killed, and no line is lost."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.support import Scene, eventually, flow, is_gone, kill, pid_of, processes_of, repeated

pytestmark = pytest.mark.integration

RELAY = """
class Relay(BatchBolt):
    outputs = ("line",)

    def __init__(self):
        super().__init__(size=64, wait="20ms")

    def execute_batch(self, tuples, collector):
        for tup in tuples:
            collector.emit((tup["line"],), tup)

""" + flow(
    'builder.set_spout("tail", TailSpout(HERE / "app.log", rotate_wait="300ms"))',
    'builder.set_bolt("relay", Relay(), 2).shuffle_grouping("tail")',
    'builder.set_bolt("sink", JsonLinesSink(HERE / "out.jsonl", flush_interval="10ms")).shuffle_grouping("relay")',
)


def rename(log: Path, to: Path) -> None:
    log.rename(to)


def copy_and_truncate(log: Path, to: Path) -> None:
    to.write_bytes(log.read_bytes())
    os.truncate(log, 0)


@pytest.mark.parametrize("rotate", [rename, copy_and_truncate])
@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_rotation_while_workers_are_killed_loses_no_line(
    scene: Scene, delivery: str, rotate: Callable[[Path, Path], None]
) -> None:
    log = scene.folder / "app.log"
    written: list[str] = []

    def write(count: int) -> None:
        with log.open("a") as file:
            for _ in range(count):
                written.append(f"line {len(written)}")
                file.write(f"{written[-1]}\n")

    running = scene.submit(
        scene.file(RELAY),
        delivery=delivery,
        checkpoint_interval="200ms",
        checkpoint_pause="50ms",
    )
    for round in range(3):
        write(500)
        eventually(lambda: len(scene.lines()) >= len(written) - 300)
        write(20)
        eventually(lambda: not any(is_gone(pid_of(running.status(), name)) for name in ("tail", "relay")))
        spout, bolt = (pid_of(running.status(), name) for name in ("tail", "relay"))
        kill(spout)
        kill(bolt)
        eventually(lambda spout=spout: is_gone(spout))  # type: ignore[misc]
        write(20)
        rotate(log, log.with_name(f"app.log.{9 - round}"))
        write(20)
    eventually(lambda: set(scene.lines()) >= set(written), what="every line")
    running.kill()
    running.wait()
    assert not processes_of(scene.home)
    assert set(scene.lines()) == set(written)
    if delivery == "exactly_once":
        assert repeated(scene.lines()) == []


def test_a_line_is_not_lost_when_the_log_is_rotated_while_the_topology_is_down(scene: Scene) -> None:
    log = scene.folder / "app.log"
    log.write_text("".join(f"{number}\n" for number in range(1000)))
    topology = scene.file(RELAY)
    running = scene.submit_background(topology, delivery="exactly_once", checkpoint_interval="200ms")
    status = running.wait_until(lambda status: len(scene.lines()) > 0)
    for pid in (status["master"]["pid"], *(worker["pid"] for worker in status["workers"])):
        kill(pid)
        eventually(lambda pid=pid: is_gone(pid))  # type: ignore[misc]
    with log.open("a") as file:
        file.write("1000\n")
    rename(log, log.with_name("app.log.1"))
    log.write_text("1001\n")
    resumed = scene.resume(running.name)
    eventually(lambda: len(scene.lines()) >= 1002, what="every line")
    resumed.kill()
    resumed.wait()
    assert sorted(scene.lines(), key=int) == [str(number) for number in range(1002)]
