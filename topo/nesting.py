"""Bounds the depth of nested values: the same bound for tuples, positions and state, on every Python.

What reads msgpack recursively stops at a depth that depends on the interpreter's recursion limit and on the calls that are on its
stack. So topo sets a bound well below, and checks it in the bytes.
"""

from __future__ import annotations

from contextlib import suppress

import msgpack
import msgspec

MAX_DEPTH = 256
"""Most arrays and maps inside each other that a payload may have. In a tuple two of them are the batch and the tuple itself."""
MAX_STATE_DEPTH = 2 * MAX_DEPTH
"""The same for state in a checkpoint, which adds levels around the values of tuples."""

_STACK = 1024
"""Levels that msgpack reads: a constant compiled into it."""
_CHUNK = 1 << 16
_SHORT = 1 << 13
_ARRAYS = b"\x91" * _STACK
_ARRAY_OF_ONE = 0x91
_FEW = 4
_BLOCKS = {0xC6: 5, 0xC9: 6}
"""The first byte of bytes and of an ext value whose length has 32 bits, and how long their heads are."""
_read = msgspec.msgpack.Decoder(msgspec.Raw).decode
_NOT_OPENING = bytes(set(range(256)) - {*range(0x80, 0xA0), *range(0xDC, 0xE0)})
"""All bytes but those that an array or a map begins with."""


class _Nested:
    """Gives a payload in chunks as the content of nested arrays: msgpack copies all that it reads."""

    __slots__ = ("_at", "_payload")

    def __init__(self, payload: bytes | bytearray | memoryview, arrays: int) -> None:
        self._at = -arrays
        self._payload = payload

    def read(self, size: int) -> bytes:
        at = self._at
        if at < 0:
            self._at = 0
            return _ARRAYS[:-at]
        self._at = at + size
        # The unpacker takes nothing else.
        return bytes(self._payload[at : at + size])


def _is_one_block(payload: bytes | bytearray | memoryview) -> bool:
    """Whether a value is bytes or an ext value to its end, in a few arrays of one: so are column batches, and much to read."""
    at = 0
    while at < _FEW and payload[at] == _ARRAY_OF_ONE:
        at += 1
    head = _BLOCKS.get(payload[at])
    return head is not None and at + head + int.from_bytes(payload[at + 1 : at + 5], "big") == len(payload)


class TooDeep(ValueError):
    """A payload is nested deeper than it may be."""


def check_depth(payload: bytes | bytearray | memoryview, most: int = MAX_DEPTH, rows: int = 0) -> None:
    """Read a msgpack value to its end without building it.

    Args:
        payload: the value, packed.
        most: levels.
        rows: the number of arrays or maps if the value is an array of these. A wrong number may let too deep a value pass.

    Raises:
        TooDeep: it is nested deeper than `most`.
        Exception: it is cut short or followed by more.
    """
    size = len(payload)
    if size > _SHORT and _is_one_block(payload):
        return
    # Few bytes that could open an array or a map: not too deep. An exact count takes as long to begin as 800 rows of one word
    # take to read; beyond this size it is cheaper than counting.
    if size <= most or (size <= _SHORT and len(bytes(payload).translate(None, _NOT_OPENING)) - rows < most):
        with suppress(RecursionError):
            _read(payload)
            return
    deeper = _STACK - most
    reader = msgpack.Unpacker(_Nested(payload, deeper), read_size=_CHUNK, max_buffer_size=0)
    try:
        reader.skip()
    except msgpack.StackError as error:
        raise TooDeep(f"nested deeper than {most} levels") from error
    if reader.tell() != deeper + len(payload):
        raise ValueError("the value is followed by more bytes")
