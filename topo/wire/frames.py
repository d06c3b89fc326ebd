"""Frames: the unit that travels on an edge. A fixed header, then columns, all little-endian, in one buffer.

    header      57 bytes, `_HEADER`
    roots       u64 each: root ids
    edges       u64 each: the edge id (DATA, BARRIER) or the value (INIT, ACK) that belongs to the root at the same place
    timestamps  i64 a tuple, in milliseconds since the epoch; NO_TIMESTAMP where a tuple has none
    counts      u16 a tuple: its number of roots (MULTI only)
    payload     msgpack: an array of `count` rows, each an array of values (DATA only)

| kind | columns | its header fields |
| --- | --- | --- |
| OPEN | | number 0, status, mark = watermark |
| DATA | roots and edges by anchoring, timestamps or none, payload | stream |
| INIT, ACK | roots, edges as values | |
| FAIL, RESET, ACKED, FAILED, TOUCHED | roots | |
| WATERMARK | | mark = watermark |
| IDLE, ACTIVE, END | | |
| BARRIER | roots and edges, or none when nothing is tracked | mark = checkpoint id |
| CONFIRM | | number = last processed on target -> sender, mark = tuples that may be out (0: any), stream = load in percent |

A frame has two lives. Parsed from bytes, its columns are slices of the buffer and nothing is decoded until asked for. Handed over
in memory, it carries `rows` and columns as they were collected, and has no payload. Words are read in the machine's own order:
topo runs on little-endian machines.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from topo.errors import FrameError, TopoInternalError
from topo.hot import NO_TIMESTAMP, Column, Row, unpack_words

MAGIC = 0x7074
VERSION = 1
MAX_FRAME = 16 * 1024 * 1024
"""Bytes; the default limit of `parse`."""
MIN_WATERMARK = -(1 << 63)
"""The watermark of a sender that has none yet."""
MAX_WATERMARK = (1 << 63) - 1
"""The watermark of a sender whose input has ended."""
MAX_ROOTS_PER_TUPLE = 0xFFFF

_HEADER = struct.Struct("<HBBBBBHIIIQQqIII")
HEADER_BYTES = _HEADER.size
ROW_OVERHEAD = HEADER_BYTES + 16 * MAX_ROOTS_PER_TUPLE + 10
"""Bytes; most that a frame of one tuple takes beside its values."""
_HAS_TIMESTAMPS = 1


class FrameKind(IntEnum):
    """The kind of a frame."""

    OPEN = 0
    DATA = 1
    INIT = 2
    ACK = 3
    FAIL = 4
    RESET = 5
    WATERMARK = 6
    IDLE = 7
    ACTIVE = 8
    END = 9
    BARRIER = 10
    CONFIRM = 11
    ACKED = 12
    """Acker to spout: these trees are complete."""
    FAILED = 13
    """Acker to spout: these trees have failed."""
    TOUCHED = 14
    """Acker to spout: the timeouts of these trees were reset."""


class Anchoring(IntEnum):
    """The number of roots of each tuple of a frame."""

    NONE = 0
    SINGLE = 1
    """One root each."""
    MULTI = 2
    """As many as in the counts column, 0 included. Each root has its own edge id."""


class SenderStatus(IntEnum):
    """The sender's status in an OPEN frame."""

    ACTIVE = 0
    IDLE = 1
    FINISHED = 2


class SenderStamp(NamedTuple):
    """The sender and its life: the part of the header that all frames of a task share within an epoch."""

    epoch: int
    sender: int
    incarnation: int


class Columns(NamedTuple):
    """Tuples column by column. `timestamps` and `counts` are empty where they do not apply; so are the ids without anchoring."""

    anchoring: Anchoring
    rows: list[Row]
    roots: Column = b""
    edges: Column = b""
    timestamps: Column = b""
    counts: Column = b""


