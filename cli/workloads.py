"""The workloads of `topo bench`. They import `topo` alone, so that workers can load this file alone.

Closed loop: the spout emits as fast as it may. Open loop: it emits on a schedule, and a late message keeps the time at which it
was due, so that a stall shows in every message it held up.
"""

from __future__ import annotations

import json
import random
from array import array
from pathlib import Path
from time import monotonic, monotonic_ns
from typing import Any

from topo import (
    BasicBolt,
    BasicCollector,
    RetryingSpout,
    Spout,
    SpoutCollector,
    StatefulBolt,
    TaskContext,
    Topology,
    TopologyBuilder,
    Tuple,
    WatermarkStrategy,
    WindowBolt,
    aggregates,
    windows,
)

WORDS_PER_SENTENCE = 10
_VOCABULARY = 50_000
_SENTENCES = 2_000
_EVENTS = 50_000
_KEYS = 10_000
_EVENTS_PER_MS = 10
_DISORDER_MS = 5_000
_FIRST_EVENT_MS = 1_700_000_000_000
_WINDOWED_PENDING = 400_000
"""Events are acked when their window is over: this number has to fit between a window's first event and its watermark."""
_CLOCK_EVERY = 256
"""Messages between two looks at the clock."""
_LEAD_NS = 50_000_000


def sentences() -> list[str]:
    """Return the text, the same each time: ten words each, a few of them very frequent."""
    draw = random.Random(1).paretovariate
    last = _VOCABULARY - 1
    return [
        " ".join(f"w{min(int(draw(0.8)), last)}" for _ in range(WORDS_PER_SENTENCE)) for _ in range(_SENTENCES)
    ]  # fmt: skip


class SampleFile:
    """Pairs of moments, when due and when there, in nanoseconds; kept in memory and written at the end."""

    def __init__(self, folder: str, context: TaskContext) -> None:
        self._path = Path(folder, f"{context.component}-{context.task_index}") if folder else None
        self._pairs = array("q")
        self.add = self._pairs.extend

    def write(self) -> None:
        if self._path is not None:
            self._path.write_bytes(self._pairs.tobytes())


def read_latencies(file: Path, warm_up_s: float) -> list[float]:
    """Return the milliseconds of the pairs in a `SampleFile`, without those due in the first `warm_up_s`."""
    pairs = array("q")
    pairs.frombytes(file.read_bytes())
    due, there = pairs[::2], pairs[1::2]
    since = min(due, default=0) + int(warm_up_s * 1e9)
    return [(end - begin) / 1e6 for begin, end in zip(due, there, strict=True) if begin >= since]


