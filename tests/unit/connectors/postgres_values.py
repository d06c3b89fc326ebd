"""Values and the types of columns that take them, or not: the checks decide it, and a real server agrees."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

NAIVE, AWARE = datetime(2024, 2, 29, 1, 2, 3, 4), datetime(2024, 2, 29, 1, 2, 3, 4, UTC)

TAKEN: list[tuple[str, Any, Any]] = [
    ("smallint", -32768, -32768),
    ("integer", 2**31 - 1, 2**31 - 1),
    ("bigint", -(2**63), -(2**63)),
    ("bigint", None, None),
    ("real", 1.5, 1.5),
    ("double precision", 3, 3.0),
    ("double precision", math.inf, math.inf),
    ("numeric", 10**300, Decimal(10**300)),
    ("numeric(5,2)", Decimal("999.99"), Decimal("999.99")),
    ("numeric(5,2)", 0.1, Decimal("0.10")),
    ("numeric(5,2)", Decimal("999.994"), Decimal("999.99")),
    ("numeric(3,5)", Decimal("0.00999"), Decimal("0.00999")),
    ("numeric(38,0)", 10**38 - 1, Decimal(10**38 - 1)),
    ("numeric(38,0)", Decimal("-99999999999999999999999999999999999999.4"), Decimal(1 - 10**38)),
    ("text", "émeu\t\\N\n", "émeu\t\\N\n"),
    ("text", "", ""),
    ("text", date(2020, 1, 2), "2020-01-02"),
    ("varchar(3)", "äöü", "äöü"),
    ("char(3)", "ab", "ab "),
    ("boolean", True, True),
    ("bytea", b"\x00\\x", b"\x00\\x"),
    ("date", date(1, 1, 1), date(1, 1, 1)),
    ("time", time(23, 59, 59, 999999), time(23, 59, 59, 999999)),
    ("timestamp", NAIVE, NAIVE),
    ("timestamptz", AWARE, AWARE),
    ("interval", timedelta(days=3, microseconds=5), timedelta(days=3, microseconds=5)),
    ("uuid", "00000000-0000-0000-0000-000000000001", UUID(int=1)),
    ("json", {"a": [1, None, "ü"]}, {"a": [1, None, "ü"]}),
    ("jsonb", "text\\u0000", "text\\u0000"),
    ("integer[]", [1, None, 3], [1, None, 3]),
    ("integer[]", [], []),
    ("double precision[]", (1, 2.5), [1.0, 2.5]),
    ("text[]", ['"', "a,b", "{}", "NULL"], ['"', "a,b", "{}", "NULL"]),
]
"""Type, value, and the value as psycopg reads it."""

REFUSED: list[tuple[str, Any]] = [
    ("smallint", 32768),
    ("integer", 2**31),
    ("integer", 1.0),
    ("integer", True),
    ("integer", "1"),
    ("bigint", 2**63),
    ("real", 1e39),
    ("real", 1e-60),
    ("double precision", 10**400),
    ("double precision", Decimal("1e400")),
    ("double precision", "1"),
    ("numeric", Decimal("Infinity")),
    ("numeric", Decimal("1e200000")),
    ("numeric(5,2)", 1000),
    ("numeric(38,0)", Decimal("99999999999999999999999999999999999999.5")),
    ("numeric(5,2)", Decimal("999.995")),
    ("numeric(3,5)", Decimal("0.01")),
    ("text", "a\0"),
    ("text", "\ud800"),
    ("text", 5),
    ("varchar(3)", "four"),
    ("boolean", 1),
    ("bytea", "text"),
    ("date", NAIVE),
    ("time", time(1, tzinfo=UTC)),
    ("timestamp", AWARE),
    ("timestamptz", NAIVE),
    ("interval", 5),
    ("uuid", "no"),
    ("json", object()),
    ("jsonb", {"a": "\0"}),
    ("integer[]", [1, "2"]),
    ("integer[]", 5),
    ("integer not null", None),
]
"""Type, and a value that fails its tuple."""
