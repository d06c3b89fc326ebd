"""Types of columns of parquet: their names in Spark's SQL, and which ones Spark reads."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from topo.errors import ConfigError

_MAX_PRECISION = 38
_SIMPLE = {
    "boolean": pa.bool_(),
    "bool": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "int8": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int16": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "int32": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "float32": pa.float32(),
    "double": pa.float64(),
    "float64": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ltz": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_SAME = (
    ("integer",),
    ("floating",),
    ("string", "large_string"),
    ("binary", "large_binary", "fixed_size_binary"),
    ("decimal",),
    ("timestamp",),
)
"""Types that are one type in a tuple, and so may differ between the files of a source."""
_TOKEN = re.compile(r"\s*([A-Za-z_]\w*|\d+|[<>(),:])")


def type_named(name: str) -> pa.DataType:
    """Return the Arrow type that a Spark type name stands for.

    Args:
        name: `bigint`, `decimal(10,2)`, `array<string>`, `map<string,double>`, `struct<a:int,b:date>` and so on. `timestamp` is a
            moment, `timestamp_ntz` a date and time without a zone.

    Raises:
        ConfigError: there is no such type.
    """
    tokens = _tokens(name)
    try:
        found = _parse(tokens)
        if next(tokens) is not None:
            raise ValueError
        return found
    except (ValueError, KeyError):
        known = ", ".join(key for key in _SIMPLE if not key[-1].isdigit())
        raise ConfigError(
            f"{name!r} is no type: use {known}, decimal(precision,scale), array<type>, map<type,type> or struct<name:type,...>"
        ) from None


def declared_schema(declared: pa.Schema | Mapping[str, str | pa.DataType]) -> pa.Schema:
    """Return what a user has declared as a schema.

    Raises:
        ConfigError: a type is unknown.
    """
    if isinstance(declared, pa.Schema):
        return declared.remove_metadata()
    types = {name: type_named(kind) if isinstance(kind, str) else kind for name, kind in declared.items()}
    return pa.schema(list(types.items()))


def _tokens(name: str) -> Iterator[str | None]:
    at = 0
    while at < len(name.rstrip()):
        match = _TOKEN.match(name, at)
        if match is None:
            raise ConfigError(f"{name!r} is no type: {name[at:]!r} cannot be read")
        yield match[1]
        at = match.end()
    while True:
        yield None


def _parse(tokens: Iterator[str | None]) -> pa.DataType:
    word = (next(tokens) or "").lower()
    if word == "decimal":
        _expect(tokens, "(")
        precision = int(next(tokens) or "")
        _expect(tokens, ",")
        scale = int(next(tokens) or "")
        _expect(tokens, ")")
        if not 0 <= scale <= precision or not 1 <= precision <= _MAX_PRECISION:
            raise ValueError
        return pa.decimal128(precision, scale)
    if word == "array":
        _expect(tokens, "<")
        item = _parse(tokens)
        _expect(tokens, ">")
        return pa.list_(item)
    if word == "map":
        _expect(tokens, "<")
        key = _parse(tokens)
        _expect(tokens, ",")
        value = _parse(tokens)
        _expect(tokens, ">")
        return pa.map_(key, value)
    if word == "struct":
        _expect(tokens, "<")
        fields = []
        mark: str | None = ","
        while mark == ",":
            name = next(tokens)
            if name is None:
                raise ValueError
            _expect(tokens, ":")
            fields.append((name, _parse(tokens)))
            mark = next(tokens)
        if mark != ">":
            raise ValueError
        return pa.struct(fields)
    return _SIMPLE[word]


def _expect(tokens: Iterator[str | None], mark: str) -> None:
    if next(tokens) != mark:
        raise ValueError


def spark_reads(kind: pa.DataType) -> bool:
    """Whether Spark reads a parquet column of that type without a conversion."""
    of = pa.types
    if of.is_list(kind):
        return spark_reads(kind.value_type)
    if of.is_map(kind):
        return spark_reads(kind.key_type) and spark_reads(kind.item_type)
    if of.is_struct(kind):
        return kind.num_fields > 0 and all(spark_reads(field.type) for field in kind)
    if of.is_timestamp(kind):
        return str(kind.unit) in ("ms", "us")
    return bool(
        of.is_boolean(kind)
        or of.is_signed_integer(kind)
        or of.is_float32(kind)
        or of.is_float64(kind)
        or of.is_string(kind)
        or of.is_large_string(kind)
        or of.is_binary(kind)
        or of.is_large_binary(kind)
        or of.is_date32(kind)
        or of.is_decimal128(kind)
    )


def is_same_type(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether values of both types are of one type in a tuple; a column of nulls alone goes with any type."""
    if one.equals(other) or pa.types.is_null(one) or pa.types.is_null(other):
        return True
    if pa.types.is_timestamp(one) and pa.types.is_timestamp(other):
        return (one.tz is None) == (other.tz is None)
    return any(_is_one_of(one, kinds) and _is_one_of(other, kinds) for kinds in _SAME)


def _is_one_of(kind: pa.DataType, names: Sequence[str]) -> bool:
    return any(getattr(pa.types, f"is_{name}")(kind) for name in names)
