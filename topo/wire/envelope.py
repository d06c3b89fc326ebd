"""Messages between two workers: each carries the frames of many edges, in the order in which their tasks have sent them.

    header   8 bytes, `_HEADER`: magic, version, nothing, number of frames
    table    for each frame: the task that it is for (u32), its length (u32)
    frames   one behind the other, each as `wire/frames.py` makes it

The lengths are in the table, so a frame with damaged bytes does not affect those beside it. A message whose size is not what its
table adds up to is refused, with all of its frames.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from topo.errors import FrameError
from topo.hot import Column
from topo.ids import TaskId

MAGIC = 0x4D74
VERSION = 1
MESSAGE_BYTES = 256 * 1024
"""A message of this size takes no further frame: each frame that waits to be processed keeps its whole message in memory."""

_HEADER = struct.Struct("<HBxI")
_ENTRY_BYTES = 8
_FIRST = struct.Struct("<HBxIII")
"""The header and the table of a message with one frame, as most are while tuples are few."""

Addressed = tuple[TaskId, Column]
"""A frame, and the task that it is for."""


def longest_message(max_frame: int) -> int:
    """Return the most bytes of a message whose frames have at most `max_frame`."""
    return _HEADER.size + MESSAGE_BYTES + _ENTRY_BYTES + max_frame


def pack(frames: Sequence[Addressed]) -> tuple[int, bytes]:
    """Return a message with the first of these frames, at least one, and the number of frames in it."""
    if len(frames) == 1:
        ((task, frame),) = frames
        return 1, b"".join((_FIRST.pack(MAGIC, VERSION, 1, task, len(frame)), frame))
    table: list[int] = []
    parts: list[Column] = [b""]
    size = 0
    for task, frame in frames:
        if size >= MESSAGE_BYTES:
            break
        table += (task, len(frame))
        parts.append(frame)
        size += _ENTRY_BYTES + len(frame)
    count = len(parts) - 1
    parts[0] = _HEADER.pack(MAGIC, VERSION, count) + struct.pack(f"<{len(table)}I", *table)
    return count, b"".join(parts)


def unpack(message: bytes) -> list[Addressed]:
    """Return the frames of a message, as slices of it, unread.

    Raises:
        FrameError: anything else than a message of this version.
    """
    size = len(message)
    if size < _HEADER.size:
        raise FrameError(f"a message of {size} bytes is shorter than its header")
    magic, version, count = _HEADER.unpack_from(message)
    if magic != MAGIC:
        raise FrameError(f"not a message between workers: it begins with {magic:#06x}")
    if version != VERSION:
        raise FrameError(f"a message of version {version}; this side speaks {VERSION}")
    at = _HEADER.size + _ENTRY_BYTES * count
    if at > size:
        raise FrameError(f"a message of {size} bytes cannot hold {count} frames")
    table = struct.unpack_from(f"<{2 * count}I", message, _HEADER.size)
    view = memoryview(message)
    frames: list[Addressed] = []
    for task, length in zip(table[::2], table[1::2], strict=True):
        frames.append((TaskId(task), view[at : at + length]))
        at += length
    if at != size:
        raise FrameError(f"a message of {size} bytes whose table demands {at}")
    return frames
