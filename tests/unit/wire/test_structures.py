"""Types that travel without registration: what arrives is equal, of the same type, and was found by its name."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum, Flag, IntEnum, IntFlag
from typing import Any, NamedTuple
from uuid import UUID

import msgpack
import numpy
import pytest

from topo.errors import FrameError, UnsupportedValueError
from topo.wire.codec import MAX_ELEMENTS, Codec
from topo.wire.serializers import MAX_LEVELS, SerializerRegistry
from topo.wire.structures import DATACLASS, ENUM, FROZENSET, SET


class Colour(Enum):
    RED = "red"
    BLUE = Decimal("0.5")


class Level(IntEnum):
    HIGH = 3


class Rights(Flag):
    READ = 1
    WRITE = 2


class Bits(IntFlag):
    ONE = 1


@dataclass
class Refusal(Exception):
    code: int


@dataclass
class Numbers(list[int]):
    unit: str = ""


class Pair(NamedTuple):
    left: int
    right: int


@dataclass(frozen=True, slots=True)
class Place:
    x: float
    y: float = 0.0


@dataclass
class Order:
    number: int
    places: list[Place] = field(default_factory=list)
    tags: set[str] = field(default_factory=set)
    extra: Any = None
    total: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.total += self.number

    class Line(Enum):
        ONE = 1


def through(value: Any) -> Any:
    codec = Codec()
    ((got,),) = codec.unpack_rows(codec.pack_rows([(value,)]), 1)
    return got


@pytest.mark.parametrize(
    "value",
    [
        set(),
        {1, "a", None, (1, (2, 3)), b"x"},
        frozenset({frozenset({1}), frozenset()}),
        {Colour.RED: {1, 2}},
        Colour.BLUE,
        Rights.READ | Rights.WRITE,
        Rights(0),
        Order.Line.ONE,
        Place(1.5),
        {Place(1.0, 2.0), Place(3.0)},
        Order(7, [Place(1.0), Place(2.0)], {"new"}),
        Order(8, extra={"list": [1, [2]], "tuple": (1, [2], (3,)), "uuid": UUID(int=5), "decimal": Decimal("1.10")}),
        Order(9, extra=Order(10, extra=[Order(11)])),
        Order(9, extra=[Level.HIGH, Bits.ONE, Colour.RED, None, True, 2.5, "s", b"b"]),
    ],
)
def test_what_arrives_is_equal_and_of_the_same_type(value: Any) -> None:
    got = through(value)
    assert (got == value and type(got) is type(value) and repr(got) == repr(value)) or isinstance(value, set | frozenset)
    assert got == value and type(got) is type(value)


def test_inside_a_dataclass_lists_stay_lists_and_int_enums_enums() -> None:
    got = through(Order(1, extra=[[1], (2,), Level.HIGH]))
    assert [type(one) for one in got.extra] == [list, tuple, Level]
    assert type(got.places) is list


def test_subclasses_of_native_types_arrive_as_these() -> None:
    assert [type(one) for one in through([Level.HIGH, Pair(1, 2)])] == [int, tuple]
    assert type(through(Order(1, extra=Pair(1, 2))).extra) is tuple


def test_neither_init_nor_post_init_is_called_again() -> None:
    assert through(Order(7)).total == 7


def test_a_registered_serializer_comes_first() -> None:
    registry = SerializerRegistry()
    registry.register(Place, 40, lambda place: b"p", lambda data: Place(-1.0))
    codec = Codec(registry)
    assert codec.unpack_value(codec.pack_value([Place(5.0), Order(1, [Place(5.0)])])) == (Place(-1.0), Order(1, [Place(-1.0)]))


def test_more_types_than_msgpack_has_codes_can_be_registered() -> None:
    registry = SerializerRegistry()
    classes = [type(f"Own{number}", (), {}) for number in range(300)]
    for number, cls in enumerate(classes):
        registry.register(cls, 32 + number, lambda _value: b"data", lambda data, cls=cls: (cls.__name__, data))
    codec = Codec(registry)
    got = codec.unpack_value(codec.pack_value([cls() for cls in classes]))
    assert got == tuple((f"Own{number}", b"data") for number in range(300))


# -- refused, with the way out


def test_a_class_inside_a_function_is_refused() -> None:
    @dataclass
    class Local:
        x: int

    with pytest.raises(UnsupportedValueError, match=r"Local: it is defined inside a function.*top level of its module"):
        Codec().pack_value([Local(1)])


def test_a_class_of_the_started_script_is_refused() -> None:
    here = Enum("Here", ["ONE"])
    here.__module__, here.__qualname__ = "__main__", "Here"
    with pytest.raises(UnsupportedValueError, match=r"defined in the script that was started.*separate module"):
        Codec().pack_value(here.ONE)


def test_a_dataclass_on_top_of_a_built_in_class_is_refused() -> None:
    for value in (Refusal(3), Order(1, extra=Numbers())):
        with pytest.raises(UnsupportedValueError, match=r"derives from a built-in class.*make the value of that a field"):
            Codec().pack_value(value)


def test_a_class_that_another_one_has_taken_the_name_of_is_refused() -> None:
    other = Enum("Colour", ["RED"], module=__name__, qualname="Colour")
    with pytest.raises(UnsupportedValueError, match=r"another class is to be found under its name \S+test_structures:Colour"):
        Codec().pack_value(other.RED)


@pytest.mark.parametrize(
    ("code", "content", "why"),
    [
        (ENUM, ("nowhere:Colour", "RED"), "'nowhere' is not imported in this process: import it at the top"),
        (ENUM, (f"{__name__}:Gone", "RED"), "no class 'Gone'"),
        (ENUM, (f"{__name__}:Place", "RED"), "is no enum here"),
        (ENUM, (f"{__name__}:Colour", "GREEN"), "GREEN"),
        (DATACLASS, (f"{__name__}:Colour", {}), "is no dataclass here"),
        (DATACLASS, (f"{__name__}:Place", {"z": 1}), "has no field 'z' here"),
        (DATACLASS, (f"{__name__}:Place", {"y": 1}), "a field 'x' here, which was not sent and has no default"),
        (DATACLASS, ("os:system", {}), "no class 'system'"),
        (DATACLASS, 7, "cannot be read"),
        (SET, [[1], {}], "cannot be read"),
        (FROZENSET, 5, "cannot be read"),
    ],
)
def test_content_that_no_sender_makes_is_an_error_of_the_frame(code: int, content: Any, why: str) -> None:
    payload = msgpack.packb([[msgpack.ExtType(code, msgpack.packb(content))]])
    with pytest.raises(FrameError, match=why):
        Codec().unpack_rows(payload, 1)


def test_state_is_shown_without_the_code_of_its_classes() -> None:
    from topo_cli.state_reading import TYPES

    packed = Codec().pack_value({"order": Order(7, tags={"x"}), "colour": Colour.RED})
    unknown = packed.replace(__name__.encode(), b"x" * len(__name__))
    got = msgpack.unpackb(unknown, ext_hook=TYPES.decode)
    name = "x" * len(__name__)
    assert got == {
        "order": (f"{name}:Order", {"number": 7, "places": (), "tags": {"x"}, "extra": None, "total": 7}),
        "colour": (f"{name}:Colour", "RED"),
    }


def test_a_field_that_a_newer_class_has_gets_its_default() -> None:
    content = msgpack.packb((f"{__name__}:Place", {"x": 2.0}))
    assert Codec().unpack_value(msgpack.packb(msgpack.ExtType(DATACLASS, content))) == Place(2.0)


def test_what_contains_itself_is_refused() -> None:
    order = Order(1)
    order.extra = [order]
    with pytest.raises(UnsupportedValueError, match=f"nested too deeply .at most {MAX_LEVELS} such values., or contains itself"):
        Codec().pack_value(order)


def test_what_is_nested_up_to_the_bound_travels_and_more_is_refused_on_arrival() -> None:
    order = Order(0)
    for number in range(MAX_LEVELS - 2):
        order = Order(number, extra=order)
    assert through(order) == order
    packed = msgpack.packb(1)
    for _ in range(MAX_LEVELS + 1):
        packed = msgpack.packb([msgpack.ExtType(FROZENSET, packed)])
    with pytest.raises(FrameError):
        Codec().unpack_value(packed)


def test_elements_inside_count_for_the_bound_of_the_payload() -> None:
    inner = msgpack.packb([()] * (MAX_ELEMENTS // 2 + 10))
    payload = msgpack.packb([msgpack.ExtType(FROZENSET, inner)] * 2)
    with pytest.raises(FrameError, match="elements"):
        Codec().unpack_value(payload)


# -- numpy


def test_numpy_is_not_imported_unless_a_value_of_it_travels() -> None:
    program = (
        "import sys\nfrom topo.wire.codec import Codec\nfrom topo.wire.serializers import SerializerRegistry\n"
        "c = Codec(); c.unpack_value(c.pack_value([{1}, 2.5]))\nassert 'numpy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_numpy_scalars_and_arrays_travel_with_their_dtype() -> None:
    for value in (numpy.int32(-5), numpy.uint64(1 << 63), numpy.float32(0.5), numpy.bool_(True), numpy.complex64(1 + 2j)):
        got = through(value)
        assert (got, type(got)) == (value, type(value))
    moment = numpy.datetime64("2026-01-02T03:04:05.678", "ms")
    assert through(moment) == moment and through(moment).dtype == moment.dtype
    for array in (
        numpy.arange(6, dtype="<i2").reshape(2, 3),
        numpy.arange(12).reshape(3, 4)[:, ::2],
        numpy.array(3.5),
        numpy.zeros((0, 3), dtype=">f8"),
        numpy.array(["a", "bcd"]),
        numpy.asfortranarray(numpy.eye(3, dtype=bool)),
    ):
        got = through(array)
        assert (got.dtype, got.shape) == (array.dtype, array.shape) and (got == array).all()
        assert got.flags.writeable
    assert type(through(numpy.float64(2.5))) is float, "a subclass of float"
    got = through(Order(1, extra=numpy.float64(2.5)))
    assert type(got.extra) is numpy.float64
    for empty in (numpy.str_(""), numpy.bytes_(b"")):
        got = through(Order(1, extra=empty))
        assert (got.extra, type(got.extra)) == (empty, type(empty))


def test_arrays_of_objects_and_of_records_are_refused() -> None:
    for array in (numpy.array([object()]), numpy.zeros(2, dtype=[("a", "i4")])):
        with pytest.raises(UnsupportedValueError, match=r"ndarray: its dtype .* is not one of plain values; emit \.tolist\(\)"):
            Codec().pack_value(array)
    with pytest.raises(UnsupportedValueError, match=r"arrays and scalars are carried; emit numpy\.asarray"):
        Codec().pack_value(numpy.ma.array([1, 2]))