class ClosedLoop(Spout):
    """Emits as fast as it can, for some seconds; 0: for ever. Failed messages are emitted again.

    A class that is a `RetryingSpout` as well can be read again from any place, as checkpoints need it.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def open(self, context: TaskContext, collector: SpoutCollector) -> None:
        self.emit = collector.emit
        self.end = collector.end_of_input
        done = context.committed_position
        self.number = 0 if done is None else done + 1
        self.ends_at = 0.0

    def row(self, number: int) -> tuple[Any, ...]:
        return (number,)

    def next_tuple(self) -> None:
        number = self.number
        if not number % _CLOCK_EVERY and self._is_over():
            self.end()
            return
        self.emit(self.row(number), number)
        self.number = number + 1

    def fail(self, message_id: int) -> None:
        self.emit(self.row(message_id), message_id)

    def _is_over(self) -> bool:
        now = monotonic()
        self.ends_at = self.ends_at or now + self.seconds
        return self.seconds > 0 and now >= self.ends_at


class OpenLoop(Spout):
    """Emits `rate` messages a second, each with the moment at which it was due, and notes when each was acked."""

    def __init__(self, seconds: float, rate: float, samples: str) -> None:
        self.rate = rate
        self.total = int(seconds * rate) if seconds else None
        self.samples = samples

    def open(self, context: TaskContext, collector: SpoutCollector) -> None:
        self.emit = collector.emit
        self.end = collector.end_of_input
        self.nothing_before = collector.nothing_before
        self.acked = SampleFile(self.samples, context)
        self.number = 0
        self.began = 0

    def row(self, number: int, due: int) -> tuple[Any, ...]:
        return number, due

    def next_tuple(self) -> None:
        now = monotonic_ns()
        if not self.began:
            self.began = now + _LEAD_NS
        while (due := self.began + int(self.number * 1e9 / self.rate)) <= now:
            if self.number == self.total:
                self.end()
                return
            self.emit(self.row(self.number, due), (self.number, due))
            self.number += 1
        self.nothing_before((due - now) / 1e9)

    def ack(self, message_id: tuple[int, int]) -> None:
        self.acked.add((message_id[1], monotonic_ns()))

    def fail(self, message_id: tuple[int, int]) -> None:
        self.emit(self.row(*message_id), message_id)

    def close(self) -> None:
        self.acked.write()


class Numbers(ClosedLoop):
    outputs = ("number",)


class PacedNumbers(OpenLoop):
    outputs = ("number", "due")


class SentenceRows:
    outputs = ("sentence",)

    def open(self, context: TaskContext, collector: SpoutCollector) -> None:
        super().open(context, collector)
        self.rows = [(sentence,) for sentence in sentences()]

    def row(self, number: int) -> tuple[Any, ...]:
        return self.rows[number % _SENTENCES]


class Sentences(SentenceRows, ClosedLoop):
    pass


class ReadableSentences(SentenceRows, ClosedLoop, RetryingSpout):
    pass


class PacedSentences(OpenLoop):
    outputs = ("sentence", "due")

    def open(self, context: TaskContext, collector: SpoutCollector) -> None:
        super().open(context, collector)
        self.sentences = sentences()

    def row(self, number: int, due: int) -> tuple[Any, ...]:
        return self.sentences[number % _SENTENCES], due


class Split(BasicBolt):
    outputs = ("word",)

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        emit = collector.emit
        for word in tup.values[0].split():
            emit((word,))


class PacedSplit(BasicBolt):
    outputs = ("word", "due")

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        sentence, due = tup.values
        for word in sentence.split():
            collector.emit((word, due))


class CountWords(BasicBolt):
    """Counts words; its metric `words` is their number."""

    def prepare(self, context: TaskContext) -> None:
        self.counts: dict[str, int] = {}
        self.words = context.metrics.counter("words")

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        word = tup.values[0]
        counts = self.counts
        counts[word] = counts.get(word, 0) + 1

    def cleanup(self) -> None:
        self.words.add(sum(self.counts.values()))


class CheckpointedCount(CountWords, StatefulBolt):
    """Counts words; the counts are in the checkpoints."""

    key = "word"

    def snapshot(self) -> dict[str, int]:
        return self.counts

    def restore(self, state: dict[str, int] | None) -> None:
        self.counts = dict(state or {})


class PacedCount(CountWords):
    """Counts words, and notes when each was counted."""

    def __init__(self, samples: str) -> None:
        self.samples = samples

    def prepare(self, context: TaskContext) -> None:
        super().prepare(context)
        self.arrived = SampleFile(self.samples, context)

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        word, due = tup.values
        self.counts[word] = self.counts.get(word, 0) + 1
        self.arrived.add((due, monotonic_ns()))

    def cleanup(self) -> None:
        super().cleanup()
        self.arrived.write()


class Identity(BasicBolt):
    """Emits its input."""

    def __init__(self, *fields: str) -> None:
        self.outputs = fields

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        collector.emit(tup.values)


class Sink(BasicBolt):
    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        pass


class PacedSink(BasicBolt):
    """Notes when each tuple arrived."""

    def __init__(self, samples: str) -> None:
        self.samples = samples

    def prepare(self, context: TaskContext) -> None:
        self.arrived = SampleFile(self.samples, context)

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        self.arrived.add((tup.values[1], monotonic_ns()))

    def cleanup(self) -> None:
        self.arrived.write()


def word_count(
    splits: int = 1, counts: int = 1, seconds: float = 0.0, rate: float = 0.0, samples: str = "", delivery: str = "at_least_once"
) -> Topology:
    """Count words: spout, split, count.

    Args:
        splits: tasks that split sentences.
        counts: tasks that count words.
        seconds: how long the spout emits; 0: for ever.
        rate: sentences a second; 0: as fast as they are taken.
        samples: with a rate, the folder where latencies are left.
        delivery: the mode; with `exactly_once` the counts are in the checkpoints.
    """
    builder = TopologyBuilder("word-count")
    builder.config(delivery=delivery)
    if delivery == "exactly_once" and not rate:
        builder.set_spout("spout", ReadableSentences(seconds))
        builder.set_bolt("split", Split(), splits).shuffle_grouping("spout")
        builder.set_bolt("count", CheckpointedCount(), counts).fields_grouping("split", "word")
    elif rate:
        builder.set_spout("spout", PacedSentences(seconds, rate, samples))
        builder.set_bolt("split", PacedSplit(), splits).shuffle_grouping("spout")
        builder.set_bolt("count", PacedCount(samples), counts).fields_grouping("split", "word")
    else:
        builder.set_spout("spout", Sentences(seconds))
        builder.set_bolt("split", Split(), splits).shuffle_grouping("spout")
        builder.set_bolt("count", CountWords(), counts).fields_grouping("split", "word")
    return builder.build()


def pipe(seconds: float = 0.0, rate: float = 0.0, samples: str = "") -> Topology:
    """Hand numbers on: spout, identity, sink. The arguments are those of `word_count`."""
    builder = TopologyBuilder("pipe")
    if rate:
        builder.set_spout("spout", PacedNumbers(seconds, rate, samples))
        builder.set_bolt("identity", Identity("number", "due")).shuffle_grouping("spout")
        builder.set_bolt("sink", PacedSink(samples)).shuffle_grouping("identity")
    else:
        builder.set_spout("spout", Numbers(seconds))
        builder.set_bolt("identity", Identity("number")).shuffle_grouping("spout")
        builder.set_bolt("sink", Sink()).shuffle_grouping("identity")
    return builder.build()


def events() -> list[tuple[str, int, str, int]]:
    """Return the parts of events, the same each time: text up to the timestamp, lateness in ms, text after it, value."""
    random_below = random.Random(1).randrange
    drawn = [(random_below(_KEYS), random_below(_DISORDER_MS), random_below(100)) for _ in range(_EVENTS)]
    return [(f'{{"key": "k{key}", "ts": ', late, f', "value": {value}}}', value) for key, late, value in drawn]


class EventRows:
    """JSON events whose time advances by a millisecond every ten events, each up to five seconds late."""

    outputs = ("event",)

    def open(self, context: TaskContext, collector: SpoutCollector) -> None:
        super().open(context, collector)
        self.events = events()
        self.sum = context.metrics.counter("sum")

    def row(self, number: int) -> tuple[Any, ...]:
        begin, late, end, _ = self.events[number % _EVENTS]
        return (f"{begin}{_FIRST_EVENT_MS + number // _EVENTS_PER_MS - late}{end}",)

    def close(self) -> None:
        rounds, rest = divmod(self.number, _EVENTS)
        self.sum.add(rounds * sum(event[3] for event in self.events) + sum(event[3] for event in self.events[:rest]))


class Events(EventRows, ClosedLoop):
    pass


class ReadableEvents(EventRows, ClosedLoop, RetryingSpout):
    pass


class Parse(BasicBolt):
    outputs = ("key", "ts", "value")

    def execute(self, tup: Tuple, collector: BasicCollector, loads: Any = json.loads) -> None:
        event = loads(tup.values[0])
        collector.emit((event["key"], event["ts"], event["value"]))


class Total(BasicBolt):
    """Adds up; its metric `sum` is the total, and `results` the number of windows."""

    def prepare(self, context: TaskContext) -> None:
        self.results = self.sum = 0
        self.metrics = context.metrics

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        self.results += 1
        self.sum += tup.values[-1]

    def cleanup(self) -> None:
        self.metrics.counter("results").add(self.results)
        self.metrics.counter("sum").add(self.sum)


def windowed_sum(splits: int = 1, counts: int = 1, seconds: float = 0.0, delivery: str = "at_least_once") -> Topology:
    """Sum up events by key in windows of ten seconds of event time: spout, parse, sum, sink; and a sink for late events.

    Args:
        splits: tasks that parse.
        counts: tasks that keep windows.
        seconds: how long the spout emits; 0: for ever.
        delivery: the mode; with `exactly_once` the windows are in the checkpoints.
    """
    builder = TopologyBuilder("windowed-sum")
    builder.config(max_spout_pending=_WINDOWED_PENDING, delivery=delivery)
    builder.set_spout("spout", ReadableEvents(seconds) if delivery == "exactly_once" else Events(seconds))
    watermarks = WatermarkStrategy.bounded_out_of_orderness(f"{_DISORDER_MS}ms", timestamp="ts")
    builder.set_bolt("parse", Parse(), splits, watermarks=watermarks).shuffle_grouping("spout")
    window = WindowBolt(
        key="key", window=windows.TumblingEventTimeWindows.of("10s"), aggregate=aggregates.Sum("value"), late_stream="late"
    )
    builder.set_bolt("sum", window, counts).fields_grouping("parse", "key")
    builder.set_bolt("sink", Total()).shuffle_grouping("sum")
    builder.set_bolt("late", Total()).shuffle_grouping("sum", stream="late")
    return builder.build()
