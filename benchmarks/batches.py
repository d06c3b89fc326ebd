"""Column batches against single tuples: word count, and sums by key in windows, with every message acked.

    python -m benchmarks.batches                     rows, batches of lists, batches of Arrow arrays: in turn, several rounds
    python -m benchmarks.batches --windows           sums by key and ten seconds of event time, as of topo bench windowed-sum
    python -m benchmarks.batches --counts 4          with a fields grouping that has something to do
    python -m benchmarks.batches --size 1024         lines, or events, in a batch

With `--count TASKS` and one of the forms valgrind counts instructions, as with `hot_path.py`:

    valgrind --tool=callgrind --collect-atstart=no --toggle-collect=_operator_call \\
        python -m benchmarks.batches --form arrow --rounds 1 --count all

All tasks are in one process, joined by encoded frames. Prints nanoseconds of processor time a word, or an event, the best of the
rounds, and how many times cheaper than rows: transport and waiting are not in it. Each round checks its result.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter, defaultdict
from typing import Any

from benchmarks.hot_path import WORDS_A_LINE, Count, RetriedLines, Round, Split, sentences
from topo import RetryingSpout, WatermarkStrategy, WindowBolt, aggregates, windows
from topo.api.bolt import BasicBolt
from topo.api.columns import ColumnBolt, ColumnSpout
from topo.api.topology import Topology
from topo.builder import TopologyBuilder


def arrow() -> Any:
    """Return pyarrow, with the modules that tasks use imported: that takes as long as some hundred thousand words."""
    import pyarrow
    import pyarrow.acero
    import pyarrow.compute

    return pyarrow


class Blocks(ColumnSpout):
    """Emits blocks of lines, over and over, up to a number of lines."""

    outputs = ("line",)

    def __init__(self, lines: list[str], count: int, size: int, form: str) -> None:
        self.blocks: list[Any] = [lines[at : at + size] for at in range(0, len(lines), size)]
        if form == "arrow":
            self.blocks = list(map(arrow().array, self.blocks))
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


FORMS = ("rows", "lists", "arrow")
KEYS, DISORDER_MS, EVENTS_A_MS, FIRST_MS = 10_000, 5_000, 10, 1_700_000_000_000
DRAWN = 1 << 16


def draw_events() -> tuple[list[str], list[int], list[int]]:
    """Keys, lateness and values of events, over and over the same."""
    below = random.Random(1).randrange
    drawn = [(f"k{below(KEYS)}", below(DISORDER_MS), below(100)) for _ in range(DRAWN)]
    keys, late, values = map(list, zip(*drawn, strict=True))
    return keys, late, values


class Events(RetryingSpout):
    """Events one by one: time advances by a millisecond every ten of them."""

    outputs = ("key", "at", "value")

    def __init__(self, count: int) -> None:
        self.count = count

    def open(self, context: Any, collector: Any) -> None:
        self.collector, self.next = collector, 0
        self.events = draw_events()

    def next_tuple(self) -> None:
        number = self.next
        if number == self.count:
            self.collector.end_of_input()
            return
        self.next = number + 1
        keys, late, values = self.events
        place = number % DRAWN
        row = (keys[place], FIRST_MS + number // EVENTS_A_MS - late[place], values[place])
        self.collector.emit(row, number)


class EventBlocks(ColumnSpout):
    """The same in batches."""

    outputs = ("key", "at", "value")

    def __init__(self, count: int, size: int, form: str) -> None:
        self.count, self.size, self.form = count, size, form

    def open(self, context: Any, collector: Any) -> None:
        self.collector, self.next = collector, 0
        keys, late, values = draw_events()
        self.blocks = []
        for at in range(0, DRAWN, self.size):
            # Up to a multiple of its first event's time a block is the same each time it comes.
            stamps = [FIRST_MS + number // EVENTS_A_MS - late[number] for number in range(at, at + self.size)]
            self.blocks.append((keys[at : at + self.size], stamps, values[at : at + self.size]))
        if self.form == "arrow":
            self.blocks = [tuple(map(arrow().array, block)) for block in self.blocks]  # type: ignore[misc]

    def next_batch(self) -> None:
        number = self.next
        if number == self.count:
            self.collector.end_of_input()
            return
        self.next = number + self.size
        turn, place = divmod(number, DRAWN)
        keys, stamps, values = self.blocks[place // self.size]
        later = turn * DRAWN // EVENTS_A_MS
        if self.form == "arrow":
            import pyarrow as pa
            import pyarrow.compute as pc

            # Of a bare number Arrow infers the type, and searches for dateutil each time where it is not installed.
            stamps = pc.add(stamps, pa.scalar(later, pa.int64()))
        else:
            stamps = [stamp + later for stamp in stamps]
        self.collector.emit_batch({"key": keys, "at": stamps, "value": values}, number)


class Total(BasicBolt):
    """Adds up the sums of windows."""

    def prepare(self, context: Any) -> None:
        self.total = 0

    def execute(self, tup: Any, collector: Any) -> None:
        self.total += tup.values[-1]


class TotalOfBatches(ColumnBolt):
    """The same of batches."""

    def prepare(self, context: Any) -> None:
        self.total = 0

    def execute_batch(self, batch: Any, collector: Any) -> None:
        self.total += sum(batch["sum"])


def windowed_sum(count: int, tasks: int, size: int, form: str) -> Topology:
    """Sums of events by key in windows of ten seconds."""
    builder = TopologyBuilder("windowed-sum")
    spout: Any = Events(count) if form == "rows" else EventBlocks(count, size, form)
    watermarks = WatermarkStrategy.bounded_out_of_orderness(f"{DISORDER_MS}ms", timestamp="at")
    pending = 400_000 if form == "rows" else 400_000 // size + 2
    builder.set_spout("spout", spout, watermarks=watermarks, max_spout_pending=pending)
    window = WindowBolt(key="key", window=windows.TumblingEventTimeWindows.of("10s"), aggregate=aggregates.Sum("value"))
    builder.set_bolt("sum", window, tasks).fields_grouping("spout", "key")
    builder.set_bolt("total", Total if form == "rows" else TotalOfBatches).shuffle_grouping("sum")
    return builder.build()


def check_sum(turn: Round, count: int) -> None:
    """Check the result of `windowed_sum`."""
    values = draw_events()[2]
    rounds, rest = divmod(count, DRAWN)
    (task,) = turn.plan.tasks_of("total")
    total = turn.tasks[task].runner.kind.bolt.total  # type: ignore[attr-defined]
    assert total == rounds * sum(values) + sum(values[:rest]), total


def word_count(lines: list[str], count: int, counts: int, size: int, form: str) -> Topology:
    """The word count of one form."""
    return rows(lines, count, counts) if form == "rows" else batches(lines, count, counts, size, form)


def check_words(turn: Round, words: int) -> None:
    """Check the result of `word_count`."""
    kept = [turn.tasks[task].runner.kind.bolt.counts for task in turn.plan.tasks_of("count")]  # type: ignore[attr-defined]
    assert sum(sum(counts.values()) for counts in kept) == words


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=40_000, help="lines of ten words in a round (%(default)s)")
    parser.add_argument("--windows", action="store_true", help="sums in windows, of ten events for each line")
    parser.add_argument("--size", type=int, default=4096, help="lines or events in a batch, a power of two (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--counts", type=int, default=1, help="tasks that count, or have windows")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--form", choices=FORMS, help="one form alone")
    parser.add_argument("--count", default="", metavar="TASKS", help="component whose instructions valgrind is to count, or all")
    options = parser.parse_args()
    lines = [] if options.windows else sentences(16_384)
    # Whole batches alone: the last is as long as the others.
    most = -(-options.lines * WORDS_A_LINE // options.size) * options.size if options.windows else options.lines * WORDS_A_LINE
    best: dict[str, dict[str, float]] = defaultdict(dict)
    for _ in range(options.rounds):
        for form in [options.form] if options.form else FORMS:
            if options.windows:
                topology = windowed_sum(most, options.counts, options.size, form)
            else:
                topology = word_count(lines, options.lines, options.counts, options.size, form)
            turn = Round(topology, options.count)
            spent: dict[str, float] = defaultdict(float)
            for task, seconds in turn.run().items():
                spent[turn.tasks[task].component_id] += seconds
            (check_sum if options.windows else check_words)(turn, most)
            for component, seconds in spent.items():
                cost = seconds / most * 1e9
                best[form][component] = min(cost, best[form].get(component, cost))
    total = {form: sum(costs.values()) for form, costs in best.items()}
    what = "an event" if options.windows else "a word"
    if options.json:
        name = f"ns_{what.replace(' ', '_')}"
        print(json.dumps({form: {name: total[form], "components": costs} for form, costs in best.items()}))
        return
    for form, costs in best.items():
        parts = "  ".join(f"{component} {cost:.0f}" for component, cost in costs.items())
        ratio = f", rows / {form} = {total['rows'] / total[form]:.1f}" if "rows" in total else ""
        print(f"{form:6} {total[form]:6.0f} ns {what}{ratio}   ({parts})")


if __name__ == "__main__":
    main()
