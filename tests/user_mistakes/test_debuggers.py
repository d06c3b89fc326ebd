"""`breakpoint()` in a bolt, whose process has no terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.drive import piped

FLOW = """
from topo import BasicBolt, IterableSpout, TopologyBuilder


class Stops(BasicBolt):
    def execute(self, tup, collector):
        breakpoint()


def topology():
    builder = TopologyBuilder("stops").config(attempts=1)
    builder.set_spout("source", IterableSpout([1]))
    builder.set_bolt("end", Stops()).shuffle_grouping("source")
    return builder.build()
"""


@pytest.mark.integration
@pytest.mark.timeout(300)
def test_breakpoint_in_a_worker_names_where_a_debugger_works(topo_home: Path, tmp_path: Path) -> None:
    """A bolt calls `breakpoint()`: the error has its line and the way out, and no prompt of pdb is printed."""
    path = tmp_path / "stops.py"
    path.write_text(FLOW)

    run = piped("run", path, "-q")

    (error,) = json.loads(piped("errors", "stops", "--json").out)
    assert error["message"].startswith("breakpoint() needs a terminal, and a worker has none") and error["line"] == 7
    assert "(Pdb)" not in run.out + run.err
