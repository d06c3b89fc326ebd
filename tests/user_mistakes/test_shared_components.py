"""One instance of a component in a module that the topology imports, for several tasks in one worker."""

from __future__ import annotations

from pathlib import Path

import pytest

from topo.launch.local_cluster import LocalCluster

pytestmark = pytest.mark.integration

HELPER = """
from topo import BasicBolt


class Count(BasicBolt):
    outputs = ("n",)

    def __init__(self):
        self.seen = 0

    def execute(self, tup, collector):
        self.seen += 1
        print("seen", self.seen)


COUNT = Count()
"""
MAIN = """
from topo import IterableSpout, TopologyBuilder
from helper import COUNT

builder = TopologyBuilder("shared").config(workers=1)
builder.set_spout("numbers", IterableSpout(range(100)))
builder.set_bolt("count", COUNT, 2).shuffle_grouping("numbers")
topology = builder.build()
"""


def test_tasks_of_an_imported_instance_count_apart(tmp_path: Path, topo_home: Path) -> None:
    """The user makes the bolt once, in another module, and gives it two tasks."""
    (tmp_path / "helper.py").write_text(HELPER)
    (tmp_path / "main.py").write_text(MAIN)
    with LocalCluster(topo_home) as cluster:
        run = cluster.submit(str(tmp_path / "main.py"))
        run.wait()
        logs = "".join(path.read_text() for path in run.folder.logs.glob("worker-*.log"))
    assert logs.count('"seen 1"') == 2 and '"seen 100"' not in logs
