"""Redis hashes as a target: on a real server."""

from __future__ import annotations

import secrets
from typing import Any

import pytest

from tests.connectors.sink_tasks import ReportingTask
from tests.servers.redis import RedisProcess
from tests.unit.connectors.drive import TICK, tracked
from topo import ConfigError, RedisSink, TopoEnvironmentError, UserError

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("redis")]


class Users:
    """Keys of a test."""

    def __init__(self, server: RedisProcess) -> None:
        self.server, self.client, self.prefix = server, server.client(), f"u{secrets.token_hex(4)}"

    def sink(self, **options: Any) -> RedisSink:
        return RedisSink(self.server.address, f"{self.prefix}:{{user}}", **{"timeout": "300ms", **options})

    def __getitem__(self, user: str) -> dict[str, str]:
        found: dict[str, str] = self.client.hgetall(f"{self.prefix}:{user}")
        return found


@pytest.fixture
def users(redis_server: RedisProcess) -> Users:
    return Users(redis_server)


def write(task: ReportingTask, *rows: dict[str, Any]) -> None:
    for row in rows:
        task.sink.execute(tracked(**row))


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once", "at_most_once"])
def test_a_key_has_the_fields_of_its_last_tuple(users: Users, delivery: str) -> None:
    task = ReportingTask(users.sink(max_batch=2), delivery)
    write(task, {"user": "a", "n": 1, "city": "Ulm"}, {"user": "b", "n": 2, "city": "Bonn"}, {"user": "a", "n": 3, "city": None})
    if delivery == "exactly_once":
        task.snapshot(1)
        assert task.output.staged == 0
    else:
        task.sink.execute(TICK)
    assert users["a"] == {"user": "a", "n": "3"} and users["b"] == {"user": "b", "n": "2", "city": "Bonn"}
    assert len(task.collector.acked) == 3


def test_a_checkpoint_fails_while_its_rows_are_not_written(users: Users) -> None:
    task = ReportingTask(users.sink())
    write(task, {"user": "a", "n": 1})
    users.server.freeze()
    with pytest.raises(Exception, match=r"Timeout"):
        task.snapshot(1)
    users.server.thaw()
    write(task, {"user": "b", "n": 2})
    task.snapshot(2)
    assert users["a"] == {"user": "a", "n": "1"} and users["b"] == {"user": "b", "n": "2"}
    lost, back = task.texts()
    assert "is not reached" in lost and "is reached again" in back


def test_rows_after_a_recovery_are_those_of_the_replay(users: Users) -> None:
    task = ReportingTask(users.sink())
    write(task, {"user": "a", "n": 1})
    task.snapshot(1)
    write(task, {"user": "a", "n": 2})
    task.output.restore(())
    write(task, {"user": "a", "n": 5})
    task.snapshot(2)
    assert users["a"]["n"] == "5"


def test_keys_expire(users: Users) -> None:
    task = ReportingTask(users.sink(ttl="1h", fields=("n",)), "at_least_once")
    write(task, {"user": "a", "n": 1})
    task.sink.execute(TICK)
    assert users["a"] == {"n": "1"}
    assert 3_500_000 < users.client.pttl(f"{users.prefix}:a") <= 3_600_000


def test_a_key_that_holds_something_else_is_reported_and_the_batch_repeated(users: Users) -> None:
    users.client.set(f"{users.prefix}:a", "text")
    task = ReportingTask(users.sink(), "at_least_once")
    write(task, {"user": "a", "n": 1}, {"user": "b", "n": 2})
    for _ in range(2):
        task.sink.execute(TICK)
    assert task.collector.acked == [] and users["b"]["n"] == "2"
    assert f"{users.prefix}:a" in task.texts()[0]
    users.client.delete(f"{users.prefix}:a")
    task.sink.execute(TICK)
    assert users["a"]["n"] == "1" and len(task.collector.acked) == 2
    staged = ReportingTask(users.sink())
    users.client.set(f"{users.prefix}:c", "text")
    write(staged, {"user": "c", "n": 1})
    with pytest.raises(TopoEnvironmentError, match="cannot be written"):
        staged.snapshot(1)


@pytest.mark.parametrize("row", [{"n": 1}, {"user": None, "n": 1}, {"user": 1.5, "n": 1}, {"user": "a", "n": [1]}])
def test_a_tuple_without_a_usable_key_or_value_fails_alone(users: Users, row: dict[str, Any]) -> None:
    task = ReportingTask(users.sink())
    with pytest.raises(UserError):
        write(task, row)
    write(task, {"user": "b", "n": 2})
    task.snapshot(1)
    assert users["b"]["n"] == "2"


@pytest.mark.parametrize("key", ["user", "user:{}", "user:{user", "user:{user!r}", "user:{user:>5}", "user:{user.name}", 5])
def test_a_key_without_names_of_fields_is_refused(key: Any) -> None:
    with pytest.raises(ConfigError, match="RedisSink: key="):
        RedisSink("redis://localhost", key)


def test_a_brace_of_a_hash_tag_is_written_twice(users: Users) -> None:
    sink = RedisSink(users.server.address, f"{{{{{users.prefix}}}}}:{{user}}")
    task = ReportingTask(sink)
    write(task, {"user": "a", "n": 1})
    task.snapshot(1)
    assert users.client.hgetall(f"{{{users.prefix}}}:a") == {"user": "a", "n": "1"}
