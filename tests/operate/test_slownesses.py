"""From an unknown slowness to its cause: findings name each of eight prepared ones, and blame nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.operate import slow_cases
from tests.operate.slow_cases import Case
from topo.operate.diagnosis import diagnose
from topo.operate.overviews import findings
from topo.operate.view import FindingRow


def found_in(build: Callable[..., None], **settings: Any) -> list[FindingRow]:
    return diagnose(Case(build, **settings).go())


@pytest.mark.parametrize(
    ("build", "settings", "expected", "texts"),
    [
        (
            slow_cases.bottleneck,
            {},
            [("bottleneck", "score")],
            ["holds back parse and numbers", "topo rebalance case -e score=4"],
        ),
        (slow_cases.hot_key, {}, [("hot key", "count")], ["count[2] works", "one key has most", "partial_key_grouping"]),
        (
            slow_cases.messages_held,
            {"message_timeout": "10m"},
            [("messages held", "hold")],
            ["taken and not acked 2,000", "topo submit TOPOLOGY --resume-or-start -s max_spout_pending=8000"],
        ),
        (slow_cases.slow_source, {}, [("source slow", "numbers")], ["20 a second", "in next_tuple"]),
        (
            slow_cases.late_acks,
            {"message_timeout": "10s"},
            [("timeouts", "call")],
            ["no ack within 10 s", "processed twice", "topo submit TOPOLOGY --resume-or-start -s message_timeout=40s"],
        ),
        (
            slow_cases.event_time,
            {},
            [("event time held back", "prices")],
            ["waits for prices[0], which emits nothing", "with_idleness"],
        ),
        (
            slow_cases.slow_checkpoint,
            {"delivery": "exactly_once", "checkpoint_interval": "2s"},
            [("bottleneck", "train"), ("checkpoint slow", "train")],
            ["barriers wait behind the tuples in front of train", "topo rebalance case -e train=2"],
        ),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_slowness_is_named(
    build: Callable[..., None], settings: dict[str, Any], expected: list[tuple[str, str]], texts: list[str]
) -> None:
    found = found_in(build, **settings)
    assert [(one.kind, one.component) for one in found] == expected
    shown = " ".join(f"{one.sentence} {one.remedy} {' '.join(one.commands)}" for one in found)
    assert [text for text in texts if text not in shown] == [], shown
    assert [problem for one in found for command in one.commands if (problem := slow_cases.problem_of(command))] == []


BURN = """
import time
from topo import BasicBolt, Spout, TopologyBuilder

class Numbers(Spout):
    outputs = ("n",)
    def open(self, context, collector):
        self.collector = collector
    def next_tuple(self):
        self.collector.emit((1,), message_id=0 if not hasattr(self, "n") else self.n)
        self.n = getattr(self, "n", 0) + 1

class Burn(BasicBolt):
    def execute(self, tup, collector):
        until = time.thread_time() + 0.002
        while time.thread_time() < until:
            pass

def topology():
    builder = TopologyBuilder("burn")
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("burn", Burn(), {tasks}).shuffle_grouping("numbers")
    return builder.config(workers={tasks} + 2).build()
"""


@pytest.mark.integration
def test_more_processes_than_cores_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The eighth: real processes, since only they compete for cores."""
    import time

    from tests.cli.drive import call, piped
    from topo.storage.state_folder import StateFolder

    cores = len(os.sched_getaffinity(0))
    (tmp_path / "burn.py").write_text(BURN.replace("{tasks}", str(2 * cores + 2)))
    home = tmp_path / "home"
    assert piped("submit", tmp_path / "burn.py", "--home", home).code == 0
    try:
        folder, until = StateFolder(home).find("burn"), time.monotonic() + 60
        named: list[FindingRow] = []
        while not named and time.monotonic() < until:
            time.sleep(1)
            named = [one for one in findings(folder, 10.0) if one.kind == "too many processes"]
        assert named, [one.sentence for one in findings(folder, 10.0)]
        assert f"share {cores} cores" in named[0].sentence
        shown = call(capsys, "status", "burn", "--home", home)
        assert "too many processes" in shown.out and f"--workers {cores}" in shown.out
    finally:
        piped("kill", "burn", "-y", "--home", home)
