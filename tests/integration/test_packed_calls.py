"""Calls that wait for other threads and for other tasks of their worker, with real processes."""

from __future__ import annotations

import pytest

from tests.integration.support import Scene

pytestmark = pytest.mark.integration

ASKING = '''
import threading

SEEN = []

class Keep(BasicBolt):
    """Keeps its inputs, for the other bolt of its process."""

    def execute(self, tup, collector):
        SEEN.append(tup["value"])

class Ask(BasicBolt):
    """Waits, for its first input, until the other bolt has seen all, as a thread reports."""

    outputs = ("value",)

    def prepare(self, context):
        self.executor, self.answer = context.executor, None

    def execute(self, tup, collector):
        if self.answer is None:
            threading.Thread(target=self.look, daemon=True).start()
            while self.answer is None:
                self.executor.yield_()
        collector.emit((f"{self.answer} {tup['value']}",))

    def look(self):
        while len(SEEN) < 200:
            time.sleep(0.005)
        self.executor.execute(lambda: setattr(self, "answer", "seen"))

def topology():
    builder = TopologyBuilder("flow").config(workers=1, batch_size=10, queue_time="off")
    builder.set_spout("numbers", IterableSpout(range(200)))
    builder.set_bolt("keep", Keep()).shuffle_grouping("numbers")
    builder.set_bolt("ask", Ask()).shuffle_grouping("numbers")
    builder.set_bolt("sink", JsonLinesSink(HERE / "out.jsonl")).shuffle_grouping("ask")
    return builder.build()
'''


def test_a_call_that_yields_has_the_other_tasks_of_its_process_run(scene: Scene) -> None:
    run = scene.run(scene.file(ASKING))
    assert (run.outcome.exit_code, run.outcome.reason) == (0, "every message was processed")
    assert sorted(scene.lines()) == sorted(f"seen {number}" for number in range(200))
    assert run.errors == [] and run.totals["failed"] == 0
