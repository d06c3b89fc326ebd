from __future__ import annotations

import math
import sqlite3
from contextlib import closing
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.contract.two_phase_sinks import started
from tests.unit.connectors.drive import TICK, prepared, tracked
from topo import ConfigError, SqliteSink, UnsupportedValueError
from topo.checkpoint.staged_output import StagedOutput
from topo.errors import StagedRowsLostError
from topo.testing import run_bolt


def rows(path: Path, statement: str = "select * from t order by rowid") -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(statement).fetchall()


def run(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)


def test_a_table_is_made_with_the_columns_and_the_other_fields_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "new" / "db"
    prepared(sink := SqliteSink(path, "t", ["b", "a"], max_batch=1))
    sink.execute(tracked(a=1, c="no", b="two"))
    assert rows(path) == [("two", 1)]
    assert rows(path, "select name from sqlite_master") == [("t",)]


def test_the_last_row_of_a_key_stays(tmp_path: Path) -> None:
    prepared(sink := SqliteSink(tmp_path / "db", "t", ["k", "v", "w"], key="k"))
    for k, v, w in [(1, "a", "x"), (2, "b", "x"), (1, "c", "y"), (1, "d", None)]:
        sink.execute(tracked(k=k, v=v, w=w))
    sink.execute(TICK)
    assert sorted(rows(tmp_path / "db")) == [(1, "d", None), (2, "b", "x")]


def test_the_last_staged_row_of_a_key_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topo.connectors.staged_table.SPILL_ROWS", 2)
    started(sink := SqliteSink(tmp_path / "db", "t", ["k", "j", "v"], key=["k", "j"]))
    output = StagedOutput(sink)
    output.restore(None)
    for checkpoint in (1, 2):
        for v in range(12):
            sink.execute(tracked(k=v % 2, j="same", v=100 * checkpoint + v))
        output.snapshot(checkpoint)
    output.complete(2)
    assert sorted(rows(tmp_path / "db")) == [(0, "same", 210), (1, "same", 211)]


def test_a_table_of_keys_alone_takes_each_once(tmp_path: Path) -> None:
    prepared(sink := SqliteSink(tmp_path / "db", "t", "k", key="k"))
    for k in (1, 2, 1):
        sink.execute(tracked(k=k))
    sink.execute(TICK)
    assert sorted(rows(tmp_path / "db")) == [(1,), (2,)]


def test_names_may_be_any_text(tmp_path: Path) -> None:
    columns = ['a "b"', "select", "x?"]
    started(sink := SqliteSink(tmp_path / "db", 'my "table"', columns, key="select"))
    output = StagedOutput(sink)
    output.restore(None)
    sink.execute(tracked(**dict(zip(columns, (1, 2, 3), strict=True))))
    output.snapshot(1)
    output.complete(1)
    assert rows(tmp_path / "db", 'select * from "my ""table"""') == [(1, 2, 3)]


def test_values_are_stored_as_they_are_or_as_texts(tmp_path: Path) -> None:
    values = (None, -5, (1 << 63) - 1, 1.5, math.inf, True, "émeu", b"\x00", date(2020, 1, 2), Decimal("1.50"), UUID(int=1))
    expected = (*values[:8], "2020-01-02", "1.50", "00000000-0000-0000-0000-000000000001")
    columns = [f"c{n}" for n in range(len(values))]
    prepared(sink := SqliteSink(tmp_path / "db", "t", columns, max_batch=1))
    sink.execute(tracked(**dict(zip(columns, values, strict=True))))
    assert rows(tmp_path / "db") == [expected]


@pytest.mark.parametrize("value", [1 << 63, ("a",), {"a": 1}, object(), "\ud800"])
def test_a_value_that_cannot_be_stored_fails_alone(tmp_path: Path, value: Any) -> None:
    collector = prepared(sink := SqliteSink(tmp_path / "db", "t", ["v"]))
    sink.execute(good := tracked(v=datetime(2020, 1, 2)))
    with pytest.raises(UnsupportedValueError, match="column 'v'"):
        sink.execute(tracked(v=value))
    sink.execute(TICK)
    assert collector.acked == [good]
    assert rows(tmp_path / "db") == [("2020-01-02T00:00:00",)]


@pytest.mark.parametrize("key", [None, math.nan])
def test_a_key_without_a_value_is_refused(tmp_path: Path, key: Any) -> None:
    prepared(sink := SqliteSink(tmp_path / "db", "t", ["k", "v"], key="k"))
    with pytest.raises(UnsupportedValueError, match="'k'"):
        sink.execute(tracked(k=key, v=1))


def test_the_numbers_that_sqlite_has_are_stored_and_nan_as_null(tmp_path: Path) -> None:
    numbers = [-(1 << 63), (1 << 63) - 1, 1.5, -math.inf, math.nan]
    run_bolt(SqliteSink(tmp_path / "db", "t", ["v"]), [{"v": number} for number in numbers]).assert_all_acked()
    assert rows(tmp_path / "db") == [(number,) for number in (*numbers[:-1], None)]


