"""Watches the access log of a web server: answers, errors and sizes as metrics, and an alert when too many of them are errors.

Without a path it makes up a log in which something goes wrong for a while.

    topo run topologies/access_log.py
    topo run topologies/access_log.py -p path=/var/log/nginx/access.log
    topo status access-log --json

Every answer counts once, whatever worker dies. The metrics count work, so repeated work counts twice.
"""

from __future__ import annotations

import random
import re
from collections import Counter, deque
from collections.abc import Iterator

from topo import (
    BasicBolt,
    BasicCollector,
    IterableSpout,
    PrintBolt,
    StatefulBolt,
    TaskContext,
    TextFileSpout,
    Topology,
    TopologyBuilder,
    Tuple,
)

COMMON_LOG_LINE = re.compile(r'(\S+) \S+ \S+ \[[^\]]*\] "\S+ (\S+)[^"]*" (\d{3}) (\d+|-)')


class Parse(BasicBolt):
    """Reads lines of the common log format. Other lines are counted and skipped: to fail them would only replay them."""

    outputs = ("client", "page", "status", "size")

    def prepare(self, context: TaskContext) -> None:
        self.malformed = context.metrics.counter("malformed_lines")
        self.sizes = context.metrics.histogram("response_bytes")

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        found = COMMON_LOG_LINE.match(tup["line"])
        if found is None:
            self.malformed.add()
            return
        client, page, status, size = found.groups()
        size_bytes = 0 if size == "-" else int(size)
        self.sizes.record(size_bytes)
        collector.emit((client, page.partition("?")[0], int(status), size_bytes))


class Watch(StatefulBolt):
    """Reports when the share of server errors among the last `last` answers rises above the limit, and when it is below again."""

    outputs = ("alert",)

    def __init__(self, limit: float, last: int = 500) -> None:
        self.limit = limit
        self.last = last

    def prepare(self, context: TaskContext) -> None:
        self.server_errors = context.metrics.counter("server_errors")
        self.error_share = context.metrics.gauge("error_share")
        self.recent: deque[bool] = deque(maxlen=self.last)
        self.errors = 0
        self.is_alert = False

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        is_error = tup["status"] >= 500
        if len(self.recent) == self.last:
            self.errors -= self.recent[0]
        self.recent.append(is_error)
        self.errors += is_error
        share = self.errors / self.last
        self.error_share.set(share)
        if is_error:
            self.server_errors.add()
        if (share > self.limit) != self.is_alert:
            self.is_alert = not self.is_alert
            state = "too many server errors" if self.is_alert else "server errors are few again"
            collector.emit((f"{state}: {share:.1%} of the last {self.last} answers",))

    def snapshot(self) -> tuple[list[bool], bool]:
        return list(self.recent), self.is_alert

    def restore(self, state: tuple[list[bool], bool] | None) -> None:
        recent, self.is_alert = state or ([], False)
        self.recent = deque(recent, maxlen=self.last)
        self.errors = sum(recent)


class Pages(StatefulBolt):
    """Counts answers and bytes by page, and prints the most wanted pages at the end."""

    def prepare(self, context: TaskContext) -> None:
        self.pages = context.metrics.gauge("different_pages")
        self.answers: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        page = tup["page"]
        self.answers[page] += 1
        self.bytes[page] += tup["size"]
        self.pages.set(len(self.answers))

    def snapshot(self) -> tuple[dict[str, int], dict[str, int]]:
        return dict(self.answers), dict(self.bytes)

    def restore(self, state: tuple[dict[str, int], dict[str, int]] | None) -> None:
        answers, sizes = state or ({}, {})
        self.answers, self.bytes = Counter(answers), Counter(sizes)

    def cleanup(self) -> None:
        for page, count in self.answers.most_common(10):
            print(f"{count:>8,}  {self.bytes[page]:>13,} B  {page}")


def made_up_log(lines: int) -> Iterator[str]:
    """Yield an access log, the same every time; from two to three fifths of it, a third of the answers are errors."""
    chance = random.Random(1)
    pages = ("/", "/search", "/cart", "/help", "/about", "/login", "/item/17", "/item/42", "/feed.xml", "/logo.png")
    for number in range(lines):
        if number % 997 == 0:
            yield "-- log rotated --"
            continue
        client = f"10.0.{chance.randrange(4)}.{chance.randrange(256)}"
        page = pages[min(int(chance.expovariate(0.5)), len(pages) - 1)]
        is_bad_time = 2 * lines <= 5 * number < 3 * lines
        status = 503 if chance.random() < (0.33 if is_bad_time else 0.002) else 200
        size = int(chance.lognormvariate(8, 1.5))
        clock = f"{number // 3600000 % 24:02}:{number // 60000 % 60:02}:{number // 1000 % 60:02}"
        yield f'{client} - - [01/Mar/2026:{clock} +0000] "GET {page}?n={number} HTTP/1.1" {status} {size}'


def topology(path: str = "", lines: int = 100_000, limit: float = 0.05) -> Topology:
    """Build the topology.

    Args:
        path: an access log, or a folder of them; a made-up one by default.
        lines: how many lines to make up.
        limit: share of server errors above which there is an alert.
    """
    builder = TopologyBuilder("access-log")
    log = TextFileSpout(path) if path else IterableSpout(lambda: made_up_log(lines), fields=("line",))
    builder.set_spout("log", log)
    builder.set_bolt("parse", Parse()).shuffle_grouping("log")
    builder.set_bolt("watch", Watch(limit)).global_grouping("parse")
    builder.set_bolt("pages", Pages()).global_grouping("parse")
    builder.set_bolt("alerts", PrintBolt()).global_grouping("watch")
    return builder.build()
