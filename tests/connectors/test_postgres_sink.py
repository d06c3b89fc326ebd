"""PostgresSink on a real server: the contract of two-phase sinks, kills, a server that is gone, tables that do not fit."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.contract.killing import Report, run_child
from tests.contract.test_killed_sinks import Master, check_recovery, life_of
from tests.contract.two_phase_sinks import KindContract, SinkKind, SinkTask, started
from tests.servers.postgres import PASSWORD, PostgresServer
from tests.unit.connectors.drive import TICK, tracked
from tests.unit.connectors.postgres_values import REFUSED, TAKEN
from topo import (
    ConfigError,
    PostgresSink,
    SinkBlockedError,
    TaskContext,
    TopoEnvironmentError,
    TopologyConfig,
    UnsupportedValueError,
)
from topo.api.streams import declared_streams
from topo.checkpoint.staged_output import StagedOutput
from topo.emission.collectors import BoltCollector
from topo.errors import StagedRowsLostError

psycopg = pytest.importorskip("psycopg")

pytestmark = [pytest.mark.integration, pytest.mark.server, pytest.mark.xdist_group("postgres")]


@dataclass
class Table:
    """A table, and what another program sees of it."""

    address: str
    name: str

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement, in which T is the table."""
        with psycopg.connect(self.address, autocommit=True) as connection:
            cursor = connection.execute(re.sub(r"\bT(__\w+)?\b", rf"{self.name}\1", statement))
            return cursor.fetchall() if cursor.description else []

    def sink(self, columns: Any, dsn: str = "", **options: Any) -> PostgresSink:
        return PostgresSink(dsn or self.address, self.name, columns, **options)


@pytest.fixture
def table(database: PostgresServer) -> Table:
    """A name of which there is no table yet."""
    return Table(database.address, f"t_{secrets.token_hex(6)}")


def kind_of(table: Table, key: str | None) -> SinkKind:
    table.run(f"create table T (n integer {'primary key' if key else ''})")
    return SinkKind(
        "postgres",
        lambda _folder: table.sink(["n"], key=key),
        lambda _folder: [n for (n,) in table.run("select n from T order by ctid")],
        lambda _folder: [process for (process,) in table.run("select __process from T__staged")] if staged(table) else [],
    )


def staged(table: Table) -> bool:
    ((found,),) = table.run("select to_regclass('T__staged') is not null")
    return bool(found)


