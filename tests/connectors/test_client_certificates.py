"""Servers that want a certificate of the client, and do not take each: Redis, NATS, MQTT, RabbitMQ and PostgreSQL."""

from __future__ import annotations

import shutil
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.certificates import encrypted, self_signed, signed
from tests.connectors.sink_tasks import ReportingTask
from tests.connectors.spout_tasks import PATIENCE_S
from tests.servers import mosquitto, nats, postgres, rabbitmq, redis
from tests.servers.server import free_port
from topo import MqttSpout, NatsSpout, PostgresSpout, RabbitSink, RabbitSpout, RedisStreamSink, RedisStreamSpout
from topo.errors import ConfigError, TopoError
from topo.testing.partition_harness import PartitionHarness

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("client-certificates"), pytest.mark.timeout(300)]

PASSWORD = "planted-4711"


class Certificates(NamedTuple):
    """The certificate of all servers, which signs itself and those of clients, and these, each with its key."""

    authority: tuple[Path, Path]
    good: tuple[Path, Path]
    expired: tuple[Path, Path]
    foreign: tuple[Path, Path]

    @property
    def encrypted(self) -> Path:
        return self.good[1].with_name(f"{self.good[1].name}.encrypted")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    folder, other = tmp_path_factory.mktemp("certificates"), tmp_path_factory.mktemp("other")
    authority, stranger = self_signed(folder, "127.0.0.1"), self_signed(other, "127.0.0.1")
    made = Certificates(
        authority,
        signed(folder, authority, "good"),
        signed(folder, authority, "expired", days=-1),
        signed(folder, stranger, "foreign"),
    )
    encrypted(made.good[1], PASSWORD)
    return made


def copied(client: tuple[Path, Path], folder: Path) -> tuple[Path, Path]:
    """Return copies of a certificate and its key, which a test replaces."""
    cert, key = (Path(shutil.copy(file, folder / file.name)) for file in client)
    return cert, key


def replace(live: tuple[Path, Path], client: tuple[Path, Path]) -> None:
    for target, file in zip(live, client, strict=True):
        shutil.copy(file, target)


