"""Requests of clients (the command line) to the master, and its replies."""

from __future__ import annotations

from typing import Any

import msgspec

from topo.wire.control.common import MAX_CONTROL, ControlMessage, decode


class Request(ControlMessage, frozen=True):
    """A client asks the master to do or report something."""

    verb: str
    arguments: dict[str, Any] = {}


class Reply(ControlMessage, frozen=True):
    """The master's answer: a result, or an error in words."""

    ok: bool
    result: Any = None
    error: str = ""


_request = msgspec.msgpack.Decoder(Request)
_reply = msgspec.msgpack.Decoder(Reply)


def decode_request(data: bytes, max_size: int = MAX_CONTROL) -> Request:
    """Return a client's request. Raises FrameError on anything else, or on more than `max_size` bytes."""
    return decode(_request, data, max_size)


def decode_reply(data: bytes, max_size: int = MAX_CONTROL) -> Reply:
    """Return the master's reply to a request. Raises FrameError on anything else, or on more than `max_size` bytes."""
    return decode(_reply, data, max_size)
