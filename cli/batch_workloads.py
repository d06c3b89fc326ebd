"""The workload of `topo bench word-count --batches`: sentences travel as batches of Arrow columns.

It imports `topo` alone, as `topo_cli.workloads` does, so that workers can load this file alone.
"""

from __future__ import annotations

import random
from time import monotonic

from topo import (
    ColumnBatch,
    ColumnBolt,
    ColumnCollector,
    ColumnSpout,
    ColumnSpoutCollector,
    StatefulColumnBolt,
    TaskContext,
    Topology,
    TopologyBuilder,
)

_WORDS_PER_SENTENCE = 10
_VOCABULARY = 50_000
_SENTENCES = 2_000


def sentences() -> list[str]:
    """Return the text of `topo_cli.workloads.sentences`."""
    draw = random.Random(1).paretovariate
    words = [f"w{min(int(draw(0.8)), _VOCABULARY - 1)}" for _ in range(_SENTENCES * _WORDS_PER_SENTENCE)]
    return [" ".join(words[at : at + _WORDS_PER_SENTENCE]) for at in range(0, len(words), _WORDS_PER_SENTENCE)]


class SentenceBatches(ColumnSpout):
    """Emits batches of sentences, all of one size, as Arrow arrays, as fast as it can for some seconds; 0: for ever."""

    outputs = ("sentence",)

    def __init__(self, seconds: float, size: int) -> None:
        self.seconds, self.size = seconds, size

    def open(self, context: TaskContext, collector: ColumnSpoutCollector) -> None:  # type: ignore[override]
        import pyarrow

        self.collector = collector
        text = sentences()
        places = range(0, len(text), self.size)
        long = pyarrow.array(text * (-(-self.size // len(text)) + 1))
        self.batches = [long[first : first + self.size] for first in places]
        self.number = 0 if context.committed_position is None else context.committed_position + 1
        self.ends_at = 0.0

    def next_batch(self) -> None:
        now = monotonic()
        self.ends_at = self.ends_at or now + self.seconds
        if self.seconds > 0 and self.ends_at <= now:
            self.collector.end_of_input()
            return
        self.collector.emit_batch({"sentence": self.batches[self.number % len(self.batches)]}, self.number)
        self.number += 1


class SplitBatches(ColumnBolt):
    outputs = ("word",)
    columns = "arrow"

    def execute_batch(self, batch: ColumnBatch, collector: ColumnCollector) -> None:
        import pyarrow.compute as pc

        collector.emit_batch({"word": pc.split_pattern(batch["sentence"], " ").flatten()})


class CountBatches(ColumnBolt):
    """Counts words; its metric `words` is their number."""

    columns = "arrow"

    def prepare(self, context: TaskContext) -> None:
        self.counts: dict[str, int] = {}
        self.words = context.metrics.counter("words")

    def execute_batch(self, batch: ColumnBatch, collector: ColumnCollector) -> None:
        found, counts = batch["word"].value_counts(), self.counts
        for word, number in zip(found.field(0).to_pylist(), found.field(1).to_pylist(), strict=True):
            counts[word] = counts.get(word, 0) + number

    def cleanup(self) -> None:
        self.words.add(sum(self.counts.values()))


class CheckpointedBatches(CountBatches, StatefulColumnBolt):
    """Counts words; the counts are in the checkpoints."""

    def snapshot(self) -> dict[str, int]:
        return self.counts

    def restore(self, state: dict[str, int] | None) -> None:
        self.counts = dict(state or {})


def word_count(batches: int, splits: int = 1, counts: int = 1, seconds: float = 0.0, delivery: str = "at_least_once") -> Topology:
    """Count words: spout, split, count.

    Args:
        batches: sentences in a batch.
        splits, counts, seconds, delivery: as of the `word_count` of single tuples.
    """
    builder = TopologyBuilder("word-count")
    builder.config(delivery=delivery)
    builder.set_spout("spout", SentenceBatches(seconds, batches))
    builder.set_bolt("split", SplitBatches(), splits).shuffle_grouping("spout")
    count = CheckpointedBatches("word") if delivery == "exactly_once" else CountBatches()
    builder.set_bolt("count", count, counts).fields_grouping("split", "word")
    return builder.build()
