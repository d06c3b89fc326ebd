"""PostgresSpout on a real server: the contract of sources, transactions that commit out of order, a server that is gone."""

from __future__ import annotations

import random
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.connectors.postgres_tables import new_table, run, values
from tests.servers.postgres import PASSWORD, PostgresServer, start
from topo import ConfigError, PostgresSpout
from topo.testing.contracts import PartitionedSpoutContract, SourceUnderTest
from topo.testing.partition_harness import PartitionHarness

psycopg = pytest.importorskip("psycopg")

pytestmark = [pytest.mark.integration, pytest.mark.server, pytest.mark.xdist_group("postgres")]


class Tables(SourceUnderTest):
    """Each table is a partition."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.prefix = f"t{secrets.token_hex(6)}"
        self.connection = psycopg.connect(dsn, autocommit=True)

    def spout(self) -> PostgresSpout:
        return PostgresSpout(self.dsn, f"{self.prefix}_*", ["n"], key="id", timestamp="at")

    def run(self, name: str, statement: str) -> None:
        self.connection.execute(statement.replace("T", f"{self.prefix}_{name}"))

    def add(self, name: str, numbers: Sequence[int]) -> None:
        self.run(name, "create table T (id bigserial primary key, n int, at timestamptz default now())")
        self.append(name, numbers)

    def append(self, name: str, numbers: Sequence[int]) -> None:
        for n in numbers:
            self.run(name, f"insert into T (n) values ({n})")

    def remove(self, name: str) -> None:
        self.run(name, "drop table T")

    def poison(self, name: str, numbers: Sequence[int | None]) -> None:
        self.add(name, ())
        for n in numbers:
            self.run(name, f"insert into T (n, at) values ({n or 0}, '{'now' if n is not None else 'infinity'}')")


class TestTables(PartitionedSpoutContract):
    @pytest.fixture(autouse=True)
    def server(self, dsn: str) -> None:
        self.dsn = dsn

    def source(self, folder: Path) -> SourceUnderTest:
        return Tables(self.dsn)


@pytest.fixture
def table(dsn: str) -> str:
    return new_table(dsn)


# -- transactions ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("draws_first", [False, True])
def test_a_row_whose_transaction_commits_late_is_read_in_its_place(dsn: str, table: str, draws_first: bool) -> None:
    harness = PartitionHarness(lambda: PostgresSpout(dsn, table, ["n"], key="id"))
    with psycopg.connect(dsn) as late:
        if draws_first:
            # As an insert that has drawn its key and was interrupted there: it has locked the table and has no transaction id.
            late.execute(f"lock table {table} in row exclusive mode")
            # The first of 32 keys is logged, for which the transaction gets its id.
            run(dsn, f"select nextval('{table}_id_seq')")
            ((key,),) = late.execute(f"select nextval('{table}_id_seq')").fetchall()
            assert late.execute("select pg_current_xact_id_if_assigned()").fetchone() in [(None,)]
        else:
            ((key,),) = late.execute(f"insert into {table} (n) values (1) returning id").fetchall()
        run(dsn, f"insert into {table} (n) values (2)")
        harness.discover()
        harness.discover()
        assert values(harness) == []
        if draws_first:
            late.execute(f"insert into {table} (id, n) values ({key}, 1)")
    run(dsn, f"insert into {table} (n) values (3)")
    harness.discover()
    harness.discover()
    assert values(harness) == [1, 2, 3]


def test_a_prepared_transaction_is_waited_for_and_one_that_is_rolled_back_leaves_nothing(dsn: str, table: str) -> None:
    harness = PartitionHarness(lambda: PostgresSpout(dsn, table, ["n"], key="id"))
    with psycopg.connect(dsn, autocommit=True) as late:
        late.execute(f"begin; insert into {table} (n) values (1)")
        run(dsn, f"insert into {table} (n) values (2)")
        harness.discover()
        late.execute(f"prepare transaction '{table}'")
        harness.discover()
        assert values(harness) == []
        late.execute(f"commit prepared '{table}'")
        late.execute(f"begin; insert into {table} (n) values (3); rollback")
    harness.discover()
    harness.discover()
    assert values(harness) == [1, 2]


def test_transactions_elsewhere_hold_nothing_up(dsn: str, table: str) -> None:
    other = f"{table}_other"
    run(dsn, f"create table {other} (n int)")
    harness = PartitionHarness(lambda: PostgresSpout(dsn, table, ["n"], key="id"))
    with psycopg.connect(dsn) as busy:
        busy.execute(f"insert into {other} values (1)")
        run(dsn, f"insert into {table} (n) values (1)")
        harness.discover()
        assert values(harness) == [1]


def test_of_many_writers_that_commit_in_any_order_no_row_is_missed(dsn: str, table: str) -> None:
    writers, each = 6, 60

    def write(seed: int) -> None:
        chance = random.Random(seed)
        with psycopg.connect(dsn) as connection:
            for _ in range(each):
                for _ in range(chance.randrange(1, 4)):
                    connection.execute(f"insert into {table} (n) values ({seed})")
                connection.execute(f"select pg_sleep({chance.random() / 100})")
                connection.commit() if chance.random() < 0.9 else connection.rollback()

    threads = [Thread(target=write, args=(seed,)) for seed in range(writers)]
    for thread in threads:
        thread.start()
    harness = PartitionHarness(lambda: PostgresSpout(dsn, table, ["id"], key="id", partitions=3, batch=7), tasks=2)
    while any(thread.is_alive() for thread in threads):
        harness.discover()
    harness.discover()
    harness.turns(100)
    there = [key for (key,) in run(dsn, f"select id from {table} order by id")]
    assert len(there) > 500 and sorted(values(harness)) == there
    assert harness.errors == []
    assert len({len(keys) > 100 for keys in harness.read.values()}) == 1 and len(harness.read) == 3


def test_a_row_that_comes_while_the_table_is_looked_at_has_not_settled(dsn: str, table: str) -> None:
    harness = PartitionHarness(lambda: PostgresSpout(dsn, table, ["n"], key="id", timestamp="at", settle="1h"))
    connection = harness.tasks[0].spout._loop._reader._source._session.connection()  # type: ignore[union-attr, attr-defined]
    execute = connection.execute
    came: list[str] = []

    def look(statement: str, *args: Any) -> Any:
        found = execute(statement, *args)
        if "make_interval" in statement and not came:
            came.append(statement)
            run(dsn, f"insert into {table} (n) values (1)")
        return found

    connection.execute = look
    harness.discover()
    harness.discover()
    assert len(came) == 1 and values(harness) == []


def test_a_standby_is_refused_without_settle() -> None:
    """The standby has no primary, which it does not show to a reader."""
    server = start()
    try:
        run(server.address, "create table t (id bigserial primary key, n int, at timestamptz default now() - interval '1 hour')")
        run(server.address, "insert into t (n) values (1)")
        server.kill()
        (server.folder / "data" / "standby.signal").touch()
        server.start_again()
        with pytest.raises(ConfigError, match=r"is a standby.*read from the primary"):
            PartitionHarness(lambda: PostgresSpout(server.address, "t", ["n"], key="id"))
        harness = PartitionHarness(lambda: PostgresSpout(server.address, "t", ["n"], key="id", timestamp="at", settle="1s"))
        harness.discover()
        assert values(harness) == [1]
    finally:
        server.stop()


# -- where to begin, and what else is read -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("start", "expected"), [(None, [1, 2, 3]), ("latest", [3]), (1, [2, 3])])
def test_a_table_begins_where_start_says(dsn: str, table: str, start: Any, expected: list[int]) -> None:
    run(dsn, f"insert into {table} (n) values (1), (2)")
    harness = PartitionHarness(lambda: PostgresSpout(dsn, table, ["n"], key="id", start=start))
    harness.turns()
    run(dsn, f"insert into {table} (n) values (3)")
    harness.discover()
    assert values(harness) == expected


def test_the_lag_is_about_the_number_of_rows_that_were_not_read(dsn: str, table: str) -> None:
    run(dsn, f"insert into {table} (n) select generate_series(1, 1000)")
    harness = PartitionHarness(lambda: PostgresSpout(dsn, table, ["n"], key="id", batch=300))
    harness.turns(3)
    reader = harness.tasks[0].spout._loop._reader  # type: ignore[union-attr]
    assert 0 < len(harness.all_rows()) < 1000 and reader.lag() == 1000 - len(harness.all_rows())
    harness.turns(10)
    assert reader.lag() == 0


def test_with_latest_the_first_row_of_an_empty_table_is_read(dsn: str, table: str) -> None:
    harness = PartitionHarness(lambda: PostgresSpout(dsn, table, ["n"], key="id", start="latest"))
    harness.turns()
    run(dsn, f"insert into {table} (n) values (1)")
    harness.discover()
    assert values(harness) == [1]


def test_a_query_is_read_when_its_rows_have_settled_in_the_order_of_keys(dsn: str, table: str) -> None:
    query = f"select id, 10 * n as tens, at from {table} where n > 0"
    harness = PartitionHarness(lambda: PostgresSpout(dsn, query, ["tens"], key="id", timestamp="at", settle="1h"))
    for hours in (3, 2, 0, 3):
        run(dsn, f"insert into {table} (n, at) values ({hours + 1}, now() - interval '{hours} hours')")
    harness.discover()
    assert values(harness) == [40, 30], "the third row has not settled, and the fourth is behind it"
    run(dsn, f"update {table} set at = at - interval '2 hours'")
    harness.discover()
    assert values(harness) == [40, 30, 10, 40]


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York"])
def test_a_time_without_a_zone_settles_as_utc_whatever_the_zone_of_the_session(dsn: str, zone: str) -> None:
    name = f"t_{secrets.token_hex(6)}"
    run(dsn, f"create table {name} (id bigserial, n int, at timestamp default (now() at time zone 'UTC'))")
    run(
        dsn,
        f"insert into {name} (n, at) values (1, now() at time zone 'UTC' - interval '2 min'); insert into {name} (n) values (2)",
    )
    address = f"{dsn} options='-c timezone={zone}'"
    harness = PartitionHarness(lambda: PostgresSpout(address, name, ["n"], key="id", timestamp="at", settle="1m"))
    harness.turns()
    assert values(harness) == [1]


def test_an_infinite_time_fails_its_own_row_alone_in_a_table_without_an_index(dsn: str) -> None:
    name = f"t_{secrets.token_hex(6)}"
    run(dsn, f"create table {name} (id bigserial, n int, at timestamptz)")
    run(dsn, f"insert into {name} (n, at) values (1, 'epoch'), (2, 'infinity'), (3, 'epoch'), (4, '-infinity'), (5, 'epoch')")
    harness = PartitionHarness(lambda: PostgresSpout(dsn, name, ["n"], key="id", timestamp="at"))
    harness.turns()
    assert values(harness) == [1, 3, 5]
    assert [record for _, _, record in harness.given_up] == ["(2,2,infinity)", "(4,4,-infinity)"]


@pytest.mark.parametrize("column", ["timestamptz", "timestamp", "date"])
def test_an_infinite_time_holds_nothing_up_and_its_row_is_given_up(dsn: str, column: str) -> None:
    name = f"t_{secrets.token_hex(6)}"
    run(dsn, f"create table {name} (id bigserial, n int, at {column})")
    run(dsn, f"insert into {name} (n, at) values (1, 'epoch'), (2, 'infinity'), (3, 'epoch'), (4, '-infinity'), (5, 'epoch')")
    harness = PartitionHarness(lambda: PostgresSpout(dsn, name, ["n"], key="id", timestamp="at", settle="1h"))
    harness.turns()
    assert values(harness) == [1, 3, 5]
    assert [record for _, _, record in harness.given_up] == ["(2,2,infinity)", "(4,4,-infinity)"]


def test_the_time_of_a_row_is_that_of_its_column(dsn: str, table: str) -> None:
    run(dsn, f"insert into {table} (n, at) values (1, '2024-02-29 00:00:01.5+00')")
    spout = PostgresSpout(dsn, table, ["n", "at"], key="id", timestamp="at")
    harness = PartitionHarness(lambda: spout)
    seen: list[Any] = []
    take = harness.tasks[0]._collector.emit_rows
    harness.tasks[0]._collector.emit_rows = lambda *call: (seen.append(call[3]), take(*call))  # type: ignore[method-assign, assignment]
    harness.turns()
    assert [list(stamps) for stamps in seen] == [[1709164801500]]
    ((_, _, (n, at)),) = harness.all_rows()
    assert (n, at.utcoffset()) == (1, timedelta(0)) or at.timestamp() == 1709164801.5


@pytest.mark.parametrize("setting", ["datestyle=German", "intervalstyle=iso_8601", "extra_float_digits=-6"])
def test_values_are_read_whatever_form_the_session_gives_their_texts(dsn: str, setting: str) -> None:
    name = f"t_{secrets.token_hex(6)}"
    run(dsn, f"create table {name} (id bigserial, at timestamptz, span interval, share double precision)")
    run(dsn, f"insert into {name} values (1, '2024-02-03 04:05:06+00', '2 days 3 hours', 0.1234567890123)")
    address = f"{dsn} options='-c {setting}'"
    harness = PartitionHarness(lambda: PostgresSpout(address, name, ["at", "span", "share"], key="id"))
    harness.turns()
    moment = datetime(2024, 2, 3, 4, 5, 6, tzinfo=UTC)
    assert [row for _, _, row in harness.all_rows()] == [(moment, timedelta(days=2, hours=3), 0.1234567890123)]


def test_a_row_without_a_time_leaves_the_others_theirs(dsn: str, table: str) -> None:
    run(dsn, f"insert into {table} (n, at) values (1, 'epoch'), (2, null), (3, 'epoch'), (4, 'epoch')")
    harness = PartitionHarness(lambda: PostgresSpout(dsn, table, ["n"], key="id", timestamp="at"))
    seen: list[Any] = []
    take = harness.tasks[0]._collector.emit_rows
    harness.tasks[0]._collector.emit_rows = lambda *call: (seen.append(call[3]), take(*call))  # type: ignore[method-assign, assignment]
    harness.turns()
    assert [None if stamps is None else list(stamps) for stamps in seen] == [[0], None, [0, 0]]
    assert values(harness) == [1, 2, 3, 4]


# -- what cannot be read -----------------------------------------------------------------------------------------------------


def test_a_server_that_is_gone_is_reported_and_read_on_when_it_is_back(database: PostgresServer, table: str) -> None:
    dsn = database.address
    run(dsn, f"insert into {table} (n) values (1)")
    harness = PartitionHarness(lambda: PostgresSpout(dsn, table, ["n"], key="id"))
    harness.turns()
    database.kill()
    try:
        harness.discover()
    finally:
        database.start_again()
    assert any(isinstance(error, psycopg.OperationalError) for error in harness.errors)
    run(dsn, f"insert into {table} (n) values (2)")
    harness.discover()
    harness.discover()
    assert values(harness) == [1, 2]


def test_a_month_is_not_taken_for_days_and_values_that_no_tuple_carries_are_texts(dsn: str, table: str) -> None:
    run(dsn, f"alter table {table} add span interval, add host inet[], add share int4multirange")
    run(dsn, f"insert into {table} (n, at, span) values (1, 'epoch', '1 year 2 mons')")
    run(dsn, f"insert into {table} (n, span, host, share) values (2, '-2 days', '{{10.0.0.0/8}}', '{{[1,5)}}')")
    harness = PartitionHarness(lambda: PostgresSpout(dsn, table, ["n", "span", "host", "share"], key="id"))
    harness.turns()
    assert [row for _, _, row in harness.all_rows()] == [(2, timedelta(days=-2), ("10.0.0.0/8",), "{[1,5)}")]
    assert len(harness.given_up) == 1


def test_the_text_of_a_bad_row_is_that_of_the_row_whatever_its_columns_are_called(dsn: str, table: str) -> None:
    run(dsn, f"alter table {table} add q text; insert into {table} (n, at, q) values (7, 'infinity', 'column')")
    harness = PartitionHarness(lambda: PostgresSpout(dsn, table, ["at"], key="id"))
    harness.turns()
    assert [record for _, _, record in harness.given_up] == ["(1,7,infinity,column)"]


@pytest.mark.parametrize(
    ("made", "options", "why"),
    [
        (None, {}, "does not exist"),
        ("(id serial, m int)", {}, "column q.n does not exist"),
        ("(id text, n int)", {}, "no smallint, integer or bigint"),
        ("(id bigint, n int)", {}, "drawn from no sequence"),
        ("(id serial, n int); alter sequence T_id_seq cache 20", {}, "has cache 20.*alter it to cache 1"),
        ("(id serial, n int)", {"timestamp": "at", "settle": "5s"}, "column q.at does not exist"),
    ],
)
def test_a_table_that_cannot_be_read_by_its_key_is_refused(dsn: str, made: str | None, options: dict[str, Any], why: str) -> None:
    name = f"t_{secrets.token_hex(6)}"
    if made is not None:
        run(dsn, f"create table {name} {made}".replace("T", name))
    with pytest.raises(ConfigError, match=why):
        PartitionHarness(lambda: PostgresSpout(dsn, name, ["n"], key="id", **options))


def test_a_query_without_settle_is_refused(dsn: str, table: str) -> None:
    with pytest.raises(ConfigError, match="give timestamp= and settle="):
        PartitionHarness(lambda: PostgresSpout(dsn, f"select * from {table}", ["n"], key="id"))


def test_a_wrong_password_is_refused_and_not_shown(dsn: str, table: str) -> None:
    address = f"{dsn.replace('user=topo', 'user=locked')} password={PASSWORD}x"
    with pytest.raises(ConfigError, match="refuses the connection") as refused:
        PartitionHarness(lambda: PostgresSpout(address, table, ["n"], key="id"))
    assert PASSWORD not in f"{refused.value!r} {refused.value.__cause__!r}"
