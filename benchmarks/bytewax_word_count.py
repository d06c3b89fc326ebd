"""The word count of `topo bench word-count` in bytewax: the same sentences, split and counted, in one process.

    python benchmarks/bytewax_word_count.py [--sentences 400000] [--snapshot SECONDS] [--json]

Run it with the Python of an environment that has bytewax (see README.md). By default nothing is kept for recovery; `--snapshot 1`
stores the counts in bytewax's recovery store every second, which is its way to lose nothing.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import tempfile
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.testing import cluster_main

SENTENCES_AT_ONCE = 512


def sentences() -> list[str]:
    """Return 2,000 sentences of ten words, the same each time, and the same as in topo's benchmark."""
    chance = random.Random(1)
    vocabulary = [f"w{number}" for number in range(50_000)]
    return [" ".join(vocabulary[min(int(chance.paretovariate(0.8)), 49_999)] for _ in range(10)) for _ in range(2_000)]


class Text(StatefulSourcePartition[str, int]):
    """Emits the sentences in a cycle; its state is how many it has emitted."""

    def __init__(self, total: int, done: int) -> None:
        self.lines = sentences()
        self.total = total
        self.done = done

    def next_batch(self) -> list[str]:
        if self.done >= self.total:
            raise StopIteration
        first, lines = self.done, self.lines
        self.done = min(self.total, first + SENTENCES_AT_ONCE)
        return [lines[number % len(lines)] for number in range(first, self.done)]

    def snapshot(self) -> int:
        return self.done


class TextSource(FixedPartitionedSource[str, int]):
    def __init__(self, total: int) -> None:
        self.total = total

    def list_parts(self) -> list[str]:
        return ["text"]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> Text:
        return Text(self.total, resume_state or 0)


class Tally(DynamicSink[tuple[str, int]]):
    """Keeps the last count of each word."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def build(self, step_id: str, worker_index: int, worker_count: int) -> StatelessSinkPartition[tuple[str, int]]:
        counts = self.counts

        class Part(StatelessSinkPartition[tuple[str, int]]):
            def write_batch(self, items: list[tuple[str, int]]) -> None:
                counts.update(items)

        return Part()


def split(sentence: str) -> Iterator[str]:
    yield from sentence.split()


def add_one(state: int | None, _word: str) -> tuple[int, int]:
    counted = (state or 0) + 1
    return counted, counted


def word_count(total: int, tally: Tally) -> Dataflow:
    flow = Dataflow("word_count")
    words = op.flat_map("split", op.input("text", flow, TextSource(total)), split)
    keyed = op.key_on("word", words, lambda word: word)
    op.output("tally", op.stateful_map("count", keyed, add_one), tally)
    return flow


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=int, default=400_000)
    parser.add_argument("--snapshot", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    tally = Tally()
    flow = word_count(arguments.sentences, tally)
    with tempfile.TemporaryDirectory() as folder:
        recovery = None
        if arguments.snapshot:
            init_db_dir(Path(folder), 1)
            recovery = RecoveryConfig(folder)
        used = resource.getrusage(resource.RUSAGE_SELF)
        began = time.perf_counter()
        cluster_main(
            flow,
            [],
            0,
            worker_count_per_proc=1,
            recovery_config=recovery,
            epoch_interval=timedelta(seconds=arguments.snapshot or 10),
        )
        took = time.perf_counter() - began
        after = resource.getrusage(resource.RUSAGE_SELF)
    words = 10 * arguments.sentences
    if sum(tally.counts.values()) != words:
        raise SystemExit(f"{sum(tally.counts.values()):,} words counted, {words:,} read")
    cpu_s = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
    result = {
        "words_per_second": round(words / took, 1),
        "seconds": round(took, 3),
        "cpu_seconds": round(cpu_s, 2),
        "cpu_us_per_word": round(cpu_s / words * 1e6, 3),
        "snapshot_s": arguments.snapshot,
        "peak_rss_mb": round(after.ru_maxrss * 1024 / 1e6, 1),
    }
    if arguments.json:
        print(json.dumps(result))
    else:
        print(f"{result['words_per_second']:,.0f} words/s, {result['cpu_us_per_word']:.2f} us of CPU a word")


if __name__ == "__main__":
    main()
