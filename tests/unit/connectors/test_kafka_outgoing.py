"""Tuples as records of Kafka, the limits of topics, and the arithmetic of markers: plain values, without a client."""

from __future__ import annotations

import re
from collections.abc import Callable
from math import inf
from typing import Any

import pytest

from tests.unit.connectors.drive import tracked
from topo.api.tuples import Origin
from topo.connectors.kafka.marker import CommitMarker, check_reopened, has_published
from topo.connectors.kafka.outgoing import OVERHEAD, OutgoingRecord, RecordMaker, TopicLimits
from topo.emission.collectors import TrackedTuple
from topo.errors import ConfigError, TopoEnvironmentError, UserError


def maker(topic: Any = "orders", **options: Any) -> RecordMaker:
    given: dict[str, Any] = dict.fromkeys(("key", "value", "headers", "partition"))
    return RecordMaker(topic, **{**given, "timestamp": "tuple", "value_serializer": "json", "key_serializer": "text", **options})


def record(tup: TrackedTuple, **options: Any) -> OutgoingRecord:
    return maker(**options).record(tup)[0]


def at(timestamp: int, **values: Any) -> TrackedTuple:
    return TrackedTuple.made(tuple(values.values()), Origin("source", 9, fields=tuple(values)), timestamp, 1, (77,), (78,))


def test_a_record_has_all_fields_and_nothing_else_unless_it_is_asked_for() -> None:
    assert record(tracked(user="u", cents=5)) == ("orders", b'{"user":"u","cents":5}', None, -1, 0, None)


def test_each_part_is_a_field_or_a_function_of_the_tuple() -> None:
    tup = at(1700, user="u", cents=5, more={"trace": "t", "raw": b"\x00", "none": None}, text="x")
    assert record(tup, key="user", value="text", value_serializer="text", headers="more", partition="cents") == (
        "orders",
        b"x",
        b"u",
        5,
        1700,
        [("trace", b"t"), ("raw", b"\x00"), ("none", None)],
    )
    chosen = record(
        tup,
        topic=lambda tup: f"orders-{tup['user']}",
        key=lambda tup: tup["cents"],
        value=lambda tup: None,
        headers=lambda tup: [("a", "b")],
        partition=lambda tup: None,
        timestamp=lambda tup: 12,
    )
    assert chosen == ("orders-u", None, b"5", -1, 12, [("a", b"b")])


def test_the_size_counts_all_parts() -> None:
    _, size = maker(key="k", value="v", value_serializer="bytes", headers="h").record(tracked(k="ab", v=b"123", h={"n": "12"}))
    assert size == OVERHEAD + 2 + 3 + 1 + 2 + 10
    _, size = maker(value="v", value_serializer="bytes", headers="h").record(tracked(v=b"123", h={"\N{SNOWMAN}": None}))
    assert size == OVERHEAD + 3 + 3 + 10


@pytest.mark.parametrize(
    ("given", "written"), [("tuple", 1700), (None, 0), ("at", 5), ("zero", 1)], ids=["own", "none", "field", "a time of 0"]
)
def test_the_time_is_the_tuples_own_or_that_of_a_field_or_of_sending(given: str | None, written: int) -> None:
    # The client takes 0 for the time of sending, so 1970 begins a millisecond later.
    assert record(at(1700, at=5, zero=0), timestamp=given)[4] == written


@pytest.mark.parametrize(
    ("timestamp", "at", "text"),
    [
        ("tuple", 1_700_000_000, r"1700000000 looks like seconds \(2023-11-14 22:13\).*: multiply by 1000"),
        ("at", 1_700_000_000, "looks like seconds"),
        ("at", 1_700_000_000_000_000, "looks like microseconds.*: divide by 1000"),
        ("at", 1_700_000_000_000, None),
        ("at", 0, None),
        (None, 1_700_000_000, None),
    ],
)
def test_a_time_in_another_unit_is_reported_once_and_written(timestamp: str | None, at: int, text: str | None) -> None:
    """The records of a sink whose field has seconds are of 1970, which no reader by time finds, and retention removes."""
    reported: list[Exception] = []
    records = maker(timestamp=timestamp)
    records.report_units_to(reported.append)
    stamped = TrackedTuple.made((at,), Origin("source", 9, fields=("at",)), at, 1, (77,), (78,))
    for _ in range(2):
        written = records.record(stamped)[0][4]
        assert written == (0 if timestamp is None else max(1, at))
    if text is None:
        assert not reported
        return
    (error,) = reported
    assert re.search(f"^a record of a tuple from 'source' has a timestamp in another unit: .*{text}", str(error))


