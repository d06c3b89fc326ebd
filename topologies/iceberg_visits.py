"""Visits become an Iceberg table, partitioned by day, with a row for each user and minute. A program of streams.

    topo run topologies/iceberg_visits.py                                     # FOLDER is build/visits
    topo run topologies/iceberg_visits.py -p folder=mine -p clicks=500

It makes up clicks, counts those of each user in each minute of event time, and writes the table `web.visits` of a catalog in
FOLDER. Read it with pyiceberg or another engine:

    python -c 'import topologies.iceberg_visits as it; print(it.read("build/visits"))'

A second run adds its rows to the table. Whatever worker dies, each row of a run is in the table once.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import msgspec

from topo import IcebergSink
from topo.streams import StreamBuilder, Tumbling

FIRST_MS = 1_790_000_000_000
USERS = ("ann", "bob", "eve")
SCHEMA = {"day": "date", "minute": "string", "user": "string", "clicks": "bigint"}


class Click(msgspec.Struct):
    """A click of a user, and when (ms)."""

    user: str
    at: int


class Visit(msgspec.Struct):
    """How often a user has clicked in a minute."""

    day: date
    minute: str
    user: str
    clicks: int


def made_up(clicks: int) -> Iterator[Click]:
    """Yield clicks, the same every time: one every ten seconds."""
    for number in range(clicks):
        yield Click(USERS[number * 7 // 3 % 3], FIRST_MS + 10_000 * number)


def visit(user: str, start_ms: int, clicks: int) -> Visit:
    """Return the row of a window."""
    start = datetime.fromtimestamp(start_ms / 1000, UTC)
    return Visit(start.date(), f"{start:%H:%M}", user, clicks)


def catalog(folder: str) -> dict[str, str]:
    """Return the properties of the catalog in a folder."""
    root = Path(folder).absolute()
    root.mkdir(parents=True, exist_ok=True)
    return {"type": "sql", "uri": f"sqlite:///{root / 'catalog.db'}", "warehouse": f"file://{root / 'warehouse'}"}


def read(folder: str) -> Any:
    """Return the table, as Arrow has it."""
    from pyiceberg.catalog import load_catalog

    return load_catalog("topo", **catalog(folder)).load_table("web.visits").scan().to_arrow()


def topology(folder: str = "build/visits", clicks: int = 10_000) -> StreamBuilder:
    """Build the program.

    Args:
        folder: of the catalog and the table; all workers see it.
        clicks: how many to make up.
    """
    flow = StreamBuilder("iceberg-visits").config(delivery="exactly_once", checkpoint_interval="1s")
    timed = flow.from_iterable(lambda: made_up(clicks), of=Click, name="clicks").with_event_time(lambda click: click.at)
    counted = timed.key_by(lambda click: click.user).window(Tumbling("1m")).count()
    rows = counted.map_keyed(lambda user, window: visit(user, window.start, window.value), of=Visit)
    rows.to(IcebergSink(catalog(folder), "web.visits", schema=SCHEMA, partition_by="day"), name="table")
    return flow
