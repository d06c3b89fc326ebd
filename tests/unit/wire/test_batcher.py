from __future__ import annotations

import pytest

from topo.hot import pack_counts, pack_timestamps, pack_words, unpack_words
from topo.wire.batcher import EdgeBuffer
from topo.wire.frames import Anchoring, Columns


def rows(first, last):
    return [(number,) for number in range(first, last)]


def ids(first, last):
    return pack_words(range(first, last))


def add(buffer, first, last, now=0.0):
    buffer.extend(now, Columns(Anchoring.SINGLE, rows(first, last), ids(first, last), ids(first + 1000, last + 1000)))


def unanchored(first, last, timestamps=b""):
    return Columns(Anchoring.NONE, rows(first, last), timestamps=timestamps)


def with_counts(first, last, roots, edges, counts):
    return Columns(Anchoring.MULTI, rows(first, last), pack_words(roots), pack_words(edges), counts=pack_counts(counts))


def test_nothing_leaves_before_a_piece_is_full():
    buffer = EdgeBuffer(batch_size=4)
    add(buffer, 0, 3)
    assert buffer.cut() == []
    assert len(buffer) == 3


def test_full_pieces_leave_in_order_with_their_ids_and_the_rest_stays():
    buffer = EdgeBuffer(batch_size=4)
    add(buffer, 0, 3)
    add(buffer, 3, 10)
    pieces = buffer.cut()
    assert [piece.rows for piece in pieces] == [rows(0, 4), rows(4, 8)]
    assert [unpack_words(piece.roots) for piece in pieces] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert [unpack_words(piece.edges) for piece in pieces] == [[1000, 1001, 1002, 1003], [1004, 1005, 1006, 1007]]
    (rest,) = buffer.flush()
    assert (rest.rows, unpack_words(rest.roots), unpack_words(rest.edges)) == (rows(8, 10), [8, 9], [1008, 1009])
    assert buffer.flush() == []


def test_a_piece_keeps_its_rows_and_ids_when_the_buffer_goes_on():
    buffer = EdgeBuffer(batch_size=2)
    add(buffer, 0, 2)
    (piece,) = buffer.cut()
    add(buffer, 2, 4)
    assert (piece.rows, unpack_words(piece.roots)) == (rows(0, 2), [0, 1])


def test_the_callers_rows_are_not_taken_over():
    mine = rows(0, 1)
    buffer = EdgeBuffer()
    buffer.extend(0.0, Columns(Anchoring.NONE, mine))
    buffer.extend(0.0, unanchored(1, 2))
    assert mine == rows(0, 1)


def test_oldest_is_the_moment_the_first_tuple_inside_came():
    buffer = EdgeBuffer(batch_size=4)
    assert buffer.oldest is None
    add(buffer, 0, 1, now=10.0)
    add(buffer, 1, 2, now=11.0)
    assert buffer.oldest == 10.0
    add(buffer, 2, 5, now=12.0)
    buffer.cut()
    assert buffer.oldest == 12.0
    buffer.flush()
    assert buffer.oldest is None


def test_a_change_of_anchoring_seals_what_came_before():
    buffer = EdgeBuffer(batch_size=4)
    buffer.extend(1.0, unanchored(0, 1))
    add(buffer, 1, 3, now=2.0)
    buffer.extend(3.0, with_counts(3, 5, [7, 8, 9], [1, 2, 3], [3, 0]))
    assert len(buffer) == 5
    pieces = buffer.cut()
    assert [(piece.anchoring, piece.rows) for piece in pieces] == [(Anchoring.NONE, rows(0, 1)), (Anchoring.SINGLE, rows(1, 3))]
    assert buffer.oldest == 3.0
    (last,) = buffer.flush()
    assert (last.anchoring, last.rows, unpack_words(last.roots)) == (Anchoring.MULTI, rows(3, 5), [7, 8, 9])


def test_timestamps_of_all_or_of_none_leave_together():
    buffer = EdgeBuffer(batch_size=3)
    buffer.extend(0.0, unanchored(0, 1, pack_timestamps([5])))
    buffer.extend(0.0, unanchored(1, 2))
    buffer.extend(0.0, unanchored(2, 3, pack_timestamps([6])))
    pieces = buffer.flush()
    assert [bytes(piece.timestamps) for piece in pieces] == [pack_timestamps([5]), b"", pack_timestamps([6])]


def test_tuples_with_several_roots_are_cut_at_tuple_boundaries():
    buffer = EdgeBuffer(batch_size=2)
    buffer.extend(0.0, with_counts(0, 3, [1, 2, 3, 4], [5, 6, 7, 8], [3, 0, 1]))
    first, second = buffer.flush()
    assert (unpack_words(first.roots), unpack_words(second.roots)) == ([1, 2, 3], [4])
    assert (bytes(first.counts), bytes(second.counts)) == (pack_counts([3, 0]), pack_counts([1]))


def test_large_rows_make_small_pieces_at_once_and_small_rows_bring_the_size_back():
    buffer = EdgeBuffer(batch_size=512, batch_bytes=64 * 1024)
    buffer.note_packed(512, 512 * 10_240)
    assert buffer.piece_size == 6
    add(buffer, 0, 13)
    assert [len(piece.rows) for piece in buffer.cut()] == [6, 6]
    sizes = []
    while buffer.piece_size < 512:
        buffer.note_packed(buffer.piece_size, 10 * buffer.piece_size)
        sizes.append(buffer.piece_size)
    assert sizes == sorted(sizes)
    assert sizes[-1] == 512


def test_rows_at_hand_beyond_a_full_batch_leave_with_it():
    buffer = EdgeBuffer(batch_size=4)
    for _ in range(5):
        buffer.note_packed(4, 40)
    for count, expected in ((3, []), (1, [4]), (11, [11]), (37, [16, 16, 5]), (18, [16]), (1, [])):
        add(buffer, 0, count)
        assert [len(piece.rows) for piece in buffer.cut()] == expected
    assert len(buffer) == 3, "fewer than fill a piece stay"


def test_large_rows_leave_with_no_more_than_the_batch_bytes():
    buffer = EdgeBuffer(batch_size=4, batch_bytes=100)
    for _ in range(5):
        buffer.note_packed(6, 60)
    add(buffer, 0, 25)
    assert [len(piece.rows) for piece in buffer.cut()] == [10, 10, 5]


def test_a_row_larger_than_the_batch_bytes_travels_alone():
    buffer = EdgeBuffer()
    buffer.note_packed(1, 10_000_000)
    assert buffer.piece_size == 1


def test_a_new_epoch_forgets_the_tuples_and_keeps_what_was_learned():
    buffer = EdgeBuffer()
    buffer.note_packed(10, 64 * 1024)
    add(buffer, 0, 5)
    buffer.extend(0.0, unanchored(5, 6))
    buffer.clear()
    assert (len(buffer), buffer.oldest, buffer.flush(), buffer.piece_size) == (0, None, [], 10)


@pytest.mark.parametrize("batch_size", [1, 2, 3, 7])
def test_whatever_the_batch_size_every_tuple_leaves_once_in_order_with_its_ids(batch_size):
    buffer = EdgeBuffer(batch_size=batch_size)
    pieces = []
    for first, last in ((0, 1), (1, 6), (6, 8), (8, 20)):
        add(buffer, first, last)
        pieces += buffer.cut()
    pieces += buffer.flush()
    assert [row for piece in pieces for row in piece.rows] == rows(0, 20)
    assert [root for piece in pieces for root in unpack_words(piece.roots)] == list(range(20))
    assert [edge for piece in pieces for edge in unpack_words(piece.edges)] == list(range(1000, 1020))
