"""Records of Kafka as rows: values, columns beside them, timestamps. A record is any object with the methods of `KafkaRecord`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from operator import methodcaller
from typing import Any, Literal, NamedTuple, Protocol

from topo.connectors.kafka.schemas import RegistryDecoder, RegistryFormat, SchemaNeeded, deserializer_of_format
from topo.connectors.record_decoder import Deserialize, decoder_of, deserializer_of, record_fields
from topo.errors import ConfigError

METADATA = ("key", "topic", "partition", "offset", "timestamp", "headers")
"""What can be appended to a row."""


class KafkaRecord(Protocol):
    """The methods of the client's messages that are used."""

    def value(self) -> bytes | None: ...
    def key(self) -> bytes | None: ...
    def topic(self) -> str: ...
    def partition(self) -> int: ...
    def offset(self) -> int: ...
    def timestamp(self) -> tuple[int, int]: ...
    def headers(self) -> list[tuple[str, bytes]] | None: ...


class DecodedRows(NamedTuple):
    """Rows with their offsets, and event times in milliseconds where they have any."""

    values: list[tuple[Any, ...]]
    offsets: list[int]
    timestamps: list[int] | None


class Bad(NamedTuple):
    """A record that cannot be decoded."""

    offset: int
    record: bytes | None
    error: Exception


class SchemaMissing(NamedTuple):
    """A record whose schema is not known yet: it and those behind it are to be given again."""

    offset: int
    needed: SchemaNeeded


Decoded = DecodedRows | Bad | SchemaMissing


class RecordFormat:
    """Makes rows of records.

    Args:
        value_deserializer, key_deserializer: "bytes", "text", "json", a function of bytes, or a format of a registry.
        fields: keys of the decoded value; None: the one field `value`.
        metadata: names of METADATA.
        timestamp: "record": the record's own; the name of a field, with milliseconds since 1970; None: rows have no event time.
        on_tombstone: "emit": a record without a value is a row of None; "drop": it is none.

    Attributes:
        outputs: the fields of a row.

    Raises:
        ConfigError: an argument cannot be used.
    """

    def __init__(
        self,
        value_deserializer: str | Deserialize | RegistryFormat,
        key_deserializer: str | Deserialize | RegistryFormat,
        fields: Sequence[str] | None,
        metadata: Sequence[str],
        timestamp: str | None,
        on_tombstone: Literal["emit", "drop"],
    ) -> None:
        self.outputs = record_fields(fields, metadata, METADATA)
        if on_tombstone not in ("emit", "drop"):
            raise ConfigError(f"on_tombstone={on_tombstone!r} must be 'emit' or 'drop'")
        value_deserializer = deserializer_of_format(value_deserializer, "value_deserializer")
        key_deserializer = deserializer_of_format(key_deserializer, "key_deserializer")
        self._decoders = [one for one in (value_deserializer, key_deserializer) if isinstance(one, RegistryDecoder)]
        self._decode = decoder_of(value_deserializer, fields)
        # The values are the rows: nothing is to be called for each.
        self._is_raw = value_deserializer == "bytes" and fields is None
        width = len(self.outputs) - len(metadata)
        self._tombstone = None if on_tombstone == "drop" else (None,) * width
        self._columns = [_COLUMNS[name] for name in metadata]
        decode_key = deserializer_of(key_deserializer, "key_deserializer")
        if "key" in metadata and key_deserializer != "bytes":
            self._columns[list(metadata).index("key")] = lambda message: _key_of(message, decode_key)
        self._is_stamped = timestamp == "record"
        self._time_field = None
        if timestamp is not None and not self._is_stamped:
            if timestamp not in self.outputs:
                raise ConfigError(
                    f"timestamp={timestamp!r} must be 'record', None, or a field: {', '.join(map(repr, self.outputs))}"
                )
            self._time_field = self.outputs.index(timestamp)

    def close(self) -> None:
        """Close the connections to a registry."""
        for decoder in self._decoders:
            decoder.close()

    def decoded(self, messages: Sequence[KafkaRecord], values: Sequence[bytes | None]) -> Iterator[Decoded]:
        """Yield the rows of records of one partition, and bad records, in their order; up to one whose schema is not known.

        Args:
            messages: the records.
            values: of each.
        """
        has_tombstones = None in values
        try:
            # All at once: a record that cannot be decoded is rare.
            if has_tombstones and self._tombstone is None:
                messages = [message for message, value in zip(messages, values, strict=True) if value is not None]
                values = [value for value in values if value is not None]
            yield from self._rows(messages, values)
        except Exception:
            yield from self._singly(messages, values)

    def _rows(self, messages: Sequence[KafkaRecord], values: Sequence[bytes | None]) -> list[DecodedRows]:
        if not messages:
            return []
        decode, tombstone = self._decode, self._tombstone
        rows: list[tuple[Any, ...]]
        if self._is_raw:
            rows = list(zip(values, strict=True))
        elif None in values:
            assert tombstone is not None
            rows = [tombstone if value is None else decode(value) for value in values]
        else:
            rows = list(map(decode, values))  # type: ignore[arg-type]
        if self._columns:
            beside = zip(*[map(column, messages) for column in self._columns], strict=True)
            rows = [row + more for row, more in zip(rows, beside, strict=True)]
        offsets = list(map(_offset, messages))
        stamps: list[int | None]
        if self._is_stamped:
            kinds, times = zip(*map(_timestamp, messages), strict=True)
            if all(kinds) and min(times) >= 0:
                return [DecodedRows(rows, offsets, list(times))]
            stamps = list(map(_time_or_none, messages))
        elif self._time_field is None:
            return [DecodedRows(rows, offsets, None)]
        else:
            place = self._time_field
            stamps = [_checked_time(row[place], value) for row, value in zip(rows, values, strict=True)]
            if None not in stamps:
                return [DecodedRows(rows, offsets, stamps)]  # type: ignore[arg-type]
        # Records of very old producers have no time, nor have tombstones where a field has it.
        return [
            DecodedRows([row], [offset], None if stamp is None else [stamp])
            for row, offset, stamp in zip(rows, offsets, stamps, strict=True)
        ]

    def _singly(self, messages: Sequence[KafkaRecord], values: Sequence[bytes | None]) -> Iterator[Decoded]:
        """Yield the same, with runs of rows between the bad records."""
        begin = 0
        for place, message in enumerate(messages):
            try:
                self._rows([message], [values[place]])
            except SchemaNeeded as needed:
                yield from self._rows(messages[begin:place], values[begin:place])
                yield SchemaMissing(message.offset(), needed)
                return
            except Exception as error:
                yield from self._rows(messages[begin:place], values[begin:place])
                yield Bad(message.offset(), values[place], error)
                begin = place + 1
        yield from self._rows(messages[begin:], values[begin:])


