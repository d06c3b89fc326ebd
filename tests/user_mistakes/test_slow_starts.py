"""Sources that are slow to reach their position, and components that are slow to open, are no stuck code."""

from __future__ import annotations

from pathlib import Path

import pytest

from topo.launch.local_cluster import LocalCluster

FLOW = """
import pathlib, time
from topo import BasicBolt, IterableSpout, TopologyBuilder

HERE = pathlib.Path({here!r})


def numbers():
    number = 0
    while True:
        # As quick as can be at first, and slow to read again.
        time.sleep(0.005 if (HERE / "slow").exists() else 0.0005)
        yield number
        number += 1


class Model(BasicBolt):
    def prepare(self, context):
        if (HERE / "slow").exists():
            for part in range(15):
                context.progress(f"loading part {{part}} of the model")
                time.sleep(0.1)

    def execute(self, tup, collector):
        pass


builder = TopologyBuilder("flow").config(progress_timeout="1s", heartbeat="100ms", restart_backoff="50ms")
builder.set_spout("numbers", IterableSpout(numbers), max_spout_pending=50)
builder.set_bolt("model", Model()).shuffle_grouping("numbers")
topology = builder.build()
"""


@pytest.mark.integration
def test_skipping_and_loading_beyond_the_progress_timeout_go_on_and_are_shown(tmp_path: Path, topo_home: Path) -> None:
    """A slow iterable restarts far behind its beginning, and a `prepare` loads for long: both were killed as stuck, for ever."""
    (tmp_path / "flow.py").write_text(FLOW.format(here=str(tmp_path)))
    with LocalCluster(topo_home) as cluster:
        run = cluster.submit(str(tmp_path / "flow.py"))
        positions = run.folder.positions
        run.wait_until(lambda status: status["totals"]["acked"] >= 1000 and positions.exists(), what="the first messages")
        recorded = positions.stat().st_mtime_ns
        before = run.wait_until(lambda _: positions.stat().st_mtime_ns > recorded, what="a position behind them")
        (tmp_path / "slow").touch()
        for task in before["tasks"]:
            if task["component"] != "__acker":
                run.restart(task["worker"])

        run.wait_until(lambda status: "model: loading part " in status["reason"], what="the load that is shown")
        run.wait_until(lambda status: "numbers: skipping to item " in status["reason"], what="the skip that is shown")
        acked = run.status()["totals"]["acked"]
        after = run.wait_until(lambda status: status["totals"]["acked"] > acked, what="messages behind the skip")

        assert after["stuck"] == 0
        assert not [error for error in run.errors() if error["kind"] in ("TaskStuck", "WorkerLost")]
