"""Rows to msgpack and back: both decline, and leave all to msgpack in `topo.wire.codec`, which is the reference."""

from __future__ import annotations

from collections.abc import Sequence

from topo.hot.plain.values import Row
from topo.hot.plain.words import Column


def pack_rows(rows: Sequence[Row]) -> bytes | None:
    """Return the payload of a batch as msgpack would pack it, or None."""
    return None


def unpack_rows(payload: Column, count: int) -> list[Row] | None:
    """Return the `count` rows of a payload, with a tuple for every sequence, or None for those that it might have to refuse."""
    return None
