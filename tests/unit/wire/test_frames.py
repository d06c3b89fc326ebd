from __future__ import annotations

import struct

import pytest

from tests.rows import rows_of
from topo.errors import FrameError, TopoInternalError
from topo.hot import pack_counts, pack_timestamps, pack_words
from topo.wire.codec import Codec
from topo.wire.frames import (
    HEADER_BYTES,
    MAX_WATERMARK,
    MIN_WATERMARK,
    Anchoring,
    Columns,
    Frame,
    FrameKind,
    SenderStamp,
    SenderStatus,
    barrier_frame,
    columns_frame,
    confirm_frame,
    data_frame,
    encode,
    open_frame,
    parse,
    signal_frame,
    watermark_frame,
)

STAMP = SenderStamp(epoch=3, sender=7, incarnation=(1 << 63) - 1)
ROWS = [("a", 1), ("b", 2), ("c", 3)]
BIGGEST = (1 << 64) - 1


def arrived(frame: Frame) -> Frame:
    return parse(encode(frame))


def packed_data(columns: Columns) -> Frame:
    return data_frame(STAMP, 9, 5, 2, columns, Codec().pack_rows(columns.rows))


def single() -> Frame:
    return packed_data(Columns(Anchoring.SINGLE, ROWS, pack_words([1, 2, BIGGEST]), pack_words([4, 5, 6])))


def test_the_header_of_every_kind_arrives_as_it_was_sent():
    frames = [
        open_frame(STAMP, 9, SenderStatus.IDLE, 1_700_000_000_000),
        single(),
        *[columns_frame(kind, STAMP, 9, 6, pack_words([1]), pack_words([2])) for kind in (FrameKind.INIT, FrameKind.ACK)],
        columns_frame(FrameKind.FAIL, STAMP, 9, 6, pack_words([1])),
        watermark_frame(STAMP, 9, 7, -5),
        *[signal_frame(kind, STAMP, 9, 8) for kind in (FrameKind.IDLE, FrameKind.ACTIVE, FrameKind.END)],
        barrier_frame(STAMP, 9, 9, 12, pack_words([1]), pack_words([2])),
        confirm_frame(STAMP, 9, BIGGEST),
    ]
    for frame in frames:
        got = arrived(frame)
        for name in (
            "kind",
            "epoch",
            "sender",
            "incarnation",
            "target",
            "number",
            "stream",
            "count",
            "anchoring",
            "status",
            "mark",
        ):
            assert getattr(got, name) == getattr(frame, name), (frame, name)


def test_an_open_frame_carries_number_zero_the_status_and_the_watermark():
    got = arrived(open_frame(STAMP, 9, SenderStatus.FINISHED, MAX_WATERMARK))
    assert (got.number, got.status, got.mark) == (0, SenderStatus.FINISHED, MAX_WATERMARK)
    assert arrived(open_frame(STAMP, 9, SenderStatus.ACTIVE)).mark == MIN_WATERMARK


def test_tuples_with_one_root_each_arrive_in_columns():
    got = arrived(single())
    assert got.root_list() == [1, 2, BIGGEST]
    assert got.edge_list() == [4, 5, 6]
    assert got.timestamp_list() == []
    assert rows_of(got, Codec()) == ROWS


def test_tuples_with_several_roots_carry_an_edge_for_each_root():
    columns = Columns(
        Anchoring.MULTI,
        ROWS,
        pack_words([1, 2, 3]),
        pack_words([4, 5, 6]),
        pack_timestamps([10, None, -3]),
        pack_counts([2, 0, 1]),
    )
    got = arrived(packed_data(columns))
    assert got.count_list() == [2, 0, 1]
    assert got.root_list() == [1, 2, 3]
    assert got.edge_list() == [4, 5, 6]
    assert got.timestamp_list() == [10, None, -3]
    assert rows_of(got, Codec()) == ROWS


def test_unanchored_tuples_carry_no_ids():
    got = arrived(packed_data(Columns(Anchoring.NONE, ROWS, timestamps=pack_timestamps([1, 2, 3]))))
    assert (got.root_list(), got.edge_list(), got.timestamp_list()) == ([], [], [1, 2, 3])


def test_verdicts_carry_roots_only():
    for kind in (FrameKind.FAIL, FrameKind.RESET, FrameKind.ACKED, FrameKind.FAILED, FrameKind.TOUCHED):
        got = arrived(columns_frame(kind, STAMP, 9, 1, pack_words([8, 9])))
        assert (got.kind, got.count, got.root_list(), got.edge_list()) == (kind, 2, [8, 9], [])


