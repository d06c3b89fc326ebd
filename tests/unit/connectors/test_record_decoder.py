"""Records as tuples: deserializers, fields, metadata."""

from __future__ import annotations

from typing import Any

import pytest

from topo import ConfigError
from topo.connectors.record_decoder import decoder_of, record_fields


@pytest.mark.parametrize(
    ("deserializer", "data", "value"),
    [
        ("bytes", b"\xff\x00", b"\xff\x00"),
        ("text", "Zürich".encode(), "Zürich"),
        ("json", b'{"a": [1, null]}', {"a": [1, None]}),
        (int, b"12", 12),
    ],
)
def test_a_record_without_fields_is_one_value(deserializer: Any, data: bytes, value: Any) -> None:
    assert decoder_of(deserializer, None)(data) == (value,)


@pytest.mark.parametrize(
    ("fields", "values"),
    [(("user", "cents"), ("ann", 7)), (("cents",), (7,)), (("user", "city?"), ("ann", None)), (("cents?", "user?"), (7, "ann"))],
)
def test_fields_are_keys_of_the_record(fields: tuple[str, ...], values: tuple[Any, ...]) -> None:
    assert decoder_of("json", fields)(b'{"user": "ann", "cents": 7}') == values


@pytest.mark.parametrize("fields", [("user", "city"), ("city",), ("user?", "city"), ("user", "city", "zip?")])
def test_a_missing_key_is_a_fault_that_names_it_and_the_others(fields: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"^no 'city' in the object, which has 'user', 'cents'$"):
        decoder_of("json", fields)(b'{"user": "ann", "cents": 7}')


def test_a_record_that_is_no_object_is_a_fault() -> None:
    with pytest.raises(ValueError, match="a list where an object with 'user', 'city' is expected"):
        decoder_of("json", ("user", "city?"))(b"[1]")


@pytest.mark.parametrize("data", [b"", b"{", b'{"a": 1} x'])
def test_no_json_is_a_fault(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"JSON|truncated"):
        decoder_of("json", ("a",))(data)


def test_metadata_come_behind_the_fields() -> None:
    assert record_fields(("user", "city?"), ("offset", "key"), ("key", "offset")) == ("user", "city", "offset", "key")
    assert record_fields(None, ("key",), ("key", "offset")) == ("value", "key")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("user",), r"fields='user' must be a tuple of names, such as \('user',\)"),
        (((),), "must name at least one key"),
        ((("a", ""),), "no empty one"),
        ((("a", "?"),), "no empty one"),
        ((("a", 1),), "must be texts"),
        ((("a", "a?"),), "'a' is in fields= and metadata= more than once"),
        ((("key",), ("key",), ("key",)), "'key' is in fields= and metadata= more than once"),
        ((None, ("offst",), ("key", "offset")), "metadata has 'offst'; there are 'key', 'offset'"),
        ((None, "key", ("key",)), r"such as \('key',\)"),
    ],
)
def test_names_that_cannot_be_used_are_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        record_fields(*arguments)


@pytest.mark.parametrize(
    ("deserializer", "fields", "message"),
    [
        ("jsn", None, "value_deserializer='jsn' must be 'bytes', 'text', 'json' or a function of bytes"),
        (None, None, "value_deserializer=None must be"),
        ("text", ("user",), "needs records with keys; give value_deserializer='json'"),
    ],
)
def test_a_deserializer_that_cannot_be_used_is_refused(deserializer: Any, fields: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        decoder_of(deserializer, fields)
