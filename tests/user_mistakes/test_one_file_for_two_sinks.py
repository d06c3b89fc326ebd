"""Users who have two sinks write to one file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from topo import IterableSpout, JsonLinesSink, TopologyBuilder, TopologyError
from topo.streams import StreamBuilder


def test_two_sinks_of_one_file_are_refused(tmp_path: Path) -> None:
    """With `exactly_once` both appended at the same place, and half of the lines were gone."""
    flow = StreamBuilder("numbers")
    even, odd = flow.from_iterable(range(10)).branch(lambda number: number % 2 == 0)
    even.to(JsonLinesSink(tmp_path / "out.jsonl"), name="even")
    odd.to(JsonLinesSink(os.path.relpath(tmp_path / "out.jsonl")), name="odd")
    with pytest.raises(TopologyError) as refusal:
        flow.build()
    (problem,) = refusal.value.problems
    assert problem.startswith(f"bolt 'odd': it writes to {tmp_path / 'out.jsonl'}, as 'even' does, ")
    assert "let one sink read both inputs" in problem
    assert Path(__file__).name in problem


def test_one_sink_may_read_both(tmp_path: Path) -> None:
    builder = TopologyBuilder("numbers")
    for name in ("even", "odd"):
        builder.set_spout(name, IterableSpout([1, 2]))
    sink = builder.set_bolt("store", JsonLinesSink(tmp_path / "out.jsonl"))
    sink.shuffle_grouping("even").shuffle_grouping("odd")
    builder.set_bolt("other", JsonLinesSink(tmp_path / "other.jsonl")).shuffle_grouping("odd")
    builder.build()


def test_two_streams_may_be_collected() -> None:
    flow = StreamBuilder("numbers")
    numbers = flow.from_iterable(range(10))
    numbers.collect()
    numbers.collect()
    flow.build()