def test_a_barrier_that_nothing_tracks_carries_no_ids():
    got = arrived(barrier_frame(STAMP, 9, 4, checkpoint=77))
    assert (got.mark, got.count, got.root_list(), got.edge_list()) == (77, 0, [], [])


def test_a_frame_handed_over_in_memory_gives_rows_that_no_codec_has_packed():
    frame = data_frame(STAMP, 9, 5, 2, Columns(Anchoring.SINGLE, ROWS, bytearray(pack_words([1, 2, 3])), pack_words([4, 5, 6])))
    assert frame.rows is ROWS
    assert frame.root_list() == [1, 2, 3]
    with pytest.raises(TopoInternalError, match="was not packed"):
        encode(frame)


def test_columns_are_slices_of_the_buffer_until_they_are_asked_for():
    buffer = encode(single())
    got = parse(buffer)
    assert all(isinstance(column, memoryview) and column.obj is buffer for column in (got.roots, got.edges, got.payload))
    assert got.rows is None


HEADER = struct.Struct("<HBBBBBHIIIQQqIII")
FIELDS = (
    "magic", "version", "kind", "anchoring", "flags", "status", "stream", "epoch", "sender", "target",
    "incarnation", "number", "mark", "count", "ids", "payload",
)  # fmt: skip


def altered(frame: Frame, tail: bytes = b"", **changes: int) -> bytes:
    buffer = encode(frame)
    values = dict(zip(FIELDS, HEADER.unpack_from(buffer), strict=True)) | changes
    return HEADER.pack(*values.values()) + buffer[HEADER_BYTES:] + tail


CONFIRM = confirm_frame(STAMP, 9, 4)
MULTI = packed_data(Columns(Anchoring.MULTI, ROWS, pack_words([1, 2]), pack_words([4, 5]), counts=pack_counts([2, 0, 0])))


@pytest.mark.parametrize(
    ("buffer", "complaint"),
    [
        (b"", "0 bytes are shorter than a header"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\nConnection: close\r\n\r\n", "not a topo frame"),
        (altered(CONFIRM, version=2), "protocol version 2; this side speaks 1"),
        (altered(CONFIRM, kind=15), "no frame has kind 15"),
        (altered(CONFIRM, anchoring=1), "no frame has kind 11 with anchoring 1"),
        (altered(CONFIRM, flags=1), "CONFIRM with flags 1"),
        (altered(CONFIRM, status=1), "CONFIRM with flags 0 and status 1"),
        (altered(open_frame(STAMP, 9, SenderStatus.IDLE), status=3), "OPEN with flags 0 and status 3"),
        (altered(CONFIRM, count=1), "CONFIRM with a count of 1"),
        (altered(CONFIRM, ids=1), "CONFIRM without a count"),
        (altered(CONFIRM, payload=1), "CONFIRM without a count"),
        (altered(CONFIRM, tail=b"x"), "1 bytes follow the header of CONFIRM"),
        (altered(single(), count=0, ids=0), "DATA without a count"),
        (altered(single(), ids=2), "2 roots for a count of 3"),
        (altered(single(), count=1 << 31, ids=1 << 31), "cannot hold"),
        (altered(single(), flags=1), "where its header demands"),
        (altered(single(), tail=b"x"), "where its header demands"),
        (altered(MULTI, ids=1 << 31), "where its header demands"),
        (encode(MULTI).replace(pack_counts([2, 0, 0]), pack_counts([2, 1, 0])), "does not add up"),
        (altered(columns_frame(FrameKind.INIT, STAMP, 9, 1, pack_words([1]), b"")), "where its header demands"),
        (altered(columns_frame(FrameKind.FAIL, STAMP, 9, 1, pack_words([1])), tail=b"\x90", payload=1), "1 bytes of values"),
    ],
)
def test_a_malformed_frame_is_refused_with_what_is_wrong(buffer, complaint):
    with pytest.raises(FrameError, match=complaint):
        parse(buffer)


def test_a_frame_over_the_limit_is_refused_before_it_is_read():
    buffer = encode(single())
    assert parse(buffer, max_frame=len(buffer)).count == 3
    with pytest.raises(FrameError, match=f"at most {len(buffer) - 1} are accepted"):
        parse(buffer, max_frame=len(buffer) - 1)


def test_a_frame_is_shown_by_its_edge_and_number():
    assert repr(single()) == "Frame(DATA 7->9 #5 epoch=3 stream=2 count=3)"
