"""docs/metrics.md defines every figure that a task and the status have."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from topo import BasicBolt, BasicCollector, IterableSpout, Topology, TopologyBuilder, Tuple
from topo.checkpoint.rows import CheckpointRow, Savepoint
from topo.testing import TopologyTest
from topo.wire.statistics import Counters

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "metrics.md").read_text()


class Pass(BasicBolt):
    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        pass


def names_in(section: str) -> set[str]:
    """The names in the first column of the table of a section."""
    rows = re.findall(r"^\| (`.*?`) \|", PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0], re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def small(delivery: str = "at_least_once") -> Topology:
    builder = TopologyBuilder("figures").config(delivery=delivery)
    builder.set_spout("numbers", IterableSpout([1, 2]))
    builder.set_bolt("pass", Pass()).shuffle_grouping("numbers")
    return builder.build()


def status() -> dict[str, Any]:
    """The status of a topology that runs and has sent heartbeats."""
    test = TopologyTest(small(), sources={"numbers": [1, 2]})
    test.advance("3s")
    return test.status()


def test_every_counter_is_defined_and_no_other() -> None:
    assert names_in("Counters") == {counter.name for counter in dataclasses.fields(Counters)}


@pytest.mark.parametrize(("section", "key"), [("Levels", "levels"), ("Latencies", "latencies_s")])
def test_every_level_and_latency_is_defined_and_no_other(section: str, key: str) -> None:
    assert names_in(section) == {name for task in status()["tasks"] for name in task[key]}


def test_every_key_of_the_status_is_on_the_page() -> None:
    shown = status()
    keys = {*shown, *shown["totals"], *shown["components"][0], *shown["tasks"][0], *shown["workers"][0]}

    assert {key for key in keys if f"`{key}`" not in PAGE} - {"component", "kind", "parallelism", "task", "index"} == set()


def test_every_figure_of_checkpoints_is_defined_and_no_other() -> None:
    test = TopologyTest(small("exactly_once"), sources={"numbers": [1, 2]})
    shown = test.status()["checkpoints"]
    rows = {name for row in (CheckpointRow, Savepoint) for name in row.__match_args__}

    assert names_in("Checkpoints") - {"folder"} == set(shown)
    assert {name for name in rows if f"`{name}`" not in PAGE} == set()
