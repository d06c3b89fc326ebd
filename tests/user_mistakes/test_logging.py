"""A module that sets up `logging` for the whole process, as scripts do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.drive import piped

FLOW = """
import logging

from topo import BasicBolt, IterableSpout, TopologyBuilder

logging.basicConfig(level=logging.DEBUG, format="MINE %(message)s")


class Logs(BasicBolt):
    def execute(self, tup, collector):
        logging.info("value %s", tup["value"])


def topology():
    builder = TopologyBuilder("logs")
    builder.set_spout("source", IterableSpout([1]))
    builder.set_bolt("end", Logs()).shuffle_grouping("source")
    return builder.build()
"""


@pytest.mark.integration
@pytest.mark.timeout(300)
def test_basic_config_of_a_module_adds_no_lines_to_those_of_the_command(topo_home: Path, tmp_path: Path) -> None:
    """A topology's module calls `logging.basicConfig`: the command, which imports it, too, prints its own lines once."""
    path = tmp_path / "logs.py"
    path.write_text(FLOW)

    text = piped("run", path).err
    rows = [json.loads(line) for line in piped("run", path, "--log-format", "json").err.splitlines()]

    assert text.count("starts from the beginning") == 1 and "MINE" not in text
    assert "value 1" in {row["message"] for row in rows if row["component"] == "end"}


@pytest.mark.integration
@pytest.mark.timeout(300)
def test_records_of_a_module_that_removes_topos_handler_are_lines(topo_home: Path, tmp_path: Path) -> None:
    """A topology's module calls `basicConfig(force=True)`: its records are lines, and no tuple fails."""
    path = tmp_path / "logs.py"
    path.write_text(FLOW.replace('format="MINE %(message)s"', 'format="MINE %(message)s", force=True'))

    ended = piped("run", path)

    assert ended.code == 0
    assert [line for line in ended.err.splitlines() if "MINE" in line] == ["MINE value 1"]