@pytest.fixture(scope="module")
def redis_url(files: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    cert, key = map(str, files.authority)
    port = free_port()
    options = ["--port", str(free_port()), "--tls-port", str(port), "--tls-auth-clients", "yes"]
    options += ["--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert]
    server = redis.start(tmp_path_factory.mktemp("redis"), *options)
    yield f"rediss://127.0.0.1:{port}"
    server.stop()


def redis_config(files: Certificates, client: tuple[Path, Path] | None = None, **further: Any) -> dict[str, Any]:
    pair = {} if client is None else {"ssl_certfile": str(client[0]), "ssl_keyfile": str(client[1])}
    return {"ssl_ca_certs": str(files.authority[0]), **pair, **further}


def wait_for(condition: Callable[[], object], turn: Callable[[], object]) -> None:
    until = time.monotonic() + 2 * PATIENCE_S
    while not condition():
        assert time.monotonic() < until
        turn()
        time.sleep(0.01)


def client_at(url: str, files: Certificates) -> Any:
    """Another program's client."""
    from redis import Redis

    return Redis.from_url(url, **redis_config(files, files.good))


def what_redis_has(url: str, config: dict[str, Any]) -> str:
    """Return the error at the start of a spout; "": none."""
    try:
        harness = PartitionHarness(lambda: RedisStreamSpout(url, "orders", config=config))
    except ConfigError as error:
        return str(error)
    harness.turns(2)
    found = " ".join(map(str, harness.errors))
    harness.stop()
    return found


def test_redis_takes_a_certificate_and_says_what_it_has_against_another(redis_url: str, files: Certificates) -> None:
    locked = (files.good[0], files.encrypted)
    assert what_redis_has(redis_url, redis_config(files, files.good)) == ""
    assert what_redis_has(redis_url, redis_config(files, locked, ssl_password=PASSWORD)) == ""
    # The server's alert may be lost with the connection.
    for client, reasons in (
        (None, ("wants a certificate of the client", "ssl_certfile")),
        (files.expired, ("has expired", "ssl_certfile")),
        (files.foreign, ("authority", "know", "ssl_certfile")),
    ):
        found = what_redis_has(redis_url, redis_config(files, client))
        assert all(reason in found for reason in (*reasons, redis_url)), found
    found = what_redis_has(redis_url, redis_config(files, locked))
    assert "is encrypted with a password: give it as ssl_password" in found


def test_a_sink_of_redis_reports_a_certificate_that_has_expired_while_it_runs(
    redis_url: str, files: Certificates, tmp_path: Path
) -> None:
    live = copied(files.good, tmp_path)
    task = ReportingTask(RedisStreamSink(redis_url, "out", max_batch=1, config=redis_config(files, live)), "at_least_once")
    task.write(1)
    assert task.errors == []
    replace(live, files.expired)
    with client_at(redis_url, files) as admin:
        admin.client_kill_filter(_type="normal", skipme=True)
    task.write(2)
    task.write(3)
    assert "has expired" in " ".join(task.texts())


@pytest.fixture(scope="module")
def nats_server(files: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[nats.NatsProcess]:
    options = ("--tlsverify", "--tlscacert", str(files.authority[0]))
    server = nats.start(tmp_path_factory.mktemp("nats"), *options, certificate=files.authority)
    yield server
    server.stop()


def test_nats_takes_a_certificate_and_says_what_it_has_against_another(
    nats_server: nats.NatsProcess, files: Certificates
) -> None:
    stream, url = nats_server.make_stream(), f"tls://127.0.0.1:{nats_server.port}"
    for client in (files.good, None, files.expired, files.foreign):
        context = ssl.create_default_context(cafile=files.authority[0])
        if client is not None:
            context.load_cert_chain(*client)
        try:
            harness = PartitionHarness(lambda context=context: NatsSpout(url, stream, config={"tls": context}))
        except TopoError as error:
            found = str(error)
        else:
            harness.turns(2)
            found = " ".join(map(str, harness.errors))
            harness.stop()
        assert (found == "") is (client is files.good), found
        if client is not files.good:
            assert url in found and "config={'tls': ...}" in found and "expired" in found, found


def test_mqtt_reads_a_renewed_certificate_and_says_what_it_has_against_another(files: Certificates, tmp_path: Path) -> None:
    live = copied(files.good, tmp_path)
    broker = mosquitto.start(tmp_path, certificate=files.authority)
    url = f"mqtts://127.0.0.1:{broker.tls_port}"
    tls = {"ca_certs": files.authority[0], "certfile": live[0], "keyfile": live[1]}
    harness = PartitionHarness(lambda: MqttSpout(url, "a", tls=tls))

    def session() -> Any:
        return harness.tasks[0].spout._loop._reader._session

    def errors() -> str:
        return " ".join(map(str, harness.errors))

    try:
        wait_for(lambda: session().is_connected, lambda: harness.turns(1))
        replace(live, files.expired)
        broker.kill()
        broker.start_again()
        wait_for(lambda: "may have expired" in errors(), lambda: harness.turns(1))
        assert url in errors() and str(live[0]) in errors() and not session().is_connected
        replace(live, files.good)
        wait_for(lambda: session().is_connected, lambda: harness.turns(1))
    finally:
        harness.stop()
        broker.kill()


def test_rabbitmq_takes_a_certificate_and_says_what_it_has_against_another(
    files: Certificates, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    live = copied(files.good, tmp_path)
    broker = rabbitmq.start(tmp_path_factory.mktemp("rabbitmq"), certificate=files.authority, wants_client=True)
    try:
        queue, url = broker.declare(), f"amqps://guest:guest@127.0.0.1:{broker.tls_port}"
        for client, reason in (
            (None, "wants a certificate of the client: give it as tls={'certfile': ..., 'keyfile': ...}"),
            (files.expired, "the client's certificate, tls={'certfile': ..., 'keyfile': ...}, has expired"),
            (files.foreign, "the client's certificate, tls={'certfile': ..., 'keyfile': ...}, "),
        ):
            tls = {"ca_certs": files.authority[0]}
            tls |= {} if client is None else {"certfile": client[0], "keyfile": client[1]}
            with pytest.raises(ConfigError) as refused:
                ReportingTask(RabbitSink(url, "", queue, tls=tls), "at_least_once")
            assert reason in str(refused.value) and ":guest@" not in str(refused.value)
        tls = {"ca_certs": files.authority[0], "certfile": live[0], "keyfile": live[1]}
        harness = PartitionHarness(lambda: RabbitSpout(url, queue, tls=tls))
        consumer = harness.tasks[0].spout._loop._reader._consumer
        wait_for(lambda: consumer.is_reading, lambda: harness.turns(1))
        replace(live, files.expired)
        broker.control("close_all_connections", "planted")
        # The loss is reported first, and then the cause for which it lasts.
        wait_for(lambda: "has expired: renew it" in " ".join(map(str, harness.errors)), lambda: harness.turns(1))
        harness.stop()
    finally:
        broker.end()


def test_postgresql_says_at_once_what_it_has_against_a_certificate(files: Certificates) -> None:
    server = postgres.start(certificate=files.authority, wants_client=True)
    try:
        base = f"host=127.0.0.1 port={server.port} dbname=postgres user=topo sslmode=verify-full sslrootcert={files.authority[0]}"
        locked = (files.good[0], files.encrypted)
        for client, reason in (
            (None, "wants a certificate of the client; give it as sslcert and sslkey"),
            (files.expired, "sslcert in dsn=, has expired"),
            (files.foreign, "does not take the client's certificate; correct sslcert"),
            ((files.good[0], files.foreign[1]), "the key of the client's certificate .* cannot be used; correct sslkey"),
            (locked, "correct sslkey, or sslpassword"),
        ):
            dsn = base if client is None else f"{base} sslcert={client[0]} sslkey={client[1]}"
            with pytest.raises(ConfigError, match=f"127.0.0.1:{server.port}") as refused:
                PartitionHarness(lambda dsn=dsn: PostgresSpout(dsn, "orders", ["n"], key="id"))
            assert refused.match(reason)
        dsn = f"{base} sslcert={locked[0]} sslkey={locked[1]} sslpassword={PASSWORD}"
        with pytest.raises(ConfigError, match="orders") as reached:
            PartitionHarness(lambda: PostgresSpout(dsn, "orders", ["n"], key="id"))
        assert PASSWORD not in str(reached.value)
    finally:
        server.stop()
