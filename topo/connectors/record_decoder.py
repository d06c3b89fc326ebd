"""Records of a source, which are bytes, as tuples: what decodes a value, which keys of it are fields, metadata."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import msgspec

from topo.api.arguments import texts_of
from topo.errors import ConfigError

Decode = Callable[[bytes], tuple[Any, ...]]
Deserialize = Callable[[bytes], Any]


def _text(data: bytes) -> str:
    return data.decode()


DESERIALIZERS: Mapping[str, Deserialize] = {"bytes": bytes, "text": _text, "json": msgspec.json.Decoder().decode}


def deserializer_of(given: str | Deserialize, argument: str = "value_deserializer") -> Deserialize:
    """Return what decodes the bytes of a value: "bytes", "text", which is UTF-8, "json", or a function of bytes.

    Raises:
        ConfigError: it is none of them.
    """
    if callable(given):
        return given
    found = DESERIALIZERS.get(given) if isinstance(given, str) else None
    if found is None:
        names = ", ".join(map(repr, DESERIALIZERS))
        raise ConfigError(f"{argument}={given!r} must be {names} or a function of bytes")
    return found


def decoder_of(deserializer: str | Deserialize, fields: Sequence[str] | None, argument: str = "value_deserializer") -> Decode:
    """Return what makes the values of a tuple of a record: the decoded value, or these keys of it.

    Args:
        deserializer: see `deserializer_of`.
        fields: keys of the decoded record, which is a mapping; with a "?" at the end a key may be missing and gives None.
        argument: the name of the deserializer, for messages.

    Raises:
        ConfigError: an argument cannot be used. An exception of the decoder is the fault of its record.
    """
    deserialize = deserializer_of(deserializer, argument)
    if fields is None:
        return lambda data: (deserialize(data),)
    check_fields(fields)
    if deserializer in ("bytes", "text"):
        raise ConfigError(f"fields={tuple(fields)!r} needs records with keys; give {argument}='json', or leave fields= out")
    keys = [(field.removesuffix("?"), field.endswith("?")) for field in fields]
    known = [key for key, _ in keys]
    needed = [key for key, may_be_missing in keys if not may_be_missing]
    # The second one gives a tuple only for several keys.
    pick = itemgetter(*known) if len(needed) == len(keys) > 1 else None

    def values_of(data: bytes) -> tuple[Any, ...]:
        record = deserialize(data)
        if not isinstance(record, Mapping):
            raise ValueError(f"a {type(record).__name__} where an object with {', '.join(map(repr, known))} is expected")
        if pick is not None:
            try:
                picked: tuple[Any, ...] = pick(record)
            except KeyError:
                pass
            else:
                return picked
        missing = [key for key in needed if key not in record]
        if missing:
            raise ValueError(
                f"no {', '.join(map(repr, missing))} in the object, which has {', '.join(map(repr, record)) or 'none'}"
            )
        return tuple([record.get(key) for key in known])

    return values_of


def record_fields(
    fields: Sequence[str] | None, metadata: Sequence[str] = (), known: Sequence[str] = (), value: str = "value"
) -> tuple[str, ...]:
    """Return the fields of the tuples of a source: those of the decoded record, then metadata.

    Args:
        fields: see `decoder_of`; None: the one field `value`.
        metadata: the names that are to be appended.
        known: what this source can append.
        value: the field of a whole record.

    Raises:
        ConfigError: a name is unknown, empty or there twice.
    """
    if isinstance(metadata, str):
        raise ConfigError(f"metadata={metadata!r} must be a tuple of names, such as ({metadata!r},)")
    unknown = [name for name in metadata if name not in known]
    if unknown:
        raise ConfigError(f"metadata has {', '.join(map(repr, unknown))}; there are {', '.join(map(repr, known)) or 'none'}")
    if fields is not None:
        check_fields(fields)
    names = (*((value,) if fields is None else (field.removesuffix("?") for field in fields)), *metadata)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"{', '.join(map(repr, twice))} is in fields= and metadata= more than once; give each name once")
    return names


def check_fields(fields: Sequence[str]) -> None:
    """Raise ConfigError for what cannot be keys of records."""
    if isinstance(fields, str):
        raise ConfigError(f"fields={fields!r} must be a tuple of names, such as ({fields!r},)")
    names = [field.removesuffix("?") for field in texts_of("fields", fields, ("id", "cents"))]
    if not names or "" in names:
        raise ConfigError(f"fields={tuple(fields)!r} must name at least one key, and no empty one")
