"""What identifies topologies, tasks, epochs and tuples, and the source that the numbers are drawn from."""

from __future__ import annotations

import os
import random
import re
from array import array
from typing import NewType

TaskId = NewType("TaskId", int)
"""A task of the physical plan, from 1 upwards; the same in every process that holds the plan."""

WorkerId = NewType("WorkerId", int)
"""A worker slot of the physical plan, from 0 upwards. A replacement keeps the slot's number."""

Epoch = NewType("Epoch", int)
"""Counts the recoveries of a running topology, from 1. Every frame carries it."""

Incarnation = NewType("Incarnation", int)
"""One life of a worker: a random 63-bit number drawn when it is launched, never used again."""

ID_BYTES = 8
REPLAYED_BIT = 1 << 63
"""Set in the roots of messages that have failed before, and so known of everything that descends from them."""
_UNMARKED = bytes(byte & 0x7F for byte in range(256))
_TOPOLOGY_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_ZERO = bytes(ID_BYTES)


def new_incarnation() -> Incarnation:
    """Draw an incarnation from the operating system, so that forked or restarted processes never agree."""
    return Incarnation(int.from_bytes(os.urandom(8), "little") >> 1 or 1)


class IdSource:
    """Random unsigned 64-bit ids, drawn in blocks.

    Seeded from the operating system when no seed is given. Construct it *after* the process has started: a generator that
    is carried over a fork draws the same ids in every child, and equal ids cancel each other in the acker's XOR.
    """

    def __init__(self, seed: bytes | None = None) -> None:
        self._randbytes = random.Random(seed if seed is not None else os.urandom(32)).randbytes

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
        """Return `count` independent non-zero ids without `REPLAYED_BIT`."""
        while True:
            column = bytearray(self.column(count))
            highest = slice(ID_BYTES - 1, None, ID_BYTES)
            column[highest] = column[highest].translate(_UNMARKED)
            if _ZERO not in column:
                return array("Q", bytes(column)).tolist()

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


def topology_name_problem(name: object) -> str | None:
    """Return the mistake in the name of a topology, with the fix; None if the name is valid. It names a folder as well."""
    if isinstance(name, str) and _TOPOLOGY_NAME.fullmatch(name):
        return None
    near = re.sub(r"[^a-z0-9]+", "-", str(name).lower()).strip("-")[:63]
    hint = f", such as {near!r}" if near else ""
    return f"topology name {name!r} is not allowed; use 1 to 63 of a-z, 0-9 and '-', and '-' not first{hint}"
