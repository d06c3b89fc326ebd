"""Rows from a table to a table over real processes, of which some are killed, and the server with them."""

from __future__ import annotations

import random
import secrets
import time
from typing import Any

import pytest

from tests.integration.conftest import no_process_is_left, scene
from tests.integration.support import Scene, eventually, kill
from tests.servers.postgres import PASSWORD, PostgresServer

psycopg = pytest.importorskip("psycopg")

__all__ = ["no_process_is_left", "scene"]

pytestmark = [pytest.mark.integration, pytest.mark.server, pytest.mark.xdist_group("postgres")]

COPY = """
class Pass(BasicBolt):
    outputs = ("n",)

    def execute(self, tup, collector):
        collector.emit(tup.values)

def topology():
    builder = TopologyBuilder("copy")
    builder.set_spout("rows", PostgresSpout(DSN, "T_in", ["n"], key="id", partitions=3, poll_interval="100ms"), 2)
    builder.set_bolt("pass", Pass(), 2).shuffle_grouping("rows")
    builder.set_bolt("out", PostgresSink(DSN, "T_out", ["n"]), 2).shuffle_grouping("pass")
    return builder.build()
"""
KILLS, ROWS = 6, 300


def test_each_row_is_there_once_whatever_is_killed_and_the_password_is_not_shown(
    database: PostgresServer, scene: Scene, topo_home: Any
) -> None:
    chance = random.Random(3)
    name = f"t_{secrets.token_hex(6)}"
    address = database.address.replace("user=topo", "user=locked") + f" password={PASSWORD}"

    def run(statement: str) -> list[Any]:
        with psycopg.connect(database.address, autocommit=True) as connection:
            cursor = connection.execute(statement.replace("T_", f"{name}_"))
            return cursor.fetchall() if cursor.description else []

    run("create table T_in (id bigserial primary key, n int); create table T_out (n int)")
    run("grant create on schema public to locked; grant all on T_in, T_out to locked")
    text = COPY.replace("T_", f"{name}_").replace("DSN", repr(address))
    settings = {"restart_backoff": "50ms", "checkpoint_interval": "200ms", "checkpoint_pause": "50ms"}
    running = scene.submit(scene.file(text), delivery="exactly_once", **settings)
    for number in range(KILLS):
        run(f"insert into T_in (n) select generate_series({ROWS * number}, {ROWS * (number + 1) - 1})")
        status = running.wait_until(lambda status: status["status"] == "RUNNING", timeout_s=60)
        workers = [worker["pid"] for worker in status["workers"] if worker["pid"]]
        if number == KILLS // 2:
            # The worker that is replaced meanwhile finds no server.
            database.kill()
            kill(workers[0])
            time.sleep(1)
            database.start_again()
        else:
            kill(chance.choice(workers))
        time.sleep(chance.random())
    eventually(lambda: len(run("select n from T_out")) >= KILLS * ROWS, timeout_s=180)
    assert sorted(n for (n,) in run("select n from T_out")) == list(range(KILLS * ROWS))
    status = running.status()
    assert status["restarts"] >= KILLS // 2
    running.kill()
    assert run("select count(*) from T_out") == [(KILLS * ROWS,)] and run("select * from T_out__staged") == []
    shown = [repr(status), *(path.read_text(errors="replace") for path in topo_home.rglob("*.log"))]
    assert len(shown) > 1 and all(PASSWORD not in text for text in shown)
