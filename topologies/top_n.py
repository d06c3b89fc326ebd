"""The most frequent words of the last few seconds, printed every second: a rolling count driven by tick tuples.

topo run topologies/top_n.py
topo run topologies/top_n.py -p rate=5000 -p seconds=30 -p window=10
"""

from __future__ import annotations

import random
import time
from collections import Counter, deque
from collections.abc import Sequence

from topo import (
    BasicBolt,
    BasicCollector,
    RetryingSpout,
    SpoutCollector,
    StatefulBolt,
    TaskContext,
    Topology,
    TopologyBuilder,
    Tuple,
)

WORDS = ("apple", "pear", "plum", "cherry", "quince", "fig", "grape", "lemon", "melon", "peach", "mango", "olive")


class Clicks(RetryingSpout):
    """Emits words at a steady rate; which of them are frequent changes slowly. Click number n is the same in every run."""

    outputs = ("word",)

    def __init__(self, rate: int, seconds: float) -> None:
        self.rate = rate
        self.total = int(rate * seconds)

    def open(self, context: TaskContext, collector: SpoutCollector) -> None:
        done = context.committed_position
        self.collector = collector
        self.number = 0 if done is None else done + 1
        self.started = time.monotonic() - self.number / self.rate

    def next_tuple(self) -> None:
        if self.number >= self.total:
            self.collector.end_of_input()
        elif time.monotonic() >= self.started + self.number / self.rate:
            self.collector.emit((click(self.number, self.rate),), self.number)
            self.number += 1


def click(number: int, rate: int) -> str:
    """Return the word of click number n: rather one near the front of a list that turns by one word a second."""
    rank = int(random.Random(number).expovariate(0.5))
    return WORDS[(rank + number // rate) % len(WORDS)]


class RollingCount(StatefulBolt):
    """Counts words in slots of one tick each, and emits at each tick the counts of the last `window` slots.

    The slots are in the topology's checkpoints, by word, so that words can move to other tasks. Ticks follow the clock: words
    counted after a recovery are in a later slot.
    """

    outputs = ("counts",)
    key = "word"

    def __init__(self, window: int, top: int) -> None:
        self.window = window
        self.top = top

    def prepare(self, context: TaskContext) -> None:
        self.slots = self.empty_slots()

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        if tup.is_tick:
            self.report(collector)
            self.slots.append(Counter())
        else:
            self.slots[-1][tup["word"]] += 1

    def end_of_input(self, collector: BasicCollector) -> None:
        self.report(collector)

    def snapshot(self) -> dict[str, list[int]]:
        return {word: [slot[word] for slot in self.slots] for word in set().union(*self.slots)}

    def restore(self, state: dict[str, Sequence[int]] | None) -> None:
        self.slots = self.empty_slots()
        for word, counts in (state or {}).items():
            for slot, count in zip(reversed(self.slots), reversed(counts), strict=False):
                if count:
                    slot[word] = count

    def empty_slots(self) -> deque[Counter[str]]:
        return deque((Counter() for _ in range(self.window)), maxlen=self.window)

    def report(self, collector: BasicCollector) -> None:
        total: Counter[str] = Counter()
        for slot in self.slots:
            total.update(slot)
        collector.emit((total.most_common(self.top),))


class Ranking(BasicBolt):
    """Joins the counts of all tasks, each word being counted by one of them, and prints the first few at each tick."""

    def __init__(self, top: int) -> None:
        self.top = top

    def prepare(self, context: TaskContext) -> None:
        self.latest: dict[int, list[tuple[str, int]]] = {}

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        if tup.is_tick:
            self.show()
        else:
            self.latest[tup.task] = tup["counts"]

    def cleanup(self) -> None:
        self.show()

    def show(self) -> None:
        entries = sorted((entry for counts in self.latest.values() for entry in counts), key=lambda entry: -entry[1])
        if entries:
            print("  ".join(f"{word} {count}" for word, count in entries[: self.top]))


def topology(rate: int = 2000, seconds: float = 6.0, window: int = 3, top: int = 5, counters: int = 2) -> Topology:
    """Build the topology.

    Args:
        rate: clicks each second.
        seconds: how long to emit.
        window: length of the window, in ticks of one second.
        top: how many words to print.
        counters: tasks that count.
    """
    builder = TopologyBuilder("top-n")
    builder.set_spout("clicks", Clicks(rate, seconds))
    rolling = builder.set_bolt("rolling", RollingCount(window, top), counters, tick_interval="1s")
    rolling.fields_grouping("clicks", "word")
    builder.set_bolt("ranking", Ranking(top), tick_interval="1s").global_grouping("rolling")
    return builder.build()
