"""Types that msgpack does not know, as ext types: topo's own below 32, the user's from 32 to 127. Nothing is ever unpickled.

What needs no ext type: None, bool, int (64 bits), float, str, bytes, tuple, list and dict. Of their subclasses the value is
carried and the class is not: an IntEnum arrives as int, a str Enum as str, a namedtuple or a list as tuple, an OrderedDict as
dict, a bytearray as bytes. Everything else (dataclasses, sets, plain Enums, numpy's integers) is registered or refused.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import msgpack

from topo.errors import ConfigError, FrameError, ValueNotCarried

FIRST_USER_CODE = 32
LAST_USER_CODE = 127

T = TypeVar("T")
_NATIVE = (bool, int, float, str, bytes, bytearray, memoryview, tuple, list, dict, type(None))
_MICROSECOND = timedelta(microseconds=1)
_NAIVE, _OFFSET, _ZONE = range(3)
_DATETIME = struct.Struct("<HBBBBBIBB")
_TIME = struct.Struct("<BBBIBB")
_DATE = struct.Struct("<HBB")
_TIMEDELTA = struct.Struct("<iII")
_OFFSET_WORD = struct.Struct("<q")


class UnknownType(ValueNotCarried):
    """A value of a type that nobody has registered, or one that its serializer refuses.

    Attributes:
        type_name: the value's type.
        reason: what is wrong with it and what to do.
    """

    def __init__(self, type_name: str, reason: str) -> None:
        self.type_name = type_name
        self.reason = reason
        super().__init__(type_name, reason)

    def __str__(self) -> str:
        return f"{self.type_name}: {self.reason}"


class SerializerRegistry:
    """Which class travels under which ext code. Equal in all processes of a topology.

    `datetime` keeps its zone (an IANA zone by name, any other as its offset at that moment), a naive one stays naive, and `fold`
    is kept. `date`, `time`, `timedelta`, `Decimal` and `UUID` are known, too. Classes are matched exactly: a subclass of a
    registered class is registered on its own.
    """

    def __init__(self) -> None:
        self._encoders: dict[type, tuple[int, Callable[[Any], bytes]]] = {}
        self._decoders: dict[int, tuple[type, Callable[[bytes], Any]]] = {}
        self._add(datetime, 1, _encode_datetime, _decode_datetime)
        self._add(date, 2, _encode_date, _decode_date)
        self._add(time, 3, _encode_time, _decode_time)
        self._add(timedelta, 4, _encode_timedelta, _decode_timedelta)
        self._add(Decimal, 5, _encode_decimal, _decode_decimal)
        self._add(UUID, 6, _encode_uuid, _decode_uuid)

    def register(self, cls: type[T], code: int, encode: Callable[[T], bytes], decode: Callable[[bytes], T]) -> None:
        """Let values of `cls` travel as the bytes that `encode` makes of them.

        Args:
            cls: matched exactly; subclasses are registered on their own.
            code: 32 to 127, the same in every process.
            encode: called where the value is sent.
            decode: called where it arrives, with what `encode` returned; it must bear any bytes, and not use pickle.

        Raises:
            ConfigError: the code is out of range or taken, or the class is known already or never needs a serializer.
        """
        if not isinstance(cls, type):
            raise ConfigError(f"{cls!r} is not a class; register the class whose values are to be carried")
        name = cls.__qualname__
        if not FIRST_USER_CODE <= code <= LAST_USER_CODE:
            raise ConfigError(f"code {code} for {name}: choose one from {FIRST_USER_CODE} to {LAST_USER_CODE}")
        if code in self._decoders:
            raise ConfigError(f"code {code} for {name} is taken by {self._decoders[code][0].__qualname__}; choose another")
        if cls in self._encoders:
            raise ConfigError(f"{name} has a serializer already, under code {self._encoders[cls][0]}")
        if issubclass(cls, _NATIVE):
            base = next(native for native in _NATIVE if issubclass(cls, native))
            raise ConfigError(f"{name} is a {base.__name__} and travels as one, so its serializer would never be called")
        self._add(cls, code, encode, decode)

    def _add(self, cls: type[T], code: int, encode: Callable[[T], bytes], decode: Callable[[bytes], T]) -> None:
        self._encoders[cls] = (code, encode)
        self._decoders[code] = (cls, decode)

    def encode(self, value: Any) -> msgpack.ExtType:
        """Return the ext value for what msgpack cannot pack by itself.

        Raises:
            UnknownType: nobody has registered the type, or its serializer does not want the value.
            MemoryError: from the serializer; the value is not at fault.
        """
        cls = type(value)
        try:
            code, encode = self._encoders[cls]
        except KeyError:
            raise UnknownType(cls.__qualname__, _advice(value)) from None
        try:
            return msgpack.ExtType(code, encode(value))
        except MemoryError:
            raise
        except Exception as error:
            raise UnknownType(cls.__qualname__, f"its serializer failed: {type(error).__name__}: {error}") from error

    def decode(self, code: int, data: bytes) -> Any:
        """Return the value of an ext type.

        Raises:
            FrameError: nobody has registered the code, or its serializer cannot read the bytes.
            MemoryError: from the serializer; the value is not at fault.
        """
        try:
            cls, decode = self._decoders[code]
        except KeyError:
            raise FrameError(f"a value of ext type {code}, which is not registered in this process") from None
        try:
            return decode(data)
        except MemoryError:
            raise
        except Exception as error:
            raise FrameError(f"{len(data)} bytes are no {cls.__qualname__}: {type(error).__name__}: {error}") from error


def _advice(value: Any) -> str:
    cls = type(value)
    if cls is int:
        return "the integer does not fit 64 bits; emit it as a str or a Decimal"
    if cls in (set, frozenset):
        return "sets are not carried; emit a sorted tuple"
    if cls.__module__ == "numpy":
        return "emit .item() or .tolist() of it, or register a serializer for the type"
    return "topo carries what msgpack does, datetime, Decimal and UUID; emit plain values or register a serializer for the type"


def _encode_zone(zone: tzinfo | None, offset: timedelta | None) -> tuple[int, bytes]:
    if zone is None:
        return _NAIVE, b""
    key = getattr(zone, "key", None)
    if isinstance(key, str):
        return _ZONE, key.encode()
    if offset is None:
        raise ValueError(f"its zone {zone!r} has neither a name nor an offset")
    return _OFFSET, _OFFSET_WORD.pack(offset // _MICROSECOND)


def _decode_zone(kind: int, data: bytes) -> tzinfo | None:
    if kind == _ZONE:
        return ZoneInfo(data.decode())
    if kind == _OFFSET:
        return timezone(timedelta(microseconds=_OFFSET_WORD.unpack(data)[0]))
    if kind == _NAIVE and not data:
        return None
    raise ValueError("unknown kind of zone")


def _encode_datetime(value: datetime) -> bytes:
    kind, zone = _encode_zone(value.tzinfo, value.utcoffset())
    day = (value.year, value.month, value.day)
    return _DATETIME.pack(*day, value.hour, value.minute, value.second, value.microsecond, value.fold, kind) + zone


def _decode_datetime(data: bytes) -> datetime:
    year, month, day, hour, minute, second, microsecond, fold, kind = _DATETIME.unpack_from(data)
    zone = _decode_zone(kind, data[_DATETIME.size :])
    return datetime(year, month, day, hour, minute, second, microsecond, zone, fold=fold)


def _encode_date(value: date) -> bytes:
    return _DATE.pack(value.year, value.month, value.day)


def _decode_date(data: bytes) -> date:
    return date(*_DATE.unpack(data))


def _encode_time(value: time) -> bytes:
    kind, zone = _encode_zone(value.tzinfo, value.utcoffset())
    return _TIME.pack(value.hour, value.minute, value.second, value.microsecond, value.fold, kind) + zone


def _decode_time(data: bytes) -> time:
    hour, minute, second, microsecond, fold, kind = _TIME.unpack_from(data)
    return time(hour, minute, second, microsecond, _decode_zone(kind, data[_TIME.size :]), fold=fold)


def _encode_timedelta(value: timedelta) -> bytes:
    return _TIMEDELTA.pack(value.days, value.seconds, value.microseconds)


def _decode_timedelta(data: bytes) -> timedelta:
    return timedelta(*_TIMEDELTA.unpack(data))


def _encode_decimal(value: Decimal) -> bytes:
    return str(value).encode()


def _decode_decimal(data: bytes) -> Decimal:
    return Decimal(data.decode("ascii"))


def _encode_uuid(value: UUID) -> bytes:
    return value.bytes


def _decode_uuid(data: bytes) -> UUID:
    return UUID(bytes=data)
