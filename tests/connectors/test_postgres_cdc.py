"""PostgresCdcSpout on a real server: changes and their order, positions, feedback, a slot that is gone."""

from __future__ import annotations

import os
import secrets
import select
import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from tests.servers.postgres import PostgresServer
from topo import BasicBolt, ConfigError, PostgresCdcSpout, TopologyBuilder
from topo.connectors.postgres.pgoutput import lsn_of
from topo.testing import TopologyTest
from topo.testing.partition_harness import PartitionHarness

psycopg = pytest.importorskip("psycopg")
from psycopg.conninfo import make_conninfo  # noqa: E402

pytestmark = [pytest.mark.integration, pytest.mark.server, pytest.mark.xdist_group("postgres")]


class Changes:
    """A published table T with a key `id` and a column `n`, and the tasks of a spout of its changes."""

    def __init__(self, dsn: str, **options: Any) -> None:
        self.dsn = dsn
        self.name = f"c_{secrets.token_hex(6)}"
        self.options = options
        self.run("create table T (id bigserial primary key, n int, at date)")
        self.run("create publication T for table T")

    def spout(self) -> PostgresCdcSpout:
        return PostgresCdcSpout(self.dsn, self.name, slot=self.name, **self.options)

    def start(self) -> PartitionHarness:
        self.harness = PartitionHarness(self.spout)
        self.harness.turns(2)
        return self.harness

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(statement.replace("T", self.name))
            return cursor.fetchall() if cursor.description else []

    def insert(self, *numbers: int) -> None:
        """Insert rows, each in a transaction."""
        for n in numbers:
            self.run(f"insert into T (n) values ({n})")

    def read(self, count: int) -> list[tuple[str, Any, tuple[Any, ...]]]:
        """Wait until at least `count` rows were read; return all."""
        self.wait(lambda: len(self.harness.all_rows()) >= count)
        self.harness.turns(3)
        return self.harness.all_rows()

    def numbers(self, count: int) -> list[int]:
        return [row[2]["n"] for _, _, row in self.read(count)]

    def wait(self, found: Any) -> None:
        until = time.monotonic() + 30
        while not found():
            assert time.monotonic() < until, self.harness.errors
            self.harness.clock.advance("1s")
            self.harness.turns(1)
            time.sleep(0.01)

    def confirmed(self) -> int:
        ((lsn,),) = self.run("select confirmed_flush_lsn::text from pg_replication_slots where slot_name = 'T'")
        return lsn_of(lsn)

    def end(self) -> int:
        ((lsn,),) = self.run("select pg_current_wal_lsn()::text")
        return lsn_of(lsn)


@pytest.fixture
def changes(dsn: str) -> Iterator[Changes]:
    made = Changes(dsn)
    yield made
    drop(made)


def drop(changes: Changes) -> None:
    """Remove the slot, which would keep the log."""
    changes.harness.stop(store=False)
    disconnect(changes)
    changes.run("select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = 'T'")


def disconnect(changes: Changes) -> None:
    """End the connection that reads the slot, as the kernel does for a process that was killed."""
    until = time.monotonic() + 30
    while changes.run("select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = 'T' and active"):
        assert time.monotonic() < until
        time.sleep(0.02)


# -- changes -----------------------------------------------------------------------------------------------------------------


def test_changes_have_their_rows_before_and_after(changes: Changes) -> None:
    changes.insert(0)
    changes.start()
    changes.run("insert into T (n, at) values (1, '2024-02-29'), (2, null); update T set n = 3 where id = 2")
    changes.run("update T set id = 20 where id = 2; delete from T where id = 3")
    changes.run("alter table T replica identity full; update T set n = 4 where id = 20")
    changes.run("truncate T")
    table = f"public.{changes.name}"
    day = date(2024, 2, 29)
    assert [row for _, _, row in changes.read(7)] == [
        ("insert", table, {"id": 2, "n": 1, "at": day}, None),
        ("insert", table, {"id": 3, "n": 2, "at": None}, None),
        ("update", table, {"id": 2, "n": 3, "at": day}, None),
        ("update", table, {"id": 20, "n": 3, "at": day}, {"id": 2}),
        ("delete", table, None, {"id": 3}),
        ("update", table, {"id": 20, "n": 4, "at": day}, {"id": 20, "n": 3, "at": day}),
        ("truncate", table, None, None),
    ]
    assert changes.harness.errors == []


