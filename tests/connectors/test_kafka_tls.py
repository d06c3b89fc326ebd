"""Kafka with a login over TLS, as the page has it; certificates that do not fit; and a login with tokens."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import self_signed
from tests.connectors.kafka_sources import PatientSpout
from tests.contract.two_phase_sinks import started
from tests.integration.test_docs_code import ROOT, code_of
from tests.servers import kafka
from tests.servers.kafka import PASSWORD, USER
from topo import KafkaSink
from topo.errors import TopoError
from topo.testing.partition_harness import PartitionHarness
from topo.user_errors import place_of

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("kafka-out")]


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[kafka.Broker, Path]]:
    """A broker whose secured address has TLS, and its certificate."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = self_signed(folder, "127.0.0.1")
    (folder / "both.pem").write_text(key.read_text() + cert.read_text())
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    settings = {
        "listener.name.secured.sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        "listener.name.secured.oauthbearer.sasl.jaas.config": f'{module} required unsecuredLoginStringClaim_sub="{USER}";',
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURED:SASL_SSL,CONTROLLER:PLAINTEXT",
        "listener.name.secured.ssl.keystore.type": "PEM",
        "listener.name.secured.ssl.keystore.location": str(folder / "both.pem"),
    }
    broker = kafka.start(folder, settings=settings)
    yield broker, cert
    broker.stop()


def test_the_login_of_the_page_reads_over_tls(tls: tuple[kafka.Broker, Path]) -> None:
    broker, cert = tls
    broker.create_topic(1, "orders")
    broker.produce("orders", ["1"])
    page: dict[str, Any] = {}
    exec(compile(code_of(ROOT / "docs" / "connectors" / "kafka.md"), "kafka.md", "exec"), page)
    page["KafkaSpout"] = PatientSpout
    harness = PartitionHarness(lambda: page["secured"](broker.secured_address, USER, PASSWORD, str(cert)))
    harness.turns(4)
    assert harness.read == {"orders-0": [b"1"]} and harness.errors == []


def test_a_broker_with_another_certificate_is_refused_with_the_reason(tls: tuple[kafka.Broker, Path], tmp_path: Path) -> None:
    broker, cert = tls

    other, _ = self_signed(tmp_path, "127.0.0.1")
    login = {**kafka.sasl(USER, PASSWORD), "security.protocol": "SASL_SSL", "ssl.ca.location": str(other)}
    reason = r"correct the ssl. settings of config=.*certificate verify failed"
    with pytest.raises(TopoError, match=reason):
        PartitionHarness(lambda: PatientSpout("orders", bootstrap_servers=broker.secured_address, config=login))
    sink = KafkaSink("orders", bootstrap_servers=broker.secured_address, config=login)
    with pytest.raises(TopoError, match=reason):
        started(sink, delivery="at_least_once")
    started(
        KafkaSink("orders", bootstrap_servers=broker.secured_address, config={**login, "ssl.ca.location": str(cert)}),
        delivery="at_least_once",
    )


def token(_config: str) -> tuple[str, float]:
    """Return a token of USER without a signature, which this broker takes."""
    now = time.time()
    head, claims = ({"alg": "none"}, {"sub": USER, "iat": now, "exp": now + 60})
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in (head, claims)]
    return ".".join((*encoded, "")), now + 60


def refused(_config: str) -> tuple[str, float]:
    raise RuntimeError("the identity provider is away")


def test_a_function_gives_the_token_of_a_login_or_the_reason_why_there_is_none(tls: tuple[kafka.Broker, Path]) -> None:
    broker, cert = tls
    topic = broker.create_topic(1)
    broker.produce(topic, ["1"])
    login = {"security.protocol": "SASL_SSL", "ssl.ca.location": str(cert), "sasl.mechanism": "OAUTHBEARER"}

    def spout(call: Any) -> PatientSpout:
        return PatientSpout(topic, bootstrap_servers=broker.secured_address, config={**login, "oauth_cb": call})

    harness = PartitionHarness(lambda: spout(token))
    harness.turns(4)
    assert harness.read == {f"{topic}-0": [b"1"]} and harness.errors == []
    with pytest.raises(TopoError, match="oauth_cb of config= raised RuntimeError: the identity provider is away") as raised:
        PartitionHarness(lambda: spout(refused))
    # Its line is reported.
    cause = raised.value.__cause__
    assert isinstance(cause, RuntimeError) and place_of(cause)[0] == __file__
