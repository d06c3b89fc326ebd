"""Servers that several files of tests share: one of each for a run."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.servers import kafka, mosquitto, nats, postgres, rabbitmq, redis, schema_registry
from topo.connectors.nats.connection import close_forgotten

_SHARED: list[Any] = []
"""The servers of this run."""


@pytest.fixture(autouse=True)
def servers_answer_behind_a_failure(request: pytest.FixtureRequest) -> Iterator[None]:
    """Have a server that a failed test has left killed or frozen answer again: the tests behind it would fail, too."""
    failed = request.session.testsfailed
    yield
    if request.session.testsfailed > failed:
        for server in _SHARED:
            if server.process.poll() is None:
                server.thaw()
            else:
                server.start_again()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafka.Broker]:
    """A broker of this run: the tests of sinks, `kafka-out`, have one of their own, and take half of the time.

    A test that ends or freezes it leaves it running, with its data.
    """
    started = kafka.start(tmp_path_factory.mktemp("kafka"))
    _SHARED.append(started)
    yield started
    # Clients of spouts that a test has let crash: they would log until their process ends that no broker answers.
    gc.collect()
    started.stop()


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[schema_registry.RegistryServer]:
    """The schema registry of this run. A test that ends or freezes it leaves it running, with its data."""
    started = schema_registry.start(tmp_path_factory.mktemp("registry"))
    _SHARED.append(started)
    yield started
    started.kill()


@pytest.fixture(scope="session")
def redis_server() -> Iterator[redis.RedisProcess]:
    """The Redis server of this run. A test that ends or freezes it leaves it running, with its data."""
    # A socket's path has at most 107 bytes, which those of pytest may be longer than.
    with TemporaryDirectory(prefix="redis-") as folder:
        started = redis.start(Path(folder))
        _SHARED.append(started)
        yield started
        started.stop()


@pytest.fixture(scope="session")
def database() -> Iterator[postgres.PostgresServer]:
    """The PostgreSQL server of this run. A test that ends or freezes it leaves it running, with its data."""
    started = postgres.start()
    _SHARED.append(started)
    yield started
    started.stop()


@pytest.fixture
def dsn(database: postgres.PostgresServer) -> str:
    """The connection string of the PostgreSQL server."""
    return database.address


@pytest.fixture
def redis_url(redis_server: redis.RedisProcess) -> str:
    """The address of the Redis server, whose database is empty."""
    redis_server.client().flushall()
    return redis_server.address


@pytest.fixture
def locked_server() -> Iterator[redis.RedisProcess]:
    """A server that wants a password."""
    with TemporaryDirectory(prefix="redis-") as folder:
        server = redis.start(Path(folder), "--requirepass", redis.PASSWORD)
        yield server
        server.stop()


@pytest.fixture
def mqtt_broker(tmp_path: Path) -> Iterator[str]:
    """The address of an MQTT broker of one test."""
    started = mosquitto.start(tmp_path)
    yield started.address
    started.kill()


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[nats.NatsProcess]:
    """The NATS server of this run. A test that ends or freezes it leaves it running, with its data."""
    started = nats.start(tmp_path_factory.mktemp("nats"))
    _SHARED.append(started)
    yield started
    # Test kits close no spouts.
    gc.collect()
    close_forgotten()
    started.stop()


@pytest.fixture
def nats_url(nats_server: nats.NatsProcess) -> str:
    """The address of the NATS server."""
    return nats_server.address


@pytest.fixture(scope="session")
def rabbit_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rabbitmq.RabbitBroker]:
    """The RabbitMQ broker of this run. A test that ends or freezes it leaves it running, with its data."""
    started = rabbitmq.start(tmp_path_factory.mktemp("rabbitmq"))
    _SHARED.append(started)
    yield started
    started.end()


@pytest.fixture
def rabbit_url(rabbit_broker: rabbitmq.RabbitBroker) -> str:
    """The address of the RabbitMQ broker."""
    return rabbit_broker.address
