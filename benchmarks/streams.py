"""Programs of streams beside the same jobs by hand: CPU time of all processes, and whether the goals hold.

    python benchmarks/streams.py [--records 1000000] [--rounds 7] [--only "word count"]

| job | by hand |
| --- | --- |
| word count: split, lower, drop stop words, count by key | a bolt for each step, or one bolt for all |
| window: events of a user in each second of event time | a bolt that parses, and a WindowBolt |
| join: orders with the payments within a second | a bolt that parses for each side, and a ProcessBolt |
| dedupe: the first event of each user | a bolt that parses, and a ProcessBolt |

A round runs all forms one after the other, every second round backwards, each form in one worker, so that load of the machine
meets all alike. A run of a tenth of the records is subtracted: starting and ending cost the same in all. A ratio is the CPU time
by hand, by that of streams, within a round; printed are the median and the range. `plain` is without the compiled hot path.

With `--count FORM` the form runs once, all tasks in this process, and its steps within `operator.call`: valgrind counts their
instructions, as with `benchmarks/hot_path.py`. `--component` counts those of one component.

    valgrind --tool=callgrind --collect-atstart=no --toggle-collect=_operator_call \\
        python -m benchmarks.streams --count window --records 20000
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from topo import (
    BasicBolt,
    IterableSpout,
    ProcessBolt,
    StatefulBolt,
    Topology,
    TopologyBuilder,
    WatermarkStrategy,
    WindowBolt,
    aggregates,
)
from topo.hot import KIND
from topo.streams import AT_END, Stream, StreamBuilder, Tumbling

STOP = frozenset({"the", "and", "of"})
WORDS = ["The", "sea", "and", "Sky", "of", "stone", "River", "light", "DAY", "wind"]
PER_LINE = 10
USERS = 100
SECOND = 1000
FIRST_MS = 1_700_000_000_000
WITHIN = "1s"


class Event(msgspec.Struct):
    """A click, an order or a payment: whose it is, and when."""

    id: str
    at: int


@dataclass(frozen=True)
class Goal:
    """A ratio to be reached: the cost of a form by hand, by that of streams."""

    name: str
    by_hand: str
    streams: str
    delivery: str
    least: float
    is_plain: bool = False

    def ratio(self, cost: dict[tuple[str, str, bool], float]) -> float:
        """Return the ratio within a round."""
        return cost[self.by_hand, self.delivery, self.is_plain] / cost[self.streams, self.delivery, self.is_plain]


GOALS = [
    Goal("word count, a bolt for each step", "three", "fused", "at_least_once", 3.0),
    Goal("word count, one bolt, plain", "one", "fused", "at_least_once", 1.05, is_plain=True),
    Goal("word count, one bolt", "one", "fused", "at_least_once", 1.0),
    Goal("word count, one bolt, combined", "one", "fused", "exactly_once", 1.2),
    Goal("window", "window_by_hand", "window", "exactly_once", 0.95),
    Goal("join", "join_by_hand", "join", "exactly_once", 0.95),
    Goal("dedupe", "dedupe_by_hand", "dedupe", "exactly_once", 0.95),
]


# -- word count --------------------------------------------------------------------------------------------------------------


def lines(count: int) -> Iterator[str]:
    for number in range(count // PER_LINE):
        shift = number % PER_LINE
        yield " ".join([*WORDS[shift:], *WORDS[:shift]])


class Split(BasicBolt):
    outputs = ("word",)

    def execute(self, tup: Any, collector: Any) -> None:
        for word in tup[0].split():
            collector.emit((word,))


class Lower(BasicBolt):
    outputs = ("word",)

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit((tup[0].lower(),))


class Keep(BasicBolt):
    outputs = ("word",)

    def execute(self, tup: Any, collector: Any) -> None:
        if tup[0] not in STOP:
            collector.emit(tup.values)


class Words(BasicBolt):
    """All three steps in one bolt."""

    outputs = ("word",)

    def execute(self, tup: Any, collector: Any) -> None:
        emit = collector.emit
        for word in tup.values[0].split():
            lowered = word.lower()
            if lowered not in STOP:
                emit((lowered,))


class Count(StatefulBolt):
    key = "word"
    outputs = ()

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def execute(self, tup: Any, collector: Any) -> None:
        word = tup.values[0]
        self.counts[word] = self.counts.get(word, 0) + 1

    def snapshot(self) -> dict[str, int]:
        return self.counts

    def restore(self, state: dict[str, int] | None) -> None:
        self.counts = dict(state or {})

    def end_of_input(self, collector: Any) -> None:
        print(sum(self.counts.values()), "words")


def _word_count(count: int, delivery: str, *steps: BasicBolt) -> Topology:
    builder, above = _by_hand(delivery), "lines"
    builder.set_spout("lines", IterableSpout(lambda: lines(count), ("line",)))
    for step in steps:
        name = type(step).__name__.lower()
        builder.set_bolt(name, step).shuffle_grouping(above)
        above = name
    builder.set_bolt("count", Count()).fields_grouping(above, "word")
    return builder.build()


def three(count: int, delivery: str) -> Topology:
    """Return word count with a bolt for each step."""
    return _word_count(count, delivery, Split(), Lower(), Keep())


def one(count: int, delivery: str) -> Topology:
    """Return word count with one bolt for all steps."""
    return _word_count(count, delivery, Words())


def fused(count: int, delivery: str) -> StreamBuilder:
    """Return word count as a program of streams."""
    flow = _flow(delivery)
    words = flow.from_iterable(lambda: lines(count), of=str).flat_map(str.split).map(str.lower)
    words.filter(lambda word: word not in STOP).key_by(lambda word: word).count(emit=AT_END).to(ignore)
    return flow


# -- window, join, dedupe ----------------------------------------------------------------------------------------------------


def events(count: int, ids: int, delay: int = 0) -> Iterator[str]:
    for number in range(count):
        yield f'{{"id": "{number % ids}", "at": {FIRST_MS + number + delay}}}'


class Parse(BasicBolt):
    """Emits the fields of events, and on which side they are."""

    outputs = ("id", "at", "left")

    def __init__(self, left: bool = True) -> None:
        self.left = left

    def prepare(self, context: Any) -> None:
        self.decode = msgspec.json.Decoder(Event).decode

    def execute(self, tup: Any, collector: Any) -> None:
        event = self.decode(tup.values[0])
        collector.emit((event.id, event.at, self.left))


class First(ProcessBolt):
    """The first event of each user."""

    def open(self, context: Any) -> None:
        self.seen = context.state.value("seen")

    def process(self, tup: Any, context: Any, collector: Any) -> None:
        if self.seen.get() is None:
            self.seen.set(True)
            ignore(tup.values)


class Pairs(ProcessBolt):
    """Each order with the payments within a second."""

    def open(self, context: Any) -> None:
        self.sides = {left: context.state.value(name) for left, name in ((True, "left"), (False, "right"))}

    def process(self, tup: Any, context: Any, collector: Any) -> None:
        _id, at, left = tup.values
        mine, others = self.sides[left], self.sides[not left]
        for other in others.get() or ():
            if 0 <= (other - at if left else at - other) <= SECOND:
                ignore((at, other))
        mine.set((*(mine.get() or ()), at))
        context.register_event_time_timer(at + SECOND if left else at)

    def on_timer(self, timestamp: int, context: Any, collector: Any) -> None:
        for left, side in self.sides.items():
            kept = tuple(at for at in side.get() or () if at > (timestamp - SECOND if left else timestamp))
            side.set(kept) if kept else side.clear()


def _parsed(builder: TopologyBuilder, name: str, rows: Callable[[], Iterator[str]], left: bool = True) -> str:
    builder.set_spout(name, IterableSpout(rows, ("line",)))
    times = WatermarkStrategy.bounded_out_of_orderness("0s", timestamp="at")
    builder.set_bolt(f"parse-{name}", Parse(left), watermarks=times).shuffle_grouping(name)
    return f"parse-{name}"


def _read(flow: StreamBuilder, name: str, rows: Callable[[], Iterator[str]]) -> Stream[Event]:
    return flow.from_iterable(rows, of=str, name=name).parse_json(Event).with_event_time(lambda event: event.at)


def window_by_hand(count: int, delivery: str) -> Topology:
    """Return the windows as a WindowBolt."""
    builder = _by_hand(delivery)
    parsed = _parsed(builder, "events", lambda: events(count, USERS))
    bolt = WindowBolt(key="id", window=Tumbling("1s"), aggregate=aggregates.Count())
    builder.set_bolt("window", bolt).fields_grouping(parsed, "id")
    return builder.build()


def window(count: int, delivery: str) -> StreamBuilder:
    """Return the windows as a program of streams."""
    flow = _flow(delivery)
    read = _read(flow, "events", lambda: events(count, USERS))
    read.key_by(lambda event: event.id).window(Tumbling("1s")).count().to(ignore)
    return flow


def join_by_hand(count: int, delivery: str) -> Topology:
    """Return the join as a ProcessBolt."""
    builder = _by_hand(delivery)
    half = count // 2
    orders = _parsed(builder, "orders", lambda: events(half, half))
    payments = _parsed(builder, "payments", lambda: events(half, half, 5), left=False)
    builder.set_bolt("pairs", Pairs("id")).fields_grouping(orders, "id").fields_grouping(payments, "id")
    return builder.build()


def join(count: int, delivery: str) -> StreamBuilder:
    """Return the join as a program of streams."""
    flow = _flow(delivery)
    half = count // 2
    orders = _read(flow, "orders", lambda: events(half, half)).key_by(lambda event: event.id)
    payments = _read(flow, "payments", lambda: events(half, half, 5)).key_by(lambda event: event.id)
    orders.interval_join(payments, lambda order, payment: (order.at, payment.at), after=WITHIN).to(ignore)
    return flow


def dedupe_by_hand(count: int, delivery: str) -> Topology:
    """Return the first events as a ProcessBolt."""
    builder = _by_hand(delivery)
    parsed = _parsed(builder, "events", lambda: events(count, max(1, count // 2)))
    builder.set_bolt("first", First("id")).fields_grouping(parsed, "id")
    return builder.build()


def dedupe(count: int, delivery: str) -> StreamBuilder:
    """Return the first events as a program of streams."""
    flow = _flow(delivery)
    read = _read(flow, "events", lambda: events(count, max(1, count // 2)))
    read.key_by(lambda event: event.id).dedupe().to(ignore)
    return flow


def ignore(_result: object) -> None:
    """Take a result."""


def _by_hand(delivery: str) -> TopologyBuilder:
    return TopologyBuilder("by-hand").config(delivery=delivery, workers=1)


def _flow(delivery: str) -> StreamBuilder:
    return StreamBuilder("streams").config(delivery=delivery, workers=1)


# -- measuring ---------------------------------------------------------------------------------------------------------------


def seconds(form: str, count: int, delivery: str, is_plain: bool) -> float:
    """Return the CPU time of a run with all its processes."""
    command = [Path(sys.executable).with_name("topo"), "run", f"{Path(__file__)}:{form}", "-p", f"count={count}", "-p"]
    environment = {**os.environ, "TOPO_PURE": "1"} if is_plain else dict(os.environ)
    before = os.times()
    ended = subprocess.run([*command, f"delivery={delivery}"], env=environment, capture_output=True, text=True)
    after = os.times()
    if ended.returncode:
        raise SystemExit(f"{form} with {delivery} failed:\n{ended.stdout}{ended.stderr}")
    return after.children_user + after.children_system - before.children_user - before.children_system


def run_here(form: str, count: int, delivery: str, component: str) -> None:
    """Run a form in this process, the steps of a component, or of all, within `operator.call`."""
    from benchmarks.hot_path import Round

    program = globals()[form](count, delivery)
    Round(program if isinstance(program, Topology) else program.build(), component).run()


def main() -> None:
    """Measure, and print each ratio with its goal. The exit code is 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000, help="words, or events; by default 1,000,000")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="", help='the goals whose names begin so, such as "word count"')
    parser.add_argument("--count", metavar="FORM", help="run this form alone, for valgrind")
    parser.add_argument("--component", default="all", help="that is counted, with --count")
    parser.add_argument("--delivery", default="exactly_once", help="with --count")
    given = parser.parse_args()
    if given.count:
        run_here(given.count, given.records, given.delivery, given.component)
        return
    goals = [goal for goal in GOALS if goal.name.startswith(given.only)]
    if KIND == "plain":
        print("the compiled hot path is not there: all figures are of the plain one")
    runs = dict.fromkeys((form, goal.delivery, goal.is_plain) for goal in goals for form in (goal.by_hand, goal.streams))
    rounds = []
    for number in range(given.rounds):
        cost = {}
        for run in reversed(runs) if number % 2 else runs:
            form, delivery, is_plain = run
            whole, part = (seconds(form, count, delivery, is_plain) for count in (given.records, given.records // 10))
            cost[run] = whole - part
        rounds.append(cost)
        shown = {" ".join((*run[:2], *["plain"] * run[2])): f"{spent:.2f} s" for run, spent in cost.items()}
        print(f"round {number + 1} of {given.rounds}:", shown, flush=True)
    missed = 0
    for goal in goals:
        ratios = [goal.ratio(cost) for cost in rounds]
        median = statistics.median(ratios)
        missed += median < goal.least
        word = "holds" if median >= goal.least else "MISSED"
        print(
            f"{goal.name:<34} {goal.delivery:<14} x{median:.2f} ({min(ratios):.2f} to {max(ratios):.2f})  "
            f"goal x{goal.least:.2f}  {word}"
        )
    raise SystemExit(1 if missed else 0)


if __name__ == "__main__":
    main()
