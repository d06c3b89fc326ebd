"""Workers that are not equally busy: which of them a shuffle gives its rows to."""

from __future__ import annotations

import json

import pytest

from tests.integration.support import FLOODING, Scene, acked, flow
from topo.master.outcome import OutcomeKind

pytestmark = pytest.mark.integration

PARTS = """
class Timed(BasicBolt):
    '''Takes its time for each row; at the end it stores its worker and how many rows it got.'''

    def __init__(self, seconds):
        self.seconds, self.rows = seconds, 0

    def prepare(self, context, collector=None):
        self.name = f"{context.component}-{context.task_index}"

    def execute(self, tup, collector):
        time.sleep(self.seconds)
        self.rows += 1

    def cleanup(self):
        (HERE / f"{self.name}.json").write_text(json.dumps([os.getpid(), self.rows]))
"""


def test_a_shuffle_spares_the_worker_that_limits_the_rate(scene: Scene) -> None:
    """One worker holds a slow bolt beside its task of the shuffle: the task of the other worker takes most of the rows."""
    declared = flow(
        'builder.set_spout("numbers", Endless(), max_spout_pending=500)',
        'builder.set_bolt("slow", Timed(0.001)).shuffle_grouping("numbers")',
        'builder.set_bolt("work", Timed(0.0005), parallelism=2).shuffle_grouping("numbers")',
    )
    running = scene.submit(scene.file("import json\n" + FLOODING + PARTS + declared), workers=2)
    running.wait_until(lambda status: acked(status) > 2500)
    scene.touch("stop")
    assert running.wait().kind is OutcomeKind.DONE
    found = {path.stem: json.loads(path.read_text()) for path in scene.folder.glob("*.json")}
    slow_worker, _ = found["slow-0"]
    rows = {worker == slow_worker: count for name, (worker, count) in found.items() if name.startswith("work")}
    assert rows.keys() == {True, False}
    assert rows[False] > 2 * rows[True]
