"""The code of docs/redis.md, on a real server."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.pages import names_of
from tests.servers.redis import RedisProcess
from topo.testing import TopologyTest

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("redis")]

PAGE: dict[str, Any] = names_of("redis.md")


@pytest.fixture
def url(redis_server: RedisProcess) -> str:
    """The server with an empty database."""
    redis_server.client().flushall()
    return redis_server.address


def test_orders_are_read_and_written_once_each(redis_server: RedisProcess, url: str, tmp_path: Path) -> None:
    client, towns = redis_server.client(), [secrets.token_hex(2) for _ in range(3)]
    for number in range(30):
        client.xadd(f"orders:{towns[number % 3]}", {"item": "tea", "cents": number})
    test = TopologyTest(lambda: PAGE["orders"](url, tmp_path / "out"))
    test.advance("3s")
    test.crash("orders")
    client.xadd("orders:late", {"item": "salt", "cents": 30, "note": "late"})
    test.advance("15s")
    rows = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    assert sorted(int(row["cents"]) for row in rows) == list(range(31))
    assert [row["note"] for row in rows if row["item"] == "salt"] == ["late"]
