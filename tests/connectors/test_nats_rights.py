"""Users of NATS without a right: the server answers no request that it refuses so, and states it aside."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.sink_tasks import ReportingTask
from tests.servers import nats
from tests.servers.nats import PASSWORD, NatsProcess
from topo import NatsSink, NatsSpout
from topo.errors import TopoEnvironmentError
from topo.testing.partition_harness import PartitionHarness

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("nats")]

DENIED = {
    "requests": "$JS.API.CONSUMER.MSG.NEXT.>",
    "acks": "$JS.ACK.>",
    "consumers": "$JS.API.CONSUMER.CREATE.>",
    "info": "$JS.API.STREAM.INFO.>",
    "publish": "S.>",
}
"""The subjects that each user may not publish to."""
REFUSED = "refuses a request: .*ermissions .iolation for .*; grant this user the permission"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsProcess]:
    """A server with these users, and others that may not receive replies; without a login one may do everything."""
    folder = tmp_path_factory.mktemp("nats")
    users: list[dict[str, Any]] = [{"user": "admin", "password": PASSWORD}]
    users += [{"user": name, "password": PASSWORD, "permissions": {"publish": {"deny": [one]}}} for name, one in DENIED.items()]
    users += [{"user": "replies", "password": PASSWORD, "permissions": {"subscribe": {"deny": ["_INBOX.>"]}}}]
    (folder / "nats.conf").write_text(json.dumps({"authorization": {"users": users}, "no_auth_user": "admin"}))
    started = nats.start(folder, "-c", str(folder / "nats.conf"))
    yield started
    started.stop()


def address(server: NatsProcess, user: str) -> str:
    return f"nats://{user}:{PASSWORD}@127.0.0.1:{server.port}"


def until(harness: PartitionHarness, condition: Callable[[], object]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, (harness.all_rows(), harness.errors)
        harness.clock.advance("100ms")
        harness.turns(1)


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