class Frame:
    """One frame. Its fields are the header's; `mark` is the watermark, checkpoint id or allowance of the kinds that have one.

    Attributes:
        payload: packed rows; None in a frame that is handed over in memory.
        rows: the rows in a frame that is handed over in memory, else None.
    """

    __slots__ = (
        "anchoring", "count", "counts", "edges", "epoch", "incarnation", "kind", "mark", "number",
        "payload", "roots", "rows", "sender", "status", "stream", "target", "timestamps",
    )  # fmt: skip

    def __init__(
        self,
        kind: FrameKind,
        stamp: SenderStamp | tuple[int, int, int],
        target: int,
        number: int,
        stream: int = 0,
        count: int = 0,
        anchoring: Anchoring = Anchoring.NONE,
        roots: Column = b"",
        edges: Column = b"",
        timestamps: Column = b"",
        counts: Column = b"",
        payload: Column | None = None,
        rows: list[Row] | None = None,
        status: SenderStatus = SenderStatus.ACTIVE,
        mark: int = 0,
    ) -> None:
        self.kind = kind
        self.epoch, self.sender, self.incarnation = stamp
        self.target = target
        self.number = number
        self.stream = stream
        self.count = count
        self.anchoring = anchoring
        self.roots = roots
        self.edges = edges
        self.timestamps = timestamps
        self.counts = counts
        self.payload = payload
        self.rows = rows
        self.status = status
        self.mark = mark

    def root_list(self) -> list[int]:
        """Return the root ids: one a tuple, or for MULTI all roots of the first tuple, then of the second, and so on."""
        return unpack_words(self.roots)

    def edge_list(self) -> list[int]:
        """Return the edge ids or values, aligned with `root_list`."""
        return unpack_words(self.edges)

    def timestamp_list(self) -> list[int | None]:
        """Return the event time of each tuple; empty when the frame carries none at all."""
        timestamps: list[int] = memoryview(self.timestamps).cast("q").tolist()
        if NO_TIMESTAMP in timestamps:
            return [None if timestamp == NO_TIMESTAMP else timestamp for timestamp in timestamps]
        return timestamps  # type: ignore[return-value]

    def count_list(self) -> list[int]:
        """Return the number of roots of each tuple of a MULTI frame."""
        return memoryview(self.counts).cast("H").tolist()

    def __repr__(self) -> str:
        edge = f"{self.sender}->{self.target}"
        return f"Frame({self.kind.name} {edge} #{self.number} epoch={self.epoch} stream={self.stream} count={self.count})"


def open_frame(stamp: SenderStamp, target: int, status: SenderStatus, watermark: int = MIN_WATERMARK) -> Frame:
    """Frame 0 of an edge."""
    return Frame(FrameKind.OPEN, stamp, target, 0, status=status, mark=watermark)


def data_frame(
    stamp: SenderStamp, target: int, number: int, stream: int, columns: Columns, payload: bytes | None = None
) -> Frame:
    """Tuples of one stream: packed as `payload`, or without it the very rows, to a task of the same worker."""
    anchoring, rows, roots, edges, timestamps, counts = columns
    shared = rows if payload is None else None
    return Frame(
        FrameKind.DATA, stamp, target, number, stream, len(rows), anchoring, roots, edges, timestamps, counts, payload, shared
    )  # fmt: skip


def columns_frame(kind: FrameKind, stamp: SenderStamp, target: int, number: int, roots: Column, edges: Column = b"") -> Frame:
    """INIT and ACK with `edges` as the values; FAIL, RESET and the verdicts without."""
    return Frame(kind, stamp, target, number, 0, len(roots) >> 3, Anchoring.SINGLE, roots, edges)


def watermark_frame(stamp: SenderStamp, target: int, number: int, watermark: int) -> Frame:
    """Event time, in milliseconds since the epoch, up to which the sender is complete."""
    return Frame(FrameKind.WATERMARK, stamp, target, number, mark=watermark)


def signal_frame(kind: FrameKind, stamp: SenderStamp, target: int, number: int) -> Frame:
    """IDLE, ACTIVE or END."""
    return Frame(kind, stamp, target, number)


def barrier_frame(
    stamp: SenderStamp, target: int, number: int, checkpoint: int, roots: Column = b"", edges: Column = b""
) -> Frame:
    """Checkpoint `checkpoint` passes here; anchored on `roots`, each with its edge id."""
    anchoring = Anchoring.SINGLE if roots else Anchoring.NONE
    return Frame(FrameKind.BARRIER, stamp, target, number, 0, len(roots) >> 3, anchoring, roots, edges, mark=checkpoint)


def confirm_frame(stamp: SenderStamp, target: int, number: int, allowance: int = 0, load: int = 0) -> Frame:
    """Everything up to `number` of the edge from `target` to the sender of this frame is processed.

    Args:
        stamp: of the receiver.
        target: the edge's sender.
        number: of the last frame that was processed.
        allowance: tuples that may be out on the edge, unconfirmed; 0: as many as fit into its window.
        load: of the receiver's worker, in percent.
    """
    return Frame(FrameKind.CONFIRM, stamp, target, number, load, mark=allowance)


def encode(frame: Frame) -> bytes:
    """Return the frame as one buffer. The payload must have been packed before."""
    payload = frame.payload
    if payload is None:
        if frame.kind is FrameKind.DATA:
            raise TopoInternalError(f"{frame!r} was not packed")
        payload = b""
    header = _HEADER.pack(
        MAGIC, VERSION, frame.kind, frame.anchoring, _HAS_TIMESTAMPS if frame.timestamps else 0, frame.status, frame.stream,
        frame.epoch, frame.sender, frame.target, frame.incarnation, frame.number, frame.mark,
        frame.count, len(frame.roots) >> 3, len(payload),
    )  # fmt: skip
    return b"".join((header, frame.roots, frame.edges, frame.timestamps, frame.counts, payload))


class _Shape(NamedTuple):
    """The columns that a kind may carry under one anchoring."""

    kind: FrameKind
    anchoring: Anchoring
    edges: bool
    payload: bool
    max_flags: int = 0
    max_status: int = 0


