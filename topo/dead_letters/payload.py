"""Values of a dead letter, packed: as they are where they can be read and are not too long for a message, else in words."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from topo.wire.codec import MAX_ELEMENTS, Codec, join_packed

MAX_VALUES = 15 << 20
"""Bytes of values in a dead letter; a message to the master may not be much longer."""
MAX_WORDS = 10_000
"""Characters that it has of others."""


def pack_or_say(codec: Codec, value: Any) -> bytes:
    """Return a value packed, or its `repr` where it cannot be carried or would not be read. Does not raise."""
    with suppress(Exception):
        packed = codec.pack_value(value)
        if len(packed) > MAX_ELEMENTS:
            # Only such a long one can hold more elements than are accepted.
            codec.unpack_value(packed)
        if len(packed) <= MAX_VALUES:
            return packed
    return codec.pack_value(in_words(value))


def pack_or_say_each(codec: Codec, values: Sequence[Any]) -> bytes:
    """Return the array of what `pack_or_say` gives for each of some values; of short ones all are packed in one call."""
    with suppress(Exception):
        packed = codec.pack_values(values)
        if len(packed) <= MAX_ELEMENTS:
            return packed
    return join_packed(pack_or_say(codec, value) for value in values)


def is_array(packed: bytes) -> bool:
    """Whether a packed value is a sequence. It is not decoded: a decoder of user code may refuse its elements."""
    return packed[0] & 0xF0 == 0x90 or packed[0] in (0xDC, 0xDD)


def in_words(value: Any) -> str:
    """Return the `repr` of a value as text that can be carried. Does not raise."""
    try:
        return repr(value)[:MAX_WORDS].encode(errors="backslashreplace").decode()
    except Exception as error:
        return f"({type(error).__name__} in repr)"
