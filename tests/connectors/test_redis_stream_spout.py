"""Redis streams as a source: on a real server."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.spout_tasks import resumed, turns_until
from tests.servers import redis
from tests.servers.redis import RedisProcess
from topo import ConfigError, PartitionedSpout
from topo.connectors.redis import RedisStreamSpout
from topo.testing.contracts import PartitionedSpoutContract, SourceUnderTest
from topo.testing.partition_harness import PartitionHarness

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("redis")]


class Streams(SourceUnderTest):
    """Streams whose keys have a common beginning."""

    def __init__(self, server: RedisProcess) -> None:
        self.prefix = f"t{secrets.token_hex(4)}"
        self.url = server.address
        self.client = server.client()

    def key(self, name: str) -> str:
        return f"{self.prefix}:{name}"

    def spout(self, **options: Any) -> PartitionedSpout:
        given = {"fields": ("n",), "value_deserializer": "json", **options}
        return RedisStreamSpout(self.url, pattern=f"{self.prefix}:*", **given)

    def add(self, name: str, numbers: Sequence[int | None]) -> None:
        for number in numbers:
            self.client.xadd(self.key(name), {"n": "{" if number is None else number})

    append = poison = add

    def remove(self, name: str) -> None:
        self.client.delete(self.key(name))


@pytest.fixture
def streams(redis_server: RedisProcess) -> Streams:
    return Streams(redis_server)


class TestRedisStreamSpout(PartitionedSpoutContract):
    @pytest.fixture(autouse=True)
    def _server(self, redis_server: RedisProcess) -> None:
        self.server = redis_server

    def source(self, folder: Path) -> SourceUnderTest:
        return Streams(self.server)


def test_a_key_that_is_not_utf_8_is_reported_and_the_others_are_read(streams: Streams) -> None:
    streams.add("a", range(3))
    streams.client.xadd(f"{streams.prefix}:".encode() + b"\xff", {"n": 9})
    harness = PartitionHarness(streams.spout)
    harness.turns()
    streams.add("b", [3])
    harness.clock.advance("1m")
    harness.turns()
    assert harness.read == {streams.key("a"): [0, 1, 2], streams.key("b"): [3]}
    assert ["not UTF-8" in str(error) for error in harness.errors] == [True]


# -- entries that are removed ------------------------------------------------------------------------------------------------


def reading(streams: Streams, **options: Any) -> PartitionHarness:
    """A task that has read five entries of a stream."""
    streams.add("a", range(5))
    harness = PartitionHarness(lambda: streams.spout(**options))
    harness.turns()
    return harness


def trim(streams: Streams, kept: int) -> None:
    streams.client.xtrim(streams.key("a"), maxlen=kept, approximate=False)


@pytest.mark.parametrize("kept", [4, 1])
def test_entries_that_were_trimmed_before_they_were_read_are_reported_and_not_passed_over(streams: Streams, kept: int) -> None:
    harness = reading(streams)
    harness.stop()
    streams.add("a", range(5, 10))
    trim(streams, kept)
    errors = resumed(harness)
    assert f"has lost {5 - kept} entries" in errors[0] and streams.key("a") in errors[0]
    harness.clock.advance("1m")
    harness.turns()
    assert harness.read == {streams.key("a"): [0, 1, 2, 3, 4]}, "on_lost='fail' holds the stream"


def test_lost_entries_can_be_passed_over(streams: Streams) -> None:
    harness = reading(streams, on_lost="skip")
    harness.stop()
    streams.add("a", range(5, 10))
    trim(streams, 3)
    assert len(resumed(harness)) == 1
    streams.add("a", [10])
    harness.turns()
    assert harness.read == {streams.key("a"): [0, 1, 2, 3, 4, 7, 8, 9, 10]}
    assert len(harness.errors) == 1, "a loss is reported once"


@pytest.mark.parametrize("removal", ["trim", "delete", "trim all"])
def test_entries_that_are_removed_when_they_were_read_are_not_lost(streams: Streams, removal: str) -> None:
    harness = reading(streams)
    harness.stop()
    key, client = streams.key("a"), streams.client
    if removal == "trim all":
        trim(streams, 0)
    streams.add("a", range(5, 8))
    if removal == "trim":
        trim(streams, 3)
    elif removal == "delete":
        client.xdel(key, *[entry for entry, _ in client.xrange(key, count=5)])
    assert resumed(harness) == []
    assert harness.read == {key: list(range(8))}


def test_entries_that_are_trimmed_while_the_stream_is_read_are_reported(streams: Streams) -> None:
    harness = reading(streams)
    streams.add("a", range(5, 20))
    trim(streams, 2)
    harness.turns()
    assert "has lost 13 entries" in str(harness.errors[0])


def test_entries_that_were_trimmed_before_the_first_start_are_nobodys_loss(streams: Streams) -> None:
    streams.add("a", range(5))
    trim(streams, 2)
    harness = PartitionHarness(streams.spout)
    harness.turns()
    assert harness.errors == [] and harness.read == {streams.key("a"): [3, 4]}


@pytest.mark.parametrize("on_lost", ["fail", "skip"])
def test_a_stream_that_was_deleted_and_made_again_is_reported(streams: Streams, on_lost: str) -> None:
    harness = reading(streams, on_lost=on_lost)
    harness.stop()
    streams.remove("a")
    streams.add("a", [10])
    (error, *_) = resumed(harness)
    assert "was deleted" in error and streams.key("a") in error
    assert harness.read[streams.key("a")] == [0, 1, 2, 3, 4, *([10] if on_lost == "skip" else [])]
    streams.add("a", [11])
    harness.turns()
    assert len(harness.errors) == 1
    assert harness.read[streams.key("a")] == [0, 1, 2, 3, 4, *([10, 11] if on_lost == "skip" else [])]


def test_a_named_stream_that_is_deleted_is_reported_while_it_is_not_there(streams: Streams) -> None:
    streams.add("a", range(3))
    spout = {"fields": ("n",), "value_deserializer": "json"}
    harness = PartitionHarness(lambda: RedisStreamSpout(streams.url, streams.key("a"), **spout))
    harness.turns()
    streams.remove("a")
    harness.discover()
    assert "was deleted" in str(harness.errors[0])


# -- where reading begins ----------------------------------------------------------------------------------------------------


def test_latest_begins_behind_the_last_entry_and_a_crash_before_any_row_does_not_move_it(streams: Streams) -> None:
    streams.add("a", range(5))
    harness = PartitionHarness(lambda: streams.spout(start="latest"))
    harness.turns()
    harness.stop()
    streams.add("a", [5, 6])
    assert resumed(harness) == []
    streams.add("late", [10])
    harness.discover()
    assert harness.read == {streams.key("a"): [5, 6], streams.key("late"): [10]}


def test_a_named_stream_may_be_made_later(streams: Streams) -> None:
    harness = PartitionHarness(lambda: RedisStreamSpout(streams.url, streams.key("a"), fields=("n",), start="latest"))
    harness.turns()
    streams.add("a", [1])
    harness.turns()
    assert harness.read == {streams.key("a"): ["1"]} and harness.errors == []


def test_an_entry_has_a_time_an_id_and_its_stream(streams: Streams) -> None:
    streams.client.xadd(streams.key("a"), {"n": "7", "city": "Ulm"}, id="1700000000000-5")
    streams.client.xadd(streams.key("a"), {"n": "8"}, id="1700000000001-0")
    options = {"fields": ("n", "city?"), "metadata": ("stream", "id", "timestamp"), "value_deserializer": "text"}
    harness = PartitionHarness(lambda: streams.spout(**options))
    harness.turns()
    key = streams.key("a")
    assert [values for _, _, values in harness.all_rows()] == [
        ("7", "Ulm", key, "1700000000000-5", 1700000000000),
        ("8", None, key, "1700000000001-0", 1700000000001),
    ]
    assert [position for _, position, _ in harness.all_rows()] == [(1700000000000, 5, 1), (1700000000001, 0, 2)]


def test_more_entries_than_a_request_takes_are_read_in_their_order(streams: Streams) -> None:
    streams.add("a", range(250))
    streams.add("b", range(30))
    harness = PartitionHarness(lambda: streams.spout(batch=7))
    harness.turns(100)
    assert harness.read == {streams.key("a"): list(range(250)), streams.key("b"): list(range(30))}
    assert harness.tasks[0].spout._running._reader.lag() == 0


# -- faults ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["killed", "stopped", "frozen", "connections closed"])
def test_a_fault_of_the_server_is_reported_once_and_reading_continues(
    streams: Streams, redis_server: RedisProcess, fault: str
) -> None:
    streams.add("a", range(50))
    harness = PartitionHarness(lambda: streams.spout(batch=10, timeout="300ms"))
    turns_until(harness, 10)
    if fault == "frozen":
        redis_server.freeze()
    elif fault == "connections closed":
        streams.client.client_kill_filter(_type="normal", skipme=True)
    elif fault == "killed":
        redis_server.kill()
    else:
        redis_server.stop()
    for _ in range(4):
        harness.clock.advance("10s")
        harness.turns(1)
    if fault == "frozen":
        redis_server.thaw()
    elif fault in ("killed", "stopped"):
        redis_server.start_again()
    turns_until(harness, 50)
    streams.add("a", [50])
    turns_until(harness, 51)
    assert harness.read == {streams.key("a"): list(range(51))}
    lost = [error for error in harness.errors if "is not reached, and it is tried again" in str(error)]
    back = [error for error in harness.errors if "is reached again" in str(error)]
    # The client notices an idle connection that was closed, and opens another one.
    assert len(lost) == len(back) == (0 if fault == "connections closed" else 1), harness.errors
    assert len(harness.errors) == 2 * len(lost), harness.errors


def test_a_key_that_holds_no_stream_fails_alone(streams: Streams) -> None:
    streams.client.set(streams.key("wrong"), "text")
    streams.add("a", [1, 2])
    names = [streams.key("wrong"), streams.key("a")]
    harness = PartitionHarness(lambda: RedisStreamSpout(streams.url, names, fields=("n",)))
    harness.turns()
    assert harness.read == {streams.key("a"): ["1", "2"]}
    assert f"stream {streams.key('wrong')!r} cannot be read: WRONGTYPE" in str(harness.errors[0])
    streams.client.delete(streams.key("wrong"))
    streams.add("wrong", [3])
    harness.discover()
    assert harness.read == {streams.key("a"): ["1", "2"], streams.key("wrong"): ["3"]}
    streams.client.delete(streams.key("a"))
    streams.client.set(streams.key("a"), "text")
    harness.errors.clear()
    streams.add("wrong", [4])
    harness.discover()
    assert harness.read[streams.key("wrong")] == ["3", "4"] and f"stream {streams.key('a')!r}" in str(harness.errors[0])


PASSWORD = redis.PASSWORD


@pytest.mark.parametrize("login", ["", f":wrong-{PASSWORD}@"])
def test_a_wrong_password_is_an_error_of_open_which_does_not_show_it(locked_server: RedisProcess, login: str) -> None:
    url = locked_server.address.replace("unix://", f"unix://{login}")
    with pytest.raises(ConfigError, match=r"Give user and password in the url") as refused:
        PartitionHarness(lambda: RedisStreamSpout(url, "a"))
    assert PASSWORD not in str(refused.value)


def test_a_password_is_in_no_error_and_no_text_of_a_spout(locked_server: RedisProcess) -> None:
    url = locked_server.address.replace("unix://", f"unix://:{PASSWORD}@")
    spout = RedisStreamSpout(url, "a", timeout="300ms")
    harness = PartitionHarness(lambda: spout)
    harness.turns(3)
    locked_server.kill()
    harness.clock.advance("1m")
    harness.turns(3)
    locked_server.start_again()
    shown = [repr(spout), repr(spout._server), str(spout._server), *map(repr, harness.errors), *map(str, harness.errors)]
    assert harness.errors and PASSWORD not in "".join(shown)
