"""Hooks in real worker processes."""

from __future__ import annotations

import pytest

from tests.integration.support import Scene, text_of

pytestmark = pytest.mark.integration

HOOKED = """
class Life(Hook):
    def note(self, what):
        with open(HERE / "life.txt", "a") as file:
            print(os.getpid(), what, file=file)

    def worker_starts(self, topology, worker):
        self.note(f"worker {worker} of {topology} starts")

    def task_opens(self, context):
        self.note(f"{context.component} opens")

    def error(self, context, error):
        self.note(f"{context.component}: {error}")

    def task_closes(self, context):
        self.note(f"{context.component} closes")

    def worker_ends(self):
        self.note("worker ends")

class Fails(BasicBolt):
    def execute(self, tup, collector):
        raise ValueError("no")

def topology():
    builder = TopologyBuilder("flow").config(workers=1, attempts=1)
    builder.add_hook(Life())
    builder.set_spout("one", IterableSpout([1], fields=("n",)))
    builder.set_bolt("fails", Fails()).shuffle_grouping("one")
    return builder.build()
"""


def test_a_hook_is_told_of_worker_and_tasks_from_beginning_to_end(scene: Scene) -> None:
    scene.run(scene.file(HOOKED))
    reported = [line.split(" ", 1) for line in text_of(scene.folder / "life.txt").splitlines()]
    assert len({pid for pid, _ in reported}) == 1
    lines = [line for _, line in reported]
    assert lines[0] == "worker 0 of flow starts" and lines[-1] == "worker ends"
    assert set(lines[1:3]) == {"one opens", "fails opens"} and set(lines[-3:-1]) == {"one closes", "fails closes"}
    assert lines[3:-3] == ["fails: no"]
