"""Whatever bytes arrive: a frame, or a FrameError, and never anything else."""

from __future__ import annotations

import pickle
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from uuid import UUID

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rows import rows_of
from topo.errors import FrameError
from topo.hot import pack_counts, pack_timestamps, pack_words
from topo.wire import control
from topo.wire.codec import Codec
from topo.wire.frames import (
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

u16, u32, u64 = (st.integers(0, (1 << bits) - 1) for bits in (16, 32, 64))
i64 = st.integers(-(1 << 63), (1 << 63) - 1)
stamps = st.builds(SenderStamp, u32, u32, u64)
zones = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.binary(max_size=20),
    st.datetimes(timezones=st.one_of(st.none(), zones, st.timezones())),
    st.dates(),
    st.timedeltas(),
    st.decimals(allow_nan=False),
    st.uuids(),
)
keys = st.one_of(st.integers(-5, 5), st.text("ab", max_size=2))
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4).map(tuple), st.dictionaries(keys, inner, max_size=4)),
    max_leaves=8,
)
rows = st.lists(values, max_size=3).map(tuple)


@st.composite
def columns(draw):
    batch = draw(st.lists(rows, min_size=1, max_size=6))
    anchoring = draw(st.sampled_from(Anchoring))
    counts = {
        Anchoring.NONE: [0] * len(batch),
        Anchoring.SINGLE: [1] * len(batch),
        Anchoring.MULTI: draw(st.lists(st.integers(0, 3), min_size=len(batch), max_size=len(batch))),
    }[anchoring]
    ids = st.lists(u64, min_size=sum(counts), max_size=sum(counts)).map(pack_words)
    times = st.lists(st.none() | st.integers(-(1 << 62), 1 << 62), min_size=len(batch), max_size=len(batch)).map(pack_timestamps)
    counted = pack_counts(counts) if anchoring is Anchoring.MULTI else b""
    return Columns(anchoring, batch, draw(ids), draw(ids), draw(st.just(b"") | times), counted)


@st.composite
def frames(draw):
    stamp, target, number = draw(stamps), draw(u32), draw(u64)
    kind = draw(st.sampled_from(FrameKind))
    if kind is FrameKind.OPEN:
        return open_frame(stamp, target, draw(st.sampled_from(SenderStatus)), draw(i64))
    if kind is FrameKind.DATA:
        piece = draw(columns())
        frame = data_frame(stamp, target, number, draw(u16), piece, Codec().pack_rows(piece.rows))
        # The unpacked rows; a sender keeps the packed rows alone.
        frame.rows = piece.rows
        return frame
    if kind is FrameKind.WATERMARK:
        return watermark_frame(stamp, target, number, draw(i64))
    if kind in (FrameKind.IDLE, FrameKind.ACTIVE, FrameKind.END):
        return signal_frame(kind, stamp, target, number)
    if kind is FrameKind.CONFIRM:
        return confirm_frame(stamp, target, number)
    ids = draw(st.lists(u64, min_size=kind is not FrameKind.BARRIER, max_size=5).map(pack_words))
    if kind is FrameKind.BARRIER:
        return barrier_frame(stamp, target, number, draw(i64), ids, ids)
    return columns_frame(kind, stamp, target, number, ids, ids if kind in (FrameKind.INIT, FrameKind.ACK) else b"")


def read(buffer: bytes) -> Frame | None:
    """Return the frame with everything in it decoded, or None when it is refused."""
    try:
        frame = parse(buffer)
        frame.root_list(), frame.edge_list(), frame.timestamp_list(), frame.count_list()
        if frame.payload is not None:
            assert len(rows_of(frame, Codec())) == frame.count
    except FrameError as error:
        assert str(error)
        return None
    assert encode(frame) == buffer
    return frame


