"""Column batches as rows, for a component that is given tuples.

A batch arrived as one tuple, with one edge in the tree of each of its messages. Its rows share that edge: each gets a fresh edge,
and the XOR of all of them is the edge that arrived. So the ackers need not know: the edge is accounted for when each row is
acked, and a row that fails fails the messages of its batch.
"""

from __future__ import annotations

from functools import reduce
from itertools import chain, repeat
from operator import xor

from topo.api.column_batch import ColumnBatch
from topo.errors import UnsupportedValueError
from topo.hot import Ids, Row, pack_counts, pack_timestamps, pack_words, stays, unpack_words
from topo.task.batch import Batch, Undecoded
from topo.wire.codec import MAX_ELEMENTS, Codec
from topo.wire.frames import Anchoring, Frame, FrameKind


def unbatched(frame: Frame, batch: Batch, codec: Codec, ids: Ids, component: str) -> tuple[Batch, list[Undecoded]]:
    """Return the rows of the batches of a frame, and the batches whose values no row can have.

    Args:
        frame: of a stream of batches.
        batch: its tuples.
        codec: judges values.
        ids: draws the edges of the rows.
        component: the receiver's id, for errors.
    """
    rows: list[Row] = []
    roots: list[int] = []
    edges: list[int] = []
    stamps: list[int | None] = []
    counts: list[int] = []
    unfit: list[Undecoded] = []
    for index, (columns,) in enumerate(batch.rows):
        own_roots, own_edges = batch.ids_at(index)
        try:
            made = _rows_of(columns, codec)
        except Exception as error:
            fault = UnsupportedValueError(f"component {component!r}: rows of a batch from {batch.origin.component!r}: {error}")
            fault.__cause__ = error
            unfit.append(Undecoded(own_roots, (columns,), fault))
            continue
        count = len(made)
        rows += made
        roots += own_roots * count
        edges += chain.from_iterable(zip(*[_shares(edge, count, ids) for edge in own_edges], strict=True))
        counts += [len(own_roots)] * count
        stamps += columns.stamp_list() or repeat(None, count)
    is_multi = batch.anchoring is Anchoring.MULTI
    # Values that can change are kept packed, too: a call that is repeated is given them as they arrived.
    payload = None if all(map(stays, rows)) else codec.pack_rows(rows)
    has_time = any(stamp is not None for stamp in stamps)
    made_frame = Frame(
        FrameKind.DATA, (frame.epoch, frame.sender, frame.incarnation), frame.target, frame.number, frame.stream, len(rows),
        batch.anchoring, pack_words(roots), pack_words(edges), pack_timestamps(stamps) if has_time else b"",
        pack_counts(counts) if is_multi else b"", payload, rows if payload is None else None,
    )  # fmt: skip
    return Batch(made_frame, rows, batch.origin), unfit


def _rows_of(columns: ColumnBatch, codec: Codec) -> list[Row]:
    rows = columns.rows()
    if all(map(stays, rows)):
        return rows
    # Lists and dicts of Arrow's nested columns arrive as those of a row would.
    payload = codec.pack_rows(rows)
    if len(payload) <= MAX_ELEMENTS:
        return codec.unpack_rows(payload, len(rows))
    # The limit is that of a frame, and all rows together may have more elements.
    return [codec.unpack_rows(codec.pack_rows([row]), 1)[0] for row in rows]


def _shares(edge: int, count: int, ids: Ids) -> list[int]:
    """Return `count` words whose XOR is an edge."""
    shares = unpack_words(ids.column(count))
    shares[-1] = reduce(xor, shares[:-1], edge)
    return shares
