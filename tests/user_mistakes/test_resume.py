"""Mistakes with `topo resume`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.drive import piped

pytestmark = pytest.mark.integration

TOTAL = """
from topo import IterableSpout, JsonLinesSink, StatefulBolt, TopologyBuilder

class Total(StatefulBolt):
    outputs = ("total",)
    def prepare(self, context):
        self.total = 0
    def execute(self, tup, collector):
        self.total += tup[0]
    def end_of_input(self, collector):
        collector.emit((self.total,))
    def snapshot(self):
        return self.total
    def restore(self, state):
        self.total = state or 0

def topology():
    builder = TopologyBuilder("sum")
    builder.set_spout("numbers", IterableSpout([1, 2, 3]))
    builder.set_bolt("total", Total()).global_grouping("numbers")
    builder.set_bolt("out", JsonLinesSink("total.jsonl")).global_grouping("total")
    return builder.build()
"""


def test_what_is_done_is_resumed(tmp_path: Path, topo_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that has ended is resumed, to be sure: nothing starts, nothing is published twice, and the answer says so."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sum.py").write_text(TOTAL)
    assert piped("run", "sum.py", "-q").code == 0
    again = piped("resume", "sum")
    assert again.code == 0
    assert "sum has processed all its input: there is nothing to resume, and nothing was started" in again.err
    assert "`topo resume sum --from-beginning` lets it begin anew" in again.err
    assert (tmp_path / "total.jsonl").read_text() == '{"total":6}\n'


@pytest.mark.parametrize("command", ["run", "submit"])
def test_what_is_done_is_not_started_again_with_resume_or_start(
    command: str, tmp_path: Path, topo_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container or service starts a finished run again: nothing starts, and the exit code gives no reason to try again."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sum.py").write_text(TOTAL)
    assert piped("run", "sum.py", "-q").code == 0
    again = piped(command, "sum.py", "--resume-or-start")
    assert again.code == 0
    assert "sum has processed all its input: there is nothing to resume, and nothing was started" in again.err
    assert "--watch" not in again.err and "topo kill" not in again.err, "advice for a topology that runs"
    assert (tmp_path / "total.jsonl").read_text() == '{"total":6}\n'
