"""Word count as a program of streams, as one bolt by hand, and as a bolt for each step: CPU time of all processes.

    python benchmarks/streams.py [--words 300000] [--rounds 5] [--delivery at_least_once]

Each form reads the same lines of ten words, splits them, lowers the words, drops stop words, and counts the rest by key. A round
runs the three one after the other, in one worker, so that load of the machine meets all alike. A run of a tenth of the words is
subtracted: starting and ending cost the same in all. Figures are medians of the ratios within rounds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from topo import BasicBolt, IterableSpout, StatefulBolt, Topology, TopologyBuilder
from topo.streams import AT_END, StreamBuilder

STOP = frozenset({"the", "and", "of"})
WORDS = ["The", "sea", "and", "Sky", "of", "stone", "River", "light", "DAY", "wind"]
PER_LINE = 10


def lines(count: int) -> Iterator[str]:
    for number in range(count):
        shift = number % PER_LINE
        yield " ".join([*WORDS[shift:], *WORDS[:shift]])


class Split(BasicBolt):
    outputs = ("word",)

    def execute(self, tup: Any, collector: Any) -> None:
        for word in tup[0].split():
            collector.emit((word,))


class Lower(BasicBolt):
    outputs = ("word",)

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit((tup[0].lower(),))


class Keep(BasicBolt):
    outputs = ("word",)

    def execute(self, tup: Any, collector: Any) -> None:
        if tup[0] not in STOP:
            collector.emit(tup.values)


class Words(BasicBolt):
    """All three steps in one bolt."""

    outputs = ("word",)

    def execute(self, tup: Any, collector: Any) -> None:
        emit = collector.emit
        for word in tup.values[0].split():
            lowered = word.lower()
            if lowered not in STOP:
                emit((lowered,))


class Count(StatefulBolt):
    key = "word"
    outputs = ()

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def execute(self, tup: Any, collector: Any) -> None:
        word = tup.values[0]
        self.counts[word] = self.counts.get(word, 0) + 1

    def snapshot(self) -> dict[str, int]:
        return self.counts

    def restore(self, state: dict[str, int] | None) -> None:
        self.counts = dict(state or {})

    def end_of_input(self, collector: Any) -> None:
        print(sum(self.counts.values()), "words")


def _hand(count: int, delivery: str, *steps: BasicBolt) -> Topology:
    builder = TopologyBuilder("by-hand").config(delivery=delivery, workers=1)
    builder.set_spout("lines", IterableSpout(lambda: lines(count), ("line",)))
    above = "lines"
    for step in steps:
        name = type(step).__name__.lower()
        builder.set_bolt(name, step).shuffle_grouping(above)
        above = name
    builder.set_bolt("count", Count()).fields_grouping(above, "word")
    return builder.build()


def three(count: int, delivery: str) -> Topology:
    """Return the topology with a bolt for each step."""
    return _hand(count, delivery, Split(), Lower(), Keep())


def one(count: int, delivery: str) -> Topology:
    """Return the topology with one bolt for all steps."""
    return _hand(count, delivery, Words())


def fused(count: int, delivery: str) -> StreamBuilder:
    """Return the program of streams."""
    flow = StreamBuilder("fused").config(delivery=delivery, workers=1)
    words = flow.from_iterable(lambda: lines(count), of=str).flat_map(str.split).map(str.lower)
    words.filter(lambda word: word not in STOP).key_by(lambda word: word).count(emit=AT_END).to(lambda entry: None)
    return flow


def seconds(form: str, count: int, delivery: str) -> float:
    """Return the CPU time of a run with all its processes."""
    before = os.times()
    command = [Path(sys.executable).with_name("topo"), "run", f"{Path(__file__)}:{form}", "-p", f"count={count}", "-p"]
    subprocess.run([*command, f"delivery={delivery}"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def main() -> None:
    """Measure, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--words", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--delivery", default="at_least_once")
    given = parser.parse_args()
    count = given.words // PER_LINE
    rounds = []
    for _ in range(given.rounds):
        cost = {}
        for form in ("three", "one", "fused"):
            cost[form] = seconds(form, count, given.delivery) - seconds(form, count // 10, given.delivery)
        rounds.append(cost)
        print({form: f"{value:.2f}" for form, value in cost.items()}, flush=True)
    for form in ("three", "one"):
        ratios = [cost[form] / cost["fused"] for cost in rounds]
        print(f"{given.delivery}: fused is x{statistics.median(ratios):.2f} of {form} ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
