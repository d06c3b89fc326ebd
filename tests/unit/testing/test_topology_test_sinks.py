"""Sinks that publish with checkpoints, in a topology under test."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from topo import (
    BasicCollector,
    IterableSpout,
    JsonLinesSink,
    StatefulBolt,
    Topology,
    TopologyBuilder,
    Tuple,
    TwoPhaseSink,
    WatermarkStrategy,
    WindowBolt,
    aggregates,
    windows,
)
from topo.master.outcome import OutcomeKind
from topo.testing import ADVANCE, CRASH, END, TopologyTest

SEEDS = range(4)


class Number(StatefulBolt):
    """Numbers its inputs."""

    outputs = ("word", "number")

    def __init__(self) -> None:
        self.seen = 0

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        self.seen += 1
        collector.emit((tup["word"], self.seen))

    def snapshot(self) -> Any:
        return self.seen

    def restore(self, state: Any) -> None:
        self.seen = state or 0


def numbered(path: Path) -> Topology:
    builder = TopologyBuilder("numbered").config(delivery="exactly_once")
    builder.set_spout("words", IterableSpout((), fields=("word",)))
    builder.set_bolt("number", Number()).global_grouping("words")
    builder.set_bolt("sink", JsonLinesSink(path)).global_grouping("number")
    return builder.build()


def lines(path: Path) -> list[Any]:
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "script",
    [
        ("a", "b", "c", END),
        ("a", CRASH("sink"), "b", CRASH("number"), "c", END),
        ("a", ADVANCE("30s"), "b", CRASH("sink"), ADVANCE("30s"), "c", CRASH, END),
    ],
    ids=["nothing happens", "crashes before a checkpoint", "crashes after one"],
)
def test_each_line_is_there_once_whatever_is_killed(tmp_path: Path, script: Sequence[Any], seed: int) -> None:
    path = tmp_path / "out"
    test = TopologyTest(numbered(path), sources={"words": script}, seed=seed)
    test.run()

    assert test.outcome is not None and test.outcome.kind is OutcomeKind.DONE
    assert test.dead_letters() == []
    assert lines(path) == [{"word": word, "number": number} for number, word in enumerate("abc", 1)]
    assert [file.name for file in tmp_path.iterdir()] == ["out"]


def test_a_line_is_published_with_its_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "out"
    test = TopologyTest(numbered(path), sources={"words": ["a"]}, checkpoint_interval="10s")
    test.advance("5s")
    assert lines(path) == []
    test.advance("10s")
    assert lines(path) == [{"word": "a", "number": 1}]


@pytest.mark.parametrize("crashes", [[], [CRASH("count"), CRASH("sink")]], ids=["nothing happens", "crashes"])
def test_each_window_is_one_line_without_any_setting(tmp_path: Path, crashes: list[Any]) -> None:
    path = tmp_path / "out"
    builder = TopologyBuilder("counted")
    strategy = WatermarkStrategy.monotonic_timestamps(timestamp="at")
    builder.set_spout("words", IterableSpout((), fields=("word", "at")), watermarks=strategy)
    count = WindowBolt(key="word", window=windows.TumblingEventTimeWindows.of("10s"), aggregate=aggregates.Count())
    builder.set_bolt("count", count).fields_grouping("words", "word")
    builder.set_bolt("sink", JsonLinesSink(path)).global_grouping("count")
    script = [("a", 1000), ("b", 2000), ADVANCE("30s"), ("a", 3000), *crashes, ("a", 12000), END]
    test = TopologyTest(builder.build(), sources={"words": script})
    test.run()

    assert test.dead_letters() == []
    found = sorted(tuple(line.values()) for line in lines(path))
    assert found == [("a", 0, 10_000, 2), ("a", 10_000, 20_000, 1), ("b", 0, 10_000, 1)]


class AwayFor(TwoPhaseSink):
    """Publishes from its fourth call of `commit` on, and notes how many rows have waited for that."""

    max_batch = 50

    def __init__(self) -> None:
        self.calls = self.taken = self.most_waiting = 0
        self.published: list[str] = []

    def begin(self) -> None:
        self.rows: list[str] = []

    def write(self, tup: Tuple) -> None:
        self.rows.append(tup["word"])
        self.taken += 1
        self.most_waiting = max(self.most_waiting, self.taken - len(self.published))

    def pre_commit(self) -> Any:
        return self.rows or None

    def commit(self, token: Any) -> None:
        self.calls += 1
        if self.calls < 4:
            raise ConnectionError("away")
        self.published += token

    def abort(self, token: Any) -> None: ...


@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
def test_a_target_that_is_away_holds_input_back_and_loses_no_row(delivery: str) -> None:
    words = [str(number) for number in range(2000)]
    builder = TopologyBuilder("away").config(delivery=delivery, batch_size=10)
    builder.set_spout("words", IterableSpout(words, fields=("word",)))
    builder.set_bolt("sink", AwayFor()).global_grouping("words")
    test = TopologyTest(builder.build())
    test.run()

    ran = test.bolt("sink")
    assert sorted(ran.published, key=int) == words
    assert ran.most_waiting < 400