def test_transactions_come_in_the_order_of_their_commits_and_whole(changes: Changes) -> None:
    changes.start()
    with psycopg.connect(changes.dsn) as late:
        late.execute(f"insert into {changes.name} (n) values (1)")
        changes.insert(2)
        late.execute(f"insert into {changes.name} (n) values (3)")
    with psycopg.connect(changes.dsn) as undone:
        undone.execute(f"insert into {changes.name} (n) values (4)")
        undone.rollback()
    changes.insert(5)
    assert changes.numbers(4) == [2, 1, 3, 5]
    positions = [position for _, position, _ in changes.harness.all_rows()]
    assert positions == sorted(set(positions))


def test_a_large_value_that_has_not_changed_is_left_out_or_taken_from_the_old_row(changes: Changes) -> None:
    changes.run("alter table T add large text; alter table T alter large set storage external")
    changes.run(f"insert into T (n, large) values (1, '{'x' * 10_000}')")
    changes.start()
    changes.run("update T set n = 2")
    changes.run("alter table T replica identity full; update T set n = 3")
    first, second = [row[2] for _, _, row in changes.read(2)]
    assert first == {"id": 1, "n": 2, "at": None}
    assert second == {"id": 1, "n": 3, "at": None, "large": "x" * 10_000}


def test_a_row_that_cannot_be_represented_is_given_up_and_the_others_are_read(changes: Changes) -> None:
    changes.start()
    changes.run("insert into T (n, at) values (1, null), (2, 'infinity'), (3, null)")
    assert changes.numbers(2) == [1, 3]
    ((_, position, record),) = changes.harness.given_up
    assert position[1] == 2 and b"infinity" in record


def test_a_month_is_not_taken_for_days_and_values_that_no_tuple_carries_are_texts(changes: Changes) -> None:
    changes.run("alter table T add span interval, add host inet[], add share int4range")
    changes.start()
    changes.run("insert into T (n, span) values (1, '1 mon'), (2, '-1 year')")
    changes.run("insert into T (n, span, host, share) values (3, '2 days', '{10.0.0.0/8}', '[1,5)')")
    ((_, _, (_, _, new, _)),) = changes.read(1)
    assert [new[name] for name in ("n", "span", "host", "share")] == [3, timedelta(days=2), ("10.0.0.0/8",), "[1,5)"]
    assert len(changes.harness.given_up) == 2


# -- positions ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", range(5))
def test_reading_continues_behind_any_row(changes: Changes, row: int) -> None:
    harness = changes.start()
    changes.insert(0)
    changes.run("insert into T (n) values (1), (2), (3)")
    changes.insert(4)
    assert changes.numbers(5) == [0, 1, 2, 3, 4]
    (kept,) = harness.stored().values()
    position = harness.all_rows()[row][1]
    harness.tasks[0].restart({changes.name: kept._replace(position=position)})
    harness.tasks[0].rows.clear()
    changes.insert(5)
    assert changes.numbers(5 - row) == list(range(row + 1, 6))


def test_rows_that_are_done_are_confirmed_and_no_others(changes: Changes) -> None:
    harness = changes.start()
    changes.run("insert into T (n) values (1), (2)")
    changes.insert(3)
    rows = changes.read(3)
    before = changes.confirmed()
    changes.wait(lambda: True)
    assert before < rows[0][1][0] and changes.confirmed() == before
    harness.tasks[0].spout.on_committed({changes.name: rows[0][1]})
    changes.wait(lambda: changes.confirmed() == rows[0][1][0])
    harness.stop(store=False)
    changes.start()
    assert changes.numbers(3) == [1, 2, 3], "a transaction that is done in part is sent again"
    changes.harness.tasks[0].commit()
    changes.wait(lambda: changes.confirmed() > rows[2][1][0])
    changes.harness.stop(store=False)
    changes.start()
    changes.insert(4)
    assert changes.numbers(1)[-1] == 4


def test_the_log_of_other_tables_is_confirmed_while_nothing_is_in_flight(changes: Changes) -> None:
    changes.start()
    changes.run("create table T_other (n int); insert into T_other select generate_series(1, 1000)")
    end = changes.end()
    changes.wait(lambda: changes.confirmed() >= end)
    reader = changes.harness.tasks[0].spout._loop._reader  # type: ignore[union-attr]
    changes.insert(1)
    changes.read(1)
    changes.run("insert into T_other select generate_series(1, 1000)")
    changes.wait(lambda: reader._slot_bytes.value > 0)
    held = changes.confirmed()
    assert held < changes.harness.all_rows()[0][1][0]
    changes.harness.tasks[0].commit()
    changes.wait(lambda: changes.confirmed() >= changes.end() - 1000)


# -- faults ------------------------------------------------------------------------------------------------------------------


