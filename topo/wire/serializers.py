"""Types that msgpack does not know, as ext types: topo's own below 32, the user's from there. Nothing is ever unpickled.

What needs no ext type: None, bool, int (64 bits), float, str, bytes, tuple, list and dict. Of their subclasses the value is
carried and the class is not: an IntEnum arrives as int, a str Enum as str, a namedtuple or a list as tuple, an OrderedDict as
dict, a bytearray as bytes, numpy.float64 as float. Sets, dataclasses, other enums and numpy's arrays and scalars travel by
themselves (`structures`). Everything else is registered or refused.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

import msgpack
import msgspec

from topo.api.topology import TYPE_CODES
from topo.errors import ConfigError, FrameError, UnsupportedValueError
from topo.nesting import check_depth
from topo.user_errors import kind_and_message
from topo.wire.structures import CODES, EXACT, FROZENSET, NATIVE, SET, Structure, Unfit, build, structure_of

FIRST_USER_CODE, LAST_USER_CODE = TYPE_CODES[0], TYPE_CODES[-1]
_LAST_EXT_CODE = 127
"""The highest that msgpack has; higher ones share one."""
_WIDE = 14
_CODE = struct.Struct(">H")
MAX_LEVELS = 64
"""Most sets, dataclasses and the like inside each other."""

T = TypeVar("T")
_split = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_MICROSECOND = timedelta(microseconds=1)
_NAIVE, _OFFSET, _ZONE = range(3)
_DATETIME = struct.Struct("<HBBBBBIBB")
_TIME = struct.Struct("<BBBIBB")
_DATE = struct.Struct("<HBB")
_TIMEDELTA = struct.Struct("<iII")
_OFFSET_WORD = struct.Struct("<q")


class RefusedValue:
    """Stands for an emitted value that cannot be carried: its owner may change the value, but it stays refused.

    Args:
        text: the value in words.
        type_name: the type at fault.
        reason: its fault and the fix.
    """

    __slots__ = ("reason", "text", "type_name")

    def __init__(self, text: str, type_name: str, reason: str) -> None:
        self.text = text
        self.type_name = type_name
        self.reason = reason

    def __repr__(self) -> str:
        return self.text


class UnknownType(UnsupportedValueError):
    """A value of a type that is not registered, or a value that its serializer refuses.

    Attributes:
        type_name: the value's type.
        reason: its fault and the fix.
    """

    def __init__(self, type_name: str, reason: str) -> None:
        self.type_name = type_name
        self.reason = reason
        super().__init__(type_name, reason)

    def __str__(self) -> str:
        return f"{self.type_name}: {self.reason}"


class SerializerRegistry:
    """The ext code of each class. Equal in all processes of a topology.

    `datetime` keeps its zone (an IANA zone by name, any other as its offset at that moment), a naive one stays naive, and `fold`
    is kept. `date`, `time`, `timedelta`, `Decimal` and `UUID` are known, too. Classes are matched exactly: a subclass of a
    registered class is registered on its own.
    """

    def __init__(self) -> None:
        self._encoders: dict[type, tuple[int, Callable[[Any], bytes]]] = {}
        self._decoders: dict[int, tuple[type, Callable[[bytes], Any]]] = {}
        self._structures: dict[type, Structure] = {}
        self._add(datetime, 1, _encode_datetime, _decode_datetime)
        self._add(date, 2, lambda day: _DATE.pack(day.year, day.month, day.day), lambda data: date(*_DATE.unpack(data)))
        self._add(time, 3, _encode_time, _decode_time)
        self._add(timedelta, 4, _encode_timedelta, lambda data: timedelta(*_TIMEDELTA.unpack(data)))
        self._add(Decimal, 5, lambda value: str(value).encode(), lambda data: Decimal(data.decode("ascii")))
        self._add(UUID, 6, lambda value: value.bytes, lambda data: UUID(bytes=data))

    def register(self, cls: type[T], code: int, encode: Callable[[T], bytes], decode: Callable[[bytes], T]) -> None:
        """Let values of `cls` travel as the bytes that `encode` makes of them.

        Args:
            cls: matched exactly; subclasses are registered on their own.
            code: 32 to 65535, the same in every process. One up to 127 takes two bytes less in each value.
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
        if issubclass(cls, NATIVE):
            base = next(native for native in NATIVE if issubclass(cls, native))
            raise ConfigError(f"{name} is a {base.__name__} and travels as one, so its serializer would never be called")
        self._add(cls, code, encode, decode)

    def _add(self, cls: type[T], code: int, encode: Callable[[T], bytes], decode: Callable[[bytes], T]) -> None:
        self._encoders[cls] = (code, encode)
        self._decoders[code] = (cls, decode)

    def encode(self, value: Any, levels: int = 0) -> Any:
        """Return the ext value for a value that msgpack cannot pack.

        Args:
            levels: how many ext values it is inside of.

        Raises:
            UnknownType: the type is neither registered nor built in, or its serializer does not want the value.
            MemoryError: from the serializer; the value is not at fault.
        """
        cls = type(value)
        try:
            code, encode = self._encoders[cls]
        except KeyError:
            return self._encode_structure(value, levels)
        try:
            if code <= _LAST_EXT_CODE:
                return msgpack.ExtType(code, encode(value))
            return msgpack.ExtType(_WIDE, _CODE.pack(code) + encode(value))
        except MemoryError:
            raise
        except Exception as error:
            raise UnknownType(cls.__qualname__, f"its serializer failed: {kind_and_message(error)}") from error

    def _encode_structure(self, value: Any, levels: int) -> Any:
        cls = type(value)
        if cls is RefusedValue:
            raise UnknownType(value.type_name, value.reason)
        try:
            found = self._structures.get(cls)
            if found is None:
                found = self._structures[cls] = structure_of(cls)
            content = found.content(value)
        except Unfit as error:
            raise UnknownType(cls.__qualname__, str(error)) from None
        if not found.code:
            return content
        if levels >= MAX_LEVELS:
            raise UnknownType(cls.__qualname__, f"is nested too deeply (at most {MAX_LEVELS} such values), or contains itself")
        inner = partial(self.encode, levels=levels + 1)
        packed = msgpack.packb(content, default=inner, strict_types=found.code in EXACT)
        check_depth(packed)
        return msgpack.ExtType(found.code, packed)

    def decode(self, code: int, data: bytes, levels: int = 0, spend: Callable[[Any], Any] | None = None) -> Any:
        """Return the value of an ext type.

        Args:
            levels: how many ext values it is inside of.
            spend: called with the arrays and maps inside; raises when they have too many elements.

        Raises:
            FrameError: the code is not registered, or its serializer cannot read the bytes.
            MemoryError: from the serializer; the value is not at fault.
        """
        if code in CODES:
            return self._decode_structure(code, data, levels, spend)
        if code == _WIDE:
            code, data = int.from_bytes(data[: _CODE.size], "big"), data[_CODE.size :]
        try:
            cls, decode = self._decoders[code]
        except KeyError:
            raise FrameError(f"a value of ext type {code}, which is not registered in this process") from None
        try:
            return decode(data)
        except MemoryError:
            raise
        except Exception as error:
            size = f"{len(data)} byte{'s' if len(data) != 1 else ''}"
            raise FrameError(f"{size} cannot be decoded as {cls.__qualname__}: {kind_and_message(error)}") from error

    def _decode_structure(self, code: int, data: bytes, levels: int, spend: Callable[[Any], Any] | None) -> Any:
        hooks = {} if spend is None else {"list_hook": spend, "object_hook": spend}
        try:
            if levels >= MAX_LEVELS:
                raise ValueError("too many such values inside each other")
            check_depth(data)
            inner = partial(self.decode, levels=levels + 1, spend=spend)
            content = msgpack.unpackb(data, use_list=code in EXACT, strict_map_key=False, ext_hook=inner, **hooks)
            return build(code, content)
        except (FrameError, MemoryError):
            raise
        except Exception as error:
            raise FrameError(f"a value that cannot be read: {type(error).__name__}: {error}") from error


