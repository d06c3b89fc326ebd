"""Users of NATS without a right: the server answers no request that it refuses so, and states it aside."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.sink_tasks import ReportingTask
from tests.connectors.spout_tasks import until
from tests.servers import nats
from tests.servers.nats import PASSWORD, NatsProcess
from topo import NatsSink, NatsSpout
from topo.errors import ConfigError, TopoEnvironmentError
from topo.testing.partition_harness import PartitionHarness

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("nats")]

DENIED = {
    "requests": "$JS.API.CONSUMER.MSG.NEXT.>",
    "acks": "$JS.ACK.>",
    "consumers": "$JS.API.CONSUMER.CREATE.>",
    "info": "$JS.API.STREAM.INFO.>",
    "publish": "S.>",
    "publish2": "S2.>",
}
"""The subjects that each user may not publish to."""
REFUSED = "refuses a request: .*ermissions .iolation for .*; grant this user the permission"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsProcess]:
    """A server with these users, and others that may not receive replies; without a login one may do everything."""
    folder = tmp_path_factory.mktemp("nats")
    users: list[dict[str, Any]] = [{"user": "admin", "password": PASSWORD}]
    users += [{"user": name, "password": PASSWORD, "permissions": {"publish": {"deny": [one]}}} for name, one in DENIED.items()]
    users += [{"nkey": nkey()[0]}]
    users += [{"user": "replies", "password": PASSWORD, "permissions": {"subscribe": {"deny": ["_INBOX.>"]}}}]
    (folder / "nats.conf").write_text(json.dumps({"authorization": {"users": users}, "no_auth_user": "admin"}))
    started = nats.start(folder, "-c", str(folder / "nats.conf"))
    yield started
    started.stop()


def address(server: NatsProcess, user: str) -> str:
    return f"nats://{user}:{PASSWORD}@127.0.0.1:{server.port}"


def nkey(name: bytes = b"topo") -> tuple[str, str]:
    """The public key of a user who signs, and the seed."""
    import nkeys

    seed: bytes = nkeys.encode_seed(name * 8, nkeys.PREFIX_BYTE_USER)
    return nkeys.from_seed(bytearray(seed)).public_key.decode(), seed.decode()


@pytest.mark.parametrize("user", ["info", "replies"])
def test_a_spout_that_may_not_look_its_stream_up_is_refused_when_it_opens(server: NatsProcess, user: str) -> None:
    stream = server.make_stream()
    with pytest.raises(TopoEnvironmentError, match=REFUSED) as refused:
        PartitionHarness(lambda: NatsSpout(address(server, user), stream, timeout="1s"))
    assert PASSWORD not in str(refused.value)


@pytest.mark.parametrize(("user", "durable"), [("requests", None), ("consumers", None), ("requests", "shared")])
def test_a_spout_that_may_not_ask_for_messages_reports_it(server: NatsProcess, user: str, durable: str | None) -> None:
    stream = server.make_stream()
    server.publish(f"{stream}.a", b"1")
    harness = PartitionHarness(lambda: NatsSpout(address(server, user), stream, durable=durable, timeout="1s"))
    until(harness, lambda: harness.errors)
    assert "grant this user the permission" in str(harness.errors[0]) and harness.all_rows() == []
    harness.stop()


def test_acknowledgements_that_are_refused_are_reported_once(server: NatsProcess) -> None:
    stream = server.make_stream()
    harness = PartitionHarness(lambda: NatsSpout(address(server, "acks"), stream, durable="shared", timeout="1s"))
    for number in range(3):
        server.publish(f"{stream}.a", b"%d" % number)
        until(harness, lambda number=number: len(harness.all_rows()) == number + 1)
        harness.tasks[0].commit()
        harness.turns(1)
    until(harness, lambda: harness.errors)
    assert "permissions violation for publish to" in str(harness.errors[0]).lower()
    harness.stop()


def test_a_sink_that_may_not_publish_reports_it(server: NatsProcess, tmp_path: Path) -> None:
    stream = server.make_stream(name="S")
    task = ReportingTask(NatsSink(address(server, "publish"), "S.a", stream=stream, timeout="1s", staging=tmp_path))
    task.write(1)
    task.snapshot(1)
    with pytest.raises(TopoEnvironmentError, match=REFUSED):
        task.output.complete(1)


def test_a_user_who_signs_reads_and_a_file_without_a_seed_is_named(server: NatsProcess, tmp_path: Path) -> None:
    stream, file, url = server.make_stream(), tmp_path / "seed", f"nats://127.0.0.1:{server.port}"
    server.publish(f"{stream}.a", b"1")
    file.write_text(nkey()[1])
    harness = PartitionHarness(lambda: NatsSpout(url, stream, config={"nkeys_seed": str(file)}))
    until(harness, harness.all_rows)
    assert harness.errors == []
    harness.stop()
    file.write_text("planted")
    with pytest.raises(ConfigError, match=r"config=\{'nkeys_seed': .*seed'\} cannot be used: .*nvalid") as refused:
        PartitionHarness(lambda: NatsSpout(url, stream, config={"nkeys_seed": str(file)}))
    assert "planted" not in str(refused.value)
    stranger = nkey(b"opot")[1]
    with pytest.raises(
        ConfigError, match=r"refuses this user: .*; nkeys_seed_str of config may have expired, or was revoked"
    ) as refused:
        PartitionHarness(lambda: NatsSpout(url, stream, config={"nkeys_seed_str": stranger}))
    assert stranger not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "cannot be read: No such file"),
        ("planted", "has not both"),
        ("-----BEGIN NATS USER JWT-----\nplanted", "has not both"),
    ],
)
def test_a_file_of_credentials_that_cannot_be_used_is_named(
    server: NatsProcess, tmp_path: Path, text: str | None, reason: str
) -> None:
    stream, file, url = server.make_stream(), tmp_path / "user.creds", f"nats://127.0.0.1:{server.port}"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigError, match=rf"config=\{{'user_credentials': .*user.creds'\}} {reason}") as refused:
        PartitionHarness(lambda: NatsSpout(url, stream, config={"user_credentials": str(file)}))
    assert "planted" not in str(refused.value)


def test_a_refused_publication_does_not_wait_for_its_answer(server: NatsProcess) -> None:
    server.make_stream(name="S2")
    url = address(server, "publish2")
    task = ReportingTask(NatsSink(url, "S2.a", stream="S2", timeout="60s", max_batch=1), "at_least_once")
    task.write(1)
    assert "grant this user the permission" in task.texts()[0]
