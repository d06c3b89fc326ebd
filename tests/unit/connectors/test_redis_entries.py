"""Entries of Redis streams without a server: lost ones, their values, and arguments that are refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topo import ConfigError, RedisStreamSpout, UnsupportedValueError
from topo.connectors.record_encoder import serializer_of
from topo.connectors.redis.entries import EntryEncoder, StreamInfo, is_replaced, lost_entries

URL = "redis://:planted@localhost"


@given(st.integers(1, 30), st.data())
def test_what_was_trimmed_behind_a_position_is_lost_and_what_stood_before_it_is_not(added: int, data: st.DataObject) -> None:
    read = data.draw(st.integers(0, added), label="entries that were read")
    trimmed = data.draw(st.integers(0, added), label="entries that were trimmed")
    first = (1 + trimmed, 0) if trimmed < added else None
    info = StreamInfo(added - trimmed, added, (added, 0), first)
    position = (read, 0, read)
    assert lost_entries(position, info) == max(0, trimmed - read)
    assert not is_replaced(position, info)


def test_a_stream_with_fewer_entries_or_an_earlier_end_was_replaced() -> None:
    assert is_replaced((5, 0, 5), StreamInfo(1, 1, (9, 0), (9, 0)))
    assert is_replaced((5, 0, 5), StreamInfo(7, 7, (4, 0), (1, 0)))
    assert is_replaced((5, 0, 5), StreamInfo(7, 7, (12, 0), (6, 0))), "it has its first entry, which is behind the position"
    assert not is_replaced((0, 0, 0), StreamInfo(0, 0, (0, 0), None))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({}, "either streams or pattern"),
        ({"streams": "a", "pattern": "a*"}, "either streams or pattern"),
        ({"streams": ("a", "a")}, "different keys"),
        ({"streams": "a", "start": "first"}, "'earliest' or 'latest'"),
        ({"streams": "a", "batch": 0}, "at least 1"),
        ({"streams": "a", "wait": "10s"}, "shorter than timeout"),
        ({"streams": "a", "fields": "item"}, "must be texts"),
        ({"streams": "a", "metadata": ("offset",)}, "'offset'"),
        ({"streams": "a", "value_deserializer": "avro"}, "'avro'"),
        ({"streams": "a", "timestamp": "at"}, "'record' or None"),
        ({"streams": "a", "config": {"decode_responses": True}}, "decode_responses"),
    ],
)
def test_arguments_that_cannot_work_are_refused(arguments: dict[str, Any], reason: str) -> None:
    pytest.importorskip("redis")
    with pytest.raises(ConfigError, match=reason) as refused:
        RedisStreamSpout(URL, **arguments)
    assert "planted" not in str(refused.value)


def test_a_field_that_a_tuple_lacks_is_named() -> None:
    encoder = EntryEncoder(("n", "city"), serializer_of("text"))
    assert encoder.entry({"n": 1, "city": None}) == [b"n", b"1"]
    with pytest.raises(UnsupportedValueError, match="no field 'city', which fields= names; it has 'n', 'town'"):
        encoder.entry({"n": 1, "town": "Ulm"})


def test_a_url_of_something_else_is_refused() -> None:
    pytest.importorskip("redis")
    with pytest.raises(ConfigError, match="redis://"):
        RedisStreamSpout("http://:planted@localhost", "a")
