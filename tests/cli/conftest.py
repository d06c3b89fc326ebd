"""Commands are tried on topologies small enough to read, and leave no process behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.conftest import no_process_is_left

__all__ = ["no_process_is_left"]

FLOW = """
import time

from topo import BasicBolt, IterableSpout, TopologyBuilder


class Double(BasicBolt):
    outputs = ("value",)

    def execute(self, tup, collector):
        time.sleep(self.pause)
        collector.emit((tup["value"] * 2,))

    def __init__(self, pause):
        self.pause = pause


class Show(BasicBolt):
    def execute(self, tup, collector):
        print("value", tup["value"])


def topology(items: int = 3, pause: float = 0.0):
    builder = TopologyBuilder("flow")
    builder.set_spout("numbers", IterableSpout(range(items)), max_spout_pending=100)
    builder.set_bolt("double", Double(pause)).shuffle_grouping("numbers")
    builder.set_bolt("show", Show()).shuffle_grouping("double")
    return builder.build()
"""


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    """A topology that prints the doubles of some numbers."""
    path = tmp_path / "flow.py"
    path.write_text(FLOW)
    return path
