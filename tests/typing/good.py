"""Lines that type checkers accept, with the types that they infer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, TypeGuard, TypeVar, assert_type

import msgspec

from topo import IterableSpout, PrintBolt
from topo.streams import (
    AT_END,
    BroadcastTable,
    Change,
    ConnectedStreams,
    CoProcess,
    KeyedList,
    KeyedMap,
    KeyedProcess,
    KeyedStream,
    KeyedValue,
    Rows,
    Session,
    SideOutput,
    Sliding,
    Stream,
    StreamBuilder,
    StreamContext,
    StreamOutput,
    Table,
    Tumbling,
    Windowed,
    agg,
    every,
)
from topo.testing import StreamTest

T = TypeVar("T")
R = TypeVar("R")


class Click(msgspec.Struct):
    user: str
    url: str
    at: int
    price: float = 0.0
    cost: Decimal = Decimal(0)
    day: date = date.min
    moment: datetime = datetime.min


class Page(msgspec.Struct):
    url: str


class Report(msgspec.Struct):
    clicks: int
    mean: float


class Seen(KeyedProcess[str, Click, int]):
    last = KeyedValue(int)
    urls = KeyedList(str)
    counts = KeyedMap(str, int)

    def process(self, record: Click, context: StreamContext[str], out: StreamOutput[int]) -> None:
        assert_type(self.last.get(), int | None)
        assert_type(self.urls.get(), Sequence[str])
        assert_type(self.counts.get(record.url, 0), int)
        assert_type(context.key, str)
        self.last.set(record.at)
        self.urls.add(record.url)
        self.counts.put(record.url, 1)
        out.emit(record.at)
        out.side(LATE, record)


LATE = SideOutput("late", Click)
BAD = SideOutput("bad", str)

flow = StreamBuilder("good")
lines = flow.from_files("lines.txt")
assert_type(lines, Stream[str])
assert_type(flow.from_iterable([1, 2]), Stream[int])
assert_type(flow.from_iterable(lambda: iter(["a"])), Stream[str])
assert_type(flow.from_spout(IterableSpout([1])), Stream[tuple[Any, ...]])
assert_type(flow.from_spout(IterableSpout([1]), of=int), Stream[int])

assert_type(lines.map(len), Stream[int])
assert_type(lines.map(lambda line: line.upper()), Stream[str])
assert_type(lines.flat_map(str.split), Stream[str])
assert_type(lines.flat_map(lambda line: [len(line)]), Stream[int])
assert_type(lines.filter(lambda line: line.startswith("a")), Stream[str])
assert_type(lines.tap(print), Stream[str])
assert_type(lines.branch(str.isdigit), tuple[Stream[str], Stream[str]])
assert_type(lines.map(msgspec.json.decode, of=Click), Stream[Click])

clicks = lines.parse_json(Click, bad=BAD).with_event_time(lambda click: click.at, disorder="5s", idle="1m")
assert_type(clicks, Stream[Click])
assert_type(clicks.side(BAD), Stream[str])
assert_type(clicks.merge(lines), Stream[Click | str])
assert_type(clicks.merge(lines).only(Click), Stream[Click])
assert_type(clicks.merge(lines, clicks.map(lambda click: click.at)), Stream[Click | str | int])
assert_type(clicks.rebalance(parallelism=2), Stream[Click])
assert_type(clicks.through(PrintBolt(), of=Page), Stream[Page])
assert_type(clicks.through(PrintBolt()), Stream[tuple[Any, ...]])


async def page_of(click: Click) -> Page:
    return Page(click.url)


assert_type(clicks.async_map(page_of, capacity=10, timeout="1s", on_timeout=lambda click: Page(click.url)), Stream[Page])


def is_page(record: Click | Page) -> TypeGuard[Page]:
    return isinstance(record, Page)


assert_type(clicks.merge(clicks.map(lambda click: Page(click.url))).only(is_page), Stream[Page])

by_user = clicks.key_by(lambda click: click.user, parallelism=2)
assert_type(by_user, KeyedStream[str, Click])
assert_type(clicks.key_by(lambda click: (click.user, click.at)), KeyedStream[tuple[str, int], Click])
assert_type(clicks.gather(), KeyedStream[None, Click])
assert_type(by_user.map(lambda click: click.price), KeyedStream[str, float])
assert_type(by_user.filter(lambda click: click.price > 0), KeyedStream[str, Click])
assert_type(by_user.flat_map(lambda click: [click.url]), KeyedStream[str, str])
assert_type(by_user.entries(), Stream[tuple[str, Click]])
assert_type(by_user.values(), Stream[Click])
assert_type(by_user.map_keyed(lambda user, click: (user, click.at)), Stream[tuple[str, int]])
assert_type(by_user.key_by(lambda click: click.at), KeyedStream[int, Click])
assert_type(by_user.count(emit=AT_END), KeyedStream[str, int])
assert_type(by_user.map(lambda click: click.at).reduce(lambda a, b: a + b, emit=every("1s")), KeyedStream[str, int])
assert_type(by_user.fold(0.0, lambda total, click: total + click.price), KeyedStream[str, float])
assert_type(by_user.dedupe(within="1h"), KeyedStream[str, Click])
assert_type(by_user.process(Seen(), name="seen"), KeyedStream[str, int])
assert_type(by_user.process(Seen(), name="again").side(LATE), Stream[Click])

window = by_user.window(Tumbling("1m"), lateness="10s", late=LATE)
assert_type(window.count(), KeyedStream[str, Windowed[int]])
assert_type(window.sum(lambda click: click.at), KeyedStream[str, Windowed[int]])
assert_type(window.sum(lambda click: click.price), KeyedStream[str, Windowed[float]])
assert_type(window.mean(lambda click: click.price), KeyedStream[str, Windowed[float]])
assert_type(window.max(lambda click: click.url), KeyedStream[str, Windowed[str]])
assert_type(window.min(lambda click: click.at), KeyedStream[str, Windowed[int]])
assert_type(window.sum(lambda click: click.cost), KeyedStream[str, Windowed[Decimal]])
assert_type(window.max(lambda click: click.cost), KeyedStream[str, Windowed[Decimal]])
assert_type(window.min(lambda click: click.day), KeyedStream[str, Windowed[date]])
assert_type(window.max(lambda click: click.moment), KeyedStream[str, Windowed[datetime]])
assert_type(window.aggregate(agg.sum_of(lambda click: click.cost)), KeyedStream[str, Windowed[Decimal]])
assert_type(window.aggregate(agg.max_of(lambda click: click.moment)), KeyedStream[str, Windowed[datetime]])
assert_type(window.top_n(3, by=lambda click: (click.cost, click.url)), KeyedStream[str, Windowed[list[Click]]])
assert_type(window.top_n(3, by=lambda click: click.price), KeyedStream[str, Windowed[list[Click]]])
assert_type(window.reduce(lambda first, last: last), KeyedStream[str, Windowed[Click]])
assert_type(window.aggregate(agg.count()), KeyedStream[str, Windowed[int]])
assert_type(window.aggregate(agg.count(), agg.mean_of(lambda click: click.price)), KeyedStream[str, Windowed[tuple[int, float]]])
assert_type(
    window.aggregate(agg.count(), agg.mean_of(lambda click: click.price), into=Report), KeyedStream[str, Windowed[Report]]
)
assert_type(by_user.window(Sliding("10m", "1m")).count().map(lambda found: found.value), KeyedStream[str, int])


def urls(user: str, found: Windowed[Sequence[Click]]) -> list[str]:
    return [click.url for click in found.value]


assert_type(by_user.window(Session("1m")).process(urls), KeyedStream[str, str])


def twice(stream: Stream[T], function: Callable[[T], R]) -> Stream[R]:
    return stream.flat_map(lambda record: [function(record), function(record)])


assert_type(twice(clicks, lambda click: click.url), Stream[str])

clicks.to(PrintBolt())
clicks.to(print)
clicks.to(lambda click: print(click.user))
clicks.map(lambda click: (click.user, click.at)).to(PrintBolt(), fields=("user", "at"), parallelism=2)
by_user.count().to(lambda entry: print(entry[0].upper(), entry[1] + 1))


class Meet(CoProcess[str, Click, Page, int]):
    def process_left(self, record: Click, context: StreamContext[str], out: StreamOutput[int]) -> None:
        out.emit(record.at)

    def process_right(self, record: Page, context: StreamContext[str], out: StreamOutput[int]) -> None: ...


by_url = clicks.key_by(lambda click: click.url)
of_url = clicks.map(lambda click: Page(click.url)).key_by(lambda page: page.url)
assert_type(by_url.connect(of_url), ConnectedStreams[str, Click, Page])
assert_type(by_url.connect(of_url).process(Meet()), KeyedStream[str, int])
assert_type(by_url.join(of_url, lambda c, p: (c.at, p.url), window=Tumbling("1m")), KeyedStream[str, tuple[int, str]])
assert_type(by_url.left_join(of_url, lambda c, p: p.url if p else None, window=Tumbling("1m")), KeyedStream[str, str | None])
assert_type(by_url.outer_join(of_url, lambda c, p: c.at if c else 0, window=Tumbling("1m")), KeyedStream[str, int])
assert_type(by_url.interval_join(of_url, lambda click, page: click.at, after="1h"), KeyedStream[str, int])
assert_type(by_url.left_interval_join(of_url, lambda c, p: c.at if p else 0, before="1s"), KeyedStream[str, int])
table = of_url.latest(deleted=lambda page: page.url == "")
assert_type(table, Table[str, Page])
assert_type(by_url.join_table(table, lambda click, page: page.url), KeyedStream[str, str])
assert_type(by_url.left_join_table(table, lambda click, page: page), KeyedStream[str, Page | None])
late_sides = (SideOutput("late-clicks", Click), SideOutput("late-pages", Page))
assert_type(by_url.join(of_url, lambda c, p: c.at, window=Tumbling("1m"), late=late_sides).side(late_sides[1]), Stream[Page])
assert_type(by_url.interval_join(of_url, lambda c, p: c.at, after="1h", late=late_sides), KeyedStream[str, int])
assert_type(by_url.join_table(table, lambda click, page: page.url, as_of=True, late=LATE), KeyedStream[str, str])
assert_type(table.changes(), KeyedStream[str, Change[Page]])
assert_type(table.changes().map(lambda change: change.new.url if change.new else None), KeyedStream[str, str | None])
assert_type(clicks.batch(100, within="1s"), Stream[list[Click]])
pages = clicks.map(lambda click: Page(click.url)).broadcast(lambda page: page.url, deleted=lambda page: page.url == "")
assert_type(pages, BroadcastTable[str, Page])
assert_type(clicks.enrich(pages, lambda click, known: known[click.url].url), Stream[str])
assert_type(by_user.enrich(pages, lambda click, known: click.url in known), KeyedStream[str, bool])
assert_type(by_user.window(Rows(10), late=LATE).count(), KeyedStream[str, Windowed[int]])
assert_type(by_user.window(Tumbling("1h"), early="1m").count(), KeyedStream[str, Windowed[int]])
with StreamTest() as test:
    assert_type(test.collect(by_user.count()).take(), list[tuple[str, int]])
    assert_type(test.collect(clicks).all, list[Click])
