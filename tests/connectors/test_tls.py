"""Redis, RabbitMQ and NATS over TLS, with certificates that fit and that do not."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.certificates import self_signed
from tests.connectors.sink_tasks import ReportingTask
from tests.servers import nats, rabbitmq, redis
from tests.servers.server import free_port
from topo import NatsSink, NatsSpout, RabbitSink, RedisStreamSink, RedisStreamSpout
from topo.errors import ConfigError, TopoError
from topo.testing.partition_harness import PartitionHarness

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("tls"), pytest.mark.timeout(300)]

Files = tuple[Path, Path]
UNTRUSTED = "give the file of the authority .*certificate verify failed"
OTHER_HOST = "have the URL name a host .*mismatch"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """The certificate of all servers here, which signs itself, and its key."""
    return self_signed(tmp_path_factory.mktemp("certificate"), "127.0.0.1")


@pytest.fixture
def other(tmp_path: Path) -> str:
    """The certificate of an authority that has signed none of them."""
    return str(self_signed(tmp_path, "127.0.0.1")[0])


@pytest.fixture(scope="module")
def redis_ports(files: Files, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    """The ports of a Redis server: without TLS, and with it."""
    port, tls_port = free_port(), free_port()
    cert, key = map(str, files)
    options = ["--port", str(port), "--tls-port", str(tls_port), "--tls-auth-clients", "no"]
    options += ["--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert]
    server = redis.start(tmp_path_factory.mktemp("redis"), *options)
    yield port, tls_port
    server.stop()


def test_redis_is_written_and_read_over_tls(redis_ports: tuple[int, int], files: Files) -> None:
    url, config = f"rediss://127.0.0.1:{redis_ports[1]}", {"ssl_ca_certs": str(files[0])}
    task = ReportingTask(RedisStreamSink(url, "orders", max_batch=1, config=config), delivery="at_least_once")
    task.write(1)
    harness = PartitionHarness(lambda: RedisStreamSpout(url, "orders", fields=("n",), config=config))
    harness.turns(3)
    assert [values for _, _, values in harness.all_rows()] == [("1",)] and harness.errors == [] and task.errors == []


@pytest.mark.parametrize(("host", "is_known", "reason"), [("127.0.0.1", False, UNTRUSTED), ("localhost", True, OTHER_HOST)])
def test_a_certificate_of_redis_that_does_not_fit_is_refused(
    redis_ports: tuple[int, int], files: Files, other: str, host: str, is_known: bool, reason: str
) -> None:
    config = {"ssl_ca_certs": str(files[0]) if is_known else other}
    url = f"rediss://user:planted@{host}:{redis_ports[1]}"
    with pytest.raises(ConfigError, match=reason) as refused:
        PartitionHarness(lambda: RedisStreamSpout(url, "orders", config=config))
    assert "planted" not in str(refused.value)


def test_redis_without_tls_at_a_port_with_it_and_the_reverse_say_so(redis_ports: tuple[int, int], files: Files) -> None:
    port, tls_port = redis_ports
    harness = PartitionHarness(lambda: RedisStreamSpout(f"redis://127.0.0.1:{tls_port}", "orders"))
    harness.turns(1)
    assert "begin the URL with rediss://" in str(harness.errors[0])
    config = {"ssl_ca_certs": str(files[0])}
    harness = PartitionHarness(lambda: RedisStreamSpout(f"rediss://127.0.0.1:{port}", "orders", config=config, timeout="500ms"))
    harness.turns(1)
    assert "begin the URL with redis://" in str(harness.errors[0])


@pytest.fixture(scope="module")
def nats_server(files: Files, tmp_path_factory: pytest.TempPathFactory) -> Iterator[nats.NatsProcess]:
    """A server that requires TLS."""
    server = nats.start(tmp_path_factory.mktemp("nats"), certificate=files)
    yield server
    server.stop()


def test_nats_is_written_and_read_over_tls_as_the_page_has_it(
    nats_server: nats.NatsProcess, files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    stream, port = nats_server.make_stream(name="ORDERS"), nats_server.port
    tls = ssl.create_default_context(cafile=files[0])
    caplog.clear()
    sink = NatsSink(f"nats://127.0.0.1:{port}", "ORDERS.a", stream=stream, max_batch=1, config={"tls": tls})
    task = ReportingTask(sink, delivery="at_least_once")
    task.write(1)
    harness = PartitionHarness(lambda: NatsSpout(f"tls://127.0.0.1:{port}", stream, config={"tls": tls}))
    harness.turns(3)
    assert (
        [json.loads(values[0]) for _, _, values in harness.all_rows()] == [{"n": 1}]
        and harness.errors == []
        and task.errors == []
    )
    harness.stop()
    task.sink.close()
    assert caplog.text == ""


@pytest.mark.parametrize(("host", "is_known", "reason"), [("127.0.0.1", False, UNTRUSTED), ("localhost", True, OTHER_HOST)])
def test_a_certificate_of_nats_that_does_not_fit_is_refused(
    nats_server: nats.NatsProcess, files: Files, other: str, host: str, is_known: bool, reason: str
) -> None:
    config = {"tls": ssl.create_default_context(cafile=files[0] if is_known else other)}
    with pytest.raises(ConfigError, match=reason):
        PartitionHarness(lambda: NatsSpout(f"tls://planted@{host}:{nats_server.port}", "ORDERS", config=config))


def test_a_nats_server_without_tls_gets_no_login_of_a_client_that_wants_it(tmp_path: Path) -> None:
    # It would take the login, and anybody on the way would read it.
    server = nats.start(tmp_path, "--user", nats.USER, "--pass", nats.PASSWORD)
    login = f"{nats.USER}:{nats.PASSWORD}@127.0.0.1:{server.port}"
    context = ssl.create_default_context()
    for url, config in ((f"tls://{login}", {}), (f"nats://{login}", {"tls": context})):
        with pytest.raises(ConfigError, match="does not require TLS") as refused:
            PartitionHarness(lambda url=url, config=config: NatsSpout(url, "ORDERS", config=config))
        assert nats.PASSWORD not in str(refused.value)
    server.stop()


@pytest.fixture(scope="module")
def rabbit(files: Files, tmp_path_factory: pytest.TempPathFactory) -> Iterator[rabbitmq.RabbitBroker]:
    """A broker with a port without TLS, and one with it."""
    broker = rabbitmq.start(tmp_path_factory.mktemp("rabbitmq"), certificate=files)
    broker.control("add_user", "reader", "planted")
    broker.control("set_permissions", "-p", "/", "reader", "^$", "^$", ".*")
    yield broker
    broker.end()


def test_rabbitmq_over_tls_and_its_refusals(rabbit: rabbitmq.RabbitBroker, files: Files, other: str) -> None:
    """One test for all: the broker takes half a minute to start."""
    known, queue = {"ca_certs": files[0]}, rabbit.declare()
    secure, plain = f"guest:guest@127.0.0.1:{rabbit.tls_port}", f"guest:guest@127.0.0.1:{rabbit.port}"
    task = ReportingTask(RabbitSink(f"amqps://{secure}", "", queue, max_batch=1, tls=known), delivery="at_least_once")
    task.write(1)
    with rabbitmq.channel_at(rabbit.address) as channel:
        assert json.loads(channel.basic_get(queue)[2]) == {"n": 1} and task.errors == []
    refused = {
        (f"amqps://{secure}", other): UNTRUSTED,
        (f"amqps://{secure.replace('127.0.0.1', 'localhost')}", files[0]): OTHER_HOST,
        (f"amqps://{plain}", files[0]): "this port speaks no TLS",
        (f"amqp://{secure}", None): "begin the URL with amqps://",
        (f"amqp://{plain}/nowhere", None): "refuses the virtual host: .*vhost nowhere not found.*correct it in the URL",
        (f"amqp://{plain.replace('guest', 'reader', 1).replace('guest', 'wrong')}", None): "refuses this user: .*correct user",
    }
    for (url, authority), reason in refused.items():
        tls = None if authority is None else {"ca_certs": authority}
        with pytest.raises(TopoError, match=reason) as caught:
            ReportingTask(RabbitSink(url, "", queue, tls=tls), delivery="at_least_once")
        assert ":guest@" not in str(caught.value)
    with pytest.raises(ConfigError, match=r"tls: ca_certs='nowhere\.pem' cannot be read"):
        ReportingTask(RabbitSink(f"amqps://{secure}", "", queue, tls={"ca_certs": "nowhere.pem"}), "at_least_once")
    reader = ReportingTask(
        RabbitSink(f"amqp://reader:planted@127.0.0.1:{rabbit.port}", "amq.direct", "k", max_batch=1), "at_least_once"
    )
    reader.write(1)
    (missing,) = reader.texts()
    assert "refuses exchange 'amq.direct'" in missing and "give this user the right to write" in missing
