"""Counts the words of a text: by default of the Python standard library's sources on this machine.

    topo run topologies/word_count.py
    topo run topologies/word_count.py -p path=some/folder -p top=10

The counts are exact whatever dies meanwhile: kill -9 any process but the first.
"""

from __future__ import annotations

import re
import sysconfig
from heapq import nlargest

from topo import BasicBolt, BasicCollector, StatefulBolt, TaskContext, TextFileSpout, Topology, TopologyBuilder, Tuple

find_words = re.compile(r"\w+").findall


class Split(BasicBolt):
    """Makes words of lines."""

    outputs = ("word",)

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        for word in find_words(tup["line"].lower()):
            collector.emit((word,))


class Count(StatefulBolt):
    """Counts its share of the words, and prints the most frequent ones at the end.

    The counts are in the topology's checkpoints: when a process dies, all go back to the last one, and each word counts once.
    """

    outputs = ("word", "count")
    key = "word"

    def __init__(self, top: int) -> None:
        self.top = top

    def prepare(self, context: TaskContext) -> None:
        self.counts: dict[str, int] = {}

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        word = tup["word"]
        self.counts[word] = self.counts.get(word, 0) + 1

    def end_of_input(self, collector: BasicCollector) -> None:
        for entry in nlargest(self.top, self.counts.items(), key=by_count):
            collector.emit(entry)

    def snapshot(self) -> dict[str, int]:
        return self.counts

    def restore(self, state: dict[str, int] | None) -> None:
        self.counts = dict(state or {})


class Report(StatefulBolt):
    """Prints the most frequent words of all tasks when the topology is over."""

    def __init__(self, top: int) -> None:
        self.top = top

    def prepare(self, context: TaskContext) -> None:
        self.counts: dict[str, int] = {}

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        self.counts[tup["word"]] = tup["count"]

    def snapshot(self) -> dict[str, int]:
        return self.counts

    def restore(self, state: dict[str, int] | None) -> None:
        self.counts = dict(state or {})

    def cleanup(self) -> None:
        top = nlargest(self.top, self.counts.items(), key=by_count)
        if top:
            print(f"The {len(top)} most frequent words:")
        for word, count in top:
            print(f"{count:>12,}  {word}")


def by_count(entry: tuple[str, int]) -> tuple[int, str]:
    """Order words by count; by the word where counts are equal, so that every run prints the same."""
    return entry[1], entry[0]


def topology(path: str = "", repeat: int = 1, top: int = 20, splits: int = 1, counts: int = 1) -> Topology:
    """Build the topology.

    Args:
        path: a file or a folder to read; the standard library's sources by default.
        repeat: how often to read it.
        top: how many words to print.
        splits: tasks that split lines.
        counts: tasks that count words.
    """
    if path:
        lines = TextFileSpout(path, repeat=repeat)
    else:
        library = sysconfig.get_path("stdlib")
        lines = TextFileSpout(library, pattern="*.py", exclude=("site-packages", "dist-packages"), repeat=repeat)
    builder = TopologyBuilder("word-count")
    builder.set_spout("lines", lines)
    builder.set_bolt("split", Split(), splits).shuffle_grouping("lines")
    builder.set_bolt("count", Count(top), counts).fields_grouping("split", "word")
    builder.set_bolt("report", Report(top)).global_grouping("count")
    return builder.build()
