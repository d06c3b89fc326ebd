"""A Redis stream as a target: on a real server."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.connectors.sink_tasks import ReportingTask, check_kills_at_requests
from tests.contract.two_phase_sinks import KindContract, SinkKind
from tests.servers import redis
from tests.servers.redis import RedisProcess
from tests.unit.connectors.drive import TICK, tracked
from topo import ConfigError, RedisStreamSink, SinkBlockedError, UnsupportedValueError
from topo.connectors import spilling
from topo.connectors.redis import stream_sink

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("redis")]


def kind_on(server: RedisProcess) -> SinkKind:
    """A sink whose stream is named for the test's folder."""
    run, address = secrets.token_hex(4), server.address

    def key(folder: Path) -> str:
        return f"{run}{folder}"

    def rows(folder: Path) -> list[int]:
        return [int(entry["n"]) for _, entry in redis.client_at(address).xrange(key(folder))]

    def staged(folder: Path) -> list[str]:
        client = redis.client_at(address)
        lists = [name for name in client.scan_iter("topo:*", count=1000) if f"{{{key(folder)}}}" in name]
        return [name for name in lists if client.type(name) == "list"]

    return SinkKind("Redis stream", lambda folder: RedisStreamSink(address, key(folder)), rows, staged)


@pytest.fixture
def kind(redis_server: RedisProcess) -> SinkKind:
    return kind_on(redis_server)


def small_steps(set_to: Callable[[object, str, int], None]) -> None:
    """Have two rows staged and published at a time."""
    set_to(stream_sink, "_SPILL_ROWS", 2)
    set_to(stream_sink, "_STEP_ROWS", 2)