def _shapes() -> dict[tuple[int, int], _Shape]:
    none, single = Anchoring.NONE, Anchoring.SINGLE
    bare = (FrameKind.WATERMARK, FrameKind.IDLE, FrameKind.ACTIVE, FrameKind.END, FrameKind.CONFIRM)
    shapes = [_Shape(kind, none, False, False) for kind in bare]
    shapes.append(_Shape(FrameKind.OPEN, none, False, False, max_status=max(SenderStatus)))
    shapes += [_Shape(FrameKind.DATA, anchoring, True, True, max_flags=_HAS_TIMESTAMPS) for anchoring in Anchoring]
    shapes += [_Shape(kind, single, True, False) for kind in (FrameKind.INIT, FrameKind.ACK, FrameKind.BARRIER)]
    shapes.append(_Shape(FrameKind.BARRIER, none, True, False))
    roots_only = (FrameKind.FAIL, FrameKind.RESET, FrameKind.ACKED, FrameKind.FAILED, FrameKind.TOUCHED)
    shapes += [_Shape(kind, single, False, False) for kind in roots_only]
    return {(shape.kind, shape.anchoring): shape for shape in shapes}


_SHAPES = _shapes()
_STATUSES = tuple(SenderStatus)


def parse(buffer: Column, max_frame: int = MAX_FRAME) -> Frame:
    """Read the header, check every length against the buffer, and slice the columns; values stay packed.

    Args:
        buffer: one message as it arrived. The frame keeps it alive.
        max_frame: most bytes a frame may have.

    Raises:
        FrameError: anything else than a well-formed frame of this version. The codec checks the values.
    """
    size = len(buffer)
    if size > max_frame:
        raise FrameError(f"a frame of {size} bytes; at most {max_frame} are accepted")
    if size < HEADER_BYTES:
        raise FrameError(f"{size} bytes are shorter than a header of {HEADER_BYTES}")
    (
        magic, version, kind, anchoring, flags, status, stream,
        epoch, sender, target, incarnation, number, mark, count, ids, payload_bytes,
    ) = _HEADER.unpack_from(buffer)  # fmt: skip
    if magic != MAGIC:
        raise FrameError(f"not a topo frame: it begins with {magic:#06x}")
    if version != VERSION:
        raise FrameError(f"protocol version {version}; this side speaks {VERSION}")
    shape = _SHAPES.get((kind, anchoring))
    if shape is None:
        raise FrameError(f"no frame has kind {kind} with anchoring {anchoring}")
    if flags > shape.max_flags or status > shape.max_status:
        raise FrameError(f"{shape.kind.name} with flags {flags} and status {status}")
    stamp = (epoch, sender, incarnation)
    if not count:
        if ids or payload_bytes or flags or shape.payload or anchoring:
            raise FrameError(f"{shape.kind.name} without a count, of {size} bytes")
        if size != HEADER_BYTES:
            raise FrameError(f"{size - HEADER_BYTES} bytes follow the header of {shape.kind.name}")
        return Frame(shape.kind, stamp, target, number, stream, status=_STATUSES[status], mark=mark)
    return _parse_columns(memoryview(buffer), shape, stamp, target, number, stream, count, flags, ids, payload_bytes, mark)


def _parse_columns(
    view: memoryview, shape: _Shape, stamp: tuple[int, int, int], target: int, number: int,
    stream: int, count: int, flags: int, ids: int, payload_bytes: int, mark: int,
) -> Frame:  # fmt: skip
    kind, anchoring, has_edges, has_payload, *_ = shape
    if not has_payload and (payload_bytes or not anchoring):
        raise FrameError(f"{kind.name} with a count of {count} and {payload_bytes} bytes of values")
    if has_payload and payload_bytes <= count:
        raise FrameError(f"{payload_bytes} bytes of values cannot hold {count} rows")
    if anchoring is not Anchoring.MULTI and ids != (count if anchoring else 0):
        raise FrameError(f"{ids} roots for a count of {count} with anchoring {anchoring.name}")
    edges_at = HEADER_BYTES + 8 * ids
    timestamps_at = edges_at + 8 * ids if has_edges else edges_at
    counts_at = timestamps_at + 8 * count if flags else timestamps_at
    payload_at = counts_at + 2 * count if anchoring is Anchoring.MULTI else counts_at
    if payload_at + payload_bytes != len(view):
        raise FrameError(f"{kind.name} of {len(view)} bytes where its header demands {payload_at + payload_bytes}")
    counts: Column = view[counts_at:payload_at] if anchoring is Anchoring.MULTI else b""
    if counts and sum(memoryview(counts).cast("H")) != ids:
        raise FrameError(f"the counts column does not add up to the {ids} roots of the frame")
    return Frame(
        kind, stamp, target, number, stream, count, anchoring,
        view[HEADER_BYTES:edges_at] if ids else b"",
        view[edges_at:timestamps_at] if ids else b"",
        view[timestamps_at:counts_at] if flags else b"",
        counts,
        view[payload_at:] if has_payload else None,
        None, SenderStatus.ACTIVE, mark,
    )  # fmt: skip