@pytest.fixture(params=["in memory", "spilled"])
def spilling(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Transactions that fit into memory, and such that do not."""
    if request.param == "spilled":
        monkeypatch.setattr("topo.connectors.staged_table.SPILL_ROWS", 2)


@pytest.fixture(params=[None, "n"], ids=["every row", "with a key"])
def kind(request: pytest.FixtureRequest, table: Table, spilling: None) -> SinkKind:
    return kind_of(table, request.param)


class TestContract(KindContract):
    """The promises of every two-phase sink."""


# -- kills -------------------------------------------------------------------------------------------------------------------


def test_killed_before_and_after_any_request_a_sink_recovers_the_rows_of_the_checkpoint(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every seventh step: a life of 4 checkpoints has some 260."""
    monkeypatch.setattr("topo.connectors.staged_table.SPILL_ROWS", 2)
    step, is_done, completed = 1, False, set()
    while not is_done:
        one = Table(table.address, f"{table.name}_{step}")
        kind = kind_of(one, None)
        master = Master()
        is_done, reports = run_child(life_of(kind, tmp_path, master), step)
        master.note(reports)
        completed.add(master.complete)
        check_recovery(kind, tmp_path, master)
        one.run("drop table T, T__staged, T__committed" if staged(one) else "drop table T")
        step += 7
    assert completed == {0, 1, 2, 4}
    assert step > 100


def test_a_move_that_two_processes_begin_at_once_is_made_once(table: Table, tmp_path: Path) -> None:
    kind = kind_of(table, None)
    task = SinkTask(kind, tmp_path)
    task.write(1, 2)
    ((_, token),) = state = task.snapshot(1)
    store: Any = task.sink._store  # type: ignore[attr-defined]

    def other(report: Report) -> None:
        report("begins")
        SinkTask(kind, tmp_path, state=state).die()
        report("is done")

    with store.transaction():
        assert store.mark(token[0], token[1])
        # The other process waits for this transaction, which moves the rows.
        ended: list[Any] = []
        thread = Thread(target=lambda: ended.append(run_child(other, 10_000)))
        thread.start()
        wait_for(lambda: table.run("select 1 from pg_stat_activity where wait_event_type = 'Lock'"))
        store.move(token[0], token[1])
        store.drop(token[0], token[1])
    thread.join()
    assert ended == [(True, ["begins", "is done"])]
    assert kind.rows(tmp_path) == [1, 2] and kind.staged(tmp_path) == []


def test_rows_whose_staging_was_not_answered_are_staged_once(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = kind_of(table, None)
    task = SinkTask(kind, tmp_path)
    task.write(1, 2)
    store: Any = task.sink._store  # type: ignore[attr-defined]

    @contextmanager
    def unanswered() -> Iterator[None]:
        with type(store).transaction(store):
            yield
        raise psycopg.OperationalError("the answer is lost")

    with monkeypatch.context() as patch, pytest.raises(psycopg.OperationalError, match="the answer is lost"):
        patch.setattr(store, "transaction", unanswered)
        task.snapshot(1)
    task.write(3)
    task.snapshot(2)
    task.output.complete(2)
    assert kind.rows(tmp_path) == [1, 2, 3] and kind.staged(tmp_path) == []


def wait_for(found: Callable[[], Any]) -> None:
    until = time.monotonic() + 30
    while not found():
        assert time.monotonic() < until
        time.sleep(0.02)


# -- the server is gone ------------------------------------------------------------------------------------------------------


def test_a_server_that_is_killed_in_a_transaction_gets_its_rows_when_it_is_back(
    database: PostgresServer, table: Table, tmp_path: Path
) -> None:
    kind = kind_of(table, None)
    task = SinkTask(kind, tmp_path)
    task.write(1, 2)
    task.snapshot(1)
    task.write(3)
    database.kill()
    try:
        with pytest.raises(psycopg.OperationalError):
            task.output.complete(1)
        with pytest.raises(psycopg.OperationalError):
            task.snapshot(2)
        task.write(4)
    finally:
        database.start_again()
    task.output.complete(1)
    assert kind.rows(tmp_path) == [1, 2]
    task.snapshot(3)
    task.output.complete(3)
    assert kind.rows(tmp_path) == [1, 2, 3, 4] and kind.staged(tmp_path) == []


def test_while_the_server_is_gone_rows_wait_up_to_a_limit(
    database: PostgresServer, table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("topo.connectors.staged_table.SPILL_ROWS", 3)
    monkeypatch.setattr("topo.connectors.spilling._MOST_ROWS", 9)
    kind = kind_of(table, None)
    task = SinkTask(kind, tmp_path)
    database.kill()
    try:
        task.write(1, 2, 3)
        with pytest.raises(TopoEnvironmentError, match="3 rows wait in memory, and it is tried again"):
            task.write(4)
        with pytest.raises(SinkBlockedError, match="go back to the last checkpoint"):
            task.write(*range(4, 12))
    finally:
        database.start_again()


def test_a_batch_is_kept_while_the_server_is_gone_and_acked_when_it_is_back(database: PostgresServer, table: Table) -> None:
    table.run("create table T (n integer)")
    sink = table.sink(["n"])
    collector = started(sink, delivery="at_least_once")
    errors: list[BaseException] = []
    collector.report_error = errors.append  # type: ignore[method-assign]
    sink.execute(tup := tracked(n=1))
    database.kill()
    try:
        sink.execute(TICK)
        sink.execute(TICK)
        assert len(errors) == 2 and collector.acked == [] and collector.failed == []
    finally:
        database.start_again()
    sink.execute(TICK)
    assert collector.acked == [tup] and table.run("select * from T") == [(1,)]


def test_a_server_that_answers_nothing_fails_the_call_and_not_the_worker(database: PostgresServer, table: Table) -> None:
    table.run("create table T (n integer)")
    sink = table.sink(["n"])
    errors: list[BaseException] = []
    collector = BoltCollector("sink", declared_streams(sink.outputs), errors.append)
    config = replace(TopologyConfig(), delivery="at_least_once", progress_timeout_s=1.0)
    sink.prepare(TaskContext("test", "sink", 1, config=config, clock=time.monotonic), collector)
    sink.execute(tracked(n=1))
    database.freeze()
    try:
        sink.execute(TICK)
    finally:
        database.thaw()
    assert "no answer within 0.7 s" in str(errors[0])
    sink.execute(TICK)
    assert len(collector.acked) == 1 and table.run("select * from T") in ([(1,)], [(1,), (1,)])


def test_staged_rows_that_are_gone_are_reported(table: Table, tmp_path: Path) -> None:
    kind = kind_of(table, None)
    task = SinkTask(kind, tmp_path)
    task.write(1, 2)
    task.snapshot(1)
    table.run("delete from T__staged where n = 1")
    with pytest.raises(StagedRowsLostError, match=r"2 rows were staged for table 't_.*', and 1 of them"):
        task.output.complete(1)


def test_metrics_show_the_rows_that_wait_and_count_once_those_that_were_moved(table: Table) -> None:
    table.run("create table T (a int)")
    sink = table.sink(["a"])
    config = replace(TopologyConfig(), delivery="exactly_once")
    context = TaskContext("test", "sink", 1, config=config)
    sink.prepare(context, BoltCollector("sink", declared_streams(sink.outputs), lambda error: None))
    tokens = []
    for rows in (1, 2, 3):
        sink.begin()
        for n in range(rows):
            sink.execute(tracked(a=n))
        tokens.append(sink.pre_commit())
    waiting, rows_counter = context.metrics.gauge("staged_rows"), context.metrics.counter("rows")
    assert (waiting.value, rows_counter.value) == (6, 0)
    sink.commit(tokens[0])
    sink.commit(tokens[0])
    assert (waiting.value, rows_counter.value) == (5, 1)
    table.run("delete from T__staged where __number = 1")
    sink.commit(tokens[1])
    sink.abort(tokens[2])
    assert (waiting.value, rows_counter.value) == (0, 1)


# -- rows --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [(0,), (3,), (6,), (1, 2), (0, 1, 2, 3, 4, 5, 6)])
@pytest.mark.parametrize("key", [None, "n"])
def test_a_row_that_breaks_a_constraint_fails_alone(table: Table, bad: tuple[int, ...], key: str | None) -> None:
    table.run("create table T (n integer primary key, cents integer check (cents > 0))")
    sink = table.sink(["n", "cents"], key=key)
    collector = started(sink, delivery="at_least_once")
    errors: list[BaseException] = []
    collector.report_error = errors.append  # type: ignore[method-assign]
    tuples = [tracked(n=n, cents=-1 if n in bad else 1) for n in range(7)]
    for tup in tuples:
        sink.execute(tup)
    sink.execute(TICK)
    assert collector.failed == [tuples[n] for n in bad] and len(errors) == len(bad)
    assert collector.acked == [tup for n, tup in enumerate(tuples) if n not in bad]
    assert table.run("select n from T order by n") == [(n,) for n in range(7) if n not in bad]


@pytest.mark.parametrize(
    ("bad", "prepared"),
    [
        (
            "raise",
            "create function T_f() returns trigger language plpgsql as $$ begin if new.v = 'raise' then raise 'no'; end if;"
            " return new; end $$; create trigger T_t before insert on T for each row execute function T_f()",
        ),
        ("".join(chr(0x4E00 + n % 20000 * 7 % 20000) for n in range(9000)), "create index on T (v)"),
        (object(), "alter table T alter v type inet using null"),
    ],
    ids=["a trigger", "an index", "no like in SQL"],
)
def test_a_row_that_the_table_cannot_take_for_another_reason_fails_alone(table: Table, bad: Any, prepared: str) -> None:
    table.run("create table T (v text)")
    table.run(prepared.replace("T_", f"{table.name}_"))
    sink = table.sink(["v"])
    collector = started(sink, delivery="at_least_once")
    errors: list[BaseException] = []
    collector.report_error = errors.append  # type: ignore[method-assign]
    tuples = [tracked(v=v) for v in ("10.0.0.1", bad, "10.0.0.2")]
    for tup in tuples:
        sink.execute(tup)
    sink.execute(TICK)
    assert collector.failed == [tuples[1]] and collector.acked == [tuples[0], tuples[2]] and len(errors) == 1
    assert table.run("select count(*) from T") == [(2,)]


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_the_last_row_of_a_key_stays(table: Table, delivery: str) -> None:
    table.run("create table T (k integer, j text, v integer, unique (j, k))")
    sink = table.sink(["k", "v", "j"], key=["k", "j"])
    started(sink, delivery=delivery)
    output = StagedOutput(sink)
    if delivery == "exactly_once":
        output.restore(None)
    for v in range(12):
        sink.execute(tracked(k=v % 2, v=v, j="same"))
    if delivery == "exactly_once":
        output.snapshot(1)
        output.complete(1)
    else:
        sink.execute(TICK)
    assert table.run("select k, v from T order by k") == [(0, 10), (1, 11)]


def test_names_may_be_any_text_and_other_columns_keep_their_defaults(table: Table) -> None:
    columns = ['a "b"', "select", "x%s $1"]
    name = f'{table.name} "%s"'
    quoted = '"' + name.replace('"', '""') + '"'
    table.run(f'create table {quoted} (id bigserial, "a ""b""" int, "select" int unique, "x%s $1" int, z int default 7)')
    sink = PostgresSink(table.address, f"public.{name}", columns, key="select")
    started(sink)
    output = StagedOutput(sink)
    output.restore(None)
    sink.execute(tracked(**dict(zip(columns, (1, 2, 3), strict=True))))
    output.snapshot(1)
    output.complete(1)
    assert table.run(f"select * from {quoted}") == [(1, 1, 2, 3, 7)]


# -- what does not fit -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "columns", "key", "why"),
    [
        (None, ["a"], None, "does not exist"),
        ("(a int)", ["a", "b"], None, "it has no columns 'b'; it has 'a'"),
        ("(a int, b int)", ["a", "b"], "a", "unique index on exactly"),
        ("(a int, b int not null)", ["a"], None, "column 'b' refuses null and has no default"),
        ("(a int, b int generated always as (a + 1) stored)", ["a", "b"], None, "works out column 'b'"),
        ("(a int generated always as identity, b int)", ["a", "b"], None, 'non-DEFAULT value into column "a"'),
        ("(a inet)", ["a"], None, "column 'a' has the type inet"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(table: Table, made: str | None, columns: list[str], key: Any, why: str) -> None:
    if made is not None:
        table.run(f"create table T {made}")
    with pytest.raises(ConfigError, match=why):
        started(table.sink(columns, key=key))


def test_staged_rows_of_another_type_are_refused(table: Table) -> None:
    table.run("create table T (a int)")
    started(table.sink(["a"]))
    table.run("alter table T alter a type bigint")
    with pytest.raises(ConfigError, match="T__staged' has other columns or types".replace("T", table.name)):
        started(table.sink(["a"]))


def test_a_user_that_may_create_nothing_writes_where_the_tables_were_made_for_it(table: Table) -> None:
    table.run("create table T (a int)")
    started(table.sink(["a"]))
    rights = "grant select, insert, update, delete on"
    table.run(f"create role {table.name} login; {rights} T to {table.name}; {rights} T__staged, T__committed to {table.name}")
    sink = table.sink(["a"], table.address.replace("user=topo", f"user={table.name}"))
    started(sink)
    output = StagedOutput(sink)
    output.restore(None)
    sink.execute(tracked(a=1))
    output.snapshot(1)
    output.complete(1)
    assert table.run("select a from T") == [(1,)]


def test_a_wrong_password_is_refused_and_shown_nowhere(table: Table) -> None:
    table.run("create table T (a int); grant all on T to locked")
    address = table.address.replace("user=topo", "user=locked")
    started(table.sink(["a"], f"{address} password={PASSWORD}"), delivery="at_least_once")
    for dsn in (f"{address} password={PASSWORD}x", f"{address} password={PASSWORD} dbname=none", f"{address} oops {PASSWORD}"):
        with pytest.raises(ConfigError) as refused:
            sink = table.sink(["a"], dsn)
            assert PASSWORD not in repr(sink)
            started(sink)
        shown: BaseException | None = refused.value
        while shown is not None:
            assert PASSWORD not in f"{shown!r} {shown}"
            shown = shown.__cause__ or shown.__context__


def test_a_server_that_cannot_be_reached_is_named(table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topo.connectors.postgres.session._OPEN_S", 0.0)
    with pytest.raises(TopoEnvironmentError, match=r"database 'shop' at /.* cannot be reached"):
        started(PostgresSink(f"host={tmp_path} dbname=shop", "t", ["a"]))


@pytest.fixture
def typed(table: Table) -> Callable[[str, Any], Any]:
    """Stages one value in a column of a type, and returns the value of the column."""

    def write(type_: str, value: Any) -> Any:
        table.run(f"drop table if exists T, T__staged, T__committed; create table T (a {type_})")
        sink = table.sink(["a"])
        started(sink)
        output = StagedOutput(sink)
        output.restore(None)
        sink.execute(tracked(a=value))
        output.snapshot(1)
        output.complete(1)
        ((kept,),) = table.run("select a from T")
        return kept

    return write


@pytest.mark.parametrize(("type_", "value", "kept"), TAKEN)
def test_a_value_that_the_check_takes_the_server_takes(typed: Any, type_: str, value: Any, kept: Any) -> None:
    assert typed(type_, value) == kept


@pytest.mark.parametrize("type_", ["text", "text[]", "json"])
@pytest.mark.parametrize("setting", ["", " client_encoding=utf8"])
@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_a_text_that_the_database_cannot_encode_fails_alone(table: Table, delivery: str, setting: str, type_: str) -> None:
    table.run("create database T encoding 'LATIN1' locale 'C' template template0")
    latin = Table(table.address.replace("dbname=postgres", f"dbname={table.name}") + setting, table.name)
    latin.run(f"create table T (a {type_})")
    sink = latin.sink(["a"])
    collector = started(sink, delivery=delivery)
    output = StagedOutput(sink)
    if delivery == "exactly_once":
        output.restore(None)
    good, bad, last = (tracked(a=[text] if type_ == "text[]" else text) for text in ("é", "Ω", "z"))
    sink.execute(good)
    with pytest.raises(UnsupportedValueError, match=r"column 'a' of type .*can't encode"):
        sink.execute(bad)
    sink.execute(last)
    if delivery == "exactly_once":
        output.snapshot(1)
        output.complete(1)
    else:
        sink.execute(TICK)
    sink.close()
    assert collector.acked == [good, last] and latin.run("select count(*) from T") == [(2,)]
    table.run("drop database T")


@pytest.mark.parametrize(("type_", "value"), REFUSED)
def test_a_value_that_the_check_refuses_fails_alone(typed: Any, type_: str, value: Any) -> None:
    with pytest.raises(UnsupportedValueError, match="column 'a' of type"):
        typed(type_, value)
