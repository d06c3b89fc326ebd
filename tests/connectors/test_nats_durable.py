"""NatsSpout with a durable consumer, on a real server: shared messages, redeliveries, faults, processes killed."""

from __future__ import annotations

import json
import secrets
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.spout_tasks import until
from tests.integration.conftest import no_process_is_left, scene
from tests.integration.support import Scene, eventually, flow, kill, pid_of
from tests.servers.nats import NatsProcess
from topo import ConfigError, NatsSpout, TaskContext, TopologyConfig
from topo.testing.partition_harness import PartitionHarness

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("nats")]
__all__ = ["no_process_is_left", "scene"]

PATIENCE_S = 60.0


def harness_of(server: NatsProcess, stream: str, **options: Any) -> PartitionHarness:
    given = {"durable": "shared", "value_deserializer": "json", "timeout": "500ms", "ack_wait": "1s", **options}
    return PartitionHarness(lambda: NatsSpout(server.address, stream, **given))


def put(server: NatsProcess, stream: str, *numbers: int) -> None:
    server.publish(f"{stream}.a", *[str(number).encode() for number in numbers])


def values(harness: PartitionHarness, count: int) -> list[Any]:
    until(harness, lambda: len(harness.all_rows()) >= count)
    harness.turns(3)
    return [row[0] for _, _, row in harness.all_rows()]


def commit(harness: PartitionHarness) -> None:
    for task in harness.tasks:
        task.commit()


def info_of(server: NatsProcess, stream: str) -> Any:
    async def ask(_client: Any, stream_context: Any) -> Any:
        return await stream_context.consumer_info(stream, "shared")

    return server.run(ask)


def waiting(server: NatsProcess, stream: str) -> tuple[int, int]:
    """Return how many messages the consumer has given without an acknowledgement, and how many it has not given."""
    info = info_of(server, stream)
    return info.num_ack_pending, info.num_pending


def make_consumer(server: NatsProcess, stream: str, **settings: Any) -> None:
    """Make the shared consumer by a request of another program: its client does not know all settings."""

    async def make(client: Any, _stream_context: Any) -> None:
        config = {"durable_name": "shared", "ack_policy": "explicit", "ack_wait": 30_000_000_000, **settings}
        request = json.dumps({"stream_name": stream, "config": config}).encode()
        answer = await client.request(f"$JS.API.CONSUMER.DURABLE.CREATE.{stream}.shared", request, timeout=10)
        assert "error" not in json.loads(answer.data), answer.data

    server.run(make)


def remove_stream(server: NatsProcess, stream: str) -> None:
    async def remove(_client: Any, stream_context: Any) -> None:
        await stream_context.delete_stream(stream)

    server.run(remove)


def is_settled(server: NatsProcess, stream: str) -> bool:
    return waiting(server, stream) == (0, 0)


# -- reading -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("retention", ["limits", "workqueue", "interest"])
def test_done_messages_are_acknowledged_and_others_are_not(nats_server: NatsProcess, retention: str) -> None:
    stream = nats_server.make_stream(retention=retention)
    harness = harness_of(nats_server, stream)
    harness.turns()
    put(nats_server, stream, 1, 2)
    assert values(harness, 2) == [1, 2]
    commit(harness)
    put(nats_server, stream, 3)
    assert values(harness, 3) == [1, 2, 3]
    until(harness, lambda: waiting(nats_server, stream) == (1, 0))
    commit(harness)
    until(harness, lambda: is_settled(nats_server, stream))
    harness.stop()


def test_a_message_that_cannot_be_decoded_is_given_up_and_acknowledged(nats_server: NatsProcess) -> None:
    stream = nats_server.make_stream()
    harness = harness_of(nats_server, stream, fields=("n",), metadata=("subject", "sequence", "timestamp"))
    nats_server.publish(f"{stream}.a", b'{"n": 1}', b"{", b'{"n": 2}')
    until(harness, lambda: len(harness.all_rows()) == 2)
    assert [row[:3] for _, _, row in harness.all_rows()] == [(1, f"{stream}.a", 1), (2, f"{stream}.a", 3)]
    assert [record for _, _, record in harness.given_up] == [b"{"]
    commit(harness)
    until(harness, lambda: is_settled(nats_server, stream))
    harness.stop()


