"""Entries of Redis streams as values: positions, decoding, encoding, and which entries were removed before they were read.

Without I/O. A *position* is `(milliseconds, sequence, ordinal)`: the two numbers of an entry's id, and how many entries the
stream had been given when this one was added, itself included. By the ordinal a reader knows whether entries behind its position
were removed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from topo.connectors.record_decoder import DESERIALIZERS, Deserialize, record_fields
from topo.connectors.record_encoder import Serialize
from topo.errors import ConfigError, UnsupportedValueError

EntryPosition = tuple[int, int, int]
StreamEntry = tuple[bytes, Sequence[bytes]]
"""Id, and field, value, field, value, ..."""

METADATA = ("stream", "id", "timestamp")


def id_of(position: EntryPosition) -> str:
    """Return the id of the entry at a position."""
    return f"{position[0]}-{position[1]}"


def numbers_of(entry_id: bytes) -> tuple[int, int]:
    """Return the two numbers of an entry's id, such as b"1526919030474-55"."""
    milliseconds, _, sequence = entry_id.partition(b"-")
    return int(milliseconds), int(sequence)


def positions_of(entries: Sequence[StreamEntry], ordinal: int) -> list[EntryPosition]:
    """Return the positions of entries that follow each other, the first of which has that ordinal."""
    numbers = list(map(int, b"-".join([entry[0] for entry in entries]).split(b"-"))) if entries else []
    return list(zip(numbers[::2], numbers[1::2], range(ordinal, ordinal + len(entries)), strict=True))


class StreamInfo(NamedTuple):
    """The state of a stream: entries that it has, that were ever added, its last id, and the id of its first entry."""

    length: int
    added: int
    last: tuple[int, int]
    first: tuple[int, int] | None

    @property
    def removed(self) -> int:
        """How many entries were removed since the stream was made."""
        return self.added - self.length

    @property
    def beginning(self) -> EntryPosition:
        """The position in front of the first entry."""
        return (0, 0, self.removed)

    @property
    def end(self) -> EntryPosition:
        """The position of the last entry."""
        return (*self.last, self.added)


NO_STREAM = StreamInfo(0, 0, (0, 0), None)
"""Of a stream to which nothing was ever added."""


def info_of(reply: Sequence[Any]) -> StreamInfo:
    """Return the state of a stream from a reply to XINFO STREAM.

    Raises:
        ConfigError: the server is older than Redis 7.0.
    """
    found = dict(zip(reply[::2], reply[1::2], strict=True))
    if b"entries-added" not in found:
        raise ConfigError("the server does not count the entries of a stream: Redis 7.0, Valkey 7.2 or newer is needed")
    first = found[b"first-entry"]
    return StreamInfo(
        found[b"length"],
        found[b"entries-added"],
        numbers_of(found[b"last-generated-id"]),
        None if first is None else numbers_of(first[0]),
    )


def is_replaced(position: EntryPosition, info: StreamInfo) -> bool:
    """Return whether a stream was deleted, and perhaps made again, since the entry of a position was read."""
    milliseconds, sequence, ordinal = position
    if info.last < (milliseconds, sequence) or info.added < ordinal:
        return True
    return not _has(position, info) and info.removed < ordinal


def lost_entries(position: EntryPosition, info: StreamInfo) -> int:
    """Return how many entries were removed that were not read; the stream was not replaced.

    Trimming removes the oldest entries: as long as there is one up to the position, all behind it are there. After that every
    entry up to the position is gone, and others that are gone were not read. Entries that XDEL had taken out before they
    were read count as well.
    """
    return 0 if _has(position, info) else max(0, info.removed - position[2])


def _has(position: EntryPosition, info: StreamInfo) -> bool:
    return info.first is not None and info.first <= position[:2]


# -- decoding ----------------------------------------------------------------------------------------------------------------


class EntryDecoder:
    """Makes the values of a tuple from an entry.

    Args:
        fields: fields of the entry, one for each value; one with "?" at its end may be missing and is None then. None: one value,
            a dict of all.
        metadata: more values: "stream", "id", "timestamp" (milliseconds, of the id).
        decode: decodes a value.

    Attributes:
        outputs: names of the tuple's fields.
    """

    def __init__(self, fields: Sequence[str] | None, metadata: Sequence[str], decode: Deserialize) -> None:
        self.outputs = record_fields(fields, metadata, METADATA)
        names = None if fields is None else [name.encode() for name in fields]
        # Entries of one stream mostly have the same fields in the same order.
        self._whole = names if not metadata else None
        self._fields = None if fields is None else [(name.removesuffix("?").encode(), name.endswith("?")) for name in fields]
        self._metadata = tuple(metadata)
        # The text decoder of Python itself saves a call.
        self._decode: Deserialize = bytes.decode if decode is DESERIALIZERS["text"] else decode

    def values(self, stream: str, entry: StreamEntry) -> tuple[Any, ...]:
        """Return the values of an entry.

        Raises:
            Exception: it cannot be decoded.
        """
        entry_id, flat = entry
        if flat[::2] == self._whole:
            return tuple(map(self._decode, flat[1::2]))
        found = dict(zip(flat[::2], flat[1::2], strict=True))
        decode, values = self._decode, list[Any]()
        if self._fields is None:
            values.append({name.decode(): decode(value) for name, value in found.items()})
        else:
            for name, may_miss in self._fields:
                value = found.get(name)
                if value is None and not may_miss:
                    raise ValueError(f"the entry has no field {name.decode()!r}")
                values.append(None if value is None else decode(value))
        if self._metadata:
            of_entry: dict[str, Any] = {"stream": stream, "id": entry_id.decode(), "timestamp": numbers_of(entry_id)[0]}
            values += [of_entry[name] for name in self._metadata]
        return tuple(values)


def shown_entry(entry: StreamEntry) -> dict[str, bytes]:
    """Return an entry as a dead letter has it: bytes by field."""
    flat = entry[1]
    return {name.decode(errors="backslashreplace"): bytes(value) for name, value in zip(flat[::2], flat[1::2], strict=True)}


# -- encoding ----------------------------------------------------------------------------------------------------------------


class EntryEncoder:
    """Makes an entry, or a hash, from a tuple: field, value, field, value, ...; values that are None are left out.

    Args:
        fields: those of the tuple that are written; None: all.
        serialize: makes bytes of a value.
    """

    def __init__(self, fields: Sequence[str] | None, serialize: Serialize) -> None:
        if isinstance(fields, str) or (fields is not None and (not fields or len(set(fields)) < len(fields))):
            raise ConfigError(f"fields={fields!r}: give a tuple of different names, one at least")
        self._fields = None if fields is None else tuple(fields)
        self._serialize = serialize

    def entry(self, values: Mapping[str, Any]) -> list[bytes]:
        """Return the entry of a tuple's values by field.

        Raises:
            UnsupportedValueError: a value is missing, or cannot be written; it names the field.
        """
        flat: list[bytes] = []
        for name in self._fields or values:
            if name not in values:
                has = ", ".join(map(repr, values))
                raise UnsupportedValueError(f"the tuple has no field {name!r}, which fields= names; it has {has}")
            value = values[name]
            if value is None:
                continue
            try:
                written = self._serialize(value)
            except Exception as error:
                raise UnsupportedValueError(f"field {name!r}: {error}") from error
            if not isinstance(written, bytes):
                raise UnsupportedValueError(f"field {name!r}: value_serializer returned {type(written).__name__}; return bytes")
            flat += (name.encode(), written)
        return flat
