"""Tuples as records for Kafka, and the limits of a topic that a record must keep. Values, without a client.

A record is a tuple `(topic, value, key, partition, timestamp, headers)`: partition -1 lets the client choose by the key, and
timestamp 0 is the time of sending. The client's `produce` is given them by position: to find arguments by their names doubles
the cost of a call. Its fifth and sixth are two names of the function that takes the error of a delivery; the fifth counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any, NamedTuple

from topo.api.time_units import SuspiciousTimestamps, suspicion
from topo.api.tuples import Tuple
from topo.connectors.kafka.schemas import RegistryEncoder, RegistryFormat, check_named
from topo.connectors.kafka.topic_names import check_topic
from topo.connectors.record_encoder import Select, Serialize, encoder_of, selector_of
from topo.errors import ConfigError, UserError

Header = tuple[str, bytes | None]
OutgoingRecord = tuple[str, bytes | None, bytes | None, int, int, list[Header] | None]
Encode = Callable[[Tuple], bytes | None]
BY_KEY = -1
_TOPIC_FIXES = {"{": "give a function for a topic of each tuple, as lambda tup: 'totals-' + tup['shop']"}
_HEADER = re.compile("[^\0\ud800-\udfff]*")
OVERHEAD = 128
"""More than what a batch with one record adds to its bytes."""


class TopicLimits(NamedTuple):
    """What a topic takes.

    Attributes:
        partitions: how many it has.
        most_bytes: of a batch of records, `max.message.bytes`.
        is_compacted: whether a record needs a key.
        past_ms, future_ms: how far the time of a record may be from the broker's clock; infinite where it does not look.
        kept_ms: how long a record stays, by its own time; infinite where that does not count.
    """

    partitions: int
    most_bytes: int
    is_compacted: bool
    past_ms: float = inf
    future_ms: float = inf
    kept_ms: float = inf

    def check(self, record: OutgoingRecord, size: int, batch_bytes: int, now_ms: float = 0.0) -> None:
        """Check that the broker takes a record. In a transaction a refusal would give up all of its records.

        Args:
            record: the record.
            size: its bytes.
            batch_bytes: of the largest batch that the client makes of several records.
            now_ms: milliseconds since 1970.

        Raises:
            UserError: it does not.
        """
        topic, _, key, partition, timestamp, _ = record
        if size > min(self.most_bytes, batch_bytes):
            settings = {"its max.message.bytes": self.most_bytes, "message.max.bytes of config=": batch_bytes}
            setting = " and ".join(name for name, most in settings.items() if size > most)
            raise UserError(
                f"a record of {size} bytes is too large for topic {topic!r}, which takes {min(self.most_bytes, batch_bytes)}: "
                f"raise {setting}, or emit less"
            )
        if self.most_bytes < batch_bytes:
            raise UserError(
                f"topic {topic!r} takes batches of {self.most_bytes} bytes, and the client makes them of up to {batch_bytes}: "
                f"set config={{'message.max.bytes': {self.most_bytes}}} or less, or raise max.message.bytes of the topic"
            )
        if partition >= self.partitions:
            raise UserError(f"topic {topic!r} has no partition {partition}; it has {self.partitions}, from 0")
        if self.is_compacted and key is None:
            raise UserError(f"topic {topic!r} is compacted and takes no record without a key; name one by key=, not None")
        if timestamp:
            self._check_time(topic, timestamp - now_ms)

    def short_life(self, topic: str, timestamp: int, now_ms: float) -> str:
        """Return why a record will be removed at once; "": it will not be, or its time is in another unit."""
        age_ms = now_ms - timestamp
        if age_ms <= self.kept_ms or suspicion(timestamp) is not None:
            return ""
        return (
            f"a record of {age_ms / 3_600_000:.1f} hours ago was written to topic {topic!r}, which removes records "
            f"{self.kept_ms / 3_600_000:.1f} hours behind their time: it may be gone within minutes; raise retention.ms of the "
            "topic, or give timestamp=None for the time of sending"
        )

    def _check_time(self, topic: str, ahead_ms: float) -> None:
        if -self.past_ms < ahead_ms < self.future_ms:
            return
        side, setting = ("ahead", "after") if ahead_ms > 0 else ("ago", "before")
        raise UserError(
            f"a record of {abs(ahead_ms) / 3_600_000:.1f} hours {side} is not taken by topic {topic!r}: raise its "
            f"message.timestamp.{setting}.max.ms, or give timestamp=None for the time of sending"
        )


class RecordMaker:
    """Makes records of tuples.

    Args:
        topic: a name, or a function of the tuple.
        key, value, headers, partition: a field's name or a function of the tuple; None: no key, an object of all fields, no
            headers, the partition by key.
        timestamp: "tuple": the tuple's own; a field's name or a function, milliseconds since 1970; None: the time of sending.
        value_serializer, key_serializer: "bytes", "text", "json", a function of the value, or a format of a registry.

    Attributes:
        encoders: of a registry, to be opened before a record is made.
        names_partitions: whether records may name their partition.

    Raises:
        ConfigError: an argument cannot be used.
    """

    def __init__(
        self,
        topic: str | Callable[[Tuple], str],
        *,
        key: str | Select | None,
        value: str | Select | None,
        headers: str | Select | None,
        partition: str | Select | None,
        timestamp: str | Select | None,
        value_serializer: str | Serialize | RegistryFormat,
        key_serializer: str | Serialize | RegistryFormat,
    ) -> None:
        if isinstance(topic, str):
            check_topic(topic, "topic", _TOPIC_FIXES)
            self._topic_of: Callable[[Tuple], str] | None = None
        elif callable(topic):
            self._topic_of = topic
        else:
            raise ConfigError(f"topic={topic!r} must be a name or a function of the tuple")
        self._topic = topic if isinstance(topic, str) else ""
        self.encoders: list[RegistryEncoder] = []
        value_serializer = self._serializer(value_serializer, "value")
        key_serializer = self._serializer(key_serializer, "key")
        self._value = _quick(value, value_serializer, encoder_of(value, value_serializer))
        # Checked without a key, too: it is a mistake that would show with the first key.
        encode_key = encoder_of("key" if key is None else key, key_serializer, argument="key")
        self._key = None if key is None else _quick(key, key_serializer, encode_key)
        self._headers = None if headers is None else selector_of(headers, "headers")
        self._partition = None if partition is None else selector_of(partition, "partition")
        self.names_partitions = partition is not None
        self._is_plain = self._headers is None and self._partition is None and self._topic_of is None
        self._report_unit: Callable[[Exception], object] | None = None
        self._is_stamped = timestamp == "tuple"
        self._time: Select = _no_time if timestamp is None or self._is_stamped else selector_of(timestamp, "timestamp")

    def _serializer(self, given: str | Serialize | RegistryFormat, part: str) -> str | Serialize:
        if not isinstance(given, RegistryFormat):
            check_named(given, f"{part}_serializer")
            return given
        self.encoders.append(encoder := given.encoder(self._topic or None, part))
        return encoder

    def report_units_to(self, report: Callable[[Exception], object]) -> None:
        """Have the first timestamp reported if it looks like another unit than milliseconds."""
        self._report_unit = report

    def record(self, tup: Tuple) -> tuple[OutgoingRecord, int]:
        """Return the record of a tuple, and its size.

        Raises:
            UserError: the tuple has none; it names the field or the argument.
        """
        value = self._value(tup)
        size = OVERHEAD if value is None else OVERHEAD + len(value)
        key, partition, headers = None, BY_KEY, None
        if self._key is not None:
            key = self._key(tup)
            if key is not None:
                size += len(key)
        timestamp = tup.timestamp if self._is_stamped else self._time(tup)
        moment = 0 if timestamp is None else _moment(timestamp, tup)
        if moment and self._report_unit is not None:
            report, self._report_unit = self._report_unit, None
            if (why := suspicion(moment)) is not None:
                what = f"a record of a tuple from {tup.component!r} has a timestamp in another unit"
                report(SuspiciousTimestamps(f"{what}: {why}"))
        if not self._is_plain:
            if self._headers is not None:
                headers = headers_of(self._headers(tup), tup.component)
                size += sum(len(name.encode()) + len(data or b"") + 10 for name, data in headers)
            if self._partition is not None:
                partition = _partition(self._partition(tup), tup.component)
            if self._topic_of is not None:
                return (self._named_topic(self._topic_of, tup), value, key, partition, moment, headers), size
        return (self._topic, value, key, partition, moment, headers), size

    def _named_topic(self, topic_of: Callable[[Tuple], str], tup: Tuple) -> str:
        try:
            topic = topic_of(tup)
        except Exception as error:
            raise UserError(f"topic= has raised for a tuple from {tup.component!r}: {type(error).__name__}: {error}") from error
        if not isinstance(topic, str) or not topic:
            raise UserError(f"topic= has returned {topic!r} for a tuple from {tup.component!r}; it must return a name")
        return topic


def _quick(part: str | Select | None, serializer: str | Serialize, encode: Encode) -> Encode:
    """Return `encode`, with a short way for a field that is bytes or a text; all else, faults included, is left to it."""
    if not isinstance(part, str) or serializer not in ("bytes", "text"):
        return encode
    is_text = serializer == "text"
    kind: Any = str if is_text else bytes

    def quick(tup: Tuple) -> Any:
        try:
            value = tup.values[tup.origin.index[part]]
            if type(value) is kind:
                return value.encode() if is_text else value
        except Exception:
            pass
        return encode(tup)

    return quick


def _no_time(_tup: Tuple) -> None:
    return None


def headers_of(given: Any, component: str) -> list[Header]:
    """Return headers: a mapping or pairs of names, and texts, bytes or None.

    Raises:
        UserError: they are something else.
    """
    if given is None:
        return []
    pairs = list(given.items()) if isinstance(given, Mapping) else given
    if not isinstance(pairs, Sequence) or isinstance(pairs, str | bytes):
        raise UserError(f"headers of a tuple from {component!r} are of type {type(given).__name__}; give a mapping, or pairs")
    found: list[Header] = []
    for pair in pairs:
        if not isinstance(pair, Sequence) or isinstance(pair, str | bytes) or len(pair) != 2 or not isinstance(pair[0], str):
            raise UserError(f"headers of a tuple from {component!r} have {pair!r}; give pairs of a name and a value")
        name, value = pair
        # The client ends the process at a surrogate, and the name at a character 0.
        if not _HEADER.fullmatch(name):
            raise UserError(f"header {name!r} of a tuple from {component!r} is no name; give Unicode without the character 0")
        if isinstance(value, str):
            value = value.encode()
        if value is not None and not isinstance(value, bytes):
            raise UserError(
                f"header {name!r} of a tuple from {component!r} is of type {type(value).__name__}; it must be text, bytes or None"
            )
        found.append((name, value))
    return found


def _partition(value: Any, component: str) -> int:
    if value is None:
        return BY_KEY
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise UserError(f"partition= gives {value!r} for a tuple from {component!r}; it must be an integer from 0, or None")
    return value


def _moment(value: Any, tup: Tuple) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        raise UserError(
            f"the timestamp of a tuple from {tup.component!r} is {value!r}; Kafka has milliseconds since 1970, or take "
            "timestamp=None"
        )
    # The client would take 0 for the time of sending.
    return value or 1