@pytest.fixture(params=["in memory", "spilled"])
def steps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Transactions that are staged and published at once, and in several steps."""
    if request.param == "spilled":
        small_steps(monkeypatch.setattr)


@pytest.mark.usefixtures("steps")
class TestContract(KindContract):
    """The promises of every two-phase sink."""


# -- faults ------------------------------------------------------------------------------------------------------------------


def _counted(step: Callable[[], None], call: Callable[..., Any]) -> Callable[..., Any]:
    def counted(*arguments: Any, **options: Any) -> Any:
        step()
        return call(*arguments, **options)

    return counted


def count_requests(step: Callable[[], None]) -> None:
    """Count each request twice: before it is sent, and before its reply is read."""
    from redis.connection import AbstractConnection

    small_steps(setattr)
    for name in ("send_packed_command", "read_response"):
        setattr(AbstractConnection, name, _counted(step, getattr(AbstractConnection, name)))


def test_killed_before_and_after_any_request_a_sink_recovers_the_rows_of_the_checkpoint(
    redis_server: RedisProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_steps(monkeypatch.setattr)
    kind = kind_on(redis_server)
    check_kills_at_requests(kind, tmp_path, count_requests)


class Target:
    """A stream of a test."""

    def __init__(self, server: RedisProcess) -> None:
        self.server, self.client, self.key = server, server.client(), f"out-{secrets.token_hex(4)}"

    def sink(self, **options: Any) -> RedisStreamSink:
        return RedisStreamSink(self.server.address, self.key, **{"timeout": "300ms", **options})

    @property
    def rows(self) -> list[int]:
        return [int(entry["n"]) for _, entry in self.client.xrange(self.key)]


@pytest.fixture
def target(redis_server: RedisProcess) -> Target:
    return Target(redis_server)


def test_a_transaction_survives_a_kill_of_the_server(target: Target) -> None:
    task = ReportingTask(target.sink())
    task.write(1, 2)
    task.snapshot(1)
    task.write(3)
    target.server.kill()
    for _ in range(2):
        with pytest.raises(redis_errors().ConnectionError):
            task.output.complete(1)
        with pytest.raises(redis_errors().ConnectionError):
            task.snapshot(2)
    target.server.start_again()
    task.output.complete(1)
    task.snapshot(3)
    task.output.complete(3)
    assert target.rows == [1, 2, 3]
    lost, back = task.texts()
    assert "is not reached" in lost and "is reached again" in back


@pytest.mark.parametrize("step", ["staged", "staged, and more rows come", "published"])
def test_a_request_that_a_frozen_server_answers_too_late_counts_once(target: Target, step: str) -> None:
    """The server performs the request when it continues, and that of the repetition as well."""
    task = ReportingTask(target.sink())
    task.write(1, 2)
    if step == "published":
        task.snapshot(1)
    target.server.freeze()
    for _ in range(3):
        with pytest.raises(redis_errors().TimeoutError):
            task.output.complete(1) if step == "published" else task.snapshot(1)
    target.server.thaw()
    if step != "staged":
        task.write(3)
    if step != "published":
        task.snapshot(1)
    task.output.complete(1)
    if step == "staged":
        task.write(3)
    task.snapshot(2)
    task.output.complete(2)
    assert target.rows == [1, 2, 3]


def test_rows_wait_while_the_server_is_full_and_too_many_end_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_sink, "_SPILL_ROWS", 2)
    monkeypatch.setattr(spilling, "_MOST_ROWS", 20)
    with TemporaryDirectory(prefix="redis-") as folder:
        server = redis.start(Path(folder), "--maxmemory-policy", "noeviction")
        try:
            target = Target(server)
            task = ReportingTask(target.sink())
            task.write(1, 2)
            task.snapshot(1)
            target.client.config_set("maxmemory", 1)
            task.write(*range(3, 10))
            assert ["command not allowed when used memory" in text and "tried again" in text for text in task.texts()] == [True]
            with pytest.raises(redis_errors().ResponseError, match="used memory"):
                task.output.complete(1)
            with pytest.raises(redis_errors().ResponseError, match="used memory"):
                task.snapshot(2)
            with pytest.raises(SinkBlockedError, match="rows wait in memory"):
                task.write(*range(100, 130))
            target.client.config_set("maxmemory", 0)
            task.output.complete(1)
            task.snapshot(3)
            task.output.complete(3)
            assert target.rows[:9] == list(range(1, 10))
        finally:
            server.stop()


def redis_errors() -> Any:
    import redis.exceptions

    return redis.exceptions


def test_a_key_that_holds_no_stream_is_reported_and_nothing_is_lost(target: Target) -> None:
    target.client.set(target.key, "text")
    task = ReportingTask(target.sink())
    task.write(1, 2)
    task.snapshot(1)
    with pytest.raises(redis_errors().ResponseError, match="WRONGTYPE"):
        task.output.complete(1)
    target.client.delete(target.key)
    task.output.complete(1)
    assert target.rows == [1, 2]


@pytest.mark.parametrize("lost", ["all", "some"])
def test_staged_rows_that_are_gone_are_reported_as_lost(target: Target, lost: str) -> None:
    task = ReportingTask(target.sink())
    task.write(1, 2, 3)
    task.snapshot(1)
    (name,) = target.client.smembers(f"topo:{{{target.key}}}:test.sink:staged")
    _ = target.client.delete(name) if lost == "all" else target.client.ltrim(name, 1, -1)
    task.output.complete(1)
    assert f"and {0 if lost == 'all' else 2} of them are at" in task.texts()[0]
    assert target.rows == []


def test_rows_that_vanish_before_their_checkpoint_block_the_sink(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_sink, "_SPILL_ROWS", 2)
    task = ReportingTask(target.sink())
    task.write(1, 2, 3)
    target.client.flushdb()
    with pytest.raises(SinkBlockedError, match="somebody has removed them"):
        task.snapshot(1)


def test_with_at_least_once_a_batch_waits_for_a_server_that_was_killed(target: Target) -> None:
    task = ReportingTask(target.sink(max_batch=2), "at_least_once")
    target.server.kill()
    task.write(1, 2)
    task.sink.execute(TICK)
    task.write(3, 4, 5)
    assert task.collector.acked == []
    target.server.start_again()
    for _ in range(4):
        task.sink.execute(TICK)
    assert target.rows == [1, 2, 3, 4, 5] and len(task.collector.acked) == 5
    assert "is not reached" in task.texts()[0]


def test_a_stream_is_trimmed_to_its_length(target: Target) -> None:
    for delivery in ("exactly_once", "at_least_once"):
        task = ReportingTask(target.sink(maxlen=100), delivery)
        task.write(*range(1000))
        if delivery == "exactly_once":
            task.snapshot(1)
            task.output.complete(1)
        assert 100 <= len(target.rows) <= 300 and target.rows[-1] == 999


def test_rows_that_make_no_entry_are_refused_one_by_one(target: Target) -> None:
    task = ReportingTask(target.sink(fields=("n",)))
    for values in ({"n": None}, {"n": [1]}, {"n": b"1"}):
        with pytest.raises(UnsupportedValueError):
            task.sink.execute(tracked(**values))
    task.write(1)
    task.snapshot(1)
    task.output.complete(1)
    assert target.rows == [1]


def test_a_wrong_password_is_an_error_of_open_which_does_not_show_it(locked_server: RedisProcess) -> None:
    url = locked_server.address.replace("unix://", "unix://:planted-wrong@")
    with pytest.raises(ConfigError, match="Give user and password in the url") as refused:
        ReportingTask(RedisStreamSink(url, "out"))
    assert "planted" not in str(refused.value)


def test_keys_beside_a_stream_are_in_its_part_of_a_cluster() -> None:
    tags = [stream_sink.hash_tag(key) for key in ("orders", "{shop}:orders", "a{shop}b{c}", "{}orders", "{orders", "a}b{c}")]
    assert tags == ["orders", "shop", "shop", "{}orders", "{orders", "c"]


def test_the_rights_that_the_page_names_are_enough(target: Target) -> None:
    rights = ("+eval", "+xadd", "+del", "+multi", "+exec", "+@list", "+@set", "+@hash")
    target.client.execute_command("ACL", "SETUSER", target.key, "on", ">pw", "~*", *rights)
    address = target.server.address.replace("unix://", f"unix://{target.key}:pw@")
    for delivery, rows in (("exactly_once", [1, 2]), ("at_least_once", [1, 2, 1, 2])):
        task = ReportingTask(RedisStreamSink(address, target.key, max_batch=2), delivery)
        task.write(1, 2)
        if delivery == "exactly_once":
            task.snapshot(1)
            task.output.complete(1)
        assert target.rows == rows


def test_rows_of_two_topologies_of_one_name_are_published_and_the_name_is_reported(target: Target) -> None:
    mine, other = ReportingTask(target.sink()), ReportingTask(target.sink())
    for number, (first, second) in enumerate([(1, 2), (3, 4)], 1):
        mine.write(first)
        other.write(second)
        mine.snapshot(number)
        other.snapshot(number)
        mine.output.complete(number)
        other.output.complete(number)
    assert target.rows == [1, 2, 3, 4]
    assert mine.texts() == []
    (error,) = other.texts()
    assert "another process has published" in error and "as task 0 of 'test.sink'" in error and "under another name" in error
