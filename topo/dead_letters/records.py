"""Dead letters as rows of JSON. Values that JSON cannot represent become a placeholder: a dead letter that fails to encode would
be resent forever.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from math import isfinite
from typing import Any

import msgspec

from topo.dead_letters.registry import REMEMBERED, DeadLetters
from topo.wire.codec import Codec
from topo.wire.control import DeadLetter, LetterToReplay


def letter_row(dead_letter: DeadLetter, component: str, codec: Codec, at_ms: int, shown: Callable[[str], str] = str) -> bytes:
    """Return the row of a dead letter, for any values.

    Args:
        component: of the task that has given it up.
        codec: knows the types of the topology.
        at_ms: the time, by the wall clock.
        shown: translates a text about the user's code.
    """
    cause = None if dead_letter.cause is None else msgspec.structs.asdict(dead_letter.cause)
    if cause is not None:
        cause = {name: shown(text) if isinstance(text, str) else text for name, text in cause.items()}
    row = {
        "at_ms": json.dumps(at_ms),
        "component": json.dumps(component),
        "task": json.dumps(dead_letter.task),
        "message": _shown(dead_letter.position, codec),
        "values": _shown(dead_letter.values, codec),
        "identity": json.dumps(f"{dead_letter.identity:016x}" if dead_letter.identity else None),
        "attempts": json.dumps(dead_letter.attempts),
        "errors": json.dumps([shown(error) for error in dead_letter.errors]),
        "cause": json.dumps(cause),
        **_replay_columns(dead_letter),
    }
    return "{{{}}}".format(", ".join(f'"{name}": {text}' for name, text in row.items())).encode()


def letter_to_replay(number: int, row: Mapping[str, Any]) -> LetterToReplay | str:
    """Return a dead letter as it is emitted again, or why it cannot be.

    Args:
        number: of its row, from 1.
        row: as it is stored.
    """
    if "packed" not in row:
        return str(row.get("fixed") or "an earlier release stored it, without its packed values")
    return LetterToReplay(number, row["stream"], row["stamp"], b64decode(row["packed"]))


def _replay_columns(dead_letter: DeadLetter) -> dict[str, str]:
    if dead_letter.fixed or not dead_letter.stream:
        return {"fixed": json.dumps(dead_letter.fixed or "with delivery=exactly_once a checkpoint has passed it")}
    return {
        "stream": json.dumps(dead_letter.stream),
        "stamp": json.dumps(dead_letter.stamp),
        "packed": json.dumps(b64encode(dead_letter.values).decode()),
    }


def known_letters(rows: Iterable[Mapping[str, Any]]) -> DeadLetters:
    """Return the registry of the dead letters on disk, for a new master."""
    count = 0
    identities: deque[int] = deque(maxlen=REMEMBERED)
    for row in rows:
        count += 1
        # Not all dead letters have an identity.
        with suppress(KeyError, TypeError, ValueError):
            identities.append(int(row["identity"], 16))
    return DeadLetters(count, identities)


def _shown(packed: bytes, codec: Codec) -> str:
    """Return a packed value as JSON. Does not raise."""
    try:
        value = codec.unpack_value(packed)
    except Exception as error:
        return json.dumps(f"cannot be shown: {len(packed)} bytes ({error})")
    for shape in (lambda: value, lambda: _with_texts(value), lambda: repr(value)):
        with suppress(Exception):
            return json.dumps(shape(), default=repr, allow_nan=False)
    return json.dumps(f"cannot be shown: {len(packed)} bytes")


def _with_texts(value: Any) -> Any:
    """Put texts in place of keys, and of numbers that are not finite, which JSON does not have."""
    if isinstance(value, Mapping):
        return {_as_key(key): _with_texts(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_with_texts(one) for one in value]
    return repr(value) if isinstance(value, float) and not isfinite(value) else value


def _as_key(key: Any) -> Any:
    return _with_texts(key) if isinstance(key, str | int | float | None) else repr(key)
