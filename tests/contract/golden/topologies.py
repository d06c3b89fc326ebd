"""Topologies whose savepoints are stored beside this file, and from which later versions of topo continue.

Sources give the numbers below `stop`, and end the input if that is all of `COUNT`. So a run with `stop=HALF` comes to rest with
open windows, timers, calls, batches and held inputs, where a savepoint is taken; a run from it with `stop=COUNT` gives the rest.
The sink's token holds its rows: rows staged at the savepoint are published by the run that continues from it.

The module must stay as it is: the stored savepoints have been made with it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

from topo import (
    AsyncBolt,
    BasicBolt,
    BatchBolt,
    Bolt,
    ProcessBolt,
    RetryingSpout,
    Spout,
    StatefulBolt,
    TimeDomain,
    Topology,
    TopologyBuilder,
    TwoPhaseSink,
    WatermarkStrategy,
    WindowBolt,
    aggregates,
)
from topo.api.windows import EventTimeSessionWindows, ProcessWindowFunction, TumblingEventTimeWindows

COUNT, HALF = 400, 200
POISON = (50, 150, 350)


class Numbers(RetryingSpout):
    """Numbers 0, 1, ... with one of five keys and an event time, out of order by less than 500 ms."""

    outputs = ("number", "key", "at")

    def __init__(self, stop: int) -> None:
        self.stop = stop

    def open(self, context: Any, collector: Any) -> None:
        self.collector = collector
        self.next = 0 if context.committed_position is None else context.committed_position + 1

    def next_tuple(self) -> None:
        if self.next >= self.stop:
            if self.next >= COUNT:
                self.collector.end_of_input()
            return
        number = self.next
        self.next += 1
        self.collector.emit((number, f"k{number % 5}", number * 10 + number * 7919 % 500), number)


class Queue(Spout):
    """A queue that does not know positions: from the second run on it delivers the last 50 numbers of the first again."""

    outputs = ("number",)

    def __init__(self, stop: int) -> None:
        self.stop = stop

    def open(self, context: Any, collector: Any) -> None:
        self.collector = collector
        self.next = 0 if self.stop == HALF else HALF - 50

    def next_tuple(self) -> None:
        if self.next >= self.stop:
            if self.next >= COUNT:
                self.collector.end_of_input()
            return
        self.collector.emit((self.next,), f"message {self.next}")
        self.next += 1


class Sink(TwoPhaseSink):
    """Publishes each transaction as a file of JSON."""

    def __init__(self, out: str) -> None:
        super().__init__()
        self.out = Path(out)

    def open(self, context: Any) -> None:
        self.name, self.number = f"{context.component}-{context.task_index}", 0
        self.out.mkdir(parents=True, exist_ok=True)

    def begin(self) -> None:
        self.rows: list[Any] = []

    def write(self, tup: Any) -> None:
        self.rows.append(list(tup.values))

    def pre_commit(self) -> Any:
        if not self.rows:
            return None
        while (name := f"{self.name}-{self.number}") and (self.out / name).exists():
            self.number += 1
        self.number += 1
        return [name, self.rows]

    def commit(self, token: Any) -> None:
        rows = json.dumps(token[1])
        (self.out / f"{token[0]}-{crc32(rows.encode())}.json").write_text(rows)

    def abort(self, token: Any) -> None:
        """Nothing is outside of the token."""


class Split(BasicBolt):
    """Three words for each number."""

    outputs = ("word",)

    def execute(self, tup: Any, collector: Any) -> None:
        for shift in range(3):
            collector.emit((f"w{(tup['number'] + shift * 5) % 17}",))


class Count(StatefulBolt):
    """Counts words."""

    outputs = ("word", "count")
    key = "word"

    def prepare(self, context: Any) -> None:
        self.counts: dict[str, int] = {}

    def execute(self, tup: Any, collector: Any) -> None:
        self.counts[tup["word"]] = self.counts.get(tup["word"], 0) + 1

    def end_of_input(self, collector: Any) -> None:
        for entry in sorted(self.counts.items()):
            collector.emit(entry)

    def snapshot(self) -> Any:
        return self.counts

    def restore(self, state: Any) -> None:
        self.counts = dict(state or {})


class Contents(ProcessWindowFunction):
    """The numbers of each window."""

    def process(self, key: Any, elements: Any, context: Any, collector: Any) -> None:
        collector.emit((key, context.window.start, sorted(row[0] for row in elements)))


class Timers(ProcessBolt):
    """Value, list, map and timers by key: at the end of the input, all that came."""

    outputs = ("key", "timestamp", "seen", "last", "parities")

    def __init__(self) -> None:
        super().__init__("key")

    def open(self, context: Any) -> None:
        self.last = context.state.value("last")
        self.seen = context.state.list("seen")
        self.parities = context.state.map("parities")

    def process(self, tup: Any, context: Any, collector: Any) -> None:
        number = tup["number"]
        self.last.set(max(number, self.last.get() or 0))
        self.seen.add(number)
        self.parities.put(number % 2, (self.parities.get(number % 2) or 0) + 1)
        if number % 7 == 0:
            context.register_event_time_timer(tup["at"] + 500_000)
        if number == 14:
            context.register_processing_time_timer(context.current_processing_time + 3_600_000)

    def on_timer(self, timestamp: int, context: Any, collector: Any) -> None:
        if context.domain is TimeDomain.PROCESSING_TIME:
            return
        collector.emit(
            (
                context.key,
                timestamp,
                sorted(self.seen.get()),
                self.last.get(),
                [list(entry) for entry in sorted(self.parities.items().items())],
            )
        )


class Ask(AsyncBolt):
    """Squares; the answers for the last numbers of a run that stops at the half never come."""

    outputs = ("number", "square")

    def __init__(self, stop: int) -> None:
        super().__init__(capacity=10, timeout="1h")
        self.stop = stop

    async def call(self, tup: Any) -> Any:
        if self.stop == HALF and tup["number"] >= HALF - 5:
            await asyncio.sleep(3600)
        return (tup["number"], tup["number"] ** 2)


class Batches(BatchBolt):
    """Negates numbers, by batches."""

    outputs = ("number",)

    def __init__(self) -> None:
        super().__init__(7, "1h")

    def execute_batch(self, tuples: Any, collector: Any) -> None:
        for tup in tuples:
            collector.emit((-tup["number"],), tup)


class Hold(Bolt):
    """Holds numbers until there are seven, then emits their sum."""

    outputs = ("first", "sum")

    def prepare(self, context: Any, collector: Any) -> None:
        self.collector, self.held = collector, []

    def execute(self, tup: Any) -> None:
        self.held.append(tup)
        if len(self.held) == 7:
            self._let_go()

    def _let_go(self) -> None:
        if self.held:
            numbers = [tup["number"] for tup in self.held]
            self.collector.emit((min(numbers), sum(numbers)), self.held)
            for tup in self.held:
                self.collector.ack(tup)
            self.held = []

    def end_of_input(self) -> None:
        self._let_go()

    def on_reset(self) -> None:
        self.held = []


class Sieve(BasicBolt):
    """Passes numbers on; raises at some."""

    outputs = ("number",)

    def execute(self, tup: Any, collector: Any) -> None:
        if tup["number"] in POISON:
            raise ValueError(f"no {tup['number']}")
        collector.emit((tup["number"],))


BOUND = WatermarkStrategy.bounded_out_of_orderness("500ms", timestamp="at")


def _begun(name: str) -> TopologyBuilder:
    return TopologyBuilder(name).config(
        delivery="exactly_once", checkpoint_interval="1h", back_off=("10ms",), attempts=2, max_parallelism=16
    )


def _numbers(name: str, stop: int) -> TopologyBuilder:
    builder = _begun(name)
    builder.set_spout("numbers", Numbers(int(stop)), watermarks=BOUND)
    return builder


def _ended(builder: TopologyBuilder, out: str, sources: Sequence[str]) -> Topology:
    for source in sources:
        builder.set_bolt(f"out-{source}", Sink(out)).global_grouping(source)
    return builder.build()


def words(stop: int, out: str) -> Topology:
    builder = _numbers("words", stop)
    builder.set_bolt("split", Split(), parallelism=2).shuffle_grouping("numbers")
    builder.set_bolt("count", Count(), parallelism=2).fields_grouping("split", "word")
    return _ended(builder, out, ["count"])


def windows(stop: int, out: str) -> Topology:
    builder = _numbers("windows", stop)
    tumbling = WindowBolt(
        key="key", window=TumblingEventTimeWindows.of("1s"), process=Contents(), outputs=("key", "start", "numbers")
    )
    # Five keys, 50 ms apart on the whole: sessions merge and split by the jumps of the event time.
    session = WindowBolt(key="key", window=EventTimeSessionWindows.with_gap("60ms"), aggregate=aggregates.Sum("number"))
    builder.set_bolt("tumbling", tumbling, parallelism=2).fields_grouping("numbers", "key")
    builder.set_bolt("session", session).fields_grouping("numbers", "key")
    return _ended(builder, out, ["tumbling", "session"])


def timers(stop: int, out: str) -> Topology:
    builder = _numbers("timers", stop)
    builder.set_bolt("timers", Timers(), parallelism=2).fields_grouping("numbers", "key")
    return _ended(builder, out, ["timers"])


def calls(stop: int, out: str) -> Topology:
    builder = _numbers("calls", stop)
    builder.set_bolt("ask", Ask(int(stop))).shuffle_grouping("numbers")
    return _ended(builder, out, ["ask"])


def batches(stop: int, out: str) -> Topology:
    builder = _numbers("batches", stop)
    builder.set_bolt("negate", Batches()).shuffle_grouping("numbers")
    return _ended(builder, out, ["negate"])


def held(stop: int, out: str) -> Topology:
    builder = _begun("held")
    builder.set_spout("queue", Queue(int(stop)))
    builder.set_bolt("hold", Hold()).shuffle_grouping("queue")
    return _ended(builder, out, ["hold"])


def letters(stop: int, out: str) -> Topology:
    builder = _numbers("letters", stop)
    builder.set_bolt("sieve", Sieve(), parallelism=2).shuffle_grouping("numbers")
    return _ended(builder, out, ["sieve"])


NAMES = ("words", "windows", "timers", "calls", "batches", "held", "letters")
