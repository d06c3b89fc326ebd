"""Users of Redis without a right: each error names the command, and how it is granted."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.connectors.sink_tasks import ReportingTask
from tests.connectors.spout_tasks import until
from tests.integration.conftest import no_process_is_left, scene
from tests.integration.support import Scene, flow
from tests.servers.redis import PASSWORD, RedisProcess
from tests.unit.connectors.drive import tracked
from topo import RedisSink, RedisStreamSink, RedisStreamSpout
from topo.errors import TopoEnvironmentError
from topo.testing.partition_harness import PartitionHarness

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("redis")]
__all__ = ["no_process_is_left", "scene"]


class Account:
    """A user of the server who may do everything but some commands.

    Attributes:
        name: of the user.
        url: logs in as this user.
    """

    def __init__(self, server: RedisProcess, client: Any) -> None:
        self.name, self._client = f"u{secrets.token_hex(4)}", client
        self.url = server.address.replace("unix://", f"unix://{self.name}:{PASSWORD}@")
        self.set("on", f">{PASSWORD}", "~*", "&*", "+@all")

    def set(self, *rules: str) -> None:
        self._client.execute_command("ACL", "SETUSER", self.name, *rules)

    def check(self, error: BaseException | str, command: str) -> None:
        """Check that an error names the missing command, and shows no password."""
        assert f"`ACL SETUSER {self.name} +{command}`" in str(error) and PASSWORD not in str(error)


@pytest.fixture
def client(redis_server: RedisProcess) -> Iterator[Any]:
    """A client that may do everything."""
    made = redis_server.client()
    yield made
    made.close()


@pytest.fixture
def user(redis_server: RedisProcess, client: Any) -> Account:
    """A user; no right is missing yet."""
    return Account(redis_server, client)


@pytest.fixture
def stream() -> str:
    """A new key."""
    return f"s-{secrets.token_hex(4)}"


def test_a_right_to_read_that_is_taken_back_and_granted_again(user: Account, client: Any, stream: str) -> None:
    client.xadd(stream, {"n": 1})
    harness = PartitionHarness(lambda: RedisStreamSpout(user.url, stream, fields=("n",)))
    until(harness, harness.all_rows)
    user.set("-xread")
    client.xadd(stream, {"n": 2})
    until(harness, lambda: harness.errors)
    user.check(harness.errors[0], "xread")
    user.set("+xread")
    until(harness, lambda: len(harness.all_rows()) == 2)

    user.set("resetkeys", "~other")
    until(harness, lambda: "keys" in str(harness.errors[-1]))
    assert f"as by `ACL SETUSER {user.name} ~KEY`" in str(harness.errors[-1])
    harness.stop()


@pytest.mark.parametrize("command", ["xack", "xreadgroup", "xgroup|create"])
def test_a_member_of_a_group_names_the_command_that_it_may_not_use(user: Account, client: Any, stream: str, command: str) -> None:
    from topo.api.context import TaskContext
    from topo.connectors.redis.client import RedisServer, is_unreachable
    from topo.connectors.redis.group_member import GroupMember
    from topo.connectors.server_link import ServerLink

    client.xadd(stream, {"n": 1})
    user.set(f"-{command}")
    server = RedisServer("RedisGroupSpout", user.url, "5s", {})
    link = ServerLink(server, TaskContext("t", "s", 1), lambda _: None, is_unreachable, explained=server.explained)
    member = GroupMember(server.connect(), (stream, "g", f"{stream}:dead"), "t.s.", (0, 1), "0", 60_000, time.monotonic)
    with pytest.raises(TopoEnvironmentError) as refused:
        link.ask(member.turn, ["1-1"], (), (), 10, 0)
    user.check(refused.value, command)


def test_a_stream_sink_names_the_command_and_writes_when_it_is_granted(user: Account, client: Any, stream: str) -> None:
    user.set("-xadd")
    task = ReportingTask(RedisStreamSink(user.url, stream, max_batch=1), "at_least_once")
    task.write(1)
    (error,) = task.texts()
    user.check(error, "xadd")
    assert "Command #" not in error and task.sink.refusal == error
    staged = ReportingTask(RedisStreamSink(user.url, stream))
    staged.write(2)
    staged.snapshot(1)
    with pytest.raises(TopoEnvironmentError, match=f"grant user '{user.name}' the command"):
        staged.output.complete(1)
    assert staged.sink.refusal
    user.set("+xadd")
    staged.output.complete(1)
    assert staged.sink.refusal == ""
    assert [entry["n"] for _, entry in client.xrange(stream)] == ["2"]


def test_a_hash_sink_names_the_command(user: Account, stream: str) -> None:
    user.set("-hset")
    task = ReportingTask(RedisSink(user.url, f"{stream}:{{n}}", max_batch=1), "at_least_once")
    task.sink.execute(tracked(n=1, item="planted-value"))
    (error,) = task.texts()
    user.check(error, "hset")
    assert "planted-value" not in error
    staged = ReportingTask(RedisSink(user.url, f"{stream}:{{n}}"))
    staged.write(2)
    with pytest.raises(TopoEnvironmentError):
        staged.output.snapshot(1)
    user.check(staged.sink.refusal, "hset")
    user.set("+hset")
    staged.output.snapshot(2)
    assert staged.sink.refusal == ""


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_a_drain_does_not_wait_for_a_right(scene: Scene, user: Account, stream: str, delivery: str) -> None:
    user.set("-xadd")
    source = 'builder.set_spout("in", IterableSpout(list(range(5)), ("n",)))'
    sink = f'builder.set_bolt("out", RedisStreamSink({user.url!r}, {stream!r})).shuffle_grouping("in")'
    file = scene.file(flow(source, sink))
    running = scene.submit(file, delivery=delivery, checkpoint_interval="1s")
    running.wait_until(lambda status: status["components"][1]["counters"]["errors"], what="the error")
    running.drain(600.0)
    outcome = running.wait(60.0)
    assert outcome.reason.startswith("drained, not to the end: ") and f"grant user '{user.name}'" in outcome.reason
