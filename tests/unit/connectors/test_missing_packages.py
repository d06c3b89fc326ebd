"""Without the packages of an extra topo is imported whole, and each connector names the command that installs its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import topo
from topo.errors import ConfigError
from topo.extras import EXTRAS, pip_install

CLIENTS = (
    "aiohttp",
    "confluent_kafka",
    "deltalake",
    "fastavro",
    "nats",
    "paho",
    "pika",
    "psycopg",
    "pyarrow",
    "pyiceberg",
    "redis",
)
CONNECTORS: dict[str, tuple[str, str, Callable[[Any], object]]] = {
    "DeltaSink": ("delta", "deltalake", lambda made: made("table")),
    "HttpSink": ("http", "aiohttp", lambda made: made("http://localhost")),
    "IcebergSink": ("iceberg", "pyiceberg", lambda made: made({}, "a.b")),
    "KafkaSink": ("kafka", "confluent_kafka", lambda made: made("t", bootstrap_servers="b")),
    "KafkaSpout": ("kafka", "confluent_kafka", lambda made: made("t", bootstrap_servers="b")),
    "MqttSink": ("mqtt", "paho", lambda made: made("mqtt://localhost", "t")),
    "MqttSpout": ("mqtt", "paho", lambda made: made("mqtt://localhost", "t")),
    "NatsSink": ("nats", "nats", lambda made: made("nats://localhost", "s", stream="S")),
    "NatsSpout": ("nats", "nats", lambda made: made("nats://localhost", "S")),
    "PostgresCdcSpout": ("postgres", "psycopg", lambda made: made("dbname=a", "p", slot="s")),
    "PostgresSink": ("postgres", "psycopg", lambda made: made("dbname=a", "t", ("n",))),
    "PostgresSpout": ("postgres", "psycopg", lambda made: made("dbname=a", "t", ("n",), key="n")),
    "RabbitSink": ("rabbitmq", "pika", lambda made: made("amqp://localhost", "", "q")),
    "RabbitSpout": ("rabbitmq", "pika", lambda made: made("amqp://localhost", "q")),
    "RedisGroupSpout": ("redis", "redis", lambda made: made("redis://localhost", "s", "g")),
    "RedisSink": ("redis", "redis", lambda made: made("redis://localhost", "user:{user}")),
    "RedisStreamSink": ("redis", "redis", lambda made: made("redis://localhost", "s")),
    "RedisStreamSpout": ("redis", "redis", lambda made: made("redis://localhost", "s")),
    "SseSpout": ("http", "aiohttp", lambda made: made("http://localhost")),
    "WebSocketSpout": ("http", "aiohttp", lambda made: made("ws://localhost")),
    "WebhookSpout": ("http", "aiohttp", lambda made: made(8080)),
}


@pytest.mark.parametrize("name", CONNECTORS)
def test_a_connector_names_the_command_that_installs_its_packages(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    extra, package, make = CONNECTORS[name]
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError) as raised:
        make(getattr(topo, name))
    assert name in str(raised.value) and pip_install(EXTRAS[extra]) in str(raised.value)


def test_all_public_names_are_imported_without_a_client() -> None:
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({CLIENTS!r})); import topo; names = {sorted(CONNECTORS)!r}; "
        "print(all(name in topo.__all__ and getattr(topo, name) for name in names))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "True\n", done.stderr
