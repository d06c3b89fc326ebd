"""A frame with a value that its receiver cannot decode: the other rows arrive, and that one is named with the reason."""

from __future__ import annotations

import msgpack
import pytest

from tests.money import Money, codec_with, refuse_zero
from topo.errors import FrameError
from topo.wire.codec import MAX_ELEMENTS, Codec
from topo.wire.serializers import SerializerRegistry


def test_only_the_row_with_the_undecodable_value_is_unreadable() -> None:
    codec = codec_with(refuse_zero)
    payload = codec.pack_rows([("a", Money(1)), ("b", Money(0)), ("c", Money(2))])
    rows, unreadable = codec.unpack_or_split(payload, 3)
    assert [row[0] for row in rows] == ["a", "b", "c"]
    assert [rows[0][1].cents, rows[2][1].cents] == [1, 2]
    assert list(unreadable) == [1]
    assert (unreadable[1].field, str(unreadable[1].error)) == (1, "1 byte cannot be decoded as Money: ValueError: no money")
    assert rows[1][1] == "(not decoded: 1 byte cannot be decoded as Money: ValueError: no money)"


def test_a_decode_that_raises_once_costs_no_row() -> None:
    calls: list[bytes] = []

    def flaky(data: bytes) -> Money:
        calls.append(data)
        if len(calls) == 1:
            raise OSError("not now")
        return Money(int(data))

    codec = codec_with(flaky)
    rows, unreadable = codec.unpack_or_split(codec.pack_rows([(Money(1),), (Money(2),)]), 2)
    assert ([row[0].cents for row in rows], unreadable) == ([1, 2], {})


def test_a_frame_of_readable_rows_is_decoded_in_one_call() -> None:
    calls: list[bytes] = []

    def counting(data: bytes) -> Money:
        calls.append(data)
        return Money(int(data))

    codec = codec_with(counting)
    codec.unpack_or_split(codec.pack_rows([(Money(1),), (Money(2),)]), 2)
    assert calls == [b"1", b"2"]


@pytest.mark.parametrize(
    ("payload", "count"),
    [(b"\xc1", 1), (msgpack.packb([[1], [2]]), 3), (msgpack.packb({"a": 1}), 1), (msgpack.packb([1]), 1), (b"", 1)],
)
def test_a_payload_that_is_not_the_announced_rows_is_refused_as_a_whole(payload: bytes, count: int) -> None:
    with pytest.raises(FrameError):
        Codec().unpack_or_split(payload, count)


def test_the_rows_of_one_frame_share_the_bound_on_elements() -> None:
    row = [0] * (MAX_ELEMENTS // 2 + 10)
    with pytest.raises(FrameError, match="elements"):
        Codec().unpack_or_split(msgpack.packb([row, row]), 2)


@pytest.mark.parametrize("read", ["rows", "value"])
def test_a_shortage_of_memory_is_not_a_fault_of_the_value(read: str) -> None:
    def exhausted(data: bytes) -> Money:
        raise MemoryError

    codec = codec_with(exhausted)
    with pytest.raises(MemoryError):
        if read == "rows":
            codec.unpack_or_split(codec.pack_rows([(Money(1),)]), 1)
        else:
            codec.unpack_value(codec.pack_value(Money(1)))


def test_a_shortage_of_memory_while_packing_is_not_a_fault_of_the_value() -> None:
    def exhausted(money: Money) -> bytes:
        raise MemoryError

    registry = SerializerRegistry()
    registry.register(Money, 40, exhausted, refuse_zero)
    with pytest.raises(MemoryError):
        Codec(registry).pack_or_split([(Money(1),)])
    with pytest.raises(MemoryError):
        Codec(registry).pack_value(Money(1))
