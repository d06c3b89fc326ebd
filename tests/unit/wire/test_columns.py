from __future__ import annotations

import pytest

from tests.rows import rows_of
from topo.hot import pack_counts, pack_timestamps, pack_words, unpack_words
from topo.wire.codec import Codec
from topo.wire.columns import MAX_SHARED, pack_columns, select, split
from topo.wire.frames import MAX_ROOTS_PER_TUPLE, Anchoring, Columns, SenderStamp, data_frame, encode, parse


def columns(anchoring, rows):
    """Return rows whose ids name the row: roots 10 r, 10 r + 1, ...; edges a hundred thousand above; timestamp r."""
    per_row = {
        Anchoring.NONE: [0] * len(rows),
        Anchoring.SINGLE: [1] * len(rows),
        Anchoring.MULTI: [n % 3 for n in range(len(rows))],
    }
    counts = per_row[anchoring]
    roots = [10 * row + place for row, count in enumerate(counts) for place in range(count)]
    return Columns(
        anchoring,
        rows,
        pack_words(roots),
        pack_words(root + 100_000 for root in roots),
        pack_timestamps(range(len(rows))),
        pack_counts(counts) if anchoring is Anchoring.MULTI else b"",
    )


def by_row(piece):
    """Return (values, roots, edges, timestamp) of each tuple of a piece, read from the frame it makes."""
    frame = parse(encode(data_frame(SenderStamp(1, 1, 1), 2, 0, 0, piece, Codec().pack_rows(piece.rows))))
    counts = frame.count_list() or [int(frame.anchoring)] * frame.count
    roots, edges = iter(frame.root_list()), iter(frame.edge_list())
    return [
        (row, [next(roots) for _ in range(count)], [next(edges) for _ in range(count)], timestamp)
        for row, count, timestamp in zip(rows_of(frame, Codec()), counts, frame.timestamp_list(), strict=True)
    ]


ROWS = [(f"w{n}",) for n in range(7)]


@pytest.mark.parametrize("anchoring", Anchoring)
@pytest.mark.parametrize("size", [1, 3, 6])
def test_a_split_gives_each_tuple_its_own_ids(anchoring, size):
    whole = columns(anchoring, ROWS)
    first, rest = split(whole, size)
    assert len(first.rows) == size
    assert by_row(first) + by_row(rest) == by_row(whole)


@pytest.mark.parametrize("anchoring", Anchoring)
def test_a_selection_gives_each_tuple_its_own_ids(anchoring):
    whole = columns(anchoring, ROWS)
    assert by_row(select(whole, [1, 2, 5])) == [by_row(whole)[index] for index in (1, 2, 5)]


def test_a_piece_that_can_be_carried_is_packed_as_it_is():
    whole = columns(Anchoring.SINGLE, ROWS)
    codec = Codec()
    ((packed, payload),), refused = pack_columns(codec, whole)
    assert packed is whole
    assert codec.unpack_rows(payload, 7) == ROWS
    assert refused == []


@pytest.mark.parametrize("anchoring", Anchoring)
def test_a_tuple_that_cannot_be_carried_is_named_with_its_roots_and_the_rest_goes(anchoring):
    good = columns(anchoring, ROWS)
    bad_row = ("w2", object())
    whole = columns(anchoring, [*ROWS[:2], bad_row, *ROWS[3:]])
    ((packed, _),), (refused,) = pack_columns(Codec(), whole)
    assert by_row(packed) == [tup for tup in by_row(good) if tup[0] != ("w2",)]
    assert (refused.rejection.row, refused.rejection.field, refused.rejection.type_name) == (2, 1, "object")
    assert refused.values is bad_row
    assert refused.roots == by_row(good)[2][1]


def test_a_piece_without_a_tuple_that_can_be_carried_packs_to_nothing():
    packed, refused = pack_columns(Codec(), columns(Anchoring.SINGLE, [(object(),), (1 << 64,)]))
    assert packed == []
    assert [tup.roots for tup in refused] == [[0], [10]]


def test_large_rows_leave_in_several_frames_of_bounded_size():
    rows = [(n, "x" * 300_000) for n in range(9)]
    codec = Codec()
    packed, refused = pack_columns(codec, columns(Anchoring.SINGLE, rows))
    assert refused == []
    assert len(packed) > 1
    assert all(len(payload) <= MAX_SHARED for _, payload in packed)
    assert [row for piece, payload in packed for row in codec.unpack_rows(payload, len(piece.rows))] == rows
    assert [root for piece, _ in packed for root in unpack_words(piece.roots)] == [10 * n for n in range(9)]


class Moody:
    """A value whose serializer fails from the third call on."""

    packed = 0


def encode_moody(value):
    value.packed += 1
    if value.packed >= 3:
        raise OSError("no connection")
    return b""


def test_a_tuple_that_is_refused_in_a_part_of_a_large_piece_is_named_with_its_roots():
    codec = Codec()
    codec.registry.register(Moody, 40, encode_moody, lambda data: Moody())
    whole = columns(Anchoring.SINGLE, [("x" * 300_000,), (Moody(),), *[("x" * 300_000,)] * 4])
    packed, refused = pack_columns(codec, whole)
    assert sum(len(piece.rows) for piece, _ in packed) == 5
    ((tuple_),) = refused
    assert (tuple_.values, tuple_.roots) == (whole.rows[1], [10])
    assert tuple_.rejection.reason == "its serializer failed: OSError: no connection"


def test_a_row_of_several_megabytes_leaves_alone():
    rows = [("small",), ("x" * (3 * MAX_SHARED),), ("small",)]
    packed, _ = pack_columns(Codec(), columns(Anchoring.NONE, rows))
    assert [piece.rows for piece, _ in packed] == [rows[:1], rows[1:2], rows[2:]]


def test_tuples_with_very_many_roots_leave_in_several_frames_within_the_frame_limit():
    roots = pack_words(range(1, 40 * MAX_ROOTS_PER_TUPLE + 1))
    whole = Columns(Anchoring.MULTI, [(n,) for n in range(40)], roots, roots, counts=pack_counts([MAX_ROOTS_PER_TUPLE] * 40))
    packed, _ = pack_columns(Codec(), whole)
    frames = [parse(encode(data_frame(SenderStamp(1, 1, 1), 2, 0, 0, piece, payload))) for piece, payload in packed]
    assert b"".join(frame.roots for frame in frames) == roots
    assert len(frames) == 40


def test_no_rows_pack_to_nothing_to_send():
    ((empty, payload),), refused = pack_columns(Codec(), Columns(Anchoring.NONE, []))
    assert (empty.rows, payload, refused) == ([], b"\x90", [])
