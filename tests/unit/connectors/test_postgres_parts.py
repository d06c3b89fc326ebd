"""The parts of the PostgreSQL connectors that need no server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.unit.connectors.drive import tracked
from tests.unit.connectors.postgres_values import REFUSED, TAKEN
from topo import ConfigError, Partition, PostgresCdcSpout, PostgresSink, PostgresSpout, UnsupportedValueError
from topo.connectors.postgres.column_types import ColumnInfo, check_of
from topo.connectors.postgres.halving import halved
from topo.connectors.postgres.keyset import Horizon
from topo.connectors.postgres.settings import KeysetSettings, table_name
from topo.connectors.postgres.statements import SinkStatements
from topo.connectors.staged_table import RowBuilder, TableColumns

CATALOG = {
    "smallint": ("int2", -1),
    "integer": ("int4", -1),
    "bigint": ("int8", -1),
    "real": ("float4", -1),
    "double precision": ("float8", -1),
    "numeric(5,2)": ("numeric", (5 << 16 | 2) + 4),
    "numeric(38,0)": ("numeric", (38 << 16) + 4),
    "numeric(3,5)": ("numeric", (3 << 16 | 5) + 4),
    "varchar(3)": ("varchar", 7),
    "char(3)": ("bpchar", 7),
    "boolean": ("bool", -1),
}
"""Name and modifier of types whose names in the catalog are others than in SQL."""


def column(type_: str) -> ColumnInfo:
    sql = type_.removesuffix(" not null")
    name, modifier = CATALOG.get(sql.removesuffix("[]"), (sql.removesuffix("[]"), -1))
    return ColumnInfo("a", sql, name, modifier, sql.endswith("[]"), type_.endswith("not null"))


@pytest.mark.parametrize(("type_", "value"), [(type_, value) for type_, value, _ in TAKEN])
def test_a_value_that_fits_its_column_is_taken(type_: str, value: Any) -> None:
    check, is_complete = check_of(column(type_))
    assert is_complete
    assert value is None or check(value) is not None


@pytest.mark.parametrize(("type_", "value"), REFUSED)
def test_a_value_that_does_not_fit_names_column_type_and_fix(type_: str, value: Any) -> None:
    check, _ = check_of(column(type_))
    required = ["a"] if type_.endswith("not null") else []
    builder = RowBuilder(TableColumns("PostgresSink", "a", None), [check], [type_], required)
    with pytest.raises(UnsupportedValueError, match=r"column 'a' of type \w+"):
        builder.row(tracked(a=value))


def test_values_of_unknown_types_are_not_checked_and_those_of_enums_are() -> None:
    check, is_complete = check_of(ColumnInfo("a", "inet", "inet"))
    assert (check("127.0.0.1"), is_complete) == ("127.0.0.1", False)
    check, is_complete = check_of(ColumnInfo("a", "mood", "mood", labels=("good", "bad")))
    assert (check("bad"), is_complete) == ("bad", True)
    with pytest.raises(UnsupportedValueError, match="one of good, bad"):
        check("none")


@pytest.mark.parametrize("bad", [(), (0,), (7,), (3, 4), tuple(range(8))])
def test_rows_are_halved_until_a_bad_one_is_alone_and_their_order_is_kept(bad: tuple[int, ...]) -> None:
    inserted: list[int] = []
    calls = 0

    def insert(rows: Sequence[Any]) -> None:
        nonlocal calls
        calls += 1
        if any(n in bad for (n,) in rows):
            raise ValueError(rows)
        inserted.extend(n for (n,) in rows)

    found = halved([(n,) for n in range(8)], insert, lambda error: isinstance(error, ValueError))
    assert sorted(found) == list(bad)
    assert inserted == [n for n in range(8) if n not in bad]
    assert calls <= 1 + 2 * 3 * max(len(bad), 0)


def test_an_error_that_no_row_is_at_fault_for_is_raised() -> None:
    def insert(_rows: Sequence[Any]) -> None:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        halved([(1,), (2,)], insert, lambda error: isinstance(error, ValueError))


@pytest.mark.parametrize("name", ["", "a.b.c", "shop.", "a\0", "x" * 53])
def test_names_of_tables_that_cannot_be_used_are_refused(name: str) -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(ConfigError, match="PostgresSink: table="):
        PostgresSink("", name, ["a"])


def test_a_spout_reads_tables_whose_names_are_as_long_as_the_server_allows() -> None:
    pytest.importorskip("psycopg")
    longest = "x" * 63
    assert PostgresSpout("", f"shop.{longest}", ["a"], key="id").partitions() == [
        Partition(f'"shop"."{longest}"', f'"shop"."{longest}"', 0)
    ]
    with pytest.raises(ConfigError, match="has more than 63 bytes"):
        PostgresSpout("", longest + "x", ["a"], key="id")


def test_names_are_quoted_with_their_schema() -> None:
    assert table_name("PostgresSink", 'shop.my "t"').sql("__staged") == '"shop"."my ""t""__staged"'
    assert table_name("PostgresSink", "t").sql() == '"t"'


def test_with_a_key_the_last_row_of_each_is_moved_in_the_order_of_keys() -> None:
    columns = TableColumns("PostgresSink", ["v", "k"], "k")
    sql = SinkStatements(
        table_name("PostgresSink", "t"), columns, [ColumnInfo("v", "text", "text"), ColumnInfo("k", "bigint", "int8")]
    )
    assert sql.move == (
        'insert into "t" ("v", "k") select distinct on ("k") "v", "k" from "t__staged" where __process = $1 and __number = $2 '
        'order by "k", __row desc on conflict ("k") do update set "v" = excluded."v"'
    )


# -- PostgresSpout -----------------------------------------------------------------------------------------------------------


def test_a_table_is_read_to_a_key_when_all_who_were_writing_have_ended() -> None:
    horizon = Horizon()
    horizon.seen(7, ["3/1", "4/1"])
    assert horizon.is_waiting and horizon.bound < 0
    horizon.look(["4/1", "5/9"])
    assert horizon.is_waiting, "one of them still writes; the new one draws greater keys"
    horizon.look(["5/9"])
    assert (horizon.bound, horizon.is_waiting) == (7, False)
    horizon.seen(7, [])
    assert not horizon.is_waiting
    horizon.seen(9, [])
    assert horizon.bound == 9
    horizon.seen(None, [])
    assert horizon.bound == 9


def test_a_transaction_that_is_prepared_has_another_name_then() -> None:
    horizon = Horizon()
    horizon.seen(7, ["3/1"])
    horizon.look(["-1/801"])
    assert horizon.is_waiting
    horizon.look([])
    assert horizon.bound == 7


def test_partitions_share_the_keys_of_a_table() -> None:
    settings = KeysetSettings("", "shop.orders", ("a", "b"), "id", None, None, 4)
    assert settings.statements('"orders"', 3).read == (
        'select q."id", null, q."a", q."b" from "orders" as q where q."id" > $1 and q."id" <= $2'
        ' and (hashint8(q."id"::bigint) & 2147483647) % 4 = 3 order by q."id" limit $3'
    )


@pytest.mark.parametrize(
    ("source", "is_query", "is_pattern"),
    [("orders", False, False), ("orders_*", False, True), ("select 2 * n from t", True, False), ("\n with x as", True, False)],
)
def test_a_source_is_a_table_a_pattern_or_a_query(source: str, is_query: bool, is_pattern: bool) -> None:
    settings = KeysetSettings("", source, ("a",), "id", None, None, 1)
    assert (settings.is_query, settings.is_pattern) == (is_query, is_pattern)


def test_a_pattern_takes_all_but_its_star_as_it_is() -> None:
    settings = KeysetSettings("", "shop.my_100%*", ("a",), "id", None, None, 1)
    assert (settings.schema, settings.like) == ("shop", r"my\_100\%%")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"columns": "n"}, "columns='n' must be"),
        ({"columns": ["n", "n"]}, "must be different"),
        ({"partitions": 0}, "at least 1"),
        ({"settle": "5s"}, "settle= needs timestamp="),
        ({"start": "first"}, "start='first' must be"),
        ({"table": "a.b.c"}, "table='a.b.c' must be"),
        ({"dsn": "oops"}, "dsn= cannot be read"),
        ({"dsn": None}, "dsn=None .NoneType. must be a text"),
        ({"partitions": 2.5}, "partitions=2.5 .float. must be a whole number"),
        ({"partitions": True}, "partitions=True .bool. must be a whole number"),
        ({"batch": 1.5}, "batch=1.5 .float. must be a whole number"),
        ({"poll_interval": "0s"}, "poll_interval='0s' must be a duration above zero"),
        ({"timestamp": "at", "settle": "0s"}, "settle='0s' must be at least 1ms"),
        ({"timestamp": "at", "settle": "-5s"}, "settle='-5s' must be a duration of 0 or more"),
        ({"key": ""}, "key='' must be the name of a column"),
        ({"timestamp": ""}, "timestamp='' must be the name of a column"),
        ({"on_bad_record": "skip"}, "on_bad_record='skip' must be 'dead_letter', 'fail' or 'drop'"),
    ],
)
def test_arguments_of_the_spout_that_cannot_be_used_are_refused(options: dict[str, Any], why: str) -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(ConfigError, match=why):
        PostgresSpout(**{"dsn": "", "table": "t", "columns": ["n"], "key": "id"} | options)


@pytest.mark.parametrize("options", [{"on_lost": "drop"}, {"on_bad_record": "skip"}])
def test_choices_of_the_spout_of_changes_are_checked_at_once(options: dict[str, Any]) -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(ConfigError, match="must be '"):
        PostgresCdcSpout(**{"dsn": "", "publication": "p", "slot": "s"} | options)


@pytest.mark.parametrize(
    ("code", "expected"),
    [("22003", True), ("23505", True), ("P0001", True), ("54000", True), ("25006", False), ("42501", False), ("53100", False)],
)
def test_errors_that_hold_for_all_rows_blame_none(code: str, expected: bool) -> None:
    pytest.importorskip("psycopg")
    from psycopg import OperationalError, errors

    from topo.connectors.postgres.table import is_of_row

    assert is_of_row(errors.lookup(code)()) is expected
    assert not is_of_row(OperationalError()) and not is_of_row(OSError())
