"""One value of each kind that goes over the wire or to disk, its bytes, and what reads them.

A step that renames internals adjusts this file, and no golden file.
"""

from __future__ import annotations

from collections.abc import Callable
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from tests.rows import rows_of
from topo.checkpoint.encoding import decode_snapshot, encode_snapshot
from topo.checkpoint.manifest import decode_manifest, encode_manifest
from topo.hot import pack_counts, pack_timestamps, pack_words
from topo.version import __version__
from topo.wire import control
from topo.wire.codec import Codec
from topo.wire.frames import (
    Anchoring,
    Columns,
    Frame,
    FrameKind,
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
from topo.wire.serializers import SerializerRegistry


def rewritten_manifest(data: bytes) -> bytes:
    """Read a manifest and write it again."""
    return encode_manifest(decode_manifest(data, "manifest.json"))


def rewritten_part(data: bytes) -> tuple[bytes, bytes]:
    """Read a part of a checkpoint and write it again.

    Returns:
        The content of the file and the bytes to be written, both without the header if another version of topo has written it.
    """
    header = msgspec.msgpack.decode(data[_START:][: int.from_bytes(data[_START - 4 : _START], "little")])
    topology, checkpoint, version = header[0], header[5], header[6]
    types = SerializerRegistry()
    snapshot = decode_snapshot(lambda start, count: data[start : start + count], "part", types)
    written = encode_snapshot(snapshot, topology, checkpoint, types)
    if version == __version__:
        return data, written.data
    body = b"".join(written.sections[2:])
    return data[-len(body) :], body


_START = 14
"""Bytes of a part before its header, the last four the header's length."""


def frames() -> dict[str, Frame]:
    """Return one frame of each kind and anchoring, with a different value in every field."""
    stamp, words = (3, 7, 0x1122334455667788), pack_words
    rows = [("a", 1), (None, b"\xff"), (("nested", 2.5), {"k": [True, -7]})]
    payload = Codec().pack_rows(rows)
    one, two = [1, 1 << 63 | 2, 3], [4, 5, (1 << 64) - 1]
    stamps = pack_timestamps([10, None, -3])
    several = Columns(Anchoring.MULTI, rows, words([1, 2, 3, 4]), words([5, 6, 7, 8]), b"", pack_counts([2, 0, 2]))
    bare = {kind: signal_frame(FrameKind[kind], stamp, 9, 4) for kind in ("IDLE", "ACTIVE", "END")}
    return {
        **{f"OPEN {status.name}": open_frame(stamp, 9, status, 1234) for status in SenderStatus},
        "DATA none": data_frame(stamp, 9, 2, 1, Columns(Anchoring.NONE, rows), payload),
        "DATA single, timestamps": data_frame(
            stamp, 9, 2, 1, Columns(Anchoring.SINGLE, rows, words(one), words(two), stamps), payload
        ),
        "DATA multi": data_frame(stamp, 9, 2, 1, several, payload),
        **{kind: columns_frame(FrameKind[kind], stamp, 9, 5, words(one), words(two)) for kind in ("INIT", "ACK")},
        **{
            kind: columns_frame(FrameKind[kind], stamp, 9, 5, words(one))
            for kind in ("FAIL", "RESET", "ACKED", "FAILED", "TOUCHED")
        },
        **bare,
        "WATERMARK": watermark_frame(stamp, 9, 6, -5),
        "CONFIRM": confirm_frame(stamp, 9, 7, 300),
        "BARRIER": barrier_frame(stamp, 9, 8, 12, words(one), words(two)),
        "BARRIER unanchored": barrier_frame(stamp, 9, 8, 12),
    }


def frame_bytes(frame: Frame) -> bytes:
    return encode(frame)


def frame_meaning(data: bytes) -> str:
    """Return the content of a frame, as text."""
    frame = parse(data)
    content = {
        "kind": frame.kind.name, "anchoring": frame.anchoring.name, "status": frame.status.name, "stream": frame.stream,
        "epoch": frame.epoch, "sender": frame.sender, "target": frame.target, "incarnation": frame.incarnation,
        "number": frame.number, "mark": frame.mark, "count": frame.count, "roots": frame.root_list(),
        "edges": frame.edge_list(), "timestamps": frame.timestamp_list(), "counts": frame.count_list(),
        "rows": rows_of(frame, Codec()) if frame.kind is FrameKind.DATA else None,
    }  # fmt: skip
    return repr(content)


def control_messages() -> dict[str, tuple[Any, Callable[[bytes], Any]]]:
    """Return each control message with a different value in every field, and the function that reads it."""
    kinds = [(control.FromWorker, control.decode_from_worker), (control.FromMaster, control.decode_from_master)]
    found = {kind.__name__: (_filled(kind), read) for union, read in kinds for kind in get_args(union)}
    found["Request"] = (_filled(control.Request), control.decode_request)
    found["Reply"] = (_filled(control.Reply), control.decode_reply)
    return found


def control_bytes(message: Any) -> bytes:
    return control.encode(message)


def _filled(kind: Any) -> Any:
    hints = get_type_hints(kind)
    return kind(*(_value(hints[name], number) for number, name in enumerate(kind.__struct_fields__, 1)))


def _value(hint: Any, number: int) -> Any:
    """Return a value of a type, another one for each number."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hasattr(hint, "__supertype__"):
        return _value(hint.__supertype__, number)
    if origin in (Union, UnionType):
        return _value(arguments[0], number)
    if origin is list:
        return [_value(arguments[0], number)]
    if origin is dict:
        return {_value(arguments[0], number): _value(arguments[1], number)}
    if origin is tuple:
        return tuple(_value(one, number + at) for at, one in enumerate(arguments))
    if hasattr(hint, "__struct_fields__"):
        return _filled(hint)
    return {int: number, float: number + 0.5, str: f"text {number}", bytes: b"\xc0", bool: True, Any: f"any {number}"}[hint]
