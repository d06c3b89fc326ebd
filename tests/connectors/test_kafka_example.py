"""topologies/kafka_orders.py, on a real broker."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.kafka_sources import PatientSpout
from tests.servers.kafka import Broker
from topo.testing import TopologyTest

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("kafka")]

EXAMPLE: dict[str, Any] = runpy.run_path(str(Path(__file__).parents[2] / "topologies" / "kafka_orders.py"))


@pytest.mark.parametrize("crash", ["orders", "total"])
def test_each_order_counts_once_whatever_crashes(broker: Broker, tmp_path: Path, crash: str) -> None:
    if "orders" in broker.admin().list_topics(timeout=10).topics:
        broker.delete_topic("orders")
    broker.create_topic(4, "orders")
    EXAMPLE["put_orders"](broker.address, 300)
    EXAMPLE["topology"].__globals__["KafkaSpout"] = PatientSpout
    test = TopologyTest(lambda: EXAMPLE["topology"](broker.address, str(tmp_path / "totals")))
    test.advance("1500ms")
    test.crash(crash)
    test.advance("15s")
    rows = [json.loads(line) for line in (tmp_path / "totals").read_text().splitlines()]
    expected = EXAMPLE["orders"](300)
    assert len(rows) == len(expected)
    for user in EXAMPLE["USERS"]:
        cents = [amount for one, amount in expected if one == user]
        last = max((row for row in rows if row["user"] == user), key=lambda row: row["orders"])
        assert (last["orders"], last["cents"]) == (len(cents), sum(cents))
    broker.delete_topic("orders")
