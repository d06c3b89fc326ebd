"""Assigns keys to tasks: key -> hash -> key group -> task, equal in all processes and on all machines.

Keyed state and timers move by key group when a component's parallelism changes, and fields grouping sends by the same groups.
Hashes of ints and strings, the group of a hash, the ranges and the owner of a group follow Flink (`KeyGroupRangeAssignment`,
`MathUtils.murmurHash`) and Java (`hashCode`). Python's own `hash` differs from process to process.
"""

from __future__ import annotations

import math
from array import array
from datetime import UTC, date, datetime, time, timedelta
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Any, NamedTuple
from uuid import UUID

import msgpack

from topo.config import MAX_PARALLELISM_LIMIT
from topo.digests import blake2b
from topo.errors import ConfigError

_MASK = 0xFFFFFFFF
_INT32 = range(-(1 << 31), 1 << 31)
_INT64 = range(-(1 << 63), 1 << 63)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_BIG_INT, _INSTANT, _NAIVE_DATETIME, _DATE, _TIME, _TIMEDELTA, _DECIMAL, _UUID = range(8)
_MOST_DIGITS = 4300
_DECIMAL_CONTEXT = Context(28, ROUND_HALF_EVEN, -999999, 999999, 1, 0, [], [])
"""Python's default. User code may give its thread another one."""
DEFAULT_MAX_PARALLELISM = 128


class _Bounds(NamedTuple):
    start: int
    end: int


class KeyGroupRange(_Bounds):
    """Key groups from `start` to `end`, both included. A range whose end lies before its start, such as (0, -1), is empty.

    Raises:
        ConfigError: one is no int, the start is negative, or the end is not below the largest possible number of key groups.
    """

    __slots__ = ()

    def __new__(cls, start: int, end: int) -> KeyGroupRange:
        if type(start) is not int or type(end) is not int or start < 0 or end >= MAX_PARALLELISM_LIMIT:
            raise ConfigError(f"KeyGroupRange({start!r}, {end!r}): key groups are numbered from 0 to {MAX_PARALLELISM_LIMIT - 1}")
        return super().__new__(cls, start, end)

    def __contains__(self, group: object) -> bool:
        return isinstance(group, int) and self.start <= group <= self.end

    @property
    def groups(self) -> range:
        """The key groups, in order."""
        return range(self.start, self.end + 1)


def stable_hash(key: Any) -> int:
    """Return a 32-bit hash of a key, from 0 to 2**32 - 1. Equal keys have equal hashes, in all processes.

    An int of 32 bits is its own hash; an int of 64 bits has its halves XORed; a string has Java's polynomial over its
    UTF-16 units. Other keys are hashed by their encoded value: floats, bytes, None, tuples, datetimes, dates, times, timedeltas,
    Decimals, UUIDs. Numbers that are equal count as one key: 1, 1.0, True and Decimal(1).

    Raises:
        TypeError: keys of this type are not carried, or not hashable.
        ValueError: the key is or contains NaN, which is not equal to itself.
    """
    plain = _normal(key)
    if isinstance(plain, str):
        return _string_hash(plain)
    if isinstance(plain, int) and plain in _INT64:
        return (plain if plain in _INT32 else plain ^ plain >> 32) & _MASK
    word = int.from_bytes(blake2b(_encoded(plain), digest_size=8).digest(), "big")
    return (word ^ word >> 32) & _MASK


def second_hash(key: Any) -> int:
    """Return another 32-bit hash of a key, independent of `stable_hash`: the second choice of partial-key grouping.

    Raises as `stable_hash` does.
    """
    return int.from_bytes(blake2b(_encoded(_normal(key)), digest_size=4, person=b"second").digest(), "big")


def key_group(key: Any, max_parallelism: int) -> int:
    """Return the key group of a key, from 0 to max_parallelism - 1. Costs microseconds: remember it. Raises as `stable_hash`."""
    return murmur(stable_hash(key)) % max_parallelism


def owner_of(group: int, max_parallelism: int, parallelism: int) -> int:
    """Return the index of the task that owns a key group."""
    return group * parallelism // max_parallelism