def test_what_is_not_done_is_given_to_the_next_process_when_it_was_not_kept_for_a_while(nats_server: NatsProcess) -> None:
    stream = nats_server.make_stream()
    put(nats_server, stream, 1, 2)
    harness = harness_of(nats_server, stream)
    assert values(harness, 2) == [1, 2]
    commit(harness)
    put(nats_server, stream, 3, 4)
    assert values(harness, 4) == [1, 2, 3, 4]
    harness.stop(store=False)
    harness.start(1)
    assert values(harness, 6) == [1, 2, 3, 4, 3, 4]
    commit(harness)
    harness.stop()
    assert is_settled(nats_server, stream)


def test_held_messages_are_kept_longer_than_the_consumer_waits(nats_server: NatsProcess) -> None:
    stream = nats_server.make_stream()
    put(nats_server, stream, 1)
    harness, other = (harness_of(nats_server, stream, ack_wait="2s") for _ in range(2))
    assert values(harness, 1) == [1]
    end = time.monotonic() + 5
    while time.monotonic() < end:
        harness.clock.advance("300ms")
        harness.turns(1)
        other.turns(1)
        time.sleep(0.05)
    assert other.all_rows() == [] and len(harness.all_rows()) == 1
    assert info_of(nats_server, stream).num_redelivered == 0
    for one in (harness, other):
        one.stop()


def test_tasks_and_other_programs_share_the_messages(nats_server: NatsProcess) -> None:
    stream = nats_server.make_stream()
    put(nats_server, stream, *range(40))
    harness = harness_of(nats_server, stream, batch=5)
    harness.stop()
    harness.start(2)
    seen: list[int] = []

    async def take(_client: Any, stream_context: Any) -> None:
        subscription = await stream_context.pull_subscribe_bind("shared", stream)
        for message in await subscription.fetch(7, timeout=5):
            seen.append(json.loads(message.data))
            await message.ack()

    nats_server.run(take)
    until(harness, lambda: (commit(harness), len(harness.all_rows()) + len(seen) >= 40)[1])
    rows = harness.all_rows()
    assert sorted([*seen, *(row[0] for _, _, row in rows)]) == list(range(40)) and len(seen) == 7
    assert {name for name, _, _ in rows} == {"shared-0", "shared-1"}
    harness.stop()


def test_a_consumer_that_gives_few_messages_at_a_time_is_no_lost_server(nats_server: NatsProcess) -> None:
    stream = nats_server.make_stream()
    make_consumer(nats_server, stream, max_ack_pending=10)
    put(nats_server, stream, *range(60))
    harness, other = harness_of(nats_server, stream), harness_of(nats_server, stream)
    assert values(harness, 10) == list(range(10))
    # The other one waits while all that may be open is held here.
    other.turns(4)
    assert (harness.all_rows(), other.all_rows())[1] == [] and waiting(nats_server, stream) == (10, 50)
    assert other.tasks[0].spout._loop._reader.lag() == 50

    def take() -> bool:
        for one in (harness, other):
            one.clock.advance("100ms")
            one.turns(1)
            commit(one)
        return len(harness.all_rows()) + len(other.all_rows()) >= 60

    until(harness, take)
    rows = [row[0] for _, _, row in (*harness.all_rows(), *other.all_rows())]
    assert sorted(rows) == list(range(60)) and harness.errors == other.errors == []
    harness.stop()
    other.stop()


def test_the_lag_of_a_consumer_is_counted_once_and_kept_while_none_are_fetched(nats_server: NatsProcess) -> None:
    stream = nats_server.make_stream()
    put(nats_server, stream, *range(20))
    harness = harness_of(nats_server, stream, batch=5)
    harness.stop()
    harness.start(2)
    readers = [task.spout._loop._reader for task in harness.tasks]
    assert readers[0].lag() is None
    until(harness, lambda: len(harness.all_rows()) >= 10)
    seen = readers[0].lag()
    assert seen and readers[1].lag() <= 5
    readers[0]._keep()
    readers[0]._take()
    assert readers[0].lag() == seen
    harness.stop()