def test_a_killed_server_is_read_on(database: PostgresServer, changes: Changes) -> None:
    changes.start()
    changes.insert(1)
    assert changes.numbers(1) == [1]
    database.kill()
    try:
        changes.harness.turns(3)
    finally:
        database.start_again()
    changes.insert(2)
    assert changes.numbers(2) == [1, 2] and "PostgresCdcSpout: database '" in str(changes.harness.errors[0])


class _Relay(socketserver.BaseRequestHandler):
    """Passes on what comes over TCP to the Unix socket `server.target`, and back."""

    def handle(self) -> None:
        with socket.socket(socket.AF_UNIX) as behind:
            behind.connect(self.server.target)  # type: ignore[attr-defined]
            other = {self.request: behind, behind: self.request}
            while True:
                for one in select.select(list(other), (), ())[0]:
                    if not (data := one.recv(65536)):
                        return
                    other[one].sendall(data)


def _seconds_to_notice(port: int) -> list[tuple[int, int]]:
    """Of each connection of this process to a port: after which time the system gives up a silent peer."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError), socket.socket(fileno=os.dup(int(name))) as one:
            if one.family == socket.AF_INET and one.getpeername()[1] == port:
                idle, interval, count, unacknowledged = (
                    one.getsockopt(socket.IPPROTO_TCP, option)
                    for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)
                )
                found.append((idle + interval * count, unacknowledged // 1000))
    return found


def test_a_host_that_is_gone_without_a_word_is_noticed_within_a_minute(database: PostgresServer, dsn: str) -> None:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Relay) as relay:
        relay.daemon_threads, relay.target = True, f"{database.folder}/.s.PGSQL.5432"  # type: ignore[attr-defined]
        threading.Thread(target=relay.serve_forever, daemon=True).start()
        port = relay.server_address[1]
        changes = Changes(make_conninfo(dsn, host="127.0.0.1", port=port))
        try:
            changes.start()
            changes.insert(1)
            assert changes.numbers(1) == [1]
            assert _seconds_to_notice(port) == [(60, 60), (60, 60)], "the session, and the stream"
        finally:
            drop(changes)
            relay.shutdown()


def test_the_slot_of_a_task_that_has_not_gone_yet_is_taken_when_it_has(changes: Changes) -> None:
    former = changes.start()
    other = PartitionHarness(changes.spout)
    other.turns(3)
    assert any("is active" in str(error) for error in other.errors)
    former.stop(store=False)
    changes.harness = other
    changes.insert(1)
    assert changes.numbers(1) == [1]


def test_the_reason_why_the_server_has_ended_a_stream_is_reported(changes: Changes) -> None:
    changes.start()
    changes.run("drop publication T")
    changes.insert(1)
    changes.wait(lambda: changes.harness.errors)
    shown, name = str(changes.harness.errors[0]), changes.name
    assert f"slot {name!r}: the server has ended" in shown and f'publication "{name}" does not exist' in shown


@pytest.mark.parametrize("on_lost", ["fail", "skip"])
def test_a_publication_that_was_made_again_loses_changes_since_it_was_dropped(dsn: str, on_lost: str) -> None:
    changes = Changes(dsn, on_lost=on_lost)
    harness = changes.start()
    changes.run("drop publication T")
    changes.insert(1)
    changes.wait(lambda: "does not exist" in " ".join(map(str, harness.errors)))
    changes.run("create publication T for table T")
    changes.wait(lambda: "cannot pass that time" in " ".join(map(str, harness.errors)))
    if on_lost == "skip":
        changes.insert(2)
        assert changes.numbers(1) == [2]
    drop(changes)


@pytest.mark.parametrize("on_lost", ["fail", "skip"])
def test_a_slot_that_was_dropped_is_reported(dsn: str, on_lost: str) -> None:
    changes = Changes(dsn, on_lost=on_lost)
    harness = changes.start()
    changes.insert(1)
    assert changes.numbers(1) == [1]
    harness.stop()
    drop(changes)
    changes.insert(2)
    harness.start(1)
    changes.harness = harness
    changes.wait(lambda: harness.errors)
    assert "has no slot" in str(harness.errors[0])
    if on_lost == "fail":
        changes.wait(lambda: len(harness.errors) > 1)
        assert changes.run("select * from pg_replication_slots where slot_name = 'T'") == []
    else:
        changes.insert(3)
        assert changes.numbers(2) == [1, 3] and len(harness.errors) == 1
    drop(changes)


@pytest.mark.parametrize(
    ("made", "options", "why"),
    [
        ("", {"publication": "none"}, "no publication 'none'"),
        ("select pg_create_logical_replication_slot('T', 'test_decoding')", {}, "has the plugin test_decoding"),
        ("grant usage on schema public to locked", {"user": "locked"}, "may not replicate|refuses the connection"),
    ],
)
def test_what_cannot_heal_is_refused_at_the_start(dsn: str, made: str, options: dict[str, str], why: str) -> None:
    changes = Changes(dsn)
    if made:
        changes.run(made)
    address = dsn.replace("user=topo", f"user={options.get('user', 'topo')}")
    with pytest.raises(ConfigError, match=why):
        PartitionHarness(lambda: PostgresCdcSpout(address, options.get("publication", changes.name), slot=changes.name))
    changes.run("select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = 'T'")


@pytest.mark.parametrize(("grants", "why"), [((), "may not replicate"), (("rds_replication",), "no publication 'none'")])
def test_who_may_replicate_by_a_role_of_a_managed_server_is_not_refused(dsn: str, grants: tuple[str, ...], why: str) -> None:
    """Amazon's servers patch the check of the server; its roles have no attribute `replication`."""
    name = f"r_{secrets.token_hex(6)}"
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"create role {name} login")
        for role in grants:
            connection.execute(
                f"create role {role}; create role {name}_all; grant {role} to {name}_all; grant {name}_all to {name}"
            )
        try:
            with pytest.raises(ConfigError, match=why):
                PartitionHarness(lambda: PostgresCdcSpout(dsn.replace("user=topo", f"user={name}"), "none", slot=name))
        finally:
            for role in (*grants, *([f"{name}_all"] if grants else []), name):
                connection.execute(f"drop role {role}")


