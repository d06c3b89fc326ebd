"""What comes of the end of the input is published once, also when a run is resumed that was about to end, or is done."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.integration.support import PATIENCE_S, Scene
from topo.launch.running import RunningTopology

pytestmark = pytest.mark.integration

TOTALS = """
class Count(StatefulBolt):
    outputs = ("word", "count")
    key = "word"

    def prepare(self, context):
        self.counts = {}

    def execute(self, tup, collector):
        self.counts[tup["word"]] = self.counts.get(tup["word"], 0) + 1

    def end_of_input(self, collector):
        for entry in self.counts.items():
            collector.emit(entry)

    def snapshot(self):
        return self.counts

    def restore(self, state):
        self.counts = dict(state or {})

def topology():
    builder = TopologyBuilder("flow")
    builder.set_spout("words", SPOUT)
    builder.set_bolt("count", Count(), parallelism=2).fields_grouping("words", "word")
    builder.set_bolt("out", JsonLinesSink(HERE / "out.jsonl")).global_grouping("count")
    return builder.build()
"""
LIST = TOTALS.replace("SPOUT", 'IterableSpout(["a", "b", "a"], fields=("word",))')
TICKS = """
class Ticks(BasicBolt):
    def execute(self, tup, collector):
        pass
"""
FILE = LIST.replace('IterableSpout(["a", "b", "a"], fields=("word",))', 'TextFileSpout(HERE / "words.txt")').replace(
    '"word"', '"line"'
)


def totals(scene: Scene) -> list[tuple[str, int]]:
    return sorted(scene.lines())


def run(scene: Scene, body: str = LIST) -> RunningTopology:
    running = scene.submit_background(scene.file(body), "flow", workers=2)
    assert running.wait(timeout_s=PATIENCE_S).exit_code == 0
    return running


def test_a_master_that_dies_before_its_summary_publishes_nothing_twice(
    scene: Scene,
) -> None:
    folder = run(scene).folder
    for _ in range(2):
        folder.summary.unlink()
        assert scene.resume("flow").wait(timeout_s=PATIENCE_S).exit_code == 0
        assert totals(scene) == [("a", 2), ("b", 1)]


def test_resuming_what_is_done_starts_nothing(scene: Scene) -> None:
    folder = run(scene).folder
    term = json.loads(folder.master.read_bytes())["term"]
    assert scene.resume("flow").wait(timeout_s=PATIENCE_S).exit_code == 0
    assert json.loads(folder.master.read_bytes())["term"] == term
    assert totals(scene) == [("a", 2), ("b", 1)]


@pytest.mark.parametrize("ticks", [False, True])
def test_a_run_from_the_last_checkpoint_of_another_reads_newer_rows_of_the_source(scene: Scene, ticks: bool) -> None:
    """A bolt that reads nothing but ticks has no end, and keeps no checkpoint from being that of the end."""
    job = '    builder.set_bolt("job", Ticks(), tick_interval="50ms")\n    return' if ticks else "    return"
    words = scene.folder / "words.txt"
    words.write_text("a\nb\na\n")
    first = run(scene, TICKS + FILE.replace("    return builder", f"{job} builder"))
    checkpoints = json.loads((first.folder.path / "summary.json").read_bytes())["checkpoints"]["folder"]
    kept = Path(shutil.move(checkpoints, scene.folder / "kept"))
    with words.open("a") as file:
        file.write("a\nc\n")
    running = scene.cluster.submit(str(scene.folder / "flow.py"), "flow", start_from=kept)
    assert running.wait(timeout_s=PATIENCE_S).exit_code == 0
    assert totals(scene) == [("a", 2), ("a", 3), ("b", 1), ("b", 1), ("c", 1)]
