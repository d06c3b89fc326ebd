"""Counts the words of a text as word_count.py does, in batches of lines instead of single tuples; the result is the same.

    topo run topologies/word_count_batches.py
    topo run topologies/word_count_batches.py -p path=some/folder -p lines=8192
    topo run topologies/word_count_batches.py -p arrow=1                 # columns are Arrow arrays; needs pip install pyarrow

The counts are exact whatever dies meanwhile: kill -9 any process but the first.
"""

from __future__ import annotations

import re
import sysconfig
from collections import Counter
from collections.abc import Iterator
from heapq import nlargest
from itertools import islice
from pathlib import Path
from typing import Any

from topo import (
    BasicCollector,
    ColumnBatch,
    ColumnBolt,
    ColumnCollector,
    ColumnSpout,
    ColumnSpoutCollector,
    StatefulBolt,
    StatefulColumnBolt,
    TaskContext,
    Topology,
    TopologyBuilder,
    Tuple,
)

find_words = re.compile(r"\w+").findall


class LineBlocks(ColumnSpout):
    """Emits blocks of lines of the Python files of a folder. The position of a block is its number."""

    outputs = ("line",)

    def __init__(self, path: str, lines: int) -> None:
        self.path, self.lines = path, lines

    def open(self, context: TaskContext, collector: ColumnSpoutCollector) -> None:  # type: ignore[override]
        self.collector = collector
        self.blocks = enumerate(self.read_blocks())
        if context.committed_position is not None:
            next(islice(self.blocks, context.committed_position, None))

    def read_lines(self) -> Iterator[str]:
        root = Path(self.path)
        for file in sorted(root.rglob("*.py")) if root.is_dir() else [root]:
            if not {"site-packages", "dist-packages"} & set(file.relative_to(root).parts):
                yield from file.read_text(errors="replace").splitlines()

    def read_blocks(self) -> Iterator[list[str]]:
        lines = self.read_lines()
        while block := list(islice(lines, self.lines)):
            yield block

    def next_batch(self) -> None:
        number, block = next(self.blocks, (0, None))
        if block is None:
            self.collector.end_of_input()
        else:
            self.collector.emit_batch({"line": block}, number)


class SplitLists(ColumnBolt):
    """Makes words of lines."""

    outputs = ("word",)

    def execute_batch(self, batch: ColumnBatch, collector: ColumnCollector) -> None:
        collector.emit_batch({"word": find_words("\n".join(batch["line"]).lower())})


class SplitArrays(ColumnBolt):
    """The same on Arrow arrays."""

    outputs = ("word",)
    columns = "arrow"

    def execute_batch(self, batch: ColumnBatch, collector: ColumnCollector) -> None:
        import pyarrow.compute as pc

        words = pc.split_pattern_regex(pc.utf8_lower(batch["line"]), r"[^\pL\pN_]+").flatten()
        collector.emit_batch({"word": words.filter(pc.not_equal(words, ""))})


class CountLists(StatefulColumnBolt):
    """Counts its share of the words, and prints the most frequent ones at the end. The counts are in the checkpoints."""

    outputs = ("word", "count")

    def __init__(self, top: int) -> None:
        super().__init__(key="word")
        self.top = top

    def prepare(self, context: TaskContext) -> None:
        self.counts: Counter[str] = Counter()

    def execute_batch(self, batch: ColumnBatch, collector: ColumnCollector) -> None:
        self.counts.update(batch["word"])

    def end_of_input(self, collector: ColumnCollector) -> None:
        top = nlargest(self.top, self.counts.items(), key=by_count)
        collector.emit_batch({"word": [word for word, _ in top], "count": [count for _, count in top]})

    def snapshot(self) -> dict[str, int]:
        return dict(self.counts)

    def restore(self, state: dict[str, int] | None) -> None:
        self.counts = Counter(state or {})


class CountArrays(CountLists):
    """The same on Arrow arrays: one step for each distinct word of a batch."""

    columns = "arrow"

    def execute_batch(self, batch: ColumnBatch, collector: ColumnCollector) -> None:
        found: Any = batch["word"].value_counts()
        self.counts.update(dict(zip(found.field(0).to_pylist(), found.field(1).to_pylist(), strict=True)))


class Report(StatefulBolt):
    """Prints the most frequent words of all tasks when the topology is over. It is given the rows of the batches."""

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
        print(f"The {len(top)} most frequent words:")
        for word, count in top:
            print(f"{count:>12,}  {word}")


def by_count(entry: tuple[str, int]) -> tuple[int, str]:
    """Order words by count; by the word where counts are equal, so that every run prints the same."""
    return entry[1], entry[0]


def topology(path: str = "", lines: int = 1024, top: int = 20, splits: int = 1, counts: int = 1, arrow: int = 0) -> Topology:
    """Build the topology.

    Args:
        path: a file or a folder of Python files; the standard library's sources by default.
        lines: lines in a batch.
        top: how many words to print.
        splits: tasks that split lines.
        counts: tasks that count words.
        arrow: 1 for columns that are Arrow arrays.
    """
    builder = TopologyBuilder("word-count-batches")
    builder.set_spout("lines", LineBlocks(path or sysconfig.get_path("stdlib"), lines))
    builder.set_bolt("split", SplitArrays() if arrow else SplitLists(), splits).shuffle_grouping("lines")
    builder.set_bolt("count", CountArrays(top) if arrow else CountLists(top), counts).fields_grouping("split", "word")
    builder.set_bolt("report", Report(top)).global_grouping("count")
    return builder.build()
