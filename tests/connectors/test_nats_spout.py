"""A JetStream stream as a source: on a real server."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.spout_tasks import resumed, turns_until
from tests.servers import nats
from tests.servers.nats import NatsProcess
from topo import ConfigError, NatsSpout, PartitionedSpout
from topo.testing.contracts import PartitionedSpoutContract, SourceUnderTest
from topo.testing.partition_harness import PartitionHarness

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("nats")]


class Subjects(SourceUnderTest):
    """The subjects of a new stream."""

    def __init__(self, server: NatsProcess) -> None:
        self.server, self.stream = server, server.make_stream()

    def spout(self, **options: Any) -> PartitionedSpout:
        given = {"value_deserializer": "json", "pattern": f"{self.stream}.*", "timeout": "300ms", **options}
        return NatsSpout(self.server.address, self.stream, **given)

    def add(self, name: str, numbers: Sequence[int | None]) -> None:
        messages = [b"{" if number is None else str(number).encode() for number in numbers]
        self.server.publish(f"{self.stream}.{name}", *messages)

    append = poison = add


@pytest.fixture
def subjects(nats_server: NatsProcess) -> Subjects:
    return Subjects(nats_server)


class TestNatsSpout(PartitionedSpoutContract):
    @pytest.fixture(autouse=True)
    def _server(self, nats_server: NatsProcess) -> None:
        self.server = nats_server

    def source(self, folder: Path) -> SourceUnderTest:
        return Subjects(self.server)


# -- messages that are removed -----------------------------------------------------------------------------------------------


def reading(subjects: Subjects, **options: Any) -> PartitionHarness:
    """A task that has read five messages of a whole stream, and was stopped."""
    subjects.add("a", range(5))
    harness = PartitionHarness(lambda: subjects.spout(pattern=None, **options))
    harness.turns()
    harness.stop()
    return harness


def keep(subjects: Subjects, first: int) -> None:
    """Remove the messages before a sequence number."""

    async def purge(_client: Any, stream_context: Any) -> None:
        await stream_context.purge_stream(subjects.stream, seq=first)

    subjects.server.run(purge)


def make_again(subjects: Subjects) -> None:
    async def make(_client: Any, stream_context: Any) -> None:
        await stream_context.delete_stream(subjects.stream)
        await stream_context.add_stream(name=subjects.stream, subjects=[f"{subjects.stream}.>"])

    subjects.server.run(make)


def test_messages_that_were_removed_before_they_were_read_are_reported_and_not_passed_over(subjects: Subjects) -> None:
    harness = reading(subjects)
    subjects.add("a", range(5, 10))
    keep(subjects, 8)
    assert "messages 6 to 7 of stream" in resumed(harness)[0]
    harness.clock.advance("1m")
    harness.turns()
    assert harness.read == {">": [0, 1, 2, 3, 4]}, "on_lost='fail' holds the partition"


def test_lost_messages_can_be_passed_over(subjects: Subjects) -> None:
    harness = reading(subjects, on_lost="skip")
    subjects.add("a", range(5, 10))
    keep(subjects, 8)
    assert len(resumed(harness)) == 1
    assert harness.read == {">": [0, 1, 2, 3, 4, 7, 8, 9]}


def test_messages_that_were_removed_when_they_had_been_read_are_not_lost(subjects: Subjects) -> None:
    harness = reading(subjects)
    keep(subjects, 6)
    subjects.add("a", [5])
    assert resumed(harness) == [] and harness.read == {">": [0, 1, 2, 3, 4, 5]}


@pytest.mark.parametrize("on_lost", ["fail", "skip"])
def test_a_stream_that_was_made_again_is_reported_and_read_from_its_beginning(subjects: Subjects, on_lost: str) -> None:
    harness = reading(subjects, on_lost=on_lost)
    make_again(subjects)
    subjects.add("a", range(10, 18))
    assert "was made again" in resumed(harness)[0]
    assert harness.read == {">": [0, 1, 2, 3, 4, *(range(10, 18) if on_lost == "skip" else [])]}


def test_of_one_subject_it_is_reported_once_that_messages_may_have_been_removed(subjects: Subjects) -> None:
    subjects.add("a", [1])
    harness = PartitionHarness(subjects.spout)
    harness.turns()
    harness.stop()
    subjects.add("b", range(5))
    subjects.add("a", [2])
    keep(subjects, 4)
    (error,) = resumed(harness)
    assert "is not known" in error
    assert harness.read[f"{subjects.stream}.a"] == [1, 2]


# -- where reading begins ----------------------------------------------------------------------------------------------------


def test_latest_begins_behind_the_last_message_and_a_crash_before_any_row_does_not_move_it(subjects: Subjects) -> None:
    subjects.add("a", range(5))
    harness = PartitionHarness(lambda: subjects.spout(start="latest"))
    harness.turns()
    harness.stop()
    subjects.add("a", [5, 6])
    assert resumed(harness) == []
    subjects.add("late", [10])
    harness.discover()
    assert harness.read == {f"{subjects.stream}.a": [5, 6], f"{subjects.stream}.late": [10]}


def test_a_message_has_its_subject_number_time_and_headers(subjects: Subjects) -> None:
    began = int(time.time() * 1000)

    async def publish(_client: Any, stream_context: Any) -> None:
        await stream_context.publish(f"{subjects.stream}.a", b"7", headers={"Trace": "x"})

    subjects.server.run(publish)
    metadata = ("stream", "subject", "sequence", "headers", "timestamp")
    harness = PartitionHarness(lambda: subjects.spout(metadata=metadata))
    harness.turns()
    ((_, _, (value, *rest, timestamp)),) = harness.all_rows()
    assert (value, rest) == (7, [subjects.stream, f"{subjects.stream}.a", 1, {"Trace": "x"}])
    assert began <= timestamp <= time.time() * 1000


def test_filters_are_partitions_and_more_messages_than_a_request_takes_are_read_in_order(subjects: Subjects) -> None:
    subjects.add("a", range(100))
    subjects.add("b.x", range(30))
    subjects.add("c", [1])
    filters = [f"{subjects.stream}.a", f"{subjects.stream}.b.*"]
    harness = PartitionHarness(lambda: subjects.spout(pattern=None, subjects=filters, batch=7), tasks=2)
    harness.turns(40)
    assert harness.read == {filters[0]: list(range(100)), filters[1]: list(range(30))}


# -- faults ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["killed", "stopped", "frozen"])
def test_a_fault_of_the_server_is_reported_once_and_reading_continues(subjects: Subjects, fault: str) -> None:
    server = subjects.server
    subjects.add("a", range(50))
    harness = PartitionHarness(lambda: subjects.spout(batch=10))
    turns_until(harness, 10)
    {"killed": server.kill, "stopped": server.stop, "frozen": server.freeze}[fault]()
    for _ in range(4):
        harness.clock.advance("10s")
        harness.turns(1)
    server.thaw() if fault == "frozen" else server.start_again()
    turns_until(harness, 50)
    subjects.add("a", [50])
    turns_until(harness, 51)
    assert harness.read == {f"{subjects.stream}.a": list(range(51))}
    lost, back = map(str, harness.errors)
    assert "is not reached, and it is tried again" in lost and "is reached again" in back


def test_a_consumer_that_somebody_removes_is_made_again(subjects: Subjects) -> None:
    subjects.add("a", range(10))
    harness = PartitionHarness(lambda: subjects.spout(batch=5))
    turns_until(harness, 5)

    async def remove(_client: Any, stream_context: Any) -> None:
        for consumer in await stream_context.consumers_info(subjects.stream):
            await stream_context.delete_consumer(subjects.stream, consumer.name)

    subjects.server.run(remove)
    turns_until(harness, 10)
    assert harness.read == {f"{subjects.stream}.a": list(range(10))}


@pytest.mark.parametrize("login", ["", f"{nats.USER}:wrong-{nats.PASSWORD}@"])
def test_a_wrong_password_is_an_error_of_open_which_does_not_show_it(tmp_path: Path, login: str) -> None:
    server = nats.start(tmp_path, "--user", nats.USER, "--pass", nats.PASSWORD)
    try:
        url = server.address.replace("nats://", f"nats://{login}")
        with pytest.raises(ConfigError, match="refuses this user") as refused:
            PartitionHarness(lambda: NatsSpout(url, "ORDERS"))
        assert nats.PASSWORD not in str(refused.value)
    finally:
        server.stop()


def test_a_stream_that_is_missing_or_forgets_delivered_messages_is_an_error_of_open(nats_server: NatsProcess) -> None:
    with pytest.raises(ConfigError, match="has no stream 'MISSING'"):
        PartitionHarness(lambda: NatsSpout(nats_server.address, "MISSING"))
    queue = nats_server.make_stream(retention="workqueue")
    with pytest.raises(ConfigError, match="is a work queue"):
        PartitionHarness(lambda: NatsSpout(nats_server.address, queue))
    interest = nats_server.make_stream(retention="interest")
    with pytest.raises(ConfigError, match="has interest retention"):
        PartitionHarness(lambda: NatsSpout(nats_server.address, interest))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"stream": "a.b"}, "name of a stream"),
        ({"subjects": ()}, "different filters"),
        ({"subjects": ("o.>", "o.a")}, "'o.>' and 'o.a' overlap"),
        ({"subjects": ("o.*.a", "p", "o.b.*")}, "overlap"),
        ({"subjects": "a", "pattern": "b.*"}, "either subjects or pattern"),
        ({"start": 1}, "'earliest' or 'latest'"),
        ({"batch": 0}, "at least 1"),
        ({"timestamp": "at"}, "'record' or None"),
        ({"servers": "localhost"}, "URLs"),
        ({"timeout": "0s"}, "longer than nothing"),
        ({"config": {"allow_reconnect": True}}, "allow_reconnect"),
        ({"metadata": ("offset",)}, "'offset'"),
    ],
)
def test_arguments_that_cannot_work_are_refused(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        NatsSpout(**{"servers": "nats://localhost", "stream": "S", **arguments})


@pytest.mark.parametrize("durable", [None, "shared"])
def test_a_message_whose_sender_has_named_a_header_as_the_server_does_is_read(subjects: Subjects, durable: str | None) -> None:
    async def publish(client: Any, stream_context: Any) -> None:
        await stream_context.publish(f"{subjects.stream}.a", b"1", headers={"Status": "404", "Description": "of an order"})

    subjects.server.run(publish)
    subjects.add("a", [2])
    harness = PartitionHarness(lambda: subjects.spout(pattern=None, durable=durable, metadata=("headers",)))
    harness.turns(20)
    assert [(number, headers.get("Status")) for _, _, (number, headers) in harness.all_rows()] == [(1, "404"), (2, None)]
