"""Workers of one topology with the compiled and with the plain per-tuple path, as where one machine cannot compile it."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest

from tests.integration.support import SINK, Scene, Status, flow, kill, pid_of, text_of
from tests.integration.test_exactly_once import QUICK
from topo.hot import KIND
from topo.master.outcome import OutcomeKind

pytestmark = [pytest.mark.integration, pytest.mark.skipif(KIND != "compiled", reason="the per-tuple path is not compiled")]

WORKER = """
import os, sys
from pathlib import Path

# Before anything of topo is imported; the name of the start file begins with the number of the worker.
if int(Path(sys.argv[1]).name.partition("-")[0]) % 2:
    os.environ["TOPO_PURE"] = "1"
from topo.worker import process

sys.exit(process.main(sys.argv[1:]))
"""
FLOW = """
class Words(RetryingSpout):
    '''Texts of one to three words, some of which are not ASCII.'''
    outputs = ("text", "at")

    def open(self, context, collector):
        self.collector = collector
        done = context.committed_position
        self.next = 0 if done is None else done + 1

    def next_tuple(self):
        if self.next == 1500:
            self.collector.end_of_input()
            return
        number = self.next
        self.collector.emit((" ".join(f"wört{number}.{n}" for n in range(1 + number % 3)), 0.5 * number), number)
        self.next += 1

class Split(BasicBolt):
    outputs = ("word", "n", "more")

    def execute(self, tup, collector):
        for word in tup["text"].split():
            collector.emit((word, len(word), (tup["at"], None, [word])))
        time.sleep(0.002)
        if tup["at"] == 350.0 and once("raised"):
            raise OSError("once")

class Single(BasicBolt):
    outputs = ("word",)

    def execute(self, tup, collector):
        collector.emit((tup["word"],))
""" + flow(
    'builder.set_spout("words", Words(), max_spout_pending=200)',
    'builder.set_bolt("split", Split(), parallelism=2).shuffle_grouping("words")',
    'builder.set_bolt("single", Single(), parallelism=2).fields_grouping("split", "word")',
    f'{SINK}.shuffle_grouping("single")',
)


@pytest.mark.parametrize("workers", [None, 2])
@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_compiled_and_plain_workers_work_together_when_one_dies(scene: Scene, delivery: str, workers: int | None) -> None:
    script = scene.folder / "mixed_worker.py"
    script.write_text(WORKER)
    killed: list[int] = []

    def drive(status: Status) -> None:
        if not killed and status["totals"]["emitted"] > 300:
            killed.append(pid_of(status, "split", 1))
            kill(killed[0])

    settings: dict[str, Any] = {"delivery": delivery, "workers": workers, **QUICK}
    run = scene.run_with(scene.file(FLOW), (sys.executable, "-P", str(script)), on_status=drive, **settings)
    assert run.outcome.kind is OutcomeKind.DONE, run.errors
    assert killed and run.summary["restarts"] == 1
    wanted = sorted(f"wört{number}.{n}" for number in range(1500) for n in range(1 + number % 3))
    found = sorted(scene.lines())
    assert (found if delivery == "exactly_once" else sorted(set(found))) == wanted
    (logs,) = (scene.home / "topologies").glob("*/logs")
    kinds = {
        int(file.stem.partition("-")[2]) % 2: set(re.findall(r"per-tuple path is (\w+)", text_of(file)))
        for file in logs.glob("worker-*.log")
    }
    assert kinds == {0: {"compiled"}, 1: {"plain"}}
