"""Values that topo does not carry are reported with the place that emits them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.drive import call

FLOW = """
from topo import BasicBolt, IterableSpout, Spout, TopologyBuilder


class Point:
    pass


class Emits(BasicBolt):
    outputs = ("point",)

    def execute(self, tup, collector):
        collector.emit((1,))
        collector.emit((Point(),))  # bolt


class Source(Spout):
    outputs = ("point",)

    def open(self, context, collector):
        self.collector = collector
        self.left = 1

    def next_tuple(self):
        if not self.left:
            self.collector.end_of_input()
            return
        self.left -= 1
        self.collector.emit((Point(),), 1)  # spout


class Sink(BasicBolt):
    def execute(self, tup, collector):
        pass


def topology(kind: str, delivery: str):
    builder = TopologyBuilder("points").config(delivery=delivery, attempts=1)
    if kind == "spout":
        builder.set_spout("source", Source())
    else:
        builder.set_spout("numbers", IterableSpout([1]))
        builder.set_bolt("source", Emits()).shuffle_grouping("numbers")
    builder.set_bolt("sink", Sink()).shuffle_grouping("source")
    return builder.build()
"""


@pytest.mark.parametrize(("kind", "delivery"), [("bolt", "at_least_once"), ("bolt", "exactly_once"), ("spout", "at_least_once")])
def test_value_that_is_not_carried_has_file_and_line_of_its_emit(
    kind: str, delivery: str, tmp_path: Path, topo_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bolt and a spout emit an object of a class that no serializer is registered for."""
    path = tmp_path / "points.py"
    path.write_text(FLOW)

    assert call(capsys, "run", path, "-q", "-p", f"kind={kind}", "-p", f"delivery={delivery}").code == 1

    (found,) = [
        row for row in json.loads(call(capsys, "errors", "points", "--json").out) if row["kind"] == "UnsupportedValueError"
    ]
    line = 1 + next(at for at, text in enumerate(FLOW.splitlines()) if text.endswith(f"# {kind}"))
    assert (found["file"], found["line"]) == (str(path), line)
    assert "component 'source', stream 'default': field 'point': a value of type Point: " in found["message"]


@pytest.mark.parametrize("kind", ["bolt", "spout"])
def test_values_that_are_not_carried_fail_a_run_without_tracking(
    kind: str, tmp_path: Path, topo_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bolt and a spout emit such an object where no message fails with it."""
    path = tmp_path / "points.py"
    path.write_text(FLOW)

    run = call(capsys, "run", path, "-q", "-p", f"kind={kind}", "-p", "delivery=at_most_once")

    assert run.code == 1
    assert "1 row could not be sent and was lost: a value that tuples do not carry" in run.out + run.err