def test_a_consumer_that_takes_small_requests_is_asked_by_such(nats_server: NatsProcess) -> None:
    stream = nats_server.make_stream()
    make_consumer(nats_server, stream, max_batch=3)
    put(nats_server, stream, *range(10))
    harness = harness_of(nats_server, stream)
    assert values(harness, 10) == list(range(10))
    assert harness.errors == []
    harness.stop()


def test_what_the_server_refuses_is_reported_once(nats_server: NatsProcess) -> None:
    stream = nats_server.make_stream()
    harness = harness_of(nats_server, stream)
    harness.turns(2)

    async def make(client: Any, stream_context: Any) -> None:
        await stream_context.delete_consumer(stream, "shared")
        config = {"durable_name": "shared", "ack_policy": "explicit", "deliver_subject": "elsewhere"}
        request = json.dumps({"stream_name": stream, "config": config}).encode()
        await client.request(f"$JS.API.CONSUMER.DURABLE.CREATE.{stream}.shared", request, timeout=10)

    nats_server.run(make)
    until(harness, lambda: harness.errors)
    for _ in range(20):
        harness.clock.advance("1s")
        harness.turns(1)
    (error,) = map(str, harness.errors)
    assert "push based" in error
    harness.stop()


def test_a_new_consumer_begins_where_the_settings_have_it(nats_server: NatsProcess) -> None:
    stream = nats_server.make_stream()
    put(nats_server, stream, 1, 2)
    nats_server.publish(f"{stream}.b", b"10")
    harness = harness_of(nats_server, stream, start="latest", subjects=f"{stream}.a")
    harness.turns()
    put(nats_server, stream, 3)
    nats_server.publish(f"{stream}.b", b"11")
    assert values(harness, 1) == [3]
    harness.stop()


# -- faults ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["kill", "freeze"])
def test_a_fault_of_the_server_is_reported_once_and_repeats_no_message_that_is_held(nats_server: NatsProcess, fault: str) -> None:
    stream = nats_server.make_stream()
    put(nats_server, stream, *range(5))
    harness = harness_of(nats_server, stream, ack_wait="30s")
    assert values(harness, 5) == list(range(5))
    getattr(nats_server, fault)()
    until(harness, lambda: harness.errors)
    # Done while the server takes no acknowledgements.
    commit(harness)
    harness.clock.advance("10s")
    harness.turns(2)
    nats_server.start_again() if fault == "kill" else nats_server.thaw()
    until(harness, lambda: len(harness.errors) == 2)
    put(nats_server, stream, 5)
    assert values(harness, 6) == list(range(6))
    commit(harness)
    until(harness, lambda: is_settled(nats_server, stream))
    lost, back = map(str, harness.errors)
    assert "is not reached, and it is tried again" in lost and "is reached again" in back
    harness.stop()


def test_a_consumer_that_somebody_removes_is_made_again(nats_server: NatsProcess) -> None:
    stream = nats_server.make_stream(retention="workqueue")
    put(nats_server, stream, 1)
    harness = harness_of(nats_server, stream)
    assert values(harness, 1) == [1]
    commit(harness)
    until(harness, lambda: is_settled(nats_server, stream))

    async def remove(_client: Any, stream_context: Any) -> None:
        await stream_context.delete_consumer(stream, "shared")

    nats_server.run(remove)
    put(nats_server, stream, 2)
    assert values(harness, 2) == [1, 2]
    harness.stop()


def test_messages_of_a_stream_that_is_made_again_are_read(nats_server: NatsProcess) -> None:
    stream = nats_server.make_stream()
    put(nats_server, stream, 1, 2, 3, 4)
    harness = harness_of(nats_server, stream, ack_wait="30s")
    assert values(harness, 4) == [1, 2, 3, 4]
    for task in harness.tasks:
        task.commit()
    put(nats_server, stream, 5)
    assert values(harness, 5)[-1] == 5
    until(harness, lambda: waiting(nats_server, stream) == (1, 0))
    remove_stream(nats_server, stream)
    nats_server.make_stream(name=stream)
    put(nats_server, stream, 11, 12, 13, 14, 15)
    assert values(harness, 10)[5:] == [11, 12, 13, 14, 15]
    until(harness, lambda: waiting(nats_server, stream) == (5, 0))
    commit(harness)
    until(harness, lambda: is_settled(nats_server, stream))
    harness.stop()


