"""Roots of messages and ids of edges, drawn column by column."""

from __future__ import annotations

import os
from array import array
from collections.abc import Sequence
from operator import itemgetter
from random import Random

from topo.hot.plain.words import Column, unpack_words, xor_words
from topo.ids import ID_BYTES

_UNMARKED = bytes(byte & 0x1F for byte in range(256))
_ZERO = bytes(ID_BYTES)
_TRACED = bytes(byte >> 6 & 1 for byte in range(256))
"""By the highest byte of a root, 1 where it has `TRACED_BIT`."""
_SUSPECT = bytes(byte >> 5 & 1 for byte in range(256))


def traced_places(roots: Column) -> list[int]:
    """Return the places of roots that have `TRACED_BIT`."""
    # A view is copied first: to take every eighth byte of one costs more than both.
    marks = bytes(roots)[ID_BYTES - 1 :: ID_BYTES].translate(_TRACED)
    return [place for place, mark in enumerate(marks) if mark] if 1 in marks else []


def has_suspect(roots: Column) -> bool:
    """Whether one of the roots has `SUSPECT_BIT`."""
    return 1 in bytes(roots)[ID_BYTES - 1 :: ID_BYTES].translate(_SUSPECT)


class Ids:
    """Random unsigned 64-bit ids, drawn in blocks.

    Seeded from the operating system when no seed is given. Construct it *after* the process has started: a generator that
    is carried over a fork draws the same ids in every child, and equal ids cancel each other in the acker's XOR.
    """

    def __init__(self, seed: bytes | None = None) -> None:
        self._randbytes = Random(seed if seed is not None else os.urandom(32)).randbytes

    def column(self, count: int) -> bytes:
        """Return `count` independent non-zero ids as packed little-endian 64-bit words."""
        while True:
            column = self._randbytes(ID_BYTES * count)
            # Eight zero bytes at any alignment are rarer than one chance in 2**56: draw all again rather than look closer.
            if _ZERO not in column:
                return column

    def roots(self, count: int) -> list[int]:
        """Return `count` independent non-zero ids as integers."""
        return array("Q", self.column(count)).tolist()

    def unmarked_roots(self, count: int) -> list[int]:
        """Return `count` independent non-zero ids without any of the three marks of `topo.ids`."""
        return unpack_words(self.unmarked_column(count))

    def unmarked_column(self, count: int) -> bytes:
        """Return the same as a column."""
        while True:
            column = bytearray(self.column(count))
            highest = slice(ID_BYTES - 1, None, ID_BYTES)
            column[highest] = column[highest].translate(_UNMARKED)
            if _ZERO not in column:
                return bytes(column)

    def telescoped(self, count: int) -> tuple[array[int], bytes]:
        """Draw `count` edge ids whose XOR over any contiguous run is one operation.

        Returns `(states, edges)`: count + 1 words and `count` packed ids with edge[j] = states[j] ^ states[j + 1], so the
        XOR of edges[a:b] is states[a] ^ states[b]. The map from the states to (edges, last state) is a bijection of
        independent uniform words; the edges therefore are independent and uniform themselves.
        """
        while True:
            column = self._randbytes(ID_BYTES * (count + 1))
            head = int.from_bytes(column[:-ID_BYTES], "little")
            tail = int.from_bytes(column[ID_BYTES:], "little")
            edges = (head ^ tail).to_bytes(ID_BYTES * count, "little")
            if _ZERO not in edges:
                return array("Q", column), edges

    def weave(self, roots: Column, ends: Sequence[int] | None, owed: bytearray) -> tuple[Column, Column]:
        """Draw an edge for each row. Returns the root and the edge of each row.

        Args:
            roots: by input.
            ends: by input, how many rows there are after it; None when each input has one row.
            owed: by input, a value into which its edges are folded.
        """
        count = len(owed) // ID_BYTES if ends is None else ends[-1]
        states, edges = self.telescoped(count)
        if ends is None:
            owed[:] = xor_words(owed, edges)
            return roots, edges
        # An input owes the XOR of the states around its rows; one without rows has the same state on both sides.
        around = array("Q", itemgetter(0, *ends)(states)).tobytes()
        owed[:] = xor_words(xor_words(owed, around[:-ID_BYTES]), around[ID_BYTES:])
        return _repeated(roots, ends), edges


def _repeated(words: Column, ends: Sequence[int]) -> bytes:
    """Repeat each input's word once for each of its rows."""
    words, out, start = bytes(words), [], 0
    for at, end in enumerate(ends):
        out.append(words[ID_BYTES * at : ID_BYTES * at + ID_BYTES] * (end - start))
        start = end
    return b"".join(out)
