"""Tuples as bytes of a target: which part of a tuple is written, and what encodes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from topo.api.tuples import Tuple
from topo.connectors.json_rows import encode_json, json_line
from topo.errors import ConfigError, UserError

Serialize = Callable[[Any], bytes]
Select = Callable[[Tuple], Any]


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(f"'bytes' takes bytes, no {type(value).__name__}; take 'text' or 'json'")
    return bytes(value)


def _text(value: Any) -> bytes:
    # Numbers are usual as keys; a list or a dict would be written in Python's notation.
    if not isinstance(value, str | int | float):
        other = "bytes" if isinstance(value, bytes | bytearray | memoryview) else "json"
        raise TypeError(f"'text' takes a text or a number, no {type(value).__name__}; take '{other}'")
    return str(value).encode()


SERIALIZERS: Mapping[str, Serialize] = {"bytes": _bytes, "text": _text, "json": encode_json}


def serializer_of(given: str | Serialize, argument: str = "value_serializer") -> Serialize:
    """Return what encodes a value: "bytes" as they are, "text" as UTF-8, "json", or a function of the value.

    Raises:
        ConfigError: it is none of them.
    """
    if callable(given):
        return given
    found = SERIALIZERS.get(given) if isinstance(given, str) else None
    if found is None:
        names = ", ".join(map(repr, SERIALIZERS))
        raise ConfigError(f"{argument}={given!r} must be {names} or a function of the value")
    return found


def selector_of(given: str | Select, argument: str) -> Select:
    """Return what takes a part out of a tuple: a field's name, or a function of the tuple.

    Raises:
        ConfigError: it is neither.
    """
    if callable(given):
        return given
    if not isinstance(given, str) or not given:
        raise ConfigError(f"{argument}={given!r} must be a field's name or a function of the tuple")

    def field_of(tup: Tuple) -> Any:
        if given not in tup:
            fields = ", ".join(map(repr, tup.fields)) or "none"
            raise UserError(f"a tuple from {tup.component!r} has no field {given!r}, which {argument}= names; it has {fields}")
        return tup[given]

    return field_of


def fields_named(*parts: object) -> tuple[str, ...]:
    """Return the different fields among arguments each of which is a field's name, a function of the tuple or None."""
    return tuple(dict.fromkeys(part for part in parts if isinstance(part, str)))


def encoder_of(
    part: str | Select | None,
    serializer: str | Serialize,
    *,
    argument: str = "value",
) -> Callable[[Tuple], bytes | None]:
    """Return what makes the bytes of a tuple. It gives None where the part that is written is None.

    Args:
        part: a field's name or a function of the tuple; None: an object of all fields.
        serializer: see `serializer_of`.
        argument: the name of `part`; that of the serializer ends with _serializer. For messages.

    Raises:
        ConfigError: an argument cannot be used. Exceptions of the encoder are UserErrors that name the tuple's component.
    """
    serialize = serializer_of(serializer, f"{argument}_serializer")
    if part is None and serializer == "json":
        return lambda tup: json_line(tup.as_dict(), tup.component)
    if part is None and isinstance(serializer, str):
        raise ConfigError(
            f"{argument}_serializer={serializer!r} encodes one value and not all fields; name it by {argument}=, or take 'json'"
        )
    select: Select = Tuple.as_dict if part is None else selector_of(part, argument)

    def encode(tup: Tuple) -> bytes | None:
        try:
            value = select(tup)
            data = None if value is None else serialize(value)
        except UserError:
            raise
        except Exception as error:
            raise UserError(f"{argument} of a tuple from {tup.component!r} cannot be encoded: {error}") from error
        if data is not None and type(data) is not bytes:
            raise UserError(f"{argument}_serializer has returned a {type(data).__name__}; it must return bytes")
        return data

    return encode