class OrderedSets(SerializerRegistry):
    """The types of a registry, with the elements of a set in one order. Python's differs from process to process: for digests."""

    def __init__(self, registry: SerializerRegistry) -> None:
        vars(self).update(vars(registry))

    def encode(self, value: Any, levels: int = 0) -> Any:
        """Return the ext value for a value that msgpack cannot pack. Raises as that of the registry does."""
        ext = super().encode(value, levels)
        if not isinstance(ext, msgpack.ExtType) or ext.code not in (SET, FROZENSET):
            return ext
        elements = sorted(map(bytes, _split(ext.data)))
        return msgpack.ExtType(ext.code, msgpack.Packer().pack_array_header(len(elements)) + b"".join(elements))


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
        # Few processes read times with zones, and it reads the settings of Python's build.
        from zoneinfo import ZoneInfo

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


def _encode_time(value: time) -> bytes:
    kind, zone = _encode_zone(value.tzinfo, value.utcoffset())
    return _TIME.pack(value.hour, value.minute, value.second, value.microsecond, value.fold, kind) + zone


def _decode_time(data: bytes) -> time:
    hour, minute, second, microsecond, fold, kind = _TIME.unpack_from(data)
    return time(hour, minute, second, microsecond, _decode_zone(kind, data[_TIME.size :]), fold=fold)


def _encode_timedelta(value: timedelta) -> bytes:
    return _TIMEDELTA.pack(value.days, value.seconds, value.microseconds)
