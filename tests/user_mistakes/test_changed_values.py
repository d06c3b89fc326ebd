"""Mistakes with values that change after they were emitted."""

from __future__ import annotations

from typing import Any

import pytest

from topo import BasicBolt, IterableSpout, TopologyBuilder
from topo.launch.local_cluster import LocalCluster
from topo.testing import TopologyTest, run_bolt
from topo.testing.fixtures import local_cluster

__all__ = ["local_cluster"]


class History(BasicBolt):
    """Emits all it has seen, in a list that it fills further."""

    outputs = ("seen",)

    def prepare(self, context: Any) -> None:
        self.seen: list[int] = []

    def execute(self, tup: Any, collector: Any) -> None:
        self.seen.append(tup[0])
        collector.emit((self.seen,))


STATES = [((1,),), ((1, 2),), ((1, 2, 3),)]


def test_a_list_that_grows_after_its_emit_is_emitted_as_it_was_in_the_kit() -> None:
    """The user emits a list to which the bolt still appends."""
    assert run_bolt(History(), [(1,), (2,), (3,)], fields=["n"]).values() == STATES
    builder = TopologyBuilder("history")
    builder.set_spout("numbers", IterableSpout([1, 2, 3]))
    builder.set_bolt("history", History()).shuffle_grouping("numbers")
    test = TopologyTest(builder.build())
    test.run()
    assert test.emitted("history") == STATES


MAIN = """
from topo import BasicBolt, IterableSpout, JsonLinesSink, TopologyBuilder

class History(BasicBolt):
    outputs = ("seen",)
    def prepare(self, context):
        self.seen = []
    def execute(self, tup, collector):
        self.seen.append(tup[0])
        collector.emit((self.seen,))

def topology():
    builder = TopologyBuilder("history")
    builder.set_spout("numbers", IterableSpout([1, 2, 3]))
    builder.set_bolt("history", History()).shuffle_grouping("numbers")
    builder.set_bolt("out", JsonLinesSink("{out}")).shuffle_grouping("history")
    return builder.build()
"""


@pytest.mark.integration
@pytest.mark.parametrize("workers", [1, 4])
def test_a_list_that_grows_after_its_emit_is_emitted_as_it_was(local_cluster: LocalCluster, tmp_path: Any, workers: int) -> None:
    """The same in real processes, each task in its own and all in one."""
    file, out = tmp_path / "history.py", tmp_path / "out.jsonl"
    file.write_text(MAIN.replace("{out}", str(out)))
    local_cluster.submit(str(file), settings={"workers": workers}).wait(timeout_s=60)
    rows = "".join(part.read_text() for part in sorted(tmp_path.glob("out*")) if part.is_file()).splitlines()
    assert rows == ['{"seen":[1]}', '{"seen":[1,2]}', '{"seen":[1,2,3]}']
