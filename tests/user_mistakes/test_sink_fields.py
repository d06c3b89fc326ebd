"""What users expect of the fields that a sink writes, and the answer that they get."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from topo import FilesSink, IterableSpout, SqliteSink, TopologyBuilder, TopologyError

LINE = next(number for number, line in enumerate(Path(__file__).read_text().splitlines(), 1) if line.endswith("# LINE"))


def problems(sink: Any, *, columns: tuple[str, ...] = ("user", "window_start", "clicks")) -> list[str]:
    builder = TopologyBuilder("visits")
    builder.set_spout("visits", IterableSpout([("ann", 0, 3)], fields=columns))
    builder.set_bolt("store", sink).global_grouping("visits")  # LINE
    try:
        builder.build()
    except TopologyError as error:
        return list(error.problems)
    return []


def test_a_column_that_no_tuple_has_is_refused_before_anything_runs() -> None:
    """The user gives a column another name than the field of the bolt before has."""
    (problem,) = problems(SqliteSink("shop.db", "visits", ("user", "start", "clicks")))
    assert problem.startswith("bolt 'store': it needs the field 'start', which stream 'default' of 'visits' does not have; ")


def test_each_field_that_is_missing_is_named() -> None:
    """The user writes the rows of another bolt than he thinks."""
    found = problems(SqliteSink("shop.db", "visits", ("shop", "user", "cents"), key="shop"))
    assert [problem.split(", which")[0] for problem in found] == [
        "bolt 'store': it needs the field 'shop'",
        "bolt 'store': it needs the field 'cents'",
    ]


def test_fields_and_partitions_of_files_are_checked() -> None:
    """The user partitions by a field that an earlier bolt has left out."""
    found = problems(FilesSink("out", format="csv", fields=("user", "clicks"), partition_by="day"))
    assert [problem.split(", which")[0] for problem in found] == ["bolt 'store': it needs the field 'day'"]


def test_columns_of_a_schema_are_checked() -> None:
    """The user's schema has a column that no tuple has."""
    pytest.importorskip("pyarrow")
    found = problems(FilesSink("out", format="parquet", schema={"user": "string", "hits": "bigint"}))
    assert [problem.split(", which")[0] for problem in found] == ["bolt 'store': it needs the field 'hits'"]


def test_columns_of_postgres_are_checked() -> None:
    """The user names a column of the table that no tuple has."""
    pytest.importorskip("psycopg")
    from topo import PostgresSink

    found = problems(PostgresSink("dbname=shop", "visits", ("user", "hits")))
    assert [problem.split(", which")[0] for problem in found] == ["bolt 'store': it needs the field 'hits'"]


def test_a_schema_for_spark_is_checked() -> None:
    """The user's schema has a column that no tuple has."""
    pytest.importorskip("pyarrow")
    from topo.spark import SparkSink

    found = problems(SparkSink("out", schema={"user": "string", "hits": "bigint"}))
    assert [problem.split(", which")[0] for problem in found] == ["bolt 'store': it needs the field 'hits'"]


def kafka(**given: Any) -> Any:
    pytest.importorskip("confluent_kafka")
    from topo import KafkaSink

    return KafkaSink("totals", bootstrap_servers="localhost:9092", **given)


def nats(subject: Any, **given: Any) -> Any:
    pytest.importorskip("nats")
    from topo import NatsSink

    return NatsSink("nats://localhost", subject, stream="TOTALS", **given)


def rabbit(routing_key: Any, **given: Any) -> Any:
    pytest.importorskip("pika")
    from topo import RabbitSink

    return RabbitSink("amqp://localhost", "alerts", routing_key, **given)


def redis_stream(**given: Any) -> Any:
    pytest.importorskip("redis")
    from topo import RedisStreamSink

    return RedisStreamSink("redis://localhost", "totals", **given)


def redis_hash(key: str, **given: Any) -> Any:
    pytest.importorskip("redis")
    from topo import RedisSink

    return RedisSink("redis://localhost", key, **given)


def mqtt(topic: Any, **given: Any) -> Any:
    pytest.importorskip("paho")
    from topo import MqttSink

    return MqttSink("mqtt://localhost", topic, **given)


def http(url: str, **given: Any) -> Any:
    pytest.importorskip("aiohttp")
    from topo import HttpSink

    return HttpSink(url, **given)


@pytest.mark.parametrize(
    ("make", "missing"),
    [
        (lambda: kafka(key="shop"), ["shop"]),
        (
            lambda: kafka(value="n", key="k", headers="h", partition="p", timestamp="ts", value_serializer="text"),
            ["k", "n", "h", "p", "ts"],
        ),
        (lambda: kafka(key="user", value="user"), []),
        (lambda: kafka(key=lambda tup: tup["user"], partition=lambda tup: 0), []),
        (lambda: nats("totals.{shop}", value="cents"), ["shop", "cents"]),
        (lambda: nats(lambda tup: "totals"), []),
        (lambda: rabbit("{shop}.{shop}.{user}", value="cents", id="order"), ["shop", "cents", "order"]),
        (lambda: rabbit("totals"), []),
        (lambda: redis_stream(fields=("user", "cents")), ["cents"]),
        (lambda: redis_stream(), []),
        (lambda: redis_hash("user:{shop}", fields=("user", "cents")), ["shop", "cents"]),
        (lambda: redis_hash("user:{user}"), []),
        (lambda: mqtt("alerts/{machine}", value="heat"), ["machine", "heat"]),
        (lambda: mqtt("alerts/{user}"), []),
        (lambda: http("http://localhost/{shop}", value="cents", id="order", key="user"), ["shop", "cents", "order"]),
        (lambda: http("http://localhost/", id=lambda tup: tup["user"]), []),
    ],
)
def test_fields_of_messages_are_checked(make: Callable[[], Any], missing: list[str]) -> None:
    """The user names fields for the key, the subject, the value and more of a message; some of them no tuple has."""
    found = problems(make())
    assert [problem.split(", which")[0] for problem in found] == [f"bolt 'store': it needs the field {one!r}" for one in missing]
    assert all(problem.endswith(f" (test_sink_fields.py:{LINE})") for problem in found)


@pytest.mark.parametrize("sink", [SqliteSink("shop.db", "visits", ("user", "clicks")), FilesSink("out", partition_by="user")])
def test_fields_that_are_left_out_are_no_mistake(sink: Any) -> None:
    """The user writes some of the fields."""
    assert problems(sink) == []