def test_a_consumer_with_other_subjects_than_those_asked_for_is_refused(nats_server: NatsProcess) -> None:
    stream = nats_server.make_stream()
    make_consumer(nats_server, stream, filter_subject=f"{stream}.a")
    with pytest.raises(
        ConfigError, match=rf"gives '{stream}.a', and subjects= asks for '{stream}.b': .* another name as durable="
    ):
        harness_of(nats_server, stream, subjects=f"{stream}.b")
    put(nats_server, stream, 1)
    # Its own, or none: then the filter of the consumer counts.
    for given in ({"subjects": f"{stream}.a"}, {}):
        harness = harness_of(nats_server, stream, **given)
        assert values(harness, 1) == [1]
        harness.stop()


def test_what_cannot_work_is_refused(nats_server: NatsProcess) -> None:
    stream = nats_server.make_stream()

    async def make(_client: Any, stream_context: Any) -> None:
        from nats.js.api import AckPolicy, ConsumerConfig

        config = ConsumerConfig(durable_name="plain", ack_policy=AckPolicy.NONE)
        await stream_context.add_consumer(stream, config)

    nats_server.run(make)
    with pytest.raises(ConfigError, match="must be a pull consumer with explicit acknowledgements"):
        harness_of(nats_server, stream, durable="plain")
    once = TaskContext("t", "in", 1, config=TopologyConfig(delivery="exactly_once"))
    with pytest.raises(ConfigError, match="delivery='exactly_once' is refused; leave durable= out"):
        NatsSpout(nats_server.address, stream, durable="d").open(once, None)  # type: ignore[arg-type]
    for given, reason in (
        ({"durable": "a.b"}, "name of a consumer"),
        ({"durable": "d", "pattern": "x.*"}, "takes one filter"),
        ({"durable": "d", "subjects": ("a", "b")}, "takes one filter"),
        ({"durable": "d", "ack_wait": "100ms"}, "at least 1s"),
    ):
        with pytest.raises(ConfigError, match=reason):
            NatsSpout("nats://localhost", "S", **given)  # type: ignore[arg-type]


# -- a topology --------------------------------------------------------------------------------------------------------------

PASS = """
class Pass(BasicBolt):
    outputs = ("n",)

    def execute(self, tup, collector):
        collector.emit((tup["value"],))

"""


@pytest.mark.timeout(400)
def test_no_message_is_missing_though_processes_and_the_server_are_killed(
    scene: Scene, nats_server: NatsProcess, tmp_path: Path
) -> None:
    stream, out = nats_server.make_stream(retention="workqueue"), tmp_path / f"out-{secrets.token_hex(3)}"
    options = '"durable": "shared", "value_deserializer": "json", "timeout": "2s", "ack_wait": "2s"'
    source = f'builder.set_spout("in", NatsSpout({nats_server.address!r}, {stream!r}, **{{{options}}}), 2)'
    passed = 'builder.set_bolt("pass", Pass()).shuffle_grouping("in")'
    last = f'builder.set_bolt("out", JsonLinesSink({str(out)!r})).shuffle_grouping("pass")'
    settings = {"delivery": "at_least_once", "message_timeout": "20s"}
    running = scene.submit(scene.file(PASS + flow(source, passed, last)), **settings)

    def seen() -> Counter[int]:
        lines = out.read_text().split("\n")[:-1] if out.exists() else []
        return Counter(json.loads(line)["n"] for line in lines)

    for first, component in ((0, "in"), (200, "out")):
        put(nats_server, stream, *range(first, first + 200))
        eventually(lambda first=first: first in seen(), PATIENCE_S, what=f"message {first}")  # type: ignore[misc]
        kill(pid_of(running.status(), component))
    put(nats_server, stream, *range(400, 600))
    nats_server.kill()
    nats_server.start_again()
    eventually(lambda: set(seen()) >= set(range(600)), 2 * PATIENCE_S, what=f"all messages; {len(seen())} have come")
    eventually(lambda: is_settled(nats_server, stream), PATIENCE_S, what="the acknowledgements")
    running.kill()
