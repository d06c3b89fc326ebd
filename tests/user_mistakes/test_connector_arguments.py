"""Arguments of sources and sinks with clients that have a wrong type, or no duration or size: refused where they are given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

import topo
from topo import ConfigError, TwoPhaseSink

GIVEN: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "KafkaSpout": ("confluent_kafka", {"topics": "orders", "bootstrap_servers": "localhost:9092"}),
    "KafkaSink": ("confluent_kafka", {"topic": "orders", "bootstrap_servers": "localhost:9092"}),
    "NatsSpout": ("nats", {"servers": "nats://localhost", "stream": "ORDERS"}),
    "NatsSink": ("nats", {"servers": "nats://localhost", "subject": "orders", "stream": "ORDERS"}),
    "RabbitSpout": ("pika", {"url": "amqp://localhost", "queue": "orders"}),
    "RabbitSink": ("pika", {"url": "amqp://localhost", "exchange": "orders", "routing_key": "new"}),
    "RedisStreamSpout": ("redis", {"url": "redis://localhost", "streams": "orders"}),
    "RedisGroupSpout": ("redis", {"url": "redis://localhost", "stream": "orders", "group": "topo"}),
    "RedisStreamSink": ("redis", {"url": "redis://localhost", "stream": "orders"}),
    "RedisSink": ("redis", {"url": "redis://localhost", "key": "user:{user}"}),
    "MqttSpout": ("paho", {"url": "mqtt://localhost", "topics": "orders"}),
    "MqttSink": ("paho", {"url": "mqtt://localhost", "topic": "orders"}),
    "PostgresSpout": ("psycopg", {"dsn": "dbname=shop", "table": "orders", "columns": ("id",), "key": "id"}),
    "PostgresCdcSpout": ("psycopg", {"dsn": "dbname=shop", "publication": "orders", "slot": "topo"}),
    "PostgresSink": ("psycopg", {"dsn": "dbname=shop", "table": "orders", "columns": ("id",)}),
    "WebhookSpout": ("aiohttp", {"port": 8080}),
    "HttpSink": ("aiohttp", {"url": "http://localhost/"}),
    "SseSpout": ("aiohttp", {"url": "http://localhost/"}),
    "WebSocketSpout": ("aiohttp", {"url": "ws://localhost/"}),
    "TextFileSpout": ("topo", {"path": "words.txt"}),
    "TailSpout": ("topo", {"path": "app.log"}),
    "JsonLinesSink": ("topo", {"path": "orders.jsonl"}),
    "SqliteSink": ("topo", {"path": "shop.db", "table": "orders", "columns": ("id",)}),
    "FilesSpout": ("topo", {"url": "s3://shop/orders"}),
    "FilesSink": ("topo", {"url": "s3://shop/orders"}),
    "DeltaSink": ("deltalake", {"url": "s3://shop/orders"}),
    "FeedSpout": ("pyarrow", {"fields": ("id",)}),
    "SparkSpout": ("pyarrow", {"table": "orders", "fields": ("id",)}),
    "SparkSink": ("pyarrow", {"path": "orders"}),
    "IcebergSink": ("pyiceberg", {"catalog": "shop", "table": "shop.orders"}),
}
SPARK = ("FeedSpout", "SparkSpout", "SparkSink")
WRONG: Mapping[str, tuple[Any, ...]] = {
    "str": (5, ["x"], b"x", True, None),
    "int": ("5", [5], 1.5, True, None),
    "bool": ("no", 2, None),
    "str | timedelta": ("abc", "-5s", 5, -1.5, True, [1], timedelta(-1)),
    "str | timedelta | float": ("abc", "-5s", "0s", 0, -1, True, [1], timedelta(0)),
    "str | int": ("abc", -1, 1.5, [5], None),
    "str | os.PathLike[str]": (5, ["x"], b"x", "", len, True, None),
    "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]": (5, [1], ["a", ""], b"x", "", len, True, None),
    "Sequence[str]": ("x", 5, [1], b"x", True, None),
    "str | Sequence[str]": (5, [1], b"x", True, None),
    "Mapping[str, Any]": (5, "x", ["a"], True),
    "Literal": (5, "abc", ["x"]),
}
"""Values for each annotation, its alternative None left out."""


def wrong_ones(annotation: str) -> tuple[Any, ...]:
    kind = annotation.removesuffix(" | None")
    found = WRONG.get("Literal" if kind.startswith("Literal[") else kind, ())
    return tuple(value for value in found if value is not None or kind == annotation)


def kind_of(name: str) -> Any:
    return getattr(import_module("topo.spark") if name in SPARK else topo, name)


def made(name: str, **changed: Any) -> Any:
    client, given = GIVEN[name]
    pytest.importorskip(client)
    return kind_of(name)(**{**given, **changed})


@pytest.mark.parametrize("name", GIVEN)
def test_each_argument_is_refused_by_name(name: str) -> None:
    """A list for a text, a text for a list or a number, "abc" or a negative number for a duration, and the like."""
    made(name)
    tried = 0
    for argument, parameter in signature(kind_of(name)).parameters.items():
        for wrong in wrong_ones(parameter.annotation):
            with pytest.raises(ConfigError) as caught:
                made(name, **{argument: wrong})
            assert str(caught.value).startswith(f"{name}: {argument}="), (wrong, str(caught.value))
            assert " must be " in str(caught.value)
            tried += 1
    assert tried > 10


@pytest.mark.parametrize(
    ("name", "argument", "given", "message"),
    [
        ("KafkaSink", "flush_interval", "abc", "'abc' must be a duration above zero, such as '10s'"),
        ("NatsSpout", "discovery_interval", 0, "0 (int) must be a duration above zero, such as '10s', or None"),
        ("FilesSpout", "discovery_interval", "0s", "'0s' must be a duration above zero, such as '10s', or None"),
        ("FilesSink", "roll_interval", -1, "-1 (int) must be a duration above zero, such as '10s'"),
        ("HttpSink", "timeout", 1.5, "1.5 (float) must be a duration of 0 or more, such as '10s'"),
        ("RabbitSpout", "prefetch", "100", "'100' must be a whole number, such as 1000"),
        ("PostgresSink", "columns", "user", "'user' must be texts, such as ('user',)"),
        ("NatsSpout", "on_lost", "drop", "'drop' must be 'fail' or 'skip'"),
        ("HttpSink", "retry_on", ["429"], "['429'] (list) must be whole numbers, such as (1, 2)"),
        ("SparkSpout", "fields", "id", "'id' must be texts, such as ('id',), or None"),
        ("SparkSpout", "query", "SELECT 1", "'SELECT 1' must be a function or None"),
        ("DeltaSink", "url", "", "'' must be a text or a pathlib.Path"),
        ("TailSpout", "path", 5, "5 (int) must be a text or a pathlib.Path or several, such as ('a.log', 'b.log')"),
        ("TailSpout", "start", "latest", "'latest' must be 'beginning' or 'end'"),
        ("TailSpout", "rotate_wait", "soon", "'soon' must be a duration of 0 or more, such as '10s'"),
        ("TextFileSpout", "exclude", ".git", "'.git' must be texts, such as ('.git',)"),
        ("TextFileSpout", "max_line", "long", "'long' must be a size, such as '1MiB'"),
        ("JsonLinesSink", "flush_interval", "soon", "'soon' must be a duration above zero, such as '10s'"),
        ("SqliteSink", "columns", [1], "[1] (list) must be a text or texts, such as ('a', 'b')"),
        ("SqliteSink", "table", None, "None (NoneType) must be a text"),
        ("DeltaSink", "schema", "id bigint", "'id bigint' must be a pyarrow.Schema or a dict, or None"),
        ("RabbitSink", "url", ["amqp://me:planted@host"], "['amqp://me:***@host'] (list) must be a text"),
        ("KafkaSpout", "config", [("sasl.password", "planted")], " (a list) must be a dict or None"),
        ("HttpSink", "headers", "Bearer planted", " (a str) must be a dict or None"),
        ("WebhookSpout", "secret", b"planted", " (a bytes) must be a text or None"),
    ],
)
def test_the_message_has_the_fix_and_no_secret(name: str, argument: str, given: Any, message: str) -> None:
    """A message is read by people who did not write topo, and by those who must not know the password."""
    with pytest.raises(ConfigError) as caught:
        made(name, **{argument: given})
    assert str(caught.value) == f"{name}: {argument}={message}"


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("KafkaSink", {"flush_interval": timedelta(seconds=1), "max_batch": 10}),
        ("KafkaSink", {"flush_interval": 0.5}),
        ("NatsSink", {"timeout": timedelta(seconds=1)}),
        ("RabbitSink", {"timeout": timedelta(seconds=1), "heartbeat": timedelta(seconds=10)}),
        ("RedisStreamSpout", {"timeout": timedelta(seconds=1), "discovery_interval": None, "fields": ["user"]}),
        ("PostgresSpout", {"columns": ["id", "user"], "max_drift": "5m"}),
        ("TailSpout", {"path": [Path("a.log"), "b.log"], "rotate_wait": timedelta(seconds=1)}),
        ("TailSpout", {"path": Path("a.log"), "rotated": "a.*"}),
        ("TextFileSpout", {"path": Path("words"), "exclude": [".git"], "max_line": 100, "repeat": 2}),
        ("SqliteSink", {"path": Path("shop.db"), "columns": ["id", "at"], "key": ["id"], "flush_interval": 0.5}),
        ("FilesSink", {"roll_size": 1000, "partition_by": ["day"]}),
        ("HttpSink", {"retry_on": {429}, "value": len, "headers": {}}),
    ],
)
def test_what_can_be_used_is_taken(name: str, given: Mapping[str, Any]) -> None:
    """A timedelta or a number of seconds for a duration, a list for a tuple, and None where it has a meaning."""
    made(name, **given)


@pytest.mark.parametrize(("arguments", "message"), [({"topics": "x"}, "topics"), ({}, "bootstrap_servers")])
def test_an_argument_too_many_or_too_few_is_named_by_python(arguments: Mapping[str, Any], message: str) -> None:
    """A spelling of another class, and a forgotten argument."""
    pytest.importorskip("confluent_kafka")
    make: Callable[..., Any] = topo.KafkaSink
    with pytest.raises(TypeError, match=rf"KafkaSink\.__init__\(\) .*'{message}'"):
        make("orders", **arguments)


def test_a_sink_of_ones_own_has_an_interval() -> None:
    """The constructor of a user's sink passes on an interval that is none."""

    class Own(TwoPhaseSink):
        def write(self, tup: Any) -> None: ...
        def pre_commit(self) -> Any: ...
        def commit(self, token: Any) -> None: ...
        def abort(self, token: Any) -> None: ...

    for wrong in ("abc", "0s", 0, -1, [1], True):
        with pytest.raises(ConfigError, match=r"flush_interval=.* must be a duration above zero, such as '100ms'"):
            Own(flush_interval=wrong)
