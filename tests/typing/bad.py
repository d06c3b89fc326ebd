"""Lines that type checkers flag: exactly those that end with a mark, one mistake each."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from topo import IterableSpout, PrintBolt
from topo.streams import (
    AT_END,
    CoProcess,
    KeyedList,
    KeyedMap,
    KeyedProcess,
    KeyedValue,
    Rows,
    SideOutput,
    Stream,
    StreamBuilder,
    StreamContext,
    StreamOutput,
    Tumbling,
    Windowed,
    agg,
)


class Click(msgspec.Struct):
    user: str
    url: str
    at: int
    price: float = 0.0


class Page(msgspec.Struct):
    url: str


class Report(msgspec.Struct):
    clicks: int
    url: str


LATE = SideOutput("late", Page)


class Seen(KeyedProcess[str, Click, int]):
    last = KeyedValue(int)
    urls = KeyedList(str)
    counts = KeyedMap(str, int)

    def process(self, record: Click, context: StreamContext[str], out: StreamOutput[int]) -> None:
        self.last.set("now")  # wrong
        self.urls.add(1)  # wrong
        self.counts.put(1, 1)  # wrong
        self.last.get() + 1  # wrong
        out.emit(record.url)  # wrong
        out.side(LATE, record)  # wrong
        print(context.key.at)  # wrong


async def page_of(click: Click) -> Page:
    return Page(click.url)


class OfPages(KeyedProcess[str, Page, int]):
    def process(self, record: Page, context: StreamContext[str], out: StreamOutput[int]) -> None: ...


class ByNumber(KeyedProcess[int, Click, int]):
    def process(self, record: Click, context: StreamContext[int], out: StreamOutput[int]) -> None: ...


flow = StreamBuilder("bad")
lines = flow.from_files("lines.txt")
clicks = lines.parse_json(Click)
by_user = clicks.key_by(lambda click: click.user)
window = by_user.window(Tumbling("1m"))

clicks.map(lambda click: click.usr)  # wrong
clicks.filter(lambda click: click.at.upper())  # wrong
clicks.flat_map(lambda click: click.at)  # wrong
clicks.map(str.upper)  # wrong
clicks.parse_json(Page)  # wrong
clicks.with_event_time(lambda click: click.url)  # wrong
clicks.key_by(lambda click: [click.user])  # wrong
clicks.key_by(lambda click: {"user": click.user})  # wrong
clicks.key_by(lambda click: click)  # wrong
clicks.count()  # wrong
clicks.window(Tumbling("1m"))  # wrong
clicks.gather(parallelism=2)  # wrong
clicks.map(lambda click: click.at, parallelism=2)  # wrong
clicks.rebalance()  # wrong
clicks.to(str.upper)  # wrong
clicks.to(lambda click, more: None)  # wrong
clicks.branch(str.isdigit)  # wrong
pages: Stream[Page] = clicks  # wrong
clicks.async_map(lambda click: click.at)  # wrong
clicks.async_map(page_of).map(lambda page: page.user)  # wrong
flow.from_spout(PrintBolt())  # wrong
flow.from_spout(IterableSpout([1]), of=int).map(str.upper)  # wrong
by_user.map_keyed(lambda user, click: user + click.at)  # wrong
by_user.reduce(lambda first, last: last.at)  # wrong
by_user.fold(0, lambda total, click: total + click.url)  # wrong
by_user.count(emit="end")  # wrong
by_user.count(emit=AT_END).map(lambda total: total.upper())  # wrong
by_user.process(OfPages())  # wrong
by_user.process(ByNumber())  # wrong
by_user.process(Seen)  # wrong
by_user.window("1m")  # wrong
by_user.window(Tumbling("1m"), late=LATE)  # wrong
window.sum(lambda click: click.url)  # wrong
window.mean(lambda click: click.url)  # wrong
window.top_n(3, by=lambda click: click)  # wrong
window.top_n(3, by=lambda click: [click.at])  # wrong
window.max(lambda click: None)  # wrong
lines.parse_json(Click, bad=LATE)  # wrong
window.aggregate(agg.count(), agg.sum_of(lambda click: click.at), into=Report)  # wrong
window.aggregate(agg.mean_of(lambda click: click.url))  # wrong
window.count().map(lambda found: found.valu)  # wrong


def urls(user: int, found: Windowed[Sequence[Click]]) -> list[str]:
    return [click.url for click in found.value]


window.process(urls)  # wrong


class Meet(CoProcess[str, Click, Click, int]):
    def process_left(self, record: Click, context: StreamContext[str], out: StreamOutput[int]) -> None:
        out.emit(record.url)  # wrong

    def process_right(self, record: Click, context: StreamContext[str], out: StreamOutput[int]) -> None: ...


of_url = clicks.map(lambda click: Page(click.url)).key_by(lambda page: page.url)
table = of_url.latest()
of_url.latest(deleted=lambda page: page.user)  # wrong
by_user.join(of_url, lambda click, page: page.user, window=Tumbling("1m"))  # wrong
by_user.join(of_url, lambda click, page: page.url)  # wrong
by_user.left_join(of_url, lambda click, page: page.url, window=Tumbling("1m"))  # wrong
by_user.outer_join(of_url, lambda click, page: click.url, window=Tumbling("1m"))  # wrong
by_user.interval_join(clicks, lambda click, other: click.at, after="1h")  # wrong
by_user.left_interval_join(of_url, lambda click, page: page.url, after="1h")  # wrong
by_user.join_table(of_url, lambda click, page: page.url)  # wrong
by_user.left_join_table(table, lambda click, page: page.url)  # wrong
by_user.connect(of_url).process(Meet())  # wrong
by_user.left_join(of_url, lambda click, page: click.at, window=Tumbling("1m"), late=(LATE, LATE))  # wrong
by_user.join_table(table, lambda click, page: page.url, as_of=True, late=SideOutput("late", Page))  # wrong
table.changes().map(lambda change: change.new.url)  # wrong
clicks.batch(100).map(lambda batch: batch.url)  # wrong
known = clicks.broadcast(lambda click: click.user)
clicks.broadcast(lambda click: click.usr)  # wrong
clicks.enrich(known, lambda click, table: table[click.at])  # wrong
by_user.enrich(known, lambda click, table: table[click.user].nam)  # wrong
by_user.enrich(table, lambda click, pages: click.url)  # wrong
by_user.join(of_url, lambda click, page: click.at, window=Rows(3))  # wrong
