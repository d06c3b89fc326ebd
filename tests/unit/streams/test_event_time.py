"""Where rows have their event time, and that windows are the same wherever that is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from topo import PartitionedSpout, SourceRows, WatermarkStrategy
from topo.errors import TopologyError
from topo.streams import Stream, StreamBuilder, Tumbling
from topo.testing import END, StreamTest, TopologyTest

FIRST_MS = 1_700_000_000_000


class Click(msgspec.Struct):
    user: str
    at: int


@dataclass
class Seen:
    at: int
    user: str


def move(click: Click) -> None:
    click.at += 10_000


def untimed(click: Click) -> Seen:
    return Seen(0, click.user)


def seen_at(click: Click) -> Seen:
    return Seen(click.at, click.user)


def is_named(click: Click) -> bool:
    return bool(click.user)


CLICKS = [Click(f"user{n % 3}", FIRST_MS + 400 * n) for n in range(20)]
LINES = [msgspec.json.encode(click).decode() for click in CLICKS]
PROGRAMS: dict[str, tuple[int | None, Callable[[Stream[Click]], Stream[Any]]]] = {
    "behind the key": (2, lambda clicks: clicks),
    "ahead of a filter, which has a component": (1, lambda clicks: clicks.filter(is_named)),
    "of a record that is changed later": (None, lambda clicks: clicks.tap(move)),
    "of the record before": (None, lambda clicks: clicks.map(untimed)),
    "of another class": (1, lambda clicks: clicks.map(seen_at).with_event_time(lambda seen: seen.at)),
    "by a function": (None, lambda clicks: clicks.map(untimed).with_event_time(lambda seen: FIRST_MS)),
}


@pytest.mark.parametrize("case", PROGRAMS)
def test_windows_go_by_the_time_wherever_a_row_has_it(case: str) -> None:
    place, change = PROGRAMS[case]
    seen: list[Any] = []

    def build() -> Any:
        flow = StreamBuilder("clicks")
        clicks = flow.from_iterable([""], name="lines").parse_json(Click).with_event_time(lambda click: click.at)
        windows = change(clicks).key_by(lambda click: click.user).window(Tumbling("1s")).count()
        windows.map_keyed(lambda user, window: (user, window.start, window.value)).to(seen.append)
        return flow.build()

    test = TopologyTest(build, sources={"lines": [*LINES, END]})
    test.run()
    assert test.errors() == []
    times = Counter((click.user, FIRST_MS if case == "by a function" else click.at // 1000 * 1000) for click in CLICKS)
    assert Counter(seen) == Counter((user, start, count) for (user, start), count in times.items())
    assert [spec.watermarks.timestamp for spec in build().components if spec.watermarks is not None][-1] == place


class Days(PartitionedSpout):
    """Two partitions, a day apart, whose rows are read in turn."""

    outputs = ("user", "at")
    discovery_interval = None

    def partitions(self) -> list[str]:
        return ["monday", "tuesday"]

    def read(self, partition: Any, position: int | None) -> Iterator[Any]:
        first = FIRST_MS + 86_400_000 * (partition.name == "tuesday")
        for place in range(0 if position is None else position + 1, 20):
            yield SourceRows([(f"user{place % 3}", first + 400 * place)], [place])
            yield None


def days(flow: StreamBuilder, watermarks: WatermarkStrategy | None) -> Stream[Click]:
    return flow.from_spout(Days(), of=Click, watermarks=watermarks, name="days")


@pytest.mark.parametrize("are_of_partitions", [True, False])
def test_watermarks_of_partitions_make_no_row_late_and_those_of_their_records_do(are_of_partitions: bool) -> None:
    seen: list[int] = []

    def build() -> Any:
        flow = StreamBuilder("days").config(watermark_interval="1ms")
        clicks = days(flow, WatermarkStrategy.monotonic_timestamps(timestamp="at") if are_of_partitions else None)
        if not are_of_partitions:
            clicks = clicks.with_event_time(lambda click: click.at)
        windows = clicks.filter(is_named).key_by(lambda click: click.user).window(Tumbling("1s")).count()
        windows.map_keyed(lambda user, window: window.value).to(seen.append)
        return flow.build()

    test = TopologyTest(build)
    test.run()
    assert test.errors() == []
    assert (sum(seen) == 40) == are_of_partitions


def test_a_strategy_that_is_none_is_refused_with_its_place() -> None:
    flow = StreamBuilder("days")
    days(flow, "5s").to(print)  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match=r"'days'.*WatermarkStrategy"):
        flow.build()


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("tasks", [{"distinct": 1}, {"event-time": 3}])
def test_event_time_goes_on_where_a_rebalance_leaves_tasks_without_rows(tasks: dict[str, int], again: bool) -> None:
    with StreamTest(parallelism=tasks) as test:
        clicks = test.source(Click)
        distinct = clicks.stream.key_by(lambda click: (click.user, click.at), parallelism=2).dedupe(name="distinct").values()
        timed = distinct.with_event_time(lambda click: click.at, disorder="10s")
        if again:
            timed = timed.filter(is_named).with_event_time(lambda click: click.at, disorder="10s")
        counts = timed.key_by(lambda click: click.user).window(Tumbling("1s")).count(name="counts")
        seen = test.collect(counts.map(lambda counted: counted.start, of=int).values())
        clicks.send(*[Click("ann", second * 1000) for second in range(30)])
        test.advance("250ms")
        assert len(seen.all) > 10, "windows fire before the input ends"
