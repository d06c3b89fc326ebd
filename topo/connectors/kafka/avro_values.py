"""Which values of Python a schema of Avro takes without a loss.

Outside of unions fastavro forces a value into its type: it writes 1 of 1.5 for a long, true of "false", infinity of 1e300 for a
float, an int of more than 32 bits that other readers refuse. It reads a time without a zone in the zone of the process, and
leaves out fields that a record of the schema does not have. So values are looked at first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from math import inf
from numbers import Integral, Real
from typing import Any
from uuid import UUID

Misfit = Callable[[Any], str]
"""Returns why a value does not fit; "": it does."""
_SHOWN = 80
_FLOAT32_END = 2.0**128 - 2.0**103
"""The least number that rounds to infinity in 32 bits."""


def misfit_of(schema: Any, named: Mapping[str, Any]) -> Misfit:
    """Return what looks at the values of a schema.

    Args:
        schema: as fastavro has parsed it: each name is a full one.
        named: the records, enums and fixed of that schema, and of those that it refers to, by name.
    """
    return _Misfits(named).of(schema)


class _Misfits:
    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._made: dict[str, Misfit] = {}

    def of(self, schema: Any) -> Misfit:
        if isinstance(schema, list):
            return self._union(schema)
        if isinstance(schema, str):
            return self._named_type(schema) if schema in self._named else _leaf(schema, {})
        kind = schema["type"]
        if isinstance(kind, list | dict) or kind in self._named:
            return self.of(kind)
        if kind in ("record", "error"):
            return self._record(schema)
        if kind == "array":
            return _array(self.of(schema["items"]))
        if kind == "map":
            return _map(self.of(schema["values"]))
        return _leaf(kind, schema)

    def _named_type(self, name: str) -> Misfit:
        # Not before the first value: a record may have itself as a part.
        def misfit(value: Any) -> str:
            if name not in self._made:
                self._made[name] = self.of(self._named[name])
            return self._made[name](value)

        return misfit

    def _union(self, branches: Sequence[Any]) -> Misfit:
        takes_none = "null" in branches
        by_name = {_name(branch): self.of(branch) for branch in branches if branch != "null"}

        def misfit(value: Any) -> str:
            if value is None and takes_none:
                return ""
            if isinstance(value, tuple) and len(value) == 2 and value[0] in by_name:
                # In fastavro's notation the first of a pair names the branch.
                return by_name[value[0]](value[1])
            reasons: dict[str, None] = {}
            for one in by_name.values():
                if not (why := one(value)):
                    return ""
                reasons[why] = None
            return "; or ".join(reasons)

        return misfit

    def _record(self, schema: Mapping[str, Any]) -> Misfit:
        fields = [(field["name"], self.of(field["type"]), "default" in field) for field in schema["fields"]]
        names = {*(name for name, _, _ in fields), "-type"}
        shown = ", ".join(repr(name) for name, _, _ in fields)

        def misfit(value: Any) -> str:
            if not isinstance(value, Mapping):
                return _wrong(value, f"a record of {shown}")
            if not value.keys() <= names:
                others = ", ".join(repr(name) for name in value if name not in names)
                return f"the schema has no field {others}, it has {shown}; have value= leave it out, or add it to the schema"
            for name, of_field, has_default in fields:
                given = value.get(name)
                if (given is not None or name in value or not has_default) and (why := of_field(given)):
                    return f"field {name!r}: {why}"
            return ""

        return misfit


def _name(branch: Any) -> Any:
    return branch if isinstance(branch, str) else branch.get("name", branch["type"])


def _wrong(value: Any, expected: str) -> str:
    shown = repr(value)
    shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
    return f"the schema has {expected}, and the value is {shown} of type {type(value).__name__}"


def _array(of_item: Misfit) -> Misfit:
    def misfit(value: Any) -> str:
        if not isinstance(value, Collection) or isinstance(value, str | bytes | bytearray | Mapping):
            return _wrong(value, "an array")
        return next(filter(None, map(of_item, value)), "")

    return misfit


def _map(of_value: Misfit) -> Misfit:
    def misfit(value: Any) -> str:
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            return _wrong(value, "a map by texts")
        return next(filter(None, map(of_value, value.values())), "")

    return misfit


def _leaf(kind: str, schema: Mapping[str, Any]) -> Misfit:
    logical = schema.get("logicalType")
    fits, expected = _LOGICAL.get((kind, logical)) or _KINDS[kind](schema)

    def misfit(value: Any) -> str:
        return "" if fits(value) else _wrong(value, expected)

    return misfit


Fits = Callable[[Any], bool]


def _integer(bits: int) -> Fits:
    end = 1 << (bits - 1)

    def fits(value: Any) -> bool:
        return type(value) is not bool and isinstance(value, Integral) and -end <= int(value) < end

    return fits


def _boolean(value: Any) -> bool:
    # Numbers of numpy count as Python's own, and its booleans do not.
    return isinstance(value, bool) or getattr(getattr(value, "dtype", None), "kind", "") == "b"


def _number(value: Any) -> bool:
    return type(value) is not bool and isinstance(value, Real | Decimal)


def _float32(value: Any) -> bool:
    return _number(value) and not _FLOAT32_END <= abs(float(value)) < inf


def _moment(has_zone: bool) -> Fits:
    def fits(value: Any) -> bool:
        return (value.tzinfo is not None) is has_zone if isinstance(value, datetime) else _LONG(value)

    return fits


def _time(of_number: Fits) -> Fits:
    def fits(value: Any) -> bool:
        return value.tzinfo is None if isinstance(value, time) else of_number(value)

    return fits


def _date(value: Any) -> bool:
    # fastavro refuses a text that is no date.
    return (isinstance(value, date | str) and not isinstance(value, datetime)) or _INT(value)


def _uuid(value: Any) -> bool:
    try:
        return isinstance(value, UUID) or (isinstance(value, str) and bool(UUID(value)))
    except ValueError:
        return False


def _raw(value: Any) -> bool:
    return isinstance(value, bytes | bytearray | memoryview)


def _decimal(value: Any) -> bool:
    # fastavro refuses one with other digits than the schema has.
    return isinstance(value, Decimal | bytes | bytearray)


_INT, _LONG = _integer(32), _integer(64)
_KINDS: dict[str, Callable[[Mapping[str, Any]], tuple[Fits, str]]] = {
    "null": lambda _: (lambda value: value is None, "null"),
    "boolean": lambda _: (_boolean, "a boolean"),
    "int": lambda _: (_INT, "an int, a whole number of 32 bits"),
    "long": lambda _: (_LONG, "a long, a whole number of 64 bits"),
    "float": lambda _: (_float32, "a float, a number up to 3.4e38"),
    "double": lambda _: (_number, "a double"),
    "string": lambda _: (lambda value: isinstance(value, str), "a string"),
    "bytes": lambda _: (_raw, "bytes"),
    "fixed": lambda schema: (lambda value: _raw(value) and len(value) == schema["size"], f"{schema['size']} bytes"),
    "enum": lambda schema: (lambda value: value in schema["symbols"], f"one of {', '.join(schema['symbols'])}"),
}
_WITH_ZONE = _moment(True), "a moment: a datetime with a time zone"
_WITHOUT_ZONE = _moment(False), "a datetime without a time zone"
_LOGICAL: dict[tuple[str, Any], tuple[Fits, str]] = {
    ("long", "timestamp-millis"): _WITH_ZONE,
    ("long", "timestamp-micros"): _WITH_ZONE,
    ("long", "local-timestamp-millis"): _WITHOUT_ZONE,
    ("long", "local-timestamp-micros"): _WITHOUT_ZONE,
    ("int", "date"): (_date, "a date, without a time"),
    ("int", "time-millis"): (_time(_INT), "a time without a time zone"),
    ("long", "time-micros"): (_time(_LONG), "a time without a time zone"),
    ("bytes", "decimal"): (_decimal, "a Decimal"),
    ("fixed", "decimal"): (_decimal, "a Decimal"),
    ("string", "uuid"): (_uuid, "a UUID"),
}
