"""Reads messages of any protocol: typed, or not at all."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from topo.errors import FrameError
from topo.nesting import check_depth

T = TypeVar("T")


def decode_typed(decoder: msgspec.msgpack.Decoder[T], data: bytes, what: str) -> T:
    """Return the message; on anything that is not `what`, raise FrameError."""
    try:
        check_depth(data)
        return decoder.decode(data)
    except Exception as error:
        raise FrameError(f"not {what}: {type(error).__name__}: {error}") from error
