"""Avro's types take values of Python without a loss, or refuse them."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from topo.connectors.kafka.avro_values import misfit_of

ZONED, NAIVE = datetime(2026, 1, 1, 9, tzinfo=UTC), datetime(2026, 1, 1, 9)


def logical(kind: str, name: str) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, "precision": 6, "scale": 2, "size": 2}


FITS: list[tuple[Any, Any]] = [
    ("null", None),
    ("boolean", True),
    ("int", -(2**31)),
    ("long", 2**63 - 1),
    ("float", 3.4e38),
    ("float", float("inf")),
    ("double", float("nan")),
    ("double", 1),
    ("double", Decimal("1.1")),
    ("string", ""),
    ("bytes", bytearray(b"x")),
    ({"type": "fixed", "name": "F", "size": 2}, b"ab"),
    ({"type": "enum", "name": "E", "symbols": ["A"]}, "A"),
    ({"type": "array", "items": "long"}, (1, 2)),
    ({"type": "map", "values": "long"}, {"a": 1}),
    (["null", "long"], None),
    (["null", logical("long", "timestamp-millis")], ZONED),
    (["long", "string"], ("string", "x")),
    (logical("long", "timestamp-micros"), 5),
    (logical("long", "local-timestamp-millis"), NAIVE),
    (logical("int", "date"), date(2026, 1, 1)),
    (logical("int", "date"), "2026-01-01"),
    (logical("int", "time-millis"), time(9)),
    (logical("bytes", "decimal"), Decimal("1.50")),
    (logical("string", "uuid"), UUID(int=5)),
    (logical("string", "uuid"), str(UUID(int=5))),
    (logical("string", "of-others"), "x"),
]
MISFITS: list[tuple[Any, Any, str]] = [
    ("long", 1.5, "the schema has a long, a whole number of 64 bits, and the value is 1.5 of type float"),
    ("long", 1.0, "a long"),
    ("long", Decimal("1.5"), "a long"),
    ("long", True, "a long"),
    ("long", 2**63, "a long"),
    ("int", 2**31, "an int, a whole number of 32 bits"),
    ("boolean", "false", "a boolean"),
    ("boolean", None, "a boolean"),
    ("float", 1e300, "a number up to 3.4e38"),
    ("double", "1", "a double"),
    ("string", b"x", "a string"),
    ("bytes", "x", "bytes"),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "C", "one of A, B"),
    ({"type": "fixed", "name": "F", "size": 2}, b"abc", "2 bytes"),
    ({"type": "array", "items": "string"}, "ab", "an array"),
    ({"type": "array", "items": "long"}, [1, 1.5], "the value is 1.5"),
    ({"type": "map", "values": "long"}, {"a": 1.5}, "the value is 1.5"),
    ({"type": "map", "values": "long"}, {1: 1}, "a map by texts"),
    (["null", "long"], 1.5, "the schema has a long"),
    (["int", "boolean"], "x", "an int.*; or the schema has a boolean"),
    (["null", logical("long", "timestamp-millis")], NAIVE, "a datetime with a time zone"),
    (["long", "string"], ("long", "x"), "a long"),
    (logical("long", "timestamp-micros"), NAIVE, "a datetime with a time zone"),
    (logical("long", "timestamp-micros"), 1.5, "a datetime with a time zone"),
    (logical("long", "local-timestamp-micros"), ZONED, "a datetime without a time zone"),
    (logical("int", "date"), ZONED, "a date, without a time"),
    (logical("int", "time-millis"), time(9, tzinfo=UTC), "a time without a time zone"),
    (logical("bytes", "decimal"), 1.5, "a Decimal"),
    (logical("string", "uuid"), "x", "a UUID"),
]


def test_values_of_numpy_fit() -> None:
    numpy = pytest.importorskip("numpy")
    for schema, value in (
        ("boolean", numpy.bool_(True)),
        ("long", numpy.int64(5)),
        ("float", numpy.float32(0.5)),
        ({"type": "array", "items": "long"}, numpy.array([1, 2])),
    ):
        assert misfit_of(schema, {})(value) == ""
    assert "an int" in misfit_of("int", {})(numpy.int64(2**40))


@pytest.mark.parametrize(("schema", "value"), FITS)
def test_a_value_without_a_loss_fits(schema: Any, value: Any) -> None:
    assert misfit_of(schema, {})(value) == ""


@pytest.mark.parametrize(("schema", "value", "why"), MISFITS)
def test_a_value_that_would_be_changed_does_not_fit(schema: Any, value: Any, why: str) -> None:
    assert re.search(why, misfit_of(schema, {})(value))


ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "cents", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "count", "type": "int", "default": 1},
        {"name": "before", "type": ["null", "Order"], "default": None},
    ],
}


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ({"cents": 1}, ""),
        ({"cents": 1, "note": "n", "count": 2, "before": {"cents": 2}}, ""),
        ({"cents": 1, "-type": "Order"}, ""),
        ({}, "field 'cents': the schema has a long"),
        ({"cents": 1, "count": None}, "field 'count': the schema has an int"),
        ({"cents": 1, "Note": "n"}, "the schema has no field 'Note', it has 'cents', 'note', 'count', 'before'; have value="),
        ({"cents": 1, "before": {"cents": 1.5}}, "field 'before': .*field 'cents': the schema has a long"),
        (5, "the schema has a record of 'cents', "),
    ],
)
def test_a_record_has_the_fields_of_its_schema_and_no_others(record: Any, why: str) -> None:
    found = misfit_of(ORDER, {"Order": ORDER})(record)
    assert re.search(why, found) if why else found == ""
