"""Records of Kafka as rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from topo.connectors.kafka.records import Bad, DecodedRows, RecordFormat, by_partition, positions
from topo.errors import ConfigError


@dataclass
class Record:
    """A message of the client."""

    at: int
    data: bytes | None
    of: tuple[str, int] = ("orders", 0)
    name: bytes | None = b"k"
    time: tuple[int, int] = (1, 7)
    more: list[tuple[str, bytes]] | None = field(default=None)

    def value(self) -> bytes | None:
        return self.data

    def key(self) -> bytes | None:
        return self.name

    def topic(self) -> str:
        return self.of[0]

    def partition(self) -> int:
        return self.of[1]

    def offset(self) -> int:
        return self.at

    def timestamp(self) -> tuple[int, int]:
        return self.time

    def headers(self) -> list[tuple[str, bytes]] | None:
        return self.more


def format_of(**given: Any) -> RecordFormat:
    settings: dict[str, Any] = {
        "value_deserializer": "json",
        "key_deserializer": "bytes",
        "fields": None,
        "metadata": (),
        "timestamp": "record",
        "on_tombstone": "emit",
    }
    return RecordFormat(**{**settings, **given})


def decoded(records: list[Record], **given: Any) -> list[Any]:
    return list(format_of(**given).decoded(records, [record.value() for record in records]))


def test_values_and_metadata_stand_side_by_side() -> None:
    records = [Record(4, b'{"user": "ann"}', more=[("h", b"v")]), Record(9, b'{"user": "bob"}', name=None)]
    metadata = ("offset", "key", "headers", "topic", "partition", "timestamp")
    (rows,) = decoded(records, fields=("user", "city?"), metadata=metadata, key_deserializer="text")
    first = ("ann", None, 4, "k", [("h", b"v")], "orders", 0, 7)
    assert rows == DecodedRows([first, ("bob", None, 9, None, [], "orders", 0, 7)], [4, 9], [7, 7])
    assert format_of(fields=("user", "city?"), metadata=metadata).outputs == ("user", "city", *metadata)


def test_bytes_are_taken_as_they_are() -> None:
    assert decoded([Record(0, b"\xff"), Record(1, None)], value_deserializer="bytes")[0].values == [(b"\xff",), (None,)]


@pytest.mark.parametrize(
    ("data", "rows"),
    [
        ([b"{", b"1", b"2"], [Bad, [1, 2]]),
        ([b"1", b"{", b"2"], [[1], Bad, [2]]),
        ([b"1", b"2", b"{"], [[1, 2], Bad]),
        ([b"{", b"{"], [Bad, Bad]),
    ],
)
def test_a_bad_record_stands_between_the_rows_around_it(data: list[bytes], rows: list[Any]) -> None:
    found = decoded([Record(at, one) for at, one in enumerate(data)])
    assert [Bad if isinstance(one, Bad) else [offset + 0 for offset in one.offsets] for one in found] == [
        one if one is Bad else [at for at, value in enumerate(data) if value != b"{" and int(value) in one] for one in rows
    ]
    bad = next(one for one in found if isinstance(one, Bad))
    assert bad.record == b"{" and bad.offset == data.index(b"{")


def test_a_key_that_cannot_be_decoded_is_a_bad_record_with_its_value() -> None:
    (bad,) = decoded([Record(3, b"1", name=b"\xff")], metadata=("key",), key_deserializer="text")
    assert isinstance(bad, Bad) and bad.record == b"1"


def test_a_tombstone_is_a_row_of_none_or_no_row() -> None:
    records = [Record(0, b'{"a": 1, "b": 2}'), Record(1, None), Record(2, b'{"a": 3, "b": 4}')]
    (rows,) = decoded(records, fields=("a", "b"), metadata=("offset",))
    assert rows.values == [(1, 2, 0), (None, None, 1), (3, 4, 2)]
    (rows,) = decoded(records, fields=("a", "b"), metadata=("offset",), on_tombstone="drop")
    assert rows.values == [(1, 2, 0), (3, 4, 2)] and rows.offsets == [0, 2]
    assert decoded([Record(0, None)], on_tombstone="drop") == []


def test_event_time_is_that_of_the_record_or_of_a_field_or_none() -> None:
    records = [Record(0, b'{"at": 5}', time=(1, 70)), Record(1, b'{"at": 6}', time=(2, 80))]
    assert decoded(records)[0].timestamps == [70, 80]
    assert decoded(records, fields=("at",), timestamp="at")[0].timestamps == [5, 6]
    assert decoded(records, timestamp=None)[0].timestamps is None
    (bad,) = decoded([Record(0, b'{"at": "x"}')], fields=("at",), timestamp="at")
    assert isinstance(bad, Bad) and "must be an int" in str(bad.error)
    (row, bad) = decoded([Record(0, b'{"at": -5}'), Record(1, b'{"at": 9223372036854775808}')], fields=("at",), timestamp="at")
    assert row.timestamps == [-5] and isinstance(bad, Bad) and "64 bits" in str(bad.error)


def test_a_tombstone_is_a_row_without_event_time_where_a_field_has_it() -> None:
    records = [Record(0, b'{"at": 5}'), Record(1, None), Record(2, b'{"at": null}')]
    first, second, bad = decoded(records, fields=("at",), metadata=("key",), timestamp="at")
    assert first == DecodedRows([(5, b"k")], [0], [5]) and second == DecodedRows([(None, b"k")], [1], None)
    assert isinstance(bad, Bad) and bad.offset == 2
    assert decoded(records[1:2], metadata=("offset",), timestamp="offset")[0].timestamps == [1]


def test_records_without_a_time_are_rows_without_one() -> None:
    found = decoded([Record(0, b"1"), Record(1, b"2", time=(0, -1))])
    assert [(rows.offsets, rows.timestamps) for rows in found] == [([0], [7]), ([1], None)]


def test_records_are_divided_by_topic_and_partition_in_their_order() -> None:
    places = [("a", 0), ("b", 0), ("a", 0), ("a", 1)]
    records = [Record(at, str(at).encode(), of=of) for at, of in enumerate(places)]
    found = {key: [record.at for record in own] for key, own, _ in by_partition(records, [one.value() for one in records], None)}
    assert found == {("a", 0): [0, 2], ("b", 0): [1], ("a", 1): [3]}
    for topic in (None, "a"):
        assert [key for key, _, _ in by_partition(records[:1], [b"0"], topic)] == [("a", 0)]


def test_positions_have_era_and_offset() -> None:
    assert positions("000000.id", [4, 9]) == [("000000.id", 4), ("000000.id", 9)]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"metadata": ("age",)}, "metadata has 'age'"),
        ({"timestamp": "at"}, "timestamp='at' must be"),
        ({"on_tombstone": "skip"}, "on_tombstone='skip'"),
        ({"key_deserializer": "avro"}, "key_deserializer='avro'"),
        ({"fields": ("key",), "metadata": ("key",)}, "more than once"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        format_of(**given)
