"""Rows of a DATA frame, for tests that look at what a task has sent."""

from __future__ import annotations

from topo.hot import Row
from topo.wire.codec import Codec
from topo.wire.frames import Frame


def rows_of(frame: Frame, codec: Codec) -> list[Row]:
    """Return the rows of a frame that was parsed, or handed over in memory. Raises FrameError as `Codec.unpack_rows` does."""
    return frame.rows if frame.rows is not None else codec.unpack_rows(frame.payload or b"", frame.count)
