"""Rows to msgpack and back: the same as msgpack gives, or declined."""

from __future__ import annotations

import gc
import struct
from datetime import date
from types import ModuleType
from typing import Any, NamedTuple

import msgpack
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from topo.errors import FrameError
from topo.hot import plain
from topo.wire import codec
from topo.wire.codec import Codec

LONGEST = 1 << 20
"""Bytes of the longest payload that is not left to msgpack."""


class Text(str): ...


class Pair(NamedTuple):
    one: Any
    two: Any


edges = [edge + step for bits in (5, 7, 8, 15, 16, 31, 32, 63, 64) for edge in (1 << bits, -(1 << bits)) for step in (-1, 0, 1)]
whole = st.integers(-(1 << 63), (1 << 64) - 1)
atoms = st.one_of(
    st.none(),
    st.booleans(),
    whole,
    st.sampled_from([edge for edge in edges if -(1 << 63) <= edge < 1 << 64]),
    st.floats(),
    st.text(),
    st.sampled_from(["x" * 31, "x" * 32, "é" * 130, "x" * 255, "x" * 256, "x" * 65536]),
    st.binary(),
    st.sampled_from([b"x" * 255, b"x" * 256, b"x" * 65536]),
)
nested = st.recursive(
    atoms,
    lambda values: st.one_of(
        st.lists(values, max_size=17),
        st.lists(values, max_size=3).map(tuple),
        st.dictionaries(st.one_of(st.text(), whole, st.tuples(whole)), values, max_size=17),
    ),
    max_leaves=20,
)
others = st.sampled_from(
    [Text("a"), Pair(1, 2), date(2020, 1, 2), object(), bytearray(b"a"), {1}, "\ud800", 1 << 64, -(1 << 63) - 1]
)
plain_rows = st.lists(st.lists(nested, max_size=4).map(tuple), max_size=20)
few_rows = st.lists(st.lists(nested, max_size=3).map(tuple), max_size=4)
rows_of_all_kinds = st.lists(st.lists(st.one_of(nested, others), max_size=4).map(tuple), max_size=5)


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def packed_by_msgpack(rows: Any) -> bytes | None:
    try:
        return bytes(msgpack.packb(rows))
    except Exception:
        return None


def unpacked_by_msgpack(payload: bytes, count: int) -> list | None:
    """Return the rows that the codec reads by msgpack alone, or None when it refuses them."""
    try:
        rows = Codec()._unpack_whole(payload, count)
    except FrameError:
        return None
    is_batch = type(rows) is tuple and len(rows) == count and all(type(row) is tuple for row in rows)
    return list(rows) if is_batch else None


COMPILED = pytest.mark.parametrize("hot", ["compiled"], indirect=True)
"""The reference leaves all rows to msgpack: drawn rows would show nothing."""


def test_the_reference_leaves_all_rows_to_msgpack() -> None:
    for rows in ([], [(1,)], [("x", [1, {"y": None}])]):
        assert plain.pack_rows(rows) is None and plain.unpack_rows(msgpack.packb(rows), len(rows)) is None


@COMPILED
@given(rows=rows_of_all_kinds)
def test_rows_are_packed_as_msgpack_packs_them_or_declined(hot: ModuleType, rows: list) -> None:
    assert hot.pack_rows(rows) in (None, packed_by_msgpack(rows))


@COMPILED
@given(rows=plain_rows)
@example(rows=[("x" * 65536,)] * 17)
def test_no_rows_of_plain_values_are_declined(hot: ModuleType, rows: list) -> None:
    packed = packed_by_msgpack(rows)
    assert packed is not None
    assert hot.pack_rows(rows) == packed
    read = unpacked_by_msgpack(packed, len(rows)) if len(packed) <= LONGEST else None
    assert repr(hot.unpack_rows(packed, len(rows))) == repr(read)


