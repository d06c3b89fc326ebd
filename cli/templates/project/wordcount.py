"""Counts words. Run it with `topo run wordcount.py`; count another text with `-p path=some/file.txt`."""

from __future__ import annotations

from topo import BasicBolt, BasicCollector, IterableSpout, TaskContext, TextFileSpout, Topology, TopologyBuilder, Tuple

LINES = (
    "a stream is a river of tuples",
    "a spout is where the river begins",
    "a bolt is a mill on the river",
)


class Split(BasicBolt):
    """Makes words of lines."""

    outputs = ("word",)

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        for word in tup["line"].lower().split():
            collector.emit((word,))


class Count(BasicBolt):
    """Counts its share of the words, and prints the counts when the topology is over."""

    def prepare(self, context: TaskContext) -> None:
        self.counts: dict[str, int] = {}

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        word = tup["word"]
        self.counts[word] = self.counts.get(word, 0) + 1

    def cleanup(self) -> None:
        for word, count in sorted(self.counts.items()):
            print(f"{count:>6} {word}")


def topology(path: str = "") -> Topology:
    """Build the topology; `topo run` calls this, with the arguments that -p gives."""
    builder = TopologyBuilder("wordcount")
    builder.set_spout("lines", TextFileSpout(path) if path else IterableSpout(LINES, fields=("line",)))
    builder.set_bolt("split", Split()).shuffle_grouping("lines")
    builder.set_bolt("count", Count(), parallelism=2).fields_grouping("split", "word")
    return builder.build()
