"""Work on tuples column by column: cut them, pick some, pack them for the wire."""

from __future__ import annotations

from itertools import accumulate, pairwise

from msgspec import Struct

from topo.hot import Row, unpack_words
from topo.wire.codec import MAX_ELEMENTS, Codec, Rejection
from topo.wire.frames import Anchoring, Columns

MAX_SHARED = MAX_ELEMENTS
"""Bytes of values and ids up to which tuples share a frame. A longer frame holds a single tuple, whose elements the codec has
counted; so whatever leaves is within the receiver's limits."""


def split(columns: Columns, size: int) -> tuple[Columns, Columns]:
    ids = _roots_before(columns, size)
    return _part(columns, 0, size, 0, ids), _part(columns, size, len(columns.rows), ids, len(columns.roots) // 8)


def cut(columns: Columns, sizes: list[int]) -> list[Columns]:
    """Return pieces of these numbers of tuples, and last the rest, which may be empty."""
    bounds = list(accumulate(sizes, initial=0))
    ids = [_roots_before(columns, bound) for bound in bounds]
    pieces = [_part(columns, *tuples, *roots) for tuples, roots in zip(pairwise(bounds), pairwise(ids), strict=True)]
    return [*pieces, _part(columns, bounds[-1], len(columns.rows), ids[-1], len(columns.roots) // 8)]


def _roots_before(columns: Columns, index: int) -> int:
    """Return how many roots the first `index` tuples have."""
    if columns.anchoring is Anchoring.MULTI:
        return sum(memoryview(columns.counts)[: 2 * index].cast("H"))
    return index if columns.anchoring is Anchoring.SINGLE else 0


def _part(columns: Columns, first: int, last: int, first_root: int, last_root: int) -> Columns:
    anchoring, rows, roots, edges, timestamps, counts = columns
    return Columns(
        anchoring,
        rows[first:last],
        roots[8 * first_root : 8 * last_root],
        edges[8 * first_root : 8 * last_root],
        timestamps[8 * first : 8 * last],
        counts[2 * first : 2 * last],
    )


def select(columns: Columns, kept: list[int]) -> Columns:
    """Return the tuples at the ascending indexes `kept`."""
    anchoring, rows, roots, edges, timestamps, counts = columns
    starts = _root_bounds(columns)
    return Columns(
        anchoring,
        [rows[index] for index in kept],
        b"".join([roots[8 * starts[index] : 8 * starts[index + 1]] for index in kept]),
        b"".join([edges[8 * starts[index] : 8 * starts[index + 1]] for index in kept]),
        b"".join([timestamps[8 * index : 8 * index + 8] for index in kept]),
        b"".join([counts[2 * index : 2 * index + 2] for index in kept]),
    )


def _root_bounds(columns: Columns) -> list[int]:
    """Return where the roots of each tuple begin, and at last where they end."""
    anchoring, rows, _, _, _, counts = columns
    if anchoring is Anchoring.NONE:
        return [0] * (len(rows) + 1)
    if anchoring is Anchoring.SINGLE:
        return list(range(len(rows) + 1))
    bounds = [0]
    for count in memoryview(counts).cast("H"):
        bounds.append(bounds[-1] + count)
    return bounds


class RefusedTuple(Struct, frozen=True):
    """A tuple that cannot be carried: why, its values, and the roots that fail with it."""

    rejection: Rejection
    values: Row
    roots: list[int]


def pack_columns(
    codec: Codec, columns: Columns, *, is_flat: bool = False
) -> tuple[list[tuple[Columns, bytes]], list[RefusedTuple]]:
    """Pack a piece for the wire.

    Args:
        codec: what packs the values.
        columns: the piece.
        is_flat: whether no value holds others: how deep they are is not checked then.

    Returns:
        `(packed, refused)`: columns with their payload, in order, usually one pair; and the tuples that cannot be carried.
        What would be longer than MAX_SHARED is cut until it fits or holds a single row.
    """
    payload, kept, rejected = codec.pack_or_split(columns.rows, is_flat)
    refused: list[RefusedTuple] = []
    if rejected:
        bounds, ids = _root_bounds(columns), unpack_words(columns.roots)
        refused = [
            RefusedTuple(rejection, columns.rows[rejection.row], ids[bounds[rejection.row] : bounds[rejection.row + 1]])
            for rejection in rejected
        ]
        if not kept:
            return [], refused
        columns = select(columns, list(kept))
    if len(payload) + 2 * len(columns.roots) <= MAX_SHARED or len(columns.rows) == 1:
        return [(columns, payload)], refused
    packed: list[tuple[Columns, bytes]] = []
    for half in split(columns, len(columns.rows) // 2):
        parts, unfit = pack_columns(codec, half, is_flat=is_flat)
        packed += parts
        # A serializer may refuse a row now that it has taken before.
        refused += unfit
    return packed, refused
