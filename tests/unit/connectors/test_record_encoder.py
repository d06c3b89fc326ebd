"""Tuples as bytes of a target."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.connectors.drive import tracked
from topo import ConfigError, UserError
from topo.connectors.record_encoder import encoder_of

ROW = {"user": "ann", "cents": 7, "raw": b"\xff"}


@pytest.mark.parametrize(
    ("part", "serializer", "data"),
    [
        ("user", "text", b"ann"),
        ("cents", "text", b"7"),
        ("raw", "bytes", b"\xff"),
        ("user", "json", b'"ann"'),
        (lambda tup: [tup["user"], tup["cents"]], "json", b'["ann",7]'),
        ("cents", lambda cents: b"%05d" % cents, b"00007"),
        (lambda tup: None, "text", None),
    ],
)
def test_a_part_of_a_tuple_is_encoded(part: Any, serializer: Any, data: bytes | None) -> None:
    assert encoder_of(part, serializer)(tracked(**ROW)) == data


def test_without_a_part_all_fields_are_an_object() -> None:
    assert encoder_of(None, "json")(tracked(user="ann", cents=7)) == b'{"user":"ann","cents":7}'
    assert encoder_of(None, lambda record: repr(record).encode())(tracked(cents=7)) == b"{'cents': 7}"


@pytest.mark.parametrize(
    ("part", "serializer", "message"),
    [
        ("city", "text", "a tuple from 'source' has no field 'city', which value= names; it has 'user', 'cents', 'raw'"),
        (
            "raw",
            "text",
            "value of a tuple from 'source' .*: 'text' takes a text or a number, no bytes; take 'bytes'",
        ),
        ("user", "bytes", "'bytes' takes bytes, no str; take 'text' or 'json'"),
        (None, "json", "field 'raw' of a tuple from 'source'|cannot be encoded"),
        ("user", lambda value: value, "value_serializer has returned a str; it must return bytes"),
        (lambda tup: tup["cents"] / 0, "text", "value of a tuple from 'source' cannot be encoded: division by zero"),
    ],
)
def test_a_tuple_that_cannot_be_encoded_is_a_fault_of_the_tuple(part: Any, serializer: Any, message: str) -> None:
    row = {**ROW, "raw": object()} if part is None else ROW
    with pytest.raises(UserError, match=message):
        encoder_of(part, serializer)(tracked(**row))


@pytest.mark.parametrize(
    ("part", "serializer", "message"),
    [
        ("user", "jsn", "key_serializer='jsn' must be 'bytes', 'text', 'json' or a function of the value"),
        (7, "text", "key=7 must be a field's name or a function of the tuple"),
        (None, "text", "encodes one value and not all fields; name it by key="),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(part: Any, serializer: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        encoder_of(part, serializer, argument="key")