def test_texts_of_a_database_in_another_encoding_are_read(dsn: str) -> None:
    outside = Changes(dsn)
    outside.run("create database T encoding 'latin1' locale 'C' template template0")
    changes = Changes(dsn.replace("dbname=postgres", f"dbname={outside.name}"))
    changes.run('alter table T add "größe" text')
    changes.start()
    changes.run("insert into T (\"größe\") values ('é')")
    ((_, _, (_, _, new, _)),) = changes.read(1)
    assert new["größe"] == "é"
    drop(changes)
    outside.run("drop database T (force)")


@pytest.mark.parametrize("setting", ["datestyle = 'German'", "intervalstyle = 'iso_8601'", "extra_float_digits = -6"])
def test_values_are_read_whatever_form_the_database_gives_their_texts(dsn: str, setting: str) -> None:
    outside = Changes(dsn)
    outside.run("create database T")
    outside.run(f"alter database T set {setting}")
    changes = Changes(dsn.replace("dbname=postgres", f"dbname={outside.name}"))
    changes.run("alter table T add moment timestamptz, add span interval, add share double precision")
    changes.start()
    values = "'2024-02-03', '2024-02-03 04:05:06+00', '2 days 3 hours', 0.1234567890123"
    changes.run(f"insert into T (at, moment, span, share) values ({values})")
    ((_, _, (_, _, new, _)),) = changes.read(1)
    moment = datetime(2024, 2, 3, 4, 5, 6, tzinfo=UTC)
    assert new == {
        "id": 1,
        "n": None,
        "at": date(2024, 2, 3),
        "moment": moment,
        "span": timedelta(days=2, hours=3),
        "share": 0.1234567890123,
    }
    drop(changes)
    outside.run("drop database T (force)")


class Numbers(BasicBolt):
    outputs = ("n",)

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit((tup["new"]["n"],))


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
@pytest.mark.parametrize("crash", ["spout", "bolt"])
def test_a_topology_gets_each_change_whatever_crashes(changes: Changes, delivery: str, crash: str) -> None:
    def build() -> Any:
        builder = TopologyBuilder("cdc").config(delivery=delivery, checkpoint_interval="1s", message_timeout="5s")
        builder.set_spout("spout", changes.spout())
        builder.set_bolt("bolt", Numbers()).shuffle_grouping("spout")
        return builder.build()

    changes.harness = PartitionHarness(changes.spout)
    changes.harness.turns(2)
    changes.harness.stop(store=False)
    test = TopologyTest(build)
    changes.insert(*range(10))
    until = time.monotonic() + 30
    while len(test.emitted("bolt")) < 10 and time.monotonic() < until:
        test.advance("1s")
    test.crash(crash)
    if crash == "spout":
        disconnect(changes)
    changes.insert(*range(10, 20))
    while 19 not in {n for (n,) in test.emitted("bolt")} and time.monotonic() < until:
        test.advance("1s")
    assert {n for (n,) in test.emitted("bolt")} == set(range(20))
