"""Orders become a Delta table, partitioned by shop, to which each order is added once.

    topo run topologies/delta_orders.py                                     # FOLDER is build/orders
    topo run topologies/delta_orders.py -p folder=mine -p orders=500

It makes up files of orders in FOLDER/incoming, and writes the table FOLDER/table. Read it with deltalake or another engine:

    python -c 'from deltalake import DeltaTable; print(DeltaTable("build/orders/table").to_pyarrow_table().num_rows)'

A second run reads all orders again, and adds them to the table. Whatever worker dies, each order of a run is in the table once:
places in the files that are read and the files that the table gets are in the same checkpoints.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

from topo import DeltaSink, FilesSpout, Topology, TopologyBuilder

SHOPS = ("north", "south", "east", "west")
SCHEMA = {"shop": "string", "number": "bigint", "cents": "bigint"}


def made_up(orders: int) -> list[dict[str, str | int]]:
    """Return orders, the same every time."""
    chance = random.Random(1)
    return [{"shop": chance.choice(SHOPS), "number": number, "cents": chance.randrange(100, 10_000)} for number in range(orders)]


def make_up(folder: Path, orders: int) -> None:
    """Write files of orders: each under a hidden name first, since a reader may be at work."""
    rows = made_up(orders)
    folder.mkdir(parents=True, exist_ok=True)
    for first in range(0, orders, 1000):
        name = f"{first:09}.json"
        if (folder / name).exists():
            # Workers build the topology, too.
            continue
        (folder / f".{name}").write_text("".join(json.dumps(row) + "\n" for row in rows[first : first + 1000]))
        (folder / f".{name}").rename(folder / name)


def topology(folder: str = "build/orders", orders: int = 10_000) -> Topology:
    """Build the topology.

    Args:
        folder: where `incoming` is read and `table` is written; all workers see it.
        orders: how many to make up.
    """
    root = Path(folder)
    make_up(root / "incoming", orders)
    builder = TopologyBuilder("delta-orders").config(delivery="exactly_once", checkpoint_interval="1s")
    spout = FilesSpout(root / "incoming", format="json", fields=tuple(SCHEMA), discovery_interval=None, settle="0s")
    builder.set_spout("orders", spout, 2)
    builder.set_bolt("table", DeltaSink(root / "table", schema=SCHEMA, partition_by="shop"), 2).shuffle_grouping("orders")
    return builder.build()
