"""The example with Redis, on a real server."""

from __future__ import annotations

import random
import runpy
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.servers.redis import RedisProcess
from topo.testing import TopologyTest

pytest.importorskip("redis", reason="`make connectors` installs it")

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("redis")]

EXAMPLE: dict[str, Any] = runpy.run_path(str(Path(__file__).parents[2] / "topologies" / "redis_orders.py"))


@pytest.mark.parametrize("crash", ["orders", "total", "alerts"])
def test_each_order_counts_once_whatever_crashes(redis_server: RedisProcess, redis_url: str, crash: str) -> None:
    EXAMPLE["put_orders"](redis_url, 300)
    chance = random.Random(1)
    orders = [(chance.choice(EXAMPLE["SHOPS"]), chance.randrange(100, 10_000)) for _ in range(300)]
    test = TopologyTest(lambda: EXAMPLE["topology"](redis_url))
    test.advance("1500ms")
    test.crash(crash)
    test.advance("15s")
    client = redis_server.client()
    for shop in EXAMPLE["SHOPS"]:
        cents = [amount for one, amount in orders if one == shop]
        assert client.hgetall(f"total:{shop}") == {"shop": shop, "orders": str(len(cents)), "cents": str(sum(cents))}
    large = Counter((entry["shop"], int(entry["cents"])) for _, entry in client.xrange("large-orders"))
    assert large == Counter(order for order in orders if order[1] >= 9_000)
