"""Columns of ids, timestamps and numbers, packed as they are on the wire: in the machine's own order, which is little-endian."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

Column = bytes | bytearray | memoryview
NO_TIMESTAMP = -(1 << 63)
"""Stands in a column for a tuple without a timestamp."""


def pack_words(words: Iterable[int]) -> bytes:
    """Return ids or values as a column of unsigned 64-bit words."""
    return array("Q", words).tobytes()


def unpack_words(column: Column) -> list[int]:
    """Return the words of a column that `pack_words` made."""
    return memoryview(column).cast("Q").tolist()


def distinct_words(column: Column) -> list[int]:
    """Return the words of a column, each once, in the order of their first places."""
    return list(dict.fromkeys(unpack_words(column)))


def pack_timestamps(timestamps: Sequence[int | None]) -> bytes:
    """Return event times as a column; None becomes NO_TIMESTAMP."""
    try:
        return array("q", timestamps).tobytes()  # type: ignore[type-var]
    except TypeError:
        return array("q", [NO_TIMESTAMP if timestamp is None else timestamp for timestamp in timestamps]).tobytes()


def pack_counts(counts: Iterable[int]) -> bytes:
    """Return numbers of roots, each at most MAX_ROOTS_PER_TUPLE, as a counts column."""
    return array("H", counts).tobytes()


def xor_words(one: Column, other: Column) -> bytes:
    """Return the XOR of two columns of the same length, word by word."""
    return (int.from_bytes(one, "little") ^ int.from_bytes(other, "little")).to_bytes(len(one), "little")
