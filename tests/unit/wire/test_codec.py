from __future__ import annotations

import enum
import tracemalloc
from collections import Counter, OrderedDict, namedtuple

import msgpack
import pytest

from topo.errors import FrameError, UnsupportedValueError
from topo.nesting import MAX_DEPTH
from topo.wire.codec import MAX_ELEMENTS, Codec, Rejection
from topo.wire.serializers import SerializerRegistry


class Order:
    """No dataclass, and not registered."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Order) and other.number == self.number

    __hash__ = None  # type: ignore[assignment]


class Level(enum.IntEnum):
    HIGH = 3


class Name(str):
    pass


Point = namedtuple("Point", "x y")


def through(*values):
    codec = Codec()
    (row,) = codec.unpack_rows(codec.pack_rows([values]), 1)
    return row


def test_native_values_arrive_as_they_were_sent():
    values = (None, True, -(1 << 63), (1 << 64) - 1, 1.5, "żółw", b"\x00\xff", (1, ("x",)), {"a": {1: None}, (1, 2): 3})
    assert through(*values) == values


def test_sequences_arrive_as_tuples_and_buffers_as_bytes():
    assert through([1, [2]], bytearray(b"x"), memoryview(b"y")) == ((1, (2,)), b"x", b"y")


def test_of_a_subclass_of_a_native_type_the_value_is_carried_and_the_class_is_not():
    got = through(Level.HIGH, Name("n"), Point(1, 2), OrderedDict(a=1), Counter("aa"))
    assert got == (3, "n", (1, 2), {"a": 1}, {"a": 2})
    assert [type(value) for value in got] == [int, str, tuple, dict, dict]


def test_all_rows_of_a_batch_arrive_in_order():
    codec = Codec()
    rows = [(f"word{i}", i) for i in range(70_000)]
    assert codec.unpack_rows(codec.pack_rows(rows), 70_000) == rows


def test_no_rows_are_a_payload_too():
    codec = Codec()
    assert codec.unpack_rows(codec.pack_rows([]), 0) == []


def nest(depth):
    value = "deep"
    for _ in range(depth):
        value = (value,)
    return value


LOOP: list[object] = []
LOOP.append(LOOP)


@pytest.mark.parametrize(
    ("value", "type_name", "reason"),
    [
        (Order(1), "Order", "register a serializer"),
        ([{"deep": [Order(1)]}], "Order", "register a serializer"),
        ({1, range(3)}, "range", "register a serializer"),
        (1 << 64, "int", "does not fit 64 bits"),
        ({"n": -(1 << 63) - 1}, "int", "does not fit 64 bits"),
        ("\ud800", "str", "lone surrogate"),
        (LOOP, "list", "nested too deeply (at most 256 levels are carried), or contains itself"),
        (nest(100_000), "tuple", "nested too deeply (at most 256 levels are carried), or contains itself"),
        (nest(MAX_DEPTH - 1), "tuple", "nested too deeply (at most 256 levels are carried), or contains itself"),
    ],
)
def test_a_value_that_cannot_be_carried_rejects_its_row_alone(value, type_name, reason):
    codec = Codec()
    rows = [("a", 1), ("b", value), ("c", 3)]
    payload, kept, rejected = codec.pack_or_split(rows)
    assert codec.unpack_rows(payload, 2) == [("a", 1), ("c", 3)]
    assert list(kept) == [0, 2]
    assert [(got.row, got.field, got.type_name) for got in rejected] == [(1, 1, type_name)]
    assert reason in rejected[0].reason


def test_packing_goes_on_after_a_rejection():
    codec = Codec()
    for _ in range(3):
        assert codec.pack_or_split([(Order(1),)]).kept == []
        assert codec.unpack_rows(codec.pack_rows([("fine",)]), 1) == [("fine",)]


def test_pack_rows_raises_for_the_first_row_that_cannot_be_carried():
    with pytest.raises(UnsupportedValueError, match=r"row 1, field 0: Order: .*register a serializer"):
        Codec().pack_rows([(1,), (Order(1),), (1 << 70,)])


def test_all_rows_may_be_rejected():
    payload, kept, rejected = Codec().pack_or_split([(Order(1),), (Order(2),)])
    assert (payload, kept, [got.row for got in rejected]) == (b"\x90", [], [0, 1])


def test_a_row_over_the_limit_is_rejected_by_its_largest_field_with_the_fix():
    codec = Codec(max_row=1000)
    payload, kept, rejected = codec.pack_or_split([("x" * 600,), (1, "y" * 2000), ("z" * 600,)])
    assert list(kept) == [0, 2]
    assert codec.unpack_rows(payload, 2) == [("x" * 600,), ("z" * 600,)]
    reason = "the tuple takes 2006 bytes with it; at most 1000 are carried: emit it in parts, or the path of a file that holds it"
    assert rejected == [Rejection(1, 1, "str", reason)]


def test_a_row_of_more_elements_than_a_receiver_unpacks_is_rejected_where_it_is_sent():
    codec = Codec()
    _, kept, rejected = codec.pack_or_split([([0] * MAX_ELEMENTS,), ([[]] * MAX_ELEMENTS,), ("small",)])
    assert kept == [2]
    assert all("could not be read where it arrives" in got.reason for got in rejected)


def test_a_long_row_of_few_elements_is_carried():
    codec = Codec()
    rows = [("x" * (3 * MAX_ELEMENTS), b"y" * MAX_ELEMENTS)]
    payload, kept, _ = codec.pack_or_split(rows)
    assert list(kept) == [0]
    assert codec.unpack_rows(payload, 1) == rows


def test_what_a_sender_packs_a_receiver_with_a_deeper_stack_unpacks():
    def deeper(levels):
        return codec.unpack_rows(payload, 1) if levels == 0 else deeper(levels - 1)

    codec = Codec()
    payload = codec.pack_rows([(nest(MAX_DEPTH - 2),)])
    assert deeper(60) == [(nest(MAX_DEPTH - 2),)]


def nested(depth):
    return b"\x91" * depth + b"\xc0"


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xff",
        b"\xc9\xff\xff\xff\xff\x01",
        nested(100_000),
        b"\x91" + nested(MAX_DEPTH),
        b"\x91\x91\xa2\xff\xfe",
        b"\x91\x91\x81\x80\x01",
        b"\x91\x90\x90",
        b"\x91\x91\xd4\x21x",
        b"\x91\x91\xd6\xff\x00",
        b"\x91\x91\xc7\x03\xffabc",
    ],
)
def test_what_is_not_msgpack_of_carried_values_is_refused(payload):
    with pytest.raises(FrameError):
        Codec().unpack_rows(payload, 1)


@pytest.mark.parametrize(
    ("value", "count", "complaint"),
    [
        ([(1,), (2,)], 1, "2 rows where 1 rows were announced"),
        ([(1,)], 2, "1 rows where 2"),
        ({"a": 1}, 1, "holds dict"),
        (7, 1, "holds int"),
        ([(1,), "row"], 2, "not an array of values"),
        ([(1,), {0: 1}], 2, "not an array of values"),
    ],
)
def test_a_payload_of_another_shape_is_refused(value, count, complaint):
    with pytest.raises(FrameError, match=complaint):
        Codec().unpack_rows(msgpack.packb(value), count)


def test_an_unregistered_ext_type_is_named():
    with pytest.raises(FrameError, match="ext type 33, which is not registered"):
        Codec().unpack_rows(msgpack.packb([(msgpack.ExtType(33, b""),)]), 1)


def peak_while_refusing(payload, count):
    codec = Codec()
    tracemalloc.start()
    try:
        with pytest.raises(FrameError):
            codec.unpack_rows(payload, count)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_arrays_that_are_claimed_and_never_come_take_no_memory():
    claimed = (b"\xdd" + (60_000).to_bytes(4, "big")) * 500
    assert peak_while_refusing(claimed + b"\xc0" * (65_536 - len(claimed)), 60_000) < 1_000_000


def test_empty_maps_beyond_the_element_limit_are_refused_within_bounded_memory():
    row = b"\xdc\x40\x00" + b"\x80" * 16_384
    assert peak_while_refusing(b"\xdd" + (256).to_bytes(4, "big") + row * 256, 256) < 120_000_000


def test_an_array_beyond_the_element_limit_is_refused_before_it_is_built():
    size = 4 * MAX_ELEMENTS
    assert peak_while_refusing(b"\x91\x91\xdd" + size.to_bytes(4, "big") + b"\xc0" * size, 1) < 1_000_000


def test_unpacking_goes_on_after_a_refusal():
    codec = Codec()
    good = codec.pack_rows([("fine", 1)])
    for bad in (nested(100_000), b"\xc1", b"\x91\x91\xa2\xff\xfe", good[:-1], good + b"\x00"):
        with pytest.raises(FrameError):
            codec.unpack_rows(bad, 1)
        assert codec.unpack_rows(good, 1) == [("fine", 1)]


def test_registered_types_travel_inside_rows():
    registry = SerializerRegistry()
    registry.register(Order, 40, lambda order: order.number.to_bytes(4, "big"), lambda data: Order(int.from_bytes(data, "big")))
    codec = Codec(registry)
    assert codec.unpack_rows(codec.pack_rows([({"order": Order(7)},)]), 1) == [({"order": Order(7)},)]


def test_a_position_travels_as_one_value():
    codec = Codec()
    assert codec.unpack_value(codec.pack_value(["file", 17])) == ("file", 17)
    with pytest.raises(UnsupportedValueError, match=r"Order: .*register a serializer"):
        codec.pack_value(Order(1))
    with pytest.raises(FrameError):
        codec.unpack_value(b"")


@pytest.mark.parametrize("filler", [("word", 1), ("é" * 20, 1.7e308), ([[]], {"a": {}})])
@pytest.mark.parametrize("place", [0, 500, 999])
def test_one_row_among_many_may_be_as_deep_as_any_and_no_deeper(filler, place):
    codec = Codec()
    rows = [filler] * 1000
    rows[place] = (nest(MAX_DEPTH - 2), 1)
    assert codec.unpack_rows(codec.pack_or_split(rows).payload, 1000)[place] == rows[place]
    rows[place] = (nest(MAX_DEPTH - 1), 1)
    _, kept, rejected = codec.pack_or_split(rows)
    assert len(kept) == 999 and [got.row for got in rejected] == [place]
    with pytest.raises(FrameError, match="nested deeper"):
        codec.unpack_rows(msgpack.packb(rows), 1000)


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 600, 1000, 100_000])
def test_a_payload_that_is_nested_too_deeply_is_refused_at_any_number_of_rows(depth):
    for announced in (1, 300, 100_000, 1 << 31):
        with pytest.raises(FrameError):
            Codec().unpack_rows(nested(depth), announced)


class Miscounted(dict):
    def items(self):
        return [("a", 1), ("b", 2)]


def test_a_value_that_would_be_packed_as_what_cannot_be_read_rejects_its_row_alone():
    _, kept, rejected = Codec().pack_or_split([("a",), (Miscounted(a=1),), ("c",)])
    assert list(kept) == [0, 2] and [got.row for got in rejected] == [1]