def range_of(index: int, max_parallelism: int, parallelism: int) -> KeyGroupRange:
    """Return the key groups that the task with this index owns."""
    start = (index * max_parallelism + parallelism - 1) // parallelism
    return KeyGroupRange(start, ((index + 1) * max_parallelism - 1) // parallelism)


def route_of(key: Any, max_parallelism: int, parallelism: int) -> int:
    """Return the index of the task that a key belongs to. Raises as `stable_hash`."""
    return owner_of(key_group(key, max_parallelism), max_parallelism, parallelism)


def default_max_parallelism(parallelism: int) -> int:
    """Return the default number of key groups: half as many again as tasks, rounded up to a power of two, 128 at least."""
    wanted = parallelism + parallelism // 2
    return min(max(1 << (wanted - 1).bit_length(), DEFAULT_MAX_PARALLELISM), MAX_PARALLELISM_LIMIT)


def murmur(code: int) -> int:
    """Mix a 32-bit hash so that all bits count; the result is from 0 to 2**31 - 1. One round of Murmur3 with its finaliser."""
    code = code * 0xCC9E2D51 & _MASK
    code = _rotated(code, 15) * 0x1B873593 & _MASK
    code = (_rotated(code, 13) * 5 + 0xE6546B64 & _MASK) ^ 4
    code = (code ^ code >> 16) * 0x85EBCA6B & _MASK
    code = (code ^ code >> 13) * 0xC2B2AE35 & _MASK
    code ^= code >> 16
    if code < 1 << 31:
        return code
    return ((1 << 32) - code) & 0x7FFFFFFF


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> 32 - bits) & _MASK


def _string_hash(text: str) -> int:
    code = 0
    units = array("H", text.encode("utf-16-le", "surrogatepass"))
    for unit in units:
        code = (31 * code + unit) & _MASK
    return code


def _encoded(plain: Any) -> bytes:
    packed: bytes = msgpack.packb(plain, default=_big_int, unicode_errors="surrogatepass")
    return packed


def _big_int(value: int) -> msgpack.ExtType:
    return msgpack.ExtType(_BIG_INT, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))


def _normal(key: Any) -> Any:
    """Return the one representative of all keys equal to this one, made of what msgpack packs."""
    if isinstance(key, str):
        return str.__str__(key)
    if isinstance(key, int):
        return int(key)
    if key is None or isinstance(key, bytes):
        return key
    if isinstance(key, float):
        return _normal_float(float(key))
    if isinstance(key, tuple):
        return tuple(map(_normal, key))
    if isinstance(key, Decimal):
        return _normal_decimal(key)
    if isinstance(key, UUID):
        return msgpack.ExtType(_UUID, key.bytes)
    if isinstance(key, date | time | timedelta):
        return _normal_moment(key)
    kind = type(key).__name__
    if isinstance(key, list | dict | set | bytearray):
        raise TypeError(f"a key must be hashable, and a {kind} is not; use a tuple or a single value of it")
    raise TypeError(f"keys of type {kind} are not carried; use a string, a number or a tuple of these")


def _normal_float(value: float) -> Any:
    if math.isnan(value):
        raise ValueError("NaN cannot be a key: it is not equal to itself")
    return int(value) if value.is_integer() else value


def _normal_decimal(value: Decimal) -> Any:
    if value.is_nan():
        raise ValueError("NaN cannot be a key: it is not equal to itself")
    if value.is_finite() and value.adjusted() > _MOST_DIGITS:
        raise ValueError(f"a Decimal of more than {_MOST_DIGITS} digits cannot be a key")
    as_float = float(value)
    if value == as_float:
        return _normal_float(as_float)
    if value == value.to_integral_value():
        return int(value)
    sign, digits, exponent = value.normalize(_DECIMAL_CONTEXT).as_tuple()
    return msgpack.ExtType(_DECIMAL, f"{sign},{digits},{exponent}".encode())


def _normal_moment(value: date | time | timedelta) -> msgpack.ExtType:
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            return msgpack.ExtType(_NAIVE_DATETIME, value.replace(tzinfo=None).isoformat().encode())
        # The two hours of a night when clocks are set back are equal keys, as their `fold` does not count.
        return msgpack.ExtType(_INSTANT, str((value.replace(fold=0) - _EPOCH) // _MICROSECOND).encode())
    if isinstance(value, date):
        return msgpack.ExtType(_DATE, value.isoformat().encode())
    if isinstance(value, timedelta):
        return msgpack.ExtType(_TIMEDELTA, str(value // _MICROSECOND).encode())
    offset = value.utcoffset()
    if offset is None:
        return msgpack.ExtType(_TIME, value.isoformat().encode())
    since_midnight = timedelta(hours=value.hour, minutes=value.minute, seconds=value.second, microseconds=value.microsecond)
    return msgpack.ExtType(_TIME, str((since_midnight - offset) // _MICROSECOND).encode())
