from __future__ import annotations

import enum
from collections import namedtuple
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from topo.errors import ConfigError, FrameError, UnsupportedValueError
from topo.wire.codec import Codec
from topo.wire.serializers import SerializerRegistry

AMSTERDAM = ZoneInfo("Europe/Amsterdam")


def through(value):
    codec = Codec()
    return codec.unpack_value(codec.pack_value(value))


@pytest.mark.parametrize(
    "value",
    [
        datetime(2026, 11, 21, 7, 30, 1, 999_999),
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone(timedelta(hours=-9, minutes=-30, microseconds=7))),
        datetime(2026, 7, 1, 12, tzinfo=AMSTERDAM),
        date(2024, 2, 29),
        time(23, 59, 59, 1),
        time(1, 2, 3, tzinfo=timezone(timedelta(hours=5))),
        time(1, 2, 3, tzinfo=AMSTERDAM),
        timedelta(days=-999_999_999),
        timedelta(days=3, seconds=86_399, microseconds=5),
        Decimal("1E+3"),
        Decimal("-0.00"),
        Decimal("123456789012345678901234567890.123456789"),
        Decimal("Infinity"),
        UUID("12345678-1234-5678-1234-567812345678"),
    ],
)
def test_a_value_arrives_equal_and_of_its_class(value):
    got = through(value)
    assert got == value
    assert type(got) is type(value)
    assert str(got) == str(value)


def test_a_decimal_that_is_not_a_number_arrives():
    assert through(Decimal("NaN")).is_qnan()


def test_a_named_zone_stays_a_named_zone():
    summer = datetime(2026, 7, 1, 12, tzinfo=AMSTERDAM)
    assert through(summer).tzinfo is AMSTERDAM
    assert (through(summer) + timedelta(days=180)).utcoffset() == timedelta(hours=1)


def test_a_naive_time_stays_naive():
    assert through(datetime(2026, 1, 1)).tzinfo is None
    assert through(time(1)).tzinfo is None


def test_the_second_of_two_equal_hours_stays_the_second():
    second = datetime(2026, 10, 25, 2, 30, tzinfo=AMSTERDAM, fold=1)
    assert through(second).fold == 1
    assert through(second).utcoffset() == timedelta(hours=1)
    assert through(second.replace(fold=0)).utcoffset() == timedelta(hours=2)
    assert through(time(2, fold=1)).fold == 1


class Nowhere(tzinfo):
    def utcoffset(self, when):
        return None


def test_a_zone_with_neither_name_nor_offset_is_refused():
    with pytest.raises(UnsupportedValueError, match="neither a name nor an offset"):
        through(datetime(2026, 1, 1, tzinfo=Nowhere()))


class Stamped(datetime):
    pass


def test_a_subclass_of_a_carried_class_is_not_taken_for_it():
    with pytest.raises(UnsupportedValueError, match=r"Stamped: .*register a serializer"):
        through(Stamped(2026, 1, 1))


@pytest.mark.parametrize("code", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("data", [b"", b"\xff" * 3, b"\xff" * 16 + b"x", b"\x00" * 40])
def test_bytes_that_are_no_value_of_their_type_are_refused(code, data):
    with pytest.raises(FrameError, match="cannot be decoded as "):
        SerializerRegistry().decode(code, data)


@pytest.mark.parametrize("zone", [b"../../../../etc/passwd", b"/etc/passwd", b"No/Such", b"\xff", b""])
def test_a_zone_that_is_not_known_here_is_refused(zone):
    good = SerializerRegistry().encode(datetime(2026, 7, 1, tzinfo=AMSTERDAM)).data
    with pytest.raises(FrameError, match="cannot be decoded as datetime"):
        SerializerRegistry().decode(1, good.replace(b"Europe/Amsterdam", zone))


class Money:
    def __init__(self, cents):
        self.cents = cents


def cents(money):
    return money.cents.to_bytes(8, "big")


def money(data):
    return Money(int.from_bytes(data, "big"))


def test_a_registered_class_travels_by_its_serializer():
    registry = SerializerRegistry()
    registry.register(Money, 127, cents, money)
    codec = Codec(registry)
    assert codec.unpack_value(codec.pack_value(Money(1250))).cents == 1250


def test_a_failing_serializer_is_an_emit_error_to_pack_and_a_frame_error_to_unpack():
    registry = SerializerRegistry()
    registry.register(Money, 32, cents, lambda data: 1 / 0)
    with pytest.raises(UnsupportedValueError, match="Money: its serializer failed: OverflowError"):
        registry.encode(Money(-1))
    with pytest.raises(FrameError, match="cannot be decoded as Money: ZeroDivisionError"):
        registry.decode(32, b"")


def test_a_serializer_that_returns_something_else_than_bytes_fails():
    registry = SerializerRegistry()
    registry.register(Money, 32, lambda money: "12", money)
    with pytest.raises(UnsupportedValueError, match="Money: its serializer failed: TypeError"):
        registry.encode(Money(1))


Pair = namedtuple("Pair", "a b")


class Size(enum.StrEnum):
    SMALL = "s"


@pytest.mark.parametrize(
    ("cls", "code", "complaint"),
    [
        (Money, 31, "code 31 for Money: choose one from 32 to 65535"),
        (Money, 65_536, "choose one from 32 to 65535"),
        (Money, 33, "code 33 for Money is taken by bytes_like; choose another"),
        (datetime, 40, "datetime has a serializer already, under code 1"),
        (str, 40, "str is a str and travels as one"),
        (Pair, 40, "Pair is a tuple and travels as one"),
        (Size, 40, "Size is a str and travels as one"),
        (Money(1), 40, "is not a class"),
    ],
)
def test_a_registration_that_cannot_work_is_refused(cls, code, complaint):
    bytes_like = type("bytes_like", (), {})
    registry = SerializerRegistry()
    registry.register(bytes_like, 33, cents, money)
    with pytest.raises(ConfigError, match=complaint):
        registry.register(cls, code, cents, money)
