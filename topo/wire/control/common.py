"""The base class and the encoding of control messages."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from topo.errors import FrameError
from topo.wire.decoding import decode_typed

MAX_CONTROL = 1024 * 1024
"""Bytes; the default limit of a control message."""

T = TypeVar("T")


class ControlMessage(msgspec.Struct, frozen=True, array_like=True, tag=True, forbid_unknown_fields=True):
    """Base of all control messages."""


_encoder = msgspec.msgpack.Encoder()


def encode(message: Any) -> bytes:
    """Return a control message as bytes. Lone surrogates, which texts of user code can hold and UTF-8 cannot, are escaped."""
    try:
        return _encoder.encode(message)
    except UnicodeEncodeError:
        return _encoder.encode(_without_surrogates(msgspec.to_builtins(message, builtin_types=(bytes,))))


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(one) for key, one in value.items()}
    return [_without_surrogates(one) for one in value] if isinstance(value, list | tuple) else value


def decode(decoder: msgspec.msgpack.Decoder[T], data: bytes, max_size: int) -> T:
    """Return the message, typed. Raises FrameError on anything else, or on more than `max_size` bytes."""
    if len(data) > max_size:
        raise FrameError(f"a control message of {len(data)} bytes; at most {max_size} are accepted")
    return decode_typed(decoder, data, "a control message")
