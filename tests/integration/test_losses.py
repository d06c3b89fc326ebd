"""Processes that die under load: no message that was acked is missing at the sink, and the run still ends by itself."""

from __future__ import annotations

import pytest

from tests.integration.support import Scene, acked, counter, kill, pid_of

pytestmark = pytest.mark.integration

COUNT = 3000
FLOW = f"""
class Double(BasicBolt):
    outputs = ("value",)

    def execute(self, tup, collector):
        time.sleep(0.0003)
        collector.emit((tup["value"] * 2,))
        collector.emit((tup["value"] * 2 + 1,))

def topology():
    builder = TopologyBuilder("flow")
    builder.set_spout("numbers", IterableSpout(range({COUNT})), max_spout_pending=200)
    builder.set_bolt("double", Double()).shuffle_grouping("numbers")
    builder.set_bolt("sink", JsonLinesSink(HERE / "out.jsonl", flush_interval="10ms")).shuffle_grouping("double")
    return builder.build()
"""


@pytest.mark.parametrize("component", ["__acker", "numbers", "double", "sink"])
def test_a_killed_worker_loses_no_message(scene: Scene, component: str) -> None:
    running = scene.submit(scene.file(FLOW))
    status = running.wait_until(lambda status: acked(status) > COUNT // 6)
    before = pid_of(status, component)
    kill(before)
    outcome = running.wait(timeout_s=30)
    status = running.summary()
    assert (outcome.exit_code, outcome.reason) == (0, "every message was processed")
    assert set(scene.lines()) == set(range(2 * COUNT))
    assert (status["restarts"], status["epoch"]) == (1, 2)
    if component != "numbers":
        assert counter(status, "numbers", "reset") > 0
    assert {error["kind"] for error in running.errors()} == {"WorkerLost"}