def _key_of(message: KafkaRecord, decode: Deserialize) -> Any:
    key = message.key()
    return None if key is None else decode(key)


def _time_or_none(message: KafkaRecord) -> int | None:
    kind, milliseconds = message.timestamp()
    return milliseconds if kind and milliseconds >= 0 else None


def _headers(message: KafkaRecord) -> list[tuple[str, Any]]:
    return list(message.headers() or ())


def _checked_time(given: Any, value: bytes | None) -> int | None:
    if given is None and value is None:
        return None
    if type(given) is not int or not -(1 << 63) < given < 1 << 63:
        raise ValueError(f"the event time is {given!r}; it must be an int of 64 bits, milliseconds since 1970")
    return given


_offset, _timestamp = methodcaller("offset"), methodcaller("timestamp")
_COLUMNS: dict[str, Callable[[Any], Any]] = {
    "key": methodcaller("key"),
    "topic": methodcaller("topic"),
    "partition": methodcaller("partition"),
    "offset": _offset,
    "timestamp": _time_or_none,
    "headers": _headers,
}


def by_partition(
    messages: Sequence[KafkaRecord], values: Sequence[bytes | None], topic: str | None
) -> list[tuple[tuple[str, int], Sequence[KafkaRecord], Sequence[bytes | None]]]:
    """Return the records of one call of the client by topic and partition, each in its order.

    Args:
        messages: the records, at least one.
        values: of each.
        topic: of all of them; None: that is not known.
    """
    numbers = list(map(_number, messages))
    topics = repeat(topic, len(numbers)) if topic is not None else list(map(_topic, messages))
    if numbers.count(numbers[0]) == len(numbers) and (topic is not None or len(set(topics)) == 1):
        return [((topic or messages[0].topic(), numbers[0]), messages, values)]
    keys = zip(topics, numbers, strict=True)
    found: dict[tuple[str, int], tuple[list[KafkaRecord], list[bytes | None]]] = {}
    for key, message, value in zip(keys, messages, values, strict=True):
        of_key = found.get(key)
        if of_key is None:
            of_key = found[key] = ([], [])
        of_key[0].append(message)
        of_key[1].append(value)
    return [(key, *of_key) for key, of_key in found.items()]


_topic, _number = methodcaller("topic"), methodcaller("partition")


def positions(era: str, offsets: Sequence[int]) -> list[tuple[str, int]]:
    """Return the positions of rows."""
    return list(zip(repeat(era), offsets, strict=False))