@COMPILED
@settings(max_examples=300)
@given(rows=few_rows, count=st.integers(-1, 1), data=st.data())
def test_of_a_damaged_payload_nothing_is_read_that_msgpack_refuses(
    hot: ModuleType, rows: list, count: int, data: st.DataObject
) -> None:
    payload = bytearray(msgpack.packb(rows))
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(payload) - 1))
        payload[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(payload)))
    damaged = bytes(payload[:cut]) if data.draw(st.booleans()) else bytes(payload) + data.draw(st.binary(max_size=3))
    announced = max(0, len(rows) + count)
    for column in (damaged, bytearray(damaged), memoryview(b"x" + damaged)[1:]):
        found = hot.unpack_rows(column, announced)
        assert found is None or repr(found) == repr(unpacked_by_msgpack(damaged, announced))


@COMPILED
@given(payload=st.binary(max_size=40), count=st.integers(0, 16))
@example(payload=b"\x91\x91\xca" + struct.pack(">f", 0.1), count=1)
@example(payload=b"\x91\x91\xc1", count=1)
@example(payload=b"\x91\x91\xd4\x01\x00", count=1)
@example(payload=b"\x91\x91\xdd\xff\xff\xff\xff", count=1)
@example(payload=b"\x91\x91\xdf\xff\xff\xff\xff", count=1)
@example(payload=b"\x91\x91\xdb\xff\xff\xff\xff", count=1)
@example(payload=b"\x91\x91\xc6\xff\xff\xff\xff", count=1)
@example(payload=b"\x91\x91\x81\x80\x01", count=1)
@example(payload=b"\x91\x91\x82\x01\x02\x01\x03", count=1)
@example(payload=b"\x91\x91\xa1\xff", count=1)
@example(payload=b"\x91\x80", count=1)
@example(payload=b"\xdd\x00\x00\x00\x01\x90", count=1)
def test_of_any_bytes_nothing_is_read_that_msgpack_refuses(hot: ModuleType, payload: bytes, count: int) -> None:
    found = hot.unpack_rows(payload, count)
    assert found is None or repr(found) == repr(unpacked_by_msgpack(payload, count))


@pytest.mark.parametrize("levels", [1, 29, 30, 31, 32, 300, 2000])
def test_what_is_nested_deeply_is_the_same_or_declined(hot: ModuleType, levels: int) -> None:
    rows = [(deep(levels),)]
    packed = b"\x91" * (levels + 2) + b"\x01"
    assert hot.pack_rows(rows) in (None, packed)
    assert hot.unpack_rows(packed, 1) is None or hot.unpack_rows(packed, 1) == unpacked_by_msgpack(packed, 1)


def test_a_value_that_contains_itself_is_declined(hot: ModuleType) -> None:
    value: list[Any] = []
    value.append(value)
    assert hot.pack_rows([(value,)]) is None


def test_a_payload_of_more_than_a_mebibyte_is_left_to_the_codec(hot: ModuleType) -> None:
    rows = [("x" * 1000,)] * 1100
    packed = msgpack.packb(rows)
    assert len(packed) > codec.MAX_ELEMENTS
    assert hot.pack_rows(rows) in (None, packed) and hot.unpack_rows(packed, len(rows)) is None
    assert hot.pack_rows([(1,)]) in (None, b"\x91\x91\x01"), "a buffer that was given back is made again"


def test_strings_that_differ_in_one_place_are_not_confused(hot: ModuleType) -> None:
    for length in (1, 7, 8, 9, 16, 31, 32):
        words = ["x" * at + other + "x" * (length - at - 1) for at in range(length) for other in "abc\0é"]
        rows = [(word,) for word in (*words, *words)]
        assert hot.unpack_rows(msgpack.packb(rows), len(rows)) in (None, rows)


def test_nothing_is_kept_of_a_payload_that_is_declined(hot: ModuleType) -> None:
    for payload in (b"", b"\x91", b"\x80", b"\x92\x90", b"\x91\x01", b"\x91\x90\x90", b"\x91\x91\xd4\x01\x00", b"\x91" * 40):
        assert hot.unpack_rows(payload, 1) is None
    kept = [error for error in gc.get_objects() if isinstance(error, Exception) and type(error).__module__.startswith("topo.hot")]
    assert kept == []
