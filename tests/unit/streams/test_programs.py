"""Programs of streams, run in virtual time: their results, also behind crashes, and through the codec."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from topo import BasicBolt, JsonLinesSink
from topo.streams import (
    AT_END,
    KeyedProcess,
    KeyedStream,
    KeyedValue,
    Session,
    SideOutput,
    Stream,
    StreamBuilder,
    StreamContext,
    StreamOutput,
    Tumbling,
    Windowed,
    agg,
    every,
)
from topo.testing import CRASH, END, PAUSE, StreamTest, TopologyTest


class Click(msgspec.Struct):
    user: str
    at: int
    tags: list[str] = []


@dataclass
class Visit:
    user: str
    clicks: int


class Point(NamedTuple):
    x: int
    y: int


class Keep(BasicBolt):
    """Remembers rows."""

    rows: list[tuple[Any, ...]]

    def __init__(self, rows: list[tuple[Any, ...]]) -> None:
        self.rows = rows

    def execute(self, tup: Any, collector: Any) -> None:
        self.rows.append(tuple(tup.values))


def run(draw: Callable[[StreamBuilder], None], sources: dict[str, Iterable[Any]] | None = None, **settings: Any) -> TopologyTest:
    """Run a program to its end. The function draws it, for each task again."""

    def build() -> Any:
        flow = StreamBuilder("program")
        draw(flow)
        return flow.build()

    scripts = {source: [*items, END] for source, items in (sources or {}).items()}
    test = TopologyTest(build, sources=scripts, **settings)
    test.run()
    return test


def results(draw: Callable[[StreamBuilder, Callable[[Any], None]], None], *sources: Sequence[Any], **settings: Any) -> list[Any]:
    """Return what a program gives to its sink; its sources are `items`, `items-2`."""
    seen: list[Any] = []
    names = ["items", "items-2"][: len(sources)]
    test = run(lambda flow: draw(flow, seen.append), dict(zip(names, sources, strict=True)), **settings)
    assert test.errors() == []
    return seen


def test_steps_of_one_record_run_in_order() -> None:
    def draw(flow: StreamBuilder, out: Callable[[Any], None]) -> None:
        words = flow.from_iterable([""]).flat_map(str.split).map(str.lower).filter(lambda word: word != "the")
        short, long = words.branch(lambda word: len(word) < 4)
        short.merge(long.map(lambda word: word.upper())).to(out)

    assert results(draw, ["The cat and", "the MOUSE"]) == ["cat", "and", "MOUSE"]


def test_counts_by_key_over_several_tasks_equal_a_counter() -> None:
    lines = [f"word{n % 7} word{n % 3}" for n in range(50)]

    def draw(flow: StreamBuilder, out: Callable[[Any], None]) -> None:
        words = flow.from_iterable([""]).flat_map(str.split)
        words.key_by(lambda word: word, parallelism=3).count(emit=AT_END).to(out)

    assert sorted(results(draw, lines)) == sorted(Counter(" ".join(lines).split()).items())


def test_running_results_are_emitted_at_each_record() -> None:
    def draw(flow: StreamBuilder, out: Callable[[Any], None]) -> None:
        numbers = flow.from_iterable([0])
        keyed = numbers.key_by(lambda n: n % 2)
        keyed.count(name="n").map(lambda n: f"n{n}").to(out)
        keyed.reduce(max, name="max").to(out)
        keyed.fold("", lambda text, n: f"{text}{n}", name="text").to(out)

    expected = [(1, "n1"), (1, "n2"), (0, "n1"), (1, 5), (1, 5), (0, 4), (1, "5"), (1, "53"), (0, "4")]
    assert sorted(map(str, results(draw, [5, 3, 4]))) == sorted(map(str, expected))


def test_every_emits_changed_results_by_the_clock() -> None:
    def draw(flow: StreamBuilder, out: Callable[[Any], None]) -> None:
        flow.from_iterable([""]).key_by(lambda word: word).count(emit=every("1s")).to(out)

    assert results(draw, ["a", "a", "b", PAUSE("3s"), "b"]) == [("a", 2), ("b", 1), ("b", 2)]


@pytest.mark.parametrize("seed", range(3))
def test_state_of_a_crashed_task_comes_back(seed: int, tmp_path: Path) -> None:
    words = [f"w{n % 5}" for n in range(40)]
    script = [*words[:20], CRASH("count"), *words[20:]]

    def draw(flow: StreamBuilder) -> None:
        keyed = flow.from_iterable([""]).key_by(lambda word: word, parallelism=2)
        keyed.count(emit=AT_END).to(JsonLinesSink(tmp_path / "rows"))

    test = run(draw, {"items": script}, seed=seed, checkpoint_interval="100ms")
    test.assert_all_acked()
    rows = [tuple(json.loads(line).values()) for line in (tmp_path / "rows").read_text().splitlines()]
    assert sorted(rows) == sorted(Counter(words).items())


def test_records_keep_their_types_on_every_edge() -> None:
    def draw(flow: StreamBuilder, out: Callable[[Any], None]) -> None:
        clicks = flow.from_iterable([""]).parse_json(Click).rebalance(parallelism=2)
        clicks.key_by(lambda click: click.user).reduce(lambda _first, last: last).values().to(out)

    seen = results(draw, [b'{"user": "ann", "at": 1, "tags": ["x"]}'.decode(), '{"user": "ann", "at": 2}'])
    assert sorted(seen, key=lambda click: click.at) == [Click("ann", 1, ["x"]), Click("ann", 2)]


def test_dataclasses_and_named_tuples_travel_as_their_fields() -> None:
    rows: list[tuple[Any, ...]] = []

    def draw(flow: StreamBuilder) -> None:
        numbers = flow.from_iterable([1, 2])
        numbers.map(lambda n: Visit("ann", n), of=Visit).to(Keep(rows), name="visits")
        points = numbers.map(lambda n: Point(n, -n), of=Point).rebalance(parallelism=1)
        shown = points.map(lambda point: (point.x, point.y, type(point).__name__))
        shown.to(Keep(rows), fields=("x", "y", "kind"), name="points")

    test = run(draw)
    assert sorted(map(repr, rows)) == sorted(map(repr, [("ann", 1), ("ann", 2), (1, -1, "Point"), (2, -2, "Point")]))
    assert test.errors() == []


def test_a_record_of_unknown_type_is_refused_where_it_leaves() -> None:
    def draw(flow: StreamBuilder) -> None:
        flow.from_iterable([1]).map(lambda n: Point(n, n)).rebalance(parallelism=1).to(print)

    (error,) = run(draw, attempts=1).errors()
    assert "map at test_programs.py" in error.message and "of=Point" in error.message


def test_sessions_end_after_the_gap_and_late_records_go_aside() -> None:
    late = SideOutput("late", Click)

    def draw(flow: StreamBuilder, out: Callable[[Any], None]) -> None:
        clicks = flow.from_iterable([""]).parse_json(Click).with_event_time(lambda click: click.at)
        visits = clicks.key_by(lambda click: click.user).window(Session("10s"), late=late).count(name="visits")
        visits.map_keyed(lambda user, visit: (user, visit.start, visit.end, visit.value)).to(out)
        visits.side(late).map(lambda click: ("late", click)).to(out)

    def click(user: str, at: int) -> str:
        return msgspec.json.encode(Click(user, at)).decode()

    clicks = [click("ann", 0), click("ann", 5_000), click("bob", 60_000), PAUSE("1s"), click("ann", 1_000), PAUSE("1s")]
    seen = results(draw, clicks)
    assert sorted(map(repr, seen)) == sorted(
        map(repr, [("ann", 0, 15_000, 2), ("late", Click("ann", 1_000)), ("bob", 60_000, 70_000, 1)])
    )


def report(clicks: int, latest: int) -> Visit:
    return Visit(str(latest), clicks)


def test_windows_aggregate_reduce_rank_and_process() -> None:
    def collected(key: str, window: Windowed[Sequence[int]]) -> list[str]:
        return [f"{key}{window.start}:{n}" for n in window.value]

    def draw(flow: StreamBuilder, out: Callable[[Any], None]) -> None:
        numbers = flow.from_iterable([0]).with_event_time(lambda n: n)
        keyed: KeyedStream[str, int] = numbers.key_by(lambda n: "k")
        window = keyed.window(Tumbling("100ms"))
        both = window.aggregate(agg.count(), agg.max_of(lambda n: n), into=report, name="both")
        both.map(lambda found: ("both", found.value)).to(out)
        window.mean(lambda n: n, name="mean").map(lambda found: ("mean", found.value)).to(out)
        window.reduce(lambda a, b: a + b, name="sum").map(lambda found: ("sum", found.value)).to(out)
        window.top_n(2, by=lambda n: -n, name="top").map(lambda found: ("top", found.value)).to(out)
        window.process(collected, name="all").map(lambda found: ("all", found)).to(out)

    wanted = {"both": [Visit("6", 3)], "mean": [3.0], "sum": [9], "top": [[1, 2]], "all": ["k0:1", "k0:2", "k0:6"]}
    seen: dict[str, list[Any]] = {}
    for _key, (name, value) in results(draw, [1, 2, 6]):
        seen.setdefault(name, []).append(value)
    assert seen == wanted


def test_windows_behind_windows_go_by_the_time_of_the_first() -> None:
    def draw(flow: StreamBuilder, out: Callable[[Any], None]) -> None:
        words = flow.from_iterable([Click("", 0)], of=Click).with_event_time(lambda click: click.at)
        counts = words.key_by(lambda click: click.user, parallelism=2).window(Tumbling("1s")).count(name="counts")
        best = counts.entries().gather().window(Tumbling("1s")).top_n(1, by=lambda entry: entry[1].value, name="best")
        best.values().to(out)

    clicks = [(user, 0, []) for user in ("ann", "bob", "ann")]
    assert results(draw, clicks) == [Windowed(0, 1_000, [("ann", Windowed(0, 1_000, 2))])]


class Twice(KeyedProcess[str, Click, str]):
    """Emits the second click of a user; after a second of event time it forgets the first."""

    first = KeyedValue(Click)

    def process(self, record: Click, context: StreamContext[str], out: StreamOutput[str]) -> None:
        before = self.first.get()
        if before is None:
            self.first.set(record)
            context.register_event_time_timer(record.at + 1_000)
        else:
            out.emit(f"{context.key} {before.at} {record.at}")
            out.side(TWICE, record)

    def on_timer(self, timestamp: int, context: StreamContext[str], out: StreamOutput[str]) -> None:
        self.first.clear()
        out.emit(f"{context.key} forgotten")


TWICE = SideOutput("twice", Click)


def test_a_process_has_state_timers_and_side_outputs() -> None:
    def draw(flow: StreamBuilder, out: Callable[[Any], None]) -> None:
        clicks = flow.from_iterable([Click("", 0)]).with_event_time(lambda click: click.at)
        found = clicks.key_by(lambda click: click.user).process(Twice(), name="twice")
        found.values().to(out)
        found.side(TWICE).to(out)

    seen = results(draw, [("ann", 0, []), ("ann", 500, ["b"]), PAUSE("1s"), ("bob", 5_000, []), PAUSE("1s")])
    assert seen == ["ann 0 500", Click("ann", 500, ["b"]), "ann forgotten", "bob forgotten"]


def test_bad_json_goes_to_its_side_output() -> None:
    bad = SideOutput("bad", str)

    def draw(flow: StreamBuilder, out: Callable[[Any], None]) -> None:
        clicks = flow.from_iterable([""]).parse_json(Click, bad=bad)
        clicks.map(lambda click: click.at).to(out)
        clicks.side(bad).map(lambda text: f"bad {text}").to(out)

    assert results(draw, ['{"user": "a", "at": 1}', "{", '{"user": "a"}']) == [1, "bad {", 'bad {"user": "a"}']


def test_watermarks_see_records_that_a_later_filter_drops() -> None:
    """A filter behind with_event_time drops the record that ends the window; its time counts all the same."""

    def draw(flow: StreamBuilder, out: Callable[[Any], None]) -> None:
        numbers = flow.from_iterable([0], parallelism=2).with_event_time(lambda n: n).filter(lambda n: n < 50)
        numbers.key_by(lambda n: "k").window(Tumbling("10ms")).count().map(lambda found: found.value).to(out)

    seen: list[Any] = []

    def build() -> Any:
        flow = StreamBuilder("program")
        draw(flow, seen.append)
        return flow.build()

    test = TopologyTest(build, sources={"items": [1, 2, 3, 99, 99]})
    test.run()
    assert seen == [("k", 3)]


def test_two_clocks_in_one_program_do_not_mix() -> None:
    def draw(flow: StreamBuilder, out: Callable[[Any], None]) -> None:
        numbers = flow.from_iterable([0])
        for name, factor in (("slow", 1), ("fast", 1_000)):
            timed = numbers.with_event_time(lambda n, factor=factor: n * factor)
            counts = timed.key_by(lambda n: "k").window(Tumbling("1s")).count(name=name)
            counts.map(lambda found, name=name: (name, found.start, found.value)).values().to(out)

    assert sorted(results(draw, [1, 2])) == [("fast", 1_000, 1), ("fast", 2_000, 1), ("slow", 0, 2)]


def test_any_bolt_goes_into_the_middle() -> None:
    class Double(BasicBolt):
        outputs = ("at", "user")

        def execute(self, tup: Any, collector: Any) -> None:
            collector.emit((2 * tup["at"], tup["user"]))

    class Named(msgspec.Struct):
        user: str
        at: int

    def draw(flow: StreamBuilder, out: Callable[[Any], None]) -> None:
        clicks: Stream[Click] = flow.from_iterable([Click("ann", 2)])
        clicks.through(Double(), of=Named).map(lambda named: (named.user, named.at)).to(out)
        clicks.through(Double(), name="again").to(out)

    assert results(draw) == [("ann", 4), (4, "ann")]


def test_a_failing_function_is_reported_with_operator_file_and_line() -> None:
    def draw(flow: StreamBuilder) -> None:
        flow.from_iterable(["7", "x"]).map(int).to(print)

    (error,) = run(draw, attempts=1).errors()
    assert error.kind == "ValueError" and error.file.endswith("test_programs.py") and error.line > 0
    assert "in map at test_programs.py" in error.traceback
    assert " of test_programs.py" not in error.traceback, "the label has the place already"


def test_a_chain_that_raises_leaves_the_running_result_as_it_was() -> None:
    failures = [True]

    def fail_once(n: int) -> int:
        if n == 2 and failures:
            failures.clear()
            raise RuntimeError("once")
        return n

    seen: list[Any] = []

    def draw(flow: StreamBuilder) -> None:
        flow.from_iterable(["a", "a", "a"]).key_by(lambda word: word).count().map(fail_once).to(seen.append)

    test = run(draw)
    test.assert_all_acked()
    assert seen == [("a", 1), ("a", 2), ("a", 3)]


def test_objects_with_open_are_opened_once_in_each_task() -> None:
    class Model:
        def __init__(self) -> None:
            self.opened = 0

        def open(self, context: Any) -> None:
            self.opened += 1

        def __call__(self, n: int) -> int:
            return n + self.opened

    def draw(flow: StreamBuilder, out: Callable[[Any], None]) -> None:
        flow.from_iterable([1]).map(Model()).to(out)

    assert results(draw) == [2]


def test_event_time_is_cut_before_and_behind_where_a_part_of_a_source_needs_none() -> None:
    with StreamTest() as test:
        plain, split = test.source(int, "plain"), test.source(int, "split")
        timed, others = split.stream.branch(lambda number: number < 100)
        rest = test.collect(others)
        both = plain.stream.merge(timed).with_event_time(lambda number: number).filter(lambda number: number != 3)
        counts = test.collect(both.gather().window(Tumbling("5ms")).count().values())
        for number in (1, 3, 4, 7):
            plain.send(number)
            split.send(number, number + 100)
        plain.end()
        split.end()
        assert [tuple(window) for window in counts.all] == [(0, 5, 4), (5, 10, 2)]
        assert rest.all == [101, 103, 104, 107]


def test_a_branch_to_another_task_leaves_event_time_and_filters_to_the_other_half() -> None:
    flow = StreamBuilder("program")
    timed, others = flow.from_iterable([1, 2]).branch(lambda number: number == 1)
    others.rebalance(parallelism=2).to(print)
    timed.with_event_time(lambda number: number).filter(bool).gather().window(Tumbling("5ms")).count().to(print)
    assert [spec.id for spec in flow.build().components] == [
        "items", "rebalance", "event-time", "event-time-steps", "window",
    ]  # fmt: skip