@given(frames())
def test_a_frame_arrives_as_it_was_sent(frame):
    got = parse(encode(frame))
    for name in Frame.__slots__:
        if name not in ("rows", "payload"):
            assert getattr(got, name) == getattr(frame, name), name
    if frame.kind is FrameKind.DATA:
        assert rows_of(got, Codec()) == frame.rows


@given(frames())
def test_a_frame_that_is_cut_short_anywhere_is_refused(frame):
    buffer = encode(frame)
    for end in range(len(buffer)):
        with pytest.raises(FrameError):
            parse(buffer[:end])


@given(frames(), st.binary(min_size=1, max_size=20))
def test_a_frame_that_something_follows_is_refused(frame, tail):
    with pytest.raises(FrameError):
        parse(encode(frame) + tail)


@given(frames(), st.data())
def test_a_mutated_frame_is_a_frame_or_refused(frame, data):
    buffer = bytearray(encode(frame))
    for _ in range(data.draw(st.integers(1, 4))):
        buffer[data.draw(st.integers(0, len(buffer) - 1))] = data.draw(st.integers(0, 255))
    read(bytes(buffer))


@given(st.binary(max_size=300))
def test_random_bytes_are_refused(buffer):
    assert read(buffer) is None


@given(st.binary(max_size=200), st.integers(0, 3))
def test_a_random_payload_is_rows_or_refused(payload, count):
    codec = Codec()
    try:
        got = codec.unpack_rows(payload, count)
    except FrameError:
        return
    assert len(got) == count
    assert all(type(row) is tuple for row in got)


@given(st.integers(-128, 127), st.binary(max_size=60))
def test_a_random_ext_value_is_carried_or_refused(code, data):
    packed = b"\x91\x91\xc7" + len(data).to_bytes(1, "big") + code.to_bytes(1, "big", signed=True) + data
    try:
        ((value,),) = Codec().unpack_rows(packed, 1)
    except FrameError:
        return
    assert type(value) in (datetime, date, time, timedelta, Decimal, UUID, msgpack.Timestamp)


@given(st.binary(max_size=200))
def test_a_random_control_message_is_refused(data):
    for decode in (control.decode_from_worker, control.decode_from_master, control.decode_request, control.decode_reply):
        with pytest.raises(FrameError):
            decode(data)


@given(st.lists(rows | st.tuples(st.integers(0, 3), st.just(object())), max_size=8))
def test_rows_that_can_be_carried_go_and_the_others_are_named(batch):
    codec = Codec()
    payload, kept, rejected = codec.pack_or_split(batch)
    bad = [index for index, row in enumerate(batch) if len(row) == 2 and type(row[1]) is object]
    assert [(got.row, got.field, got.type_name) for got in rejected] == [(index, 1, "object") for index in bad]
    assert list(kept) == [index for index in range(len(batch)) if index not in bad]
    assert codec.unpack_rows(payload, len(kept)) == [batch[index] for index in kept]


UNPICKLED: list[str] = []


def sing():
    UNPICKLED.append("the canary sang")


class Canary:
    def __reduce__(self):
        return sing, ()


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_is_never_unpickled(protocol):
    canary = pickle.dumps(Canary(), protocol)
    assert read(canary) is None
    for decode in (control.decode_from_worker, control.decode_from_master, control.decode_request, control.decode_reply):
        with pytest.raises(FrameError):
            decode(canary)
    codec = Codec()
    with pytest.raises(FrameError):
        codec.unpack_rows(canary, 1)
    for code in range(128):
        with pytest.raises(FrameError):
            codec.unpack_rows(msgpack.packb([(msgpack.ExtType(code, canary),)]), 1)
    assert codec.unpack_rows(codec.pack_rows([(canary,)]), 1) == [(canary,)]
    with pytest.raises(FrameError):
        rows_of(parse(encode(data_frame(SenderStamp(1, 1, 1), 2, 0, 0, Columns(Anchoring.NONE, [()]), canary))), codec)
    assert UNPICKLED == []
    pickle.loads(canary)
    assert UNPICKLED.pop() == "the canary sang"
