"""Column batches against single tuples: word count with every message acked, all tasks in one process, joined by encoded frames.

    python -m benchmarks.batches                     rows, batches of lists, batches of Arrow arrays: in turn, several rounds
    python -m benchmarks.batches --counts 4          with a fields grouping that has something to do
    python -m benchmarks.batches --size 8192         lines in a batch

Prints nanoseconds of processor time a word, the best of the rounds, and how many times cheaper than rows: transport and waiting
are not in it. Each round checks its count of words.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from typing import Any

from benchmarks.hot_path import WORDS_A_LINE, Count, RetriedLines, Round, Split, sentences
from topo.api.columns import ColumnBolt, ColumnSpout
from topo.api.topology import Topology
from topo.builder import TopologyBuilder


class Blocks(ColumnSpout):
    """Emits blocks of lines, over and over, up to a number of lines."""

    outputs = ("line",)

    def __init__(self, lines: list[str], count: int, size: int, form: str) -> None:
        self.blocks: list[Any] = [lines[at : at + size] for at in range(0, len(lines), size)]
        if form == "arrow":
            import pyarrow

            self.blocks = list(map(pyarrow.array, self.blocks))
        self.left = count

    def open(self, context: Any, collector: Any) -> None:
        self.collector, self.next = collector, 0

    def next_batch(self) -> None:
        if not self.left:
            self.collector.end_of_input()
            return
        block = self.blocks[self.next % len(self.blocks)][: self.left]
        self.left -= len(block)
        self.collector.emit_batch({"line": block}, self.next)
        self.next += 1


class SplitLists(ColumnBolt):
    outputs = ("word",)

    def execute_batch(self, batch: Any, collector: Any) -> None:
        collector.emit_batch({"word": " ".join(batch["line"]).split()})


class CountLists(ColumnBolt):
    def prepare(self, context: Any) -> None:
        self.counts: Counter[str] = Counter()

    def execute_batch(self, batch: Any, collector: Any) -> None:
        self.counts.update(batch["word"])


class SplitArrays(ColumnBolt):
    outputs = ("word",)
    columns = "arrow"

    def execute_batch(self, batch: Any, collector: Any) -> None:
        import pyarrow.compute as pc

        collector.emit_batch({"word": pc.split_pattern(batch["line"], " ").flatten()})


class CountArrays(CountLists):
    columns = "arrow"

    def execute_batch(self, batch: Any, collector: Any) -> None:
        found, counts = batch["word"].value_counts(), self.counts
        for word, number in zip(found.field(0).to_pylist(), found.field(1).to_pylist(), strict=True):
            counts[word] += number


def rows(lines: list[str], count: int, counts: int) -> Topology:
    """The word count of single tuples."""
    builder = TopologyBuilder("rows")
    builder.set_spout("spout", RetriedLines(lines, count))
    builder.set_bolt("split", Split()).shuffle_grouping("spout")
    builder.set_bolt("count", Count, parallelism=counts).fields_grouping("split", "word")
    return builder.build()


def batches(lines: list[str], count: int, counts: int, size: int, form: str) -> Topology:
    """The word count of batches."""
    builder = TopologyBuilder("batches")
    builder.set_spout("spout", Blocks(lines, count, size, form))
    builder.set_bolt("split", SplitArrays() if form == "arrow" else SplitLists()).shuffle_grouping("spout")
    kind = CountArrays if form == "arrow" else CountLists
    builder.set_bolt("count", kind, parallelism=counts).fields_grouping("split", "word")
    return builder.build()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=40_000, help="lines of ten words in a round (%(default)s)")
    parser.add_argument("--size", type=int, default=1024, help="lines in a batch (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--counts", type=int, default=1, help="tasks that count")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    lines = sentences(16_384)
    best: dict[str, dict[str, float]] = defaultdict(dict)
    for _ in range(options.rounds):
        for form in ("rows", "lists", "arrow"):
            if form == "rows":
                topology = rows(lines, options.lines, options.counts)
            else:
                topology = batches(lines, options.lines, options.counts, options.size, form)
            turn = Round(topology)
            spent: dict[str, float] = defaultdict(float)
            for task, seconds in turn.run().items():
                spent[turn.tasks[task].component_id] += seconds
            words = options.lines * WORDS_A_LINE
            kept = [turn.tasks[task].runner.kind.bolt.counts for task in turn.plan.tasks_of("count")]  # type: ignore[attr-defined]
            assert sum(sum(counts.values()) for counts in kept) == words
            for component, seconds in spent.items():
                cost = seconds / words * 1e9
                best[form][component] = min(cost, best[form].get(component, cost))
    total = {form: sum(costs.values()) for form, costs in best.items()}
    if options.json:
        print(json.dumps({form: {"ns_a_word": total[form], "components": costs} for form, costs in best.items()}))
        return
    for form, costs in best.items():
        parts = "  ".join(f"{component} {cost:.0f}" for component, cost in costs.items())
        print(f"{form:6} {total[form]:6.0f} ns a word, rows / {form} = {total['rows'] / total[form]:.1f}   ({parts})")


if __name__ == "__main__":
    main()
