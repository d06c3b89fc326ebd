"""PostgresSink on a real server: rows that it refuses, values, tables that do not fit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.postgres_tables import Table, table
from tests.contract.two_phase_sinks import started
from tests.servers.postgres import PASSWORD
from tests.unit.connectors.drive import TICK, tracked
from tests.unit.connectors.postgres_values import REFUSED, TAKEN
from topo import (
    ConfigError,
    PostgresSink,
    TopoEnvironmentError,
    UnsupportedValueError,
)
from topo.checkpoint.staged_output import StagedOutput

psycopg = pytest.importorskip("psycopg")

pytestmark = [pytest.mark.integration, pytest.mark.server, pytest.mark.xdist_group("postgres")]
__all__ = ["table"]

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


@pytest.mark.parametrize(
    "made",
    [
        "create table T__base (a int); create view T as select a from T__base",
        "create table T (a int); alter table T enable row level security",
    ],
)
def test_what_no_rows_can_be_copied_into_is_refused(table: Table, made: str) -> None:
    table.run(f"{made}; grant all on T to locked")
    sink = table.sink(["a"], f"{table.address} user=locked password={PASSWORD}")
    with pytest.raises(ConfigError, match="rows without a key are copied; delivery='exactly_once' inserts them"):
        started(sink, delivery="at_least_once")


@pytest.mark.parametrize(("key", "why"), [(None, "grant this user insert on it, and create"), ("a", "with a key select")])
def test_a_right_that_is_missing_is_named_and_nothing_else(table: Table, key: Any, why: str) -> None:
    table.run("create table T (a int unique)")
    with pytest.raises(ConfigError, match=f"permission denied for table .*; {'.*' if key else ''}{why}") as refused:
        started(table.sink(["a"], f"{table.address} user=locked password={PASSWORD}", key=key))
    assert "unique index" not in str(refused.value)


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
