"""The example with NATS, on a real server."""

from __future__ import annotations

import asyncio
import json
import random
import runpy
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.test_nats_sink import messages
from tests.servers import nats
from topo.testing import TopologyTest

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("nats")]

EXAMPLE = Path(__file__).parents[2] / "topologies" / "nats_orders.py"


def test_each_order_counts_once_when_its_reader_crashes(tmp_path: Path) -> None:
    pytest.importorskip("nats")
    example: dict[str, Any] = runpy.run_path(str(EXAMPLE))
    server = nats.start(tmp_path)
    try:
        asyncio.run(example["put_orders"](server.address, 300))
        out = tmp_path / "totals.jsonl"
        test = TopologyTest(lambda: example["topology"](server.address, out=str(out)))
        test.advance("500ms")
        test.crash("orders")
        test.crash("totals")
        test.advance("15s")
        chance, expected = random.Random(1), dict[str, tuple[int, int]]()
        for _ in range(300):
            shop, cents = chance.choice(example["SHOPS"]), chance.randrange(100, 10_000)
            orders, total = expected.get(shop, (0, 0))
            expected[shop] = (orders + 1, total + cents)
        rows = [json.loads(line) for line in out.read_text().splitlines()]
        assert len(rows) == 300
        assert {row["shop"]: (row["orders"], row["cents"]) for row in rows} == expected
        for shop, (orders, cents) in expected.items():
            found = messages(server.address, "TOTALS", f"totals.{shop}")
            assert len(found) == orders and json.loads(found[-1])["cents"] == cents
    finally:
        server.stop()
