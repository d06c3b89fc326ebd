"""Observations of real processes: a tap under load and across a kill, a profile against known shares, log levels that revert."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.support import FLOODING, Scene, acked, eventually, kill, pid_of
from topo.operate.observing import Observation, log_levels, observe
from topo.storage.state_folder import StateFolder, TopologyFolder

pytestmark = pytest.mark.integration

FLOW = f"""
import logging

{FLOODING}

class Work(BasicBolt):
    outputs = ("value", "secret")

    def execute(self, tup, collector):
        long(), brief()
        logging.getLogger("flow").debug("value %s", tup["value"])
        collector.emit((tup["value"], "hidden"))

def spin(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass

def long():
    spin(0.0018)

def brief():
    spin(0.0006)

class End(BasicBolt):
    outputs = ()

    def execute(self, tup, collector):
        pass

def topology():
    builder = TopologyBuilder("flow")
    builder.config(secret_fields="secret", tick_interval=None)
    builder.set_spout("numbers", Endless(), max_spout_pending=500)
    builder.set_bolt("work", Work()).shuffle_grouping("numbers")
    builder.set_bolt("end", End()).shuffle_grouping("work")
    return builder.build()
"""


def folder_of(scene: Scene) -> TopologyFolder:
    return StateFolder(scene.home).find("flow")


def rows_until(seen: Observation, enough: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []

    def is_enough() -> bool:
        rows.extend(seen.poll()["rows"])
        return enough(rows)

    eventually(is_enough, what="rows of the tap")
    return rows


def test_observations_of_a_topology_under_load(scene: Scene) -> None:
    running = scene.submit(scene.file(FLOW))
    running.wait_until(lambda status: acked(status) > 100)
    folder = folder_of(scene)

    # A tap, of output and of input, with a condition.
    with observe(folder, "tap", "work", for_s=60, rate=50, where="value % 2 == 1") as seen:
        rows = rows_until(seen, lambda rows: len(rows) >= 5)
        assert all(row["fields"]["value"] % 2 == 1 and row["fields"]["secret"] == "•••" for row in rows)
        answer = seen.poll()
        assert answer["matched"] < answer["looked"] <= answer["seen"]
        with observe(folder, "tap", "end", for_s=60, direction="in", rate=50) as taken:
            assert rows_until(taken, bool)[0]["stream"] == "work:default"

        # The life that follows a kill is observed, too.
        status = running.wait_until(lambda status: status["status"] == "RUNNING")
        kill(pid_of(status, "work"))
        running.wait_until(lambda status: status["epoch"] == 2 and status["status"] == "RUNNING")
        seen.poll()
        rows_until(seen, lambda rows: len(rows) >= 5)

    # A profile: of the time at work three quarters are in `long`.
    with observe(folder, "profile", "work", for_s=3, rate=200, clock="cpu") as seen:
        eventually(lambda: seen.poll()["ended"], what="the end of the profile")
        time.sleep(0.6)
        stacks = seen.poll()["stacks"]
    counts = {
        name: sum(stack["count"] for stack in stacks if any(frame.startswith(f"{name} (") for frame in stack["frames"]))
        for name in ("long", "brief")
    }
    assert 0.6 < counts["long"] / (counts["long"] + counts["brief"]) < 0.9, counts

    # Log levels, which revert.
    def debug_lines() -> int:
        return sum(log.read_text().count('"logger": "flow"') for log in folder.path.rglob("*.log*"))

    assert debug_lines() == 0
    assert [row["level"] for row in log_levels(folder, {"flow": "debug"}, "work", for_s=1.0)] == ["DEBUG"]
    eventually(debug_lines, what="a line of the log")
    eventually(lambda: not log_levels(folder), what="the end of the level")

    def is_quiet() -> bool:
        # The worker may take the level back somewhat later than the master counts it.
        lines, done = debug_lines(), acked(running.status())
        running.wait_until(lambda status: acked(status) > done + 50)
        return debug_lines() == lines

    eventually(is_quiet, what="the end of the level in the worker")

    # Lines that are logged for a tuple of a traced message have its root.
    log_levels(folder, {"flow": "debug"}, "work", for_s=60.0)
    roots: set[str] = set()

    def found() -> list[dict[str, Any]]:
        roots.update(row["root"] for row in seen.poll()["rows"])
        lines = [line for log in folder.path.rglob("*.log*") for line in log.read_text().splitlines()]
        return [row for line in lines if '"trace"' in line and roots.intersection((row := json.loads(line))["trace"])]

    with observe(folder, "trace", "", for_s=60.0, rate=20.0, settle_s=1.0, spout="") as seen:
        eventually(found, what="a line of a traced message")
        assert {(row["component"], row["logger"], len(row["trace"])) for row in found()} == {("work", "flow", 1)}

    assert running.status()["epoch"] == 2, "no observation costs a worker"