@pytest.mark.parametrize(
    ("columns", "key", "why"),
    [([], None, "one at least"), (["a", "a"], None, "different"), (["__row"], None, "__"), (["a"], "b", "must be among")],
)
def test_columns_that_cannot_be_used_are_refused(columns: list[str], key: str | None, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        SqliteSink("db", "t", columns, key=key)


@pytest.mark.parametrize(
    ("made", "key", "why"),
    [
        ("create table t (a)", None, "no column named b"),
        ("create table t (a, b)", "a", "unique index on"),
        ("create table t (a primary key, b unique)", ["a", "b"], "unique index on"),
        ("create table t (a, b, c int default 1 not null, d text not null)", None, "'d' of table 't' refuses null"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(tmp_path: Path, made: str, key: Any, why: str) -> None:
    run(tmp_path / "db", made)
    with pytest.raises(ConfigError, match=why):
        prepared(SqliteSink(tmp_path / "db", "t", ["a", "b"], key=key))


def test_a_table_of_the_users_own_is_taken_as_it_is(tmp_path: Path) -> None:
    run(tmp_path / "db", "create table t (id integer primary key not null, a text, b integer not null default 7, unique (a))")
    prepared(sink := SqliteSink(tmp_path / "db", "t", ["a"], key="a", max_batch=1))
    sink.execute(tracked(a="x"))
    assert rows(tmp_path / "db") == [(1, "x", 7)]


def test_staged_rows_of_other_columns_are_refused(tmp_path: Path) -> None:
    started(SqliteSink(tmp_path / "db", "t", ["a"]))
    run(tmp_path / "db", "alter table t add column b")
    with pytest.raises(ConfigError, match="t__staged"):
        started(SqliteSink(tmp_path / "db", "t", ["a", "b"]))


def test_rows_that_an_earlier_version_has_staged_are_found(tmp_path: Path) -> None:
    """Its table has no column for the writer."""
    run(
        tmp_path / "db",
        "create table t__staged (__task integer, __process text, __number integer, __row integer, a, "
        "primary key (__process, __number, __row)) without rowid",
    )
    for number in (0, 1):
        run(tmp_path / "db", f"insert into t__staged values (0, 'former', {number}, 0, 'x{number}')")
    started(sink := SqliteSink(tmp_path / "db", "t", ["a"]))
    output = StagedOutput(sink)
    output.restore([[1, ["former", 0, 1]]])
    sink.execute(tracked(a="y"))
    output.snapshot(2)
    output.complete(2)
    assert rows(tmp_path / "db") == [("x0",), ("y",)]
    assert rows(tmp_path / "db", "select * from t__staged") == []


@pytest.mark.parametrize("make", [prepared, started])
def test_a_row_without_a_value_that_a_column_needs_fails_alone(tmp_path: Path, make: Any) -> None:
    run(tmp_path / "db", "create table t (id integer primary key not null, a text not null)")
    make(sink := SqliteSink(tmp_path / "db", "t", ["ID", "A"]))
    sink.begin()
    sink.write(tracked(ID=None, A="x"))
    with pytest.raises(UnsupportedValueError, match="'A' refuses null"):
        sink.write(tracked(ID=1, A=None))


def test_when_a_batch_cannot_be_inserted_none_of_it_is_and_its_inputs_fail(tmp_path: Path) -> None:
    run(tmp_path / "db", "create table t (a check (a > 0))")
    collector = prepared(sink := SqliteSink(tmp_path / "db", "t", ["a"]))
    held = [tracked(a=1), tracked(a=-1)]
    for tup in held:
        sink.execute(tup)
    with pytest.raises(sqlite3.IntegrityError):
        sink.execute(TICK)
    assert (collector.failed, rows(tmp_path / "db")) == (held, [])
    sink.execute(tracked(a=2))
    sink.execute(TICK)
    assert rows(tmp_path / "db") == [(2,)]


def test_while_the_database_is_locked_no_tuple_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topo.connectors.sqlite_table._LOCK_TIMEOUT_S", 0.0)
    collector, errors = prepared(sink := SqliteSink(tmp_path / "db", "t", ["a"])), list[BaseException]()
    collector.report_error = errors.append  # type: ignore[method-assign]
    sink.execute(held := tracked(a=1))
    with closing(sqlite3.connect(tmp_path / "db", isolation_level=None)) as other:
        other.execute("begin immediate")
        sink.execute(TICK)
    assert [str(error) for error in errors] == ["database is locked"]
    sink.execute(TICK)
    assert (collector.failed, collector.acked, rows(tmp_path / "db")) == ([], [held], [(1,)])


def test_rows_that_could_not_be_staged_are_staged_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topo.connectors.sqlite_table._LOCK_TIMEOUT_S", 0.0)
    started(sink := SqliteSink(tmp_path / "db", "t", ["a"]))
    output = StagedOutput(sink)
    output.restore(None)
    sink.execute(tracked(a=1))
    with closing(sqlite3.connect(tmp_path / "db", isolation_level=None)) as other:
        other.execute("begin immediate")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            output.snapshot(1)
    sink.execute(tracked(a=2))
    output.snapshot(2)
    output.complete(2)
    assert rows(tmp_path / "db") == [(1,), (2,)]


def test_staged_rows_that_are_gone_are_reported(tmp_path: Path) -> None:
    started(sink := SqliteSink(tmp_path / "db", "t", ["a"]))
    output = StagedOutput(sink)
    output.restore(None)
    sink.execute(tracked(a=1))
    state = output.snapshot(1)
    started(elsewhere := SqliteSink(tmp_path / "other", "t", ["a"]))
    with pytest.raises(StagedRowsLostError, match="1 rows were staged for table 't', and 0"):
        StagedOutput(elsewhere).restore(state)


def test_each_commit_is_synced(tmp_path: Path) -> None:
    sink = SqliteSink(tmp_path / "new" / "db", "out", ["n"])
    started(sink)
    assert sink._store._connection.execute("pragma synchronous").fetchone() == (2,)
