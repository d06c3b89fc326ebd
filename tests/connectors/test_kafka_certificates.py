"""A Kafka broker that wants a certificate of the client, and does not take each."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.certificates import self_signed, signed
from tests.connectors.kafka_sources import PatientSpout
from tests.contract.two_phase_sinks import started
from tests.servers import kafka
from topo import KafkaSink
from topo.errors import TopoError
from topo.testing.partition_harness import PartitionHarness

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("kafka-out"), pytest.mark.timeout(300)]


class Secured(NamedTuple):
    """A broker, and settings of clients for it by the kind of their certificate."""

    broker: kafka.Broker
    configs: dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder, other = tmp_path_factory.mktemp("tls"), tmp_path_factory.mktemp("other")
    authority, stranger = self_signed(folder, "127.0.0.1"), self_signed(other, "127.0.0.1")
    (folder / "both.pem").write_text(authority[1].read_text() + authority[0].read_text())
    listener = "listener.name.secured.ssl"
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURED:SSL,CONTROLLER:PLAINTEXT",
        f"{listener}.keystore.type": "PEM",
        f"{listener}.keystore.location": str(folder / "both.pem"),
        f"{listener}.truststore.type": "PEM",
        f"{listener}.truststore.location": str(authority[0]),
        f"{listener}.client.auth": "required",
        "super.users": "User:ANONYMOUS;User:CN=topo",
    }
    broker = kafka.start(folder, settings=settings)
    broker.create_topic(1, "orders")
    broker.produce("orders", ["1"])
    base = {"security.protocol": "SSL", "ssl.ca.location": str(authority[0])}

    def config(pair: tuple[Path, Path]) -> dict[str, Any]:
        return {**base, "ssl.certificate.location": str(pair[0]), "ssl.key.location": str(pair[1])}

    yield Secured(
        broker,
        {
            "good": config(signed(folder, authority, "good")),
            "none": base,
            "expired": config(signed(folder, authority, "expired", days=-1)),
            "foreign": config(signed(folder, stranger, "foreign")),
        },
    )
    broker.stop()


def test_a_certificate_of_the_client_is_taken(secured: Secured) -> None:
    servers, config = secured.broker.secured_address, secured.configs["good"]
    harness = PartitionHarness(lambda: PatientSpout("orders", bootstrap_servers=servers, config=config))
    harness.turns(4)
    assert harness.read == {"orders-0": [b"1"]} and harness.errors == []
    started(KafkaSink("orders", bootstrap_servers=servers, config=config), delivery="at_least_once")


@pytest.mark.parametrize(
    ("which", "fix"),
    [
        ("none", "wants a certificate of the client; give it in config= as ssl.certificate.location and ssl.key.location"),
        ("expired", "does not take the client's certificate, ssl.certificate.location of config=: renew it if it has expired"),
        ("foreign", "does not take the client's certificate, ssl.certificate.location of config=: renew it if it has expired"),
    ],
)
def test_a_certificate_that_is_not_taken_is_named_at_once(secured: Secured, which: str, fix: str) -> None:
    servers, config = secured.broker.secured_address, secured.configs[which]
    began = time.monotonic()
    with pytest.raises(TopoError, match=fix):
        PartitionHarness(lambda: PatientSpout("orders", bootstrap_servers=servers, config=config))
    with pytest.raises(TopoError, match=fix):
        started(KafkaSink("orders", bootstrap_servers=servers, config=config), delivery="at_least_once")
    assert time.monotonic() - began < 15, "the requests have not waited for their whole time"