@pytest.mark.parametrize(
    ("tup", "options", "fault"),
    [
        (tracked(n=1), {"key": "user"}, "has no field 'user', which key= names"),
        (tracked(n=1), {"partition": "n", "value": "n", "timestamp": lambda tup: -5}, "timestamp .* is -5; Kafka has"),
        (tracked(n="a"), {"partition": "n"}, "partition= gives 'a'"),
        (tracked(n=-1), {"partition": "n"}, "partition= gives -1"),
        (tracked(n=True), {"partition": "n"}, "partition= gives True"),
        (tracked(n=1), {"headers": "n"}, "headers .* are of type int"),
        (tracked(n=["ab"]), {"headers": "n"}, "give pairs of a name and a value"),
        (tracked(n={"a": 1}), {"headers": "n"}, "header 'a' .* is of type int"),
        (tracked(n={"a\ud800": "x"}), {"headers": "n", "value": lambda tup: 1}, "header 'a.ud800' .* is no name"),
        (tracked(n=1 << 63), {"timestamp": "n"}, "the timestamp of a tuple from 'source' is 9223372036854775808"),
        (tracked(n={"a\0b": "x"}), {"headers": "n"}, "header 'a.x00b' .* is no name"),
        (tracked(n=1), {"topic": lambda tup: None}, "topic= has returned None"),
        (tracked(n=1), {"topic": lambda tup: tup["x"]}, "topic= has raised"),
        (tracked(n=object()), {}, "field 'n' .* has no form in JSON"),
        (tracked(n=1), {"value": "n", "value_serializer": "bytes"}, "value of a tuple .* cannot be encoded"),
    ],
)
def test_a_tuple_that_makes_no_record_is_refused_with_the_reason(tup: TrackedTuple, options: dict[str, Any], fault: str) -> None:
    with pytest.raises(UserError, match=fault):
        record(tup, **options)


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"topic": "a topic"}, "topic='a topic' cannot be a topic"),
        ({"topic": ".."}, "cannot be a topic"),
        ({"topic": "a" * 250}, "cannot be a topic"),
        ({"topic": "totals-{shop}"}, r"at most 249 of them; give a function for a topic of each tuple, as lambda tup: "),
        ({"value_serializer": "avro"}, "value_serializer='avro' needs a registry; give Avro"),
        ({"key_serializer": "protobuf"}, "key_serializer='protobuf' needs a registry; give Protobuf"),
        ({"topic": 3}, "must be a name or a function"),
        ({"value_serializer": "xml"}, "value_serializer='xml' must be"),
        ({"key_serializer": "xml"}, "key_serializer='xml' must be"),
        ({"key": ""}, "key='' must be a field's name"),
        ({"value_serializer": "text"}, "name it by value="),
    ],
)
def test_an_argument_that_cannot_be_used_is_refused_at_once(options: dict[str, Any], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        maker(**options)


LIMITS = TopicLimits(partitions=3, most_bytes=2000, is_compacted=True)


@pytest.mark.parametrize(
    ("limits", "key", "partition", "size", "batch_bytes", "fault"),
    [
        (LIMITS, b"k", 2, 2000, 2000, ""),
        (LIMITS, b"k", 2, 2001, 2000, "which takes 2000: raise its max.message.bytes"),
        (LIMITS, b"k", 2, 1501, 1500, "which takes 1500: raise message.max.bytes of config="),
        (LIMITS, b"k", 2, 2001, 1500, "which takes 1500: raise its max.message.bytes and message.max.bytes of config="),
        (LIMITS, b"k", 2, 100, 3000, "set config={'message.max.bytes': 2000} or less"),
        (LIMITS, b"k", 3, 100, 2000, "has no partition 3; it has 3, from 0"),
        (LIMITS, None, 2, 100, 2000, "is compacted and takes no record without a key; name one by key=, not None"),
    ],
)
def test_a_record_that_its_topic_does_not_take_is_found_before_it_is_sent(
    limits: TopicLimits, key: bytes | None, partition: int, size: int, batch_bytes: int, fault: str
) -> None:
    def check() -> None:
        limits.check(("orders", b"", key, partition, 0, None), size, batch_bytes)

    if not fault:
        check()
        return
    with pytest.raises(UserError) as refused:
        check()
    assert fault in str(refused.value)


@pytest.mark.parametrize(
    ("hours", "fault"), [(-24, ""), (0.5, ""), (1.5, "hours ahead .* message.timestamp.after.max.ms"), (-49, "hours ago")]
)
def test_a_record_of_a_time_that_its_topic_refuses_is_found_before_it_is_sent(hours: float, fault: str) -> None:
    limits = LIMITS._replace(past_ms=48 * 3_600_000, future_ms=3_600_000)
    now = 1_772_000_000_000
    moment = int(now + hours * 3_600_000)

    def check() -> None:
        limits.check(("orders", b"", b"k", 0, moment, None), 100, 2000, now)

    if not fault:
        check()
        return
    with pytest.raises(UserError, match=fault):
        check()


@pytest.mark.parametrize(
    ("days", "kept_days", "reason"),
    [
        (-6.9, 7, ""),
        (1, 7, ""),
        (-365, inf, ""),
        (-365, 7, "a record of 8760.0 hours ago .* 'orders', which removes records 168.0 hours behind their time"),
    ],
)
def test_a_record_that_its_topic_removes_at_once_is_found(days: float, kept_days: float, reason: str) -> None:
    limits, now = LIMITS._replace(kept_ms=kept_days * 86_400_000), 1_772_000_000_000
    found = limits.short_life("orders", int(now + days * 86_400_000), now)
    assert re.search(reason, found) if reason else found == ""


def test_a_time_in_seconds_is_not_taken_for_an_old_one() -> None:
    assert LIMITS._replace(kept_ms=1.0).short_life("orders", 1_772_000_000, 1_772_000_000_000) == ""


# -- markers -----------------------------------------------------------------------------------------------------------------


def is_staged() -> bool:
    return True


def is_removed() -> bool:
    return False


def unasked() -> bool:
    raise AssertionError("the place of staged files is asked without need")


@pytest.mark.parametrize(
    ("marker", "number", "name", "staged", "expected"),
    [
        (CommitMarker(), 0, "a", unasked, False),
        (CommitMarker(4, "d"), 5, "e", unasked, False),
        (CommitMarker(4, "d"), 4, "d", unasked, True),
        (CommitMarker(4, "d"), 3, "c", is_removed, True),
        (CommitMarker(4, "d"), 4, "x", unasked, None),
        (CommitMarker(4, "d"), 3, "c", is_staged, None),
    ],
    ids=["no marker", "next", "last", "earlier", "last of another", "earlier, not published"],
)
def test_a_marker_decides_whether_a_transaction_was_published(
    marker: CommitMarker, number: int, name: str, staged: Callable[[], bool], expected: bool | None
) -> None:
    if expected is not None:
        assert has_published("shop.sink.0", marker, number, name, staged) is expected
        return
    with pytest.raises(TopoEnvironmentError, match="Two topologies must not both be called 'shop'"):
        has_published("shop.sink.0", marker, number, name, staged)


def test_a_reopened_writer_finds_its_own_marker_or_that_of_the_commit_with_an_unknown_end_or_none() -> None:
    check_reopened("shop.sink.0", CommitMarker(4, "d"), CommitMarker(4, "d"), 5, "e")
    check_reopened("shop.sink.0", CommitMarker(4, "d"), CommitMarker(5, "e"), 5, "e")
    # Brokers drop a marker with its topic.
    check_reopened("shop.sink.0", CommitMarker(4, "d"), CommitMarker(), 5, "e")
    for found in (CommitMarker(5, "x"), CommitMarker(6, "f"), CommitMarker(3, "c")):
        with pytest.raises(TopoEnvironmentError, match="another process has published"):
            check_reopened("shop.sink.0", CommitMarker(4, "d"), found, 5, "e")
