"""Orders that come as files leave as files: a folder is read, and the revenue of each shop by the minute is written as CSV.

    topo run topologies/file_orders.py                                      # FOLDER is build/orders
    topo run topologies/file_orders.py -p folder=mine -p orders=0           # makes up none: reads mine/incoming

First it makes up some files of orders in FOLDER/incoming. The results are in FOLDER/revenue, a folder for each shop. A second run
reads all orders again, and adds its files to those of the first.

Each order counts once, whatever worker dies: places in the files that are read and the files that are written are in the same
checkpoints.
"""

from __future__ import annotations

import gzip
import json
import random
from datetime import UTC, datetime
from pathlib import Path

from topo import BasicCollector, FilesSink, FilesSpout, StatefulBolt, TaskContext, Topology, TopologyBuilder, Tuple

SHOPS = ("north", "south", "east", "west")


class Revenue(StatefulBolt):
    """Adds up the orders of its shops by the minute, and emits the sums at the end of the input."""

    outputs = ("shop", "minute", "orders", "cents")
    key = "shop"

    def prepare(self, context: TaskContext) -> None:
        self.sums: dict[str, dict[str, tuple[int, int]]] = {}

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        minutes = self.sums.setdefault(tup["shop"], {})
        minute = f"{datetime.fromtimestamp(tup['at'], UTC):%H:%M}"
        orders, cents = minutes.get(minute, (0, 0))
        minutes[minute] = orders + 1, cents + tup["cents"]

    def end_of_input(self, collector: BasicCollector) -> None:
        for shop, minutes in sorted(self.sums.items()):
            for minute, (orders, cents) in sorted(minutes.items()):
                collector.emit((shop, minute, orders, cents))

    def snapshot(self) -> dict[str, dict[str, tuple[int, int]]]:
        return self.sums

    def restore(self, state: dict[str, dict[str, tuple[int, int]]] | None) -> None:
        self.sums = {shop: dict(minutes) for shop, minutes in (state or {}).items()}


def make_up(folder: Path, orders: int) -> None:
    """Write files of orders, the same every time: each under a hidden name first, since a reader may be at work."""
    chance = random.Random(1)
    folder.mkdir(parents=True, exist_ok=True)
    for first in range(0, orders, 1000):
        rows = (
            {"shop": chance.choice(SHOPS), "at": 1_772_000_000 + number // 20, "cents": chance.randrange(100, 10_000)}
            for number in range(first, min(first + 1000, orders))
        )
        name = f"{first:09}.json.gz"
        if (folder / name).exists():
            # Workers build the topology, too.
            continue
        (folder / f".{name}").write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
        (folder / f".{name}").rename(folder / name)


def topology(folder: str = "build/orders", orders: int = 10_000) -> Topology:
    """Build the topology.

    Args:
        folder: where `incoming` is read and `revenue` is written; all workers see it.
        orders: how many to make up.
    """
    root = Path(folder)
    make_up(root / "incoming", orders)
    builder = TopologyBuilder("file-orders").config(delivery="exactly_once")
    spout = FilesSpout(root / "incoming", format="json", fields=("shop", "at", "cents"), discovery_interval=None, settle="0s")
    builder.set_spout("orders", spout, 2)
    builder.set_bolt("revenue", Revenue(), 2).fields_grouping("orders", "shop")
    builder.set_bolt("files", FilesSink(root / "revenue", format="csv", partition_by="shop")).shuffle_grouping("revenue")
    return builder.build()
