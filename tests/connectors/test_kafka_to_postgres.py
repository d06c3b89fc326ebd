"""Kafka to windows to PostgreSQL with exactly_once, while a worker, the master or the broker is killed every two seconds.

    KILL_SECONDS=60 KILL_RECORDS=1000000 pytest -s tests/connectors/test_kafka_to_postgres.py

kills for a minute, takes a million records, and shows the counts. The two seconds begin when the killed process runs again.
"""

from __future__ import annotations

import json
import os
import runpy
import secrets
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.kafka_kills import produce_slowly, restart
from tests.connectors.server_kills import KINDS, kill_for_a_while
from tests.integration.conftest import no_process_is_left, scene
from tests.integration.random_kills import SECONDS, SETTINGS, Killer
from tests.integration.support import Scene
from tests.servers.kafka import Broker
from tests.servers.postgres import PostgresServer
from topo.launch.cluster import submit_background
from topo.launch.request import RunRequest

psycopg = pytest.importorskip("psycopg", reason="`make connectors` installs it")

pytestmark = [
    pytest.mark.integration,
    pytest.mark.server,
    pytest.mark.xdist_group("kafka-out"),
    pytest.mark.timeout(400 + 6 * SECONDS),
]
__all__ = ["no_process_is_left", "scene"]
FILE = Path(__file__).parents[2] / "topologies" / "kafka_to_postgres.py"
EXAMPLE: dict[str, Any] = runpy.run_path(str(FILE))
RECORDS = int(os.environ.get("KILL_RECORDS", "40000"))
PARTITIONS = 4
MINUTE = 60_000


def sums() -> Counter[tuple[str, int, int, int]]:
    """The rows by a plain computation: shop, minute, orders, cents."""
    orders, cents = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
    for order in EXAMPLE["orders"](RECORDS):
        window = order["shop"], order["at"] // MINUTE * MINUTE
        orders[window] += 1
        cents[window] += order["cents"]
    return Counter((*window, orders[window], cents[window]) for window in orders)


def test_each_sum_is_a_row_once_and_equals_a_plain_computation(scene: Scene, broker: Broker, database: PostgresServer) -> None:
    topic, table = broker.create_topic(PARTITIONS), f"t_{secrets.token_hex(6)}"
    ends = {f"{topic}-{partition}": len(range(partition, RECORDS, PARTITIONS)) for partition in range(PARTITIONS)}
    given = {"servers": broker.address, "dsn": database.address, "topic": topic, "table": table, "stop": ends}
    file = scene.folder / "summed.py"
    file.write_text(f"{FILE.read_text()}\n\ndef summed():\n    return topology(**{given!r})\n")
    with psycopg.connect(database.address, autocommit=True) as connection:
        connection.execute(EXAMPLE["TABLE"].format(table))
    records = ((number % PARTITIONS, json.dumps(order)) for number, order in enumerate(EXAMPLE["orders"](RECORDS)))
    running = submit_background(RunRequest(f"{file}:summed", settings=SETTINGS, home=scene.home))
    killer = Killer(scene, running)
    began = time.monotonic()
    with ThreadPoolExecutor(1) as threads:
        produced = threads.submit(produce_slowly, broker, topic, records, RECORDS, scene.folder / "hurry")
        try:
            struck = kill_for_a_while(killer, partial(restart, broker))
        finally:
            scene.touch("hurry")
        produced.result()
    outcome = killer.finish()
    print(f"\nKafka to PostgreSQL: {RECORDS} records in {time.monotonic() - began:.0f} s; struck {dict(struck)}; {killer}")
    assert (outcome.exit_code, outcome.reason) == (0, "every message was processed"), str(killer)
    assert min(struck[kind] for kind in KINDS) >= 1
    with psycopg.connect(database.address, autocommit=True) as connection:
        rows = connection.execute(f"select shop, window_start, orders, cents from {table}").fetchall()
    assert Counter(rows) == sums()
