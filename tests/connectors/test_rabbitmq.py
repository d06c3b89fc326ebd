"""A real RabbitMQ broker: messages in and out, the broker killed, restarted and frozen."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.connectors.sink_tasks import ReportingTask
from tests.contract.two_phase_sinks import SinkKind, SinkTask, carried
from tests.integration.conftest import no_process_is_left
from tests.integration.support import eventually
from tests.servers.rabbitmq import MOST_BYTES, RabbitBroker, channel_at
from tests.unit.connectors.drive import TICK, tracked
from topo import ConfigError, RabbitSink, RabbitSpout, TaskContext, TopologyConfig, UserError
from topo.errors import TopoEnvironmentError, UnsupportedValueError
from topo.testing.partition_harness import PartitionHarness

# The broker takes a minute to start on a busy machine, and some seconds to have a leader for each queue.
pytestmark = [pytest.mark.server, pytest.mark.xdist_group("rabbitmq"), pytest.mark.timeout(600)]
__all__ = ["no_process_is_left"]

PATIENCE_S = 120.0


@pytest.fixture
def broker(rabbit_broker: RabbitBroker) -> RabbitBroker:
    """The broker."""
    return rabbit_broker


def put(broker: RabbitBroker, queue: str, *bodies: str, has_id: bool = True) -> None:
    """Publish, and wait until the broker has all."""
    from pika import BasicProperties, DeliveryMode

    with channel_at(broker.address) as channel:
        for number, body in enumerate(bodies):
            name = f"{queue}-{body}-{number}" if has_id else None
            channel.basic_publish("", queue, body, BasicProperties(message_id=name, delivery_mode=DeliveryMode.Persistent))


def taken(broker: RabbitBroker, queue: str) -> list[tuple[bytes, str]]:
    """Take all messages from a queue: bodies and ids."""
    from pika.exceptions import AMQPError

    found: list[tuple[bytes, str]] = []

    def has_taken() -> bool:
        # Behind a restart a quorum queue refuses requests until it has a leader; messages that it gave before, it gives again.
        got: list[Any] = []
        with suppress(AMQPError), channel_at(broker.address) as channel:
            while (one := channel.basic_get(queue))[0] is not None:
                got.append(one)
            if got:
                channel.basic_ack(got[-1][0].delivery_tag, multiple=True)
            found.extend((body, properties.message_id) for _, properties, body in got)
            return True
        return False

    eventually(has_taken, PATIENCE_S, what=f"queue {queue}")
    return found


def numbers(broker: RabbitBroker, queue: str) -> list[int]:
    return [json.loads(body)["n"] for body, _ in taken(broker, queue)]


class Reading:
    """Tasks that read; the test decides when rows are done."""

    def __init__(self, make: Callable[[], RabbitSpout]) -> None:
        self.harness = PartitionHarness(make)

    def until(self, condition: Callable[[], object]) -> None:
        end = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end, f"gave up waiting; rows {self.harness.all_rows()[-3:]}, errors {self.errors}"
            self.harness.turns(1)
            time.sleep(0.002)

    def values(self, count: int) -> list[Any]:
        self.until(lambda: len(self.harness.all_rows()) >= count)
        self.harness.turns(3)
        return [row[0] if len(row) == 1 else row for _, _, row in self.harness.all_rows()]

    @property
    def reader(self) -> Any:
        return self.harness.tasks[0].spout._reader  # type: ignore[attr-defined]

    @property
    def is_connected(self) -> bool:
        return bool(self.reader._consumer.is_reading)

    @property
    def errors(self) -> list[str]:
        return list(map(str, self.harness.errors))


@pytest.fixture
def reading(broker: RabbitBroker) -> Iterator[Callable[..., Reading]]:
    made: list[Reading] = []

    def read(queue: str, **options: Any) -> Reading:
        made.append(Reading(lambda: RabbitSpout(broker.address, queue, **{"value_deserializer": "text", **options})))
        return made[-1]

    yield read
    for one in made:
        one.harness.stop()


def settled(broker: RabbitBroker, queue: str) -> None:
    """Wait until the broker has nothing in a queue, and no reader of it."""

    def is_empty() -> bool:
        with channel_at(broker.address) as channel:
            state = channel.queue_declare(queue, passive=True).method
            return bool(state.message_count == 0 and state.consumer_count == 0)

    eventually(is_empty, PATIENCE_S, what=f"queue {queue} to be empty")


# -- the spout ---------------------------------------------------------------------------------------------------------------


def test_messages_are_read_with_what_belongs_to_them(broker: RabbitBroker, reading: Any) -> None:
    queue = broker.declare()
    put(broker, queue, '{"n": 1}', "{", '{"n": 2}')
    task = reading(
        queue, value_deserializer="json", fields=("n",), metadata=("routing_key", "exchange", "message_id", "redelivered")
    )
    assert task.values(2) == [(1, queue, "", f'{queue}-{{"n": 1}}-0', False), (2, queue, "", f'{queue}-{{"n": 2}}-2', False)]
    assert [record for _, _, record in task.harness.given_up] == [b"{"] and task.errors == []


def test_a_message_whose_headers_cannot_be_decoded_is_given_up_alone(
    broker: RabbitBroker, reading: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pika import BasicProperties

    queue = broker.declare()
    put(broker, queue, "a")
    with monkeypatch.context() as patched, channel_at(broker.address) as channel:
        # Milliseconds, where the protocol has seconds: behind the year 9999.
        patched.setattr("pika.data.calendar", SimpleNamespace(timegm=lambda _: 1_800_000_000_000))
        channel.basic_publish("", queue, "bad", BasicProperties(message_id="m", headers={"at": datetime.now(UTC)}))
    put(broker, queue, "b")
    task = reading(queue)
    assert task.values(2) == ["a", "b"]
    assert [record for _, _, record in task.harness.given_up] == [b"bad"] and task.errors == []


def test_what_is_not_done_is_delivered_to_the_next_process_and_the_rest_is_not(broker: RabbitBroker, reading: Any) -> None:
    queue = broker.declare()
    task = reading(queue)
    put(broker, queue, "1", "2")
    task.values(2)
    task.harness.tasks[0].commit()
    put(broker, queue, "3", "4")
    task.values(4)
    task.harness.stop(store=False)
    task.harness.start(1)
    assert task.values(6) == ["1", "2", "3", "4", "3", "4"]
    task.harness.tasks[0].commit()
    task.harness.stop()
    settled(broker, queue)


@pytest.mark.parametrize("fault", ["kill", "freeze"])
def test_a_lost_connection_repeats_no_message_with_an_id(broker: RabbitBroker, reading: Any, fault: str) -> None:
    queue = broker.declare()
    put(broker, queue, "1", "2", "3")
    task = reading(queue, heartbeat="2s", timeout="2s")
    task.values(3)
    first = task.reader._consumer.channel
    if fault == "kill":
        broker.kill()
    else:
        broker.freeze()
    task.until(lambda: not task.is_connected)
    task.until(lambda: task.errors)
    # Done while no channel takes their acknowledgements.
    task.harness.tasks[0].commit()
    if fault == "kill":
        broker.start_again()
    else:
        broker.thaw()
    task.until(lambda: task.is_connected and task.reader._consumer.channel > first)
    put(broker, queue, "4")
    assert task.values(4) == ["1", "2", "3", "4"]
    assert "is not reached" in task.errors[0] and "is read again" in task.errors[-1]
    task.harness.tasks[0].commit()
    task.harness.stop()
    settled(broker, queue)


def test_tasks_share_a_queue(broker: RabbitBroker, reading: Any) -> None:
    queue = broker.declare()
    task = reading(queue, prefetch=5)
    task.harness.stop()
    task.harness.start(2)
    put(broker, queue, *map(str, range(40)))
    end = time.monotonic() + PATIENCE_S
    while len(task.harness.all_rows()) < 40 and time.monotonic() < end:
        task.harness.turns(1)
        for one in task.harness.tasks:
            one.commit()
        time.sleep(0.01)
    assert sorted(int(row[0]) for _, _, row in task.harness.all_rows()) == list(range(40))
    assert {name for name, _, _ in task.harness.all_rows()} == {"consumer-0", "consumer-1"}


def test_the_lag_is_the_messages_that_were_not_read(broker: RabbitBroker, reading: Any) -> None:
    queue = broker.declare()
    put(broker, queue, *map(str, range(12)))
    task = reading(queue, prefetch=5)
    task.reader._consumer.watch_s = 0.05
    assert len(task.values(5)) == 5
    task.until(lambda: task.reader.lag() == 7)
    while len(task.harness.all_rows()) < 12:
        task.harness.tasks[0].commit()
        task.harness.turns(1)
    task.until(lambda: task.reader.lag() == 0)


def test_a_message_that_was_delivered_too_often_is_given_up(broker: RabbitBroker, reading: Any) -> None:
    queue = broker.declare()
    put(broker, queue, "poison")
    with channel_at(broker.address) as channel:
        for _ in range(2):
            eventually(
                lambda: (got := channel.basic_get(queue))[0] and channel.basic_nack(got[0].delivery_tag) is None, what="it"
            )
    task = reading(queue, max_deliveries=2, metadata=("delivery_count",))
    task.until(lambda: task.harness.given_up)
    assert task.harness.given_up[0][2] == b"poison" and task.harness.all_rows() == []


def test_what_the_broker_cannot_promise_or_does_not_have_is_refused(broker: RabbitBroker) -> None:
    queue = broker.declare()
    once = TaskContext("t", "in", 1, config=TopologyConfig(delivery="exactly_once"))
    with pytest.raises(ConfigError, match="does not identify messages"):
        RabbitSpout(broker.address, queue).open(once, None)  # type: ignore[arg-type]
    plain = TaskContext("t", "in", 1)
    with pytest.raises(ConfigError, match="has no queue 'missing'"):
        RabbitSpout(broker.address, "missing").open(plain, None)  # type: ignore[arg-type]
    wrong = broker.address.replace("guest:guest", "guest:planted-wrong")
    spout, sink = RabbitSpout(wrong, queue), RabbitSink(wrong, "", queue)
    with pytest.raises(ConfigError, match="correct user and password") as refused:
        spout.open(plain, None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="correct user and password") as refused_too:
        ReportingTask(sink, "at_least_once")
    shown = f"{refused.value} {refused_too.value} {spout!r} {spout._address!r} {spout._address} {sink!r} {sink._address}"
    assert "planted" not in shown
    with pytest.raises(ConfigError, match="has no exchange 'missing'"):
        ReportingTask(RabbitSink(broker.address, "missing", "k"), "at_least_once")


# -- the sink ----------------------------------------------------------------------------------------------------------------


def test_a_row_that_no_queue_takes_fails_alone(broker: RabbitBroker) -> None:
    queue = broker.declare()
    task = ReportingTask(RabbitSink(broker.address, "", "{q}", value="n", max_batch=3), "at_least_once")
    for q, n in ((queue, 1), ("nowhere", 2), (queue, 3)):
        task.sink.execute(tracked(q=q, n=n))
    assert [body for body, _ in taken(broker, queue)] == [b"1", b"3"]
    assert len(task.collector.acked) == 2 and [tup["n"] for tup in task.collector.failed] == [2]
    assert "no queue takes routing key 'nowhere'" in task.texts()[0]
    for wrong in (None, "x" * 300):
        with pytest.raises(UserError, match=r"no part of a routing key|at most 255 bytes"):
            task.sink.execute(tracked(q=wrong, n=4))
    task.sink.cleanup()


def test_a_row_that_is_too_large_for_the_broker_fails_alone(broker: RabbitBroker) -> None:
    queue = broker.declare()
    task = ReportingTask(RabbitSink(broker.address, "", queue, value="n", value_serializer="bytes", max_batch=3), "at_least_once")
    # The queue has some of a batch, perhaps, when the broker closes the channel.
    for n in (b"1", bytes(MOST_BYTES + 1), b"3"):
        task.sink.execute(tracked(n=n))
    assert {body for body, _ in taken(broker, queue)} == {b"1", b"3"}
    assert [tup["n"] for tup in task.collector.acked] == [b"1", b"3"] and len(task.collector.failed) == 1
    assert task.texts()[0].endswith(f"it has {MOST_BYTES + 1} bytes, and the broker takes {MOST_BYTES}")
    with pytest.raises(UnsupportedValueError, match=f"RabbitMQ takes {MOST_BYTES}"):
        task.sink.execute(tracked(n=bytes(MOST_BYTES + 1)))
    task.sink.cleanup()


@pytest.mark.parametrize("fault", ["kill", "freeze"])
def test_a_batch_waits_for_a_broker_that_was_lost(broker: RabbitBroker, fault: str) -> None:
    queue = broker.declare()
    task = ReportingTask(RabbitSink(broker.address, "", queue, max_batch=2, timeout="500ms"), "at_least_once")
    getattr(broker, fault)()
    task.write(1, 2)
    task.sink.execute(TICK)
    task.write(3)
    assert task.collector.acked == []
    if fault == "kill":
        broker.start_again()
    else:
        broker.thaw()
    end = time.monotonic() + PATIENCE_S
    while len(task.collector.acked) < 3 and time.monotonic() < end:
        task.sink.execute(TICK)
    # A batch whose confirms came too late is published again.
    assert set(numbers(broker, queue)) == {1, 2, 3}
    errors = task.texts()
    assert errors[0].count("is not reached, and it is tried again") == 1 and "is reached again" in errors[-1]
    task.sink.cleanup()


def test_a_batch_that_waits_for_a_broker_without_memory_is_published_once(broker: RabbitBroker) -> None:
    queue = broker.declare()
    task = ReportingTask(RabbitSink(broker.address, "", queue, max_batch=2, timeout="500ms"), "at_least_once")
    broker.control("set_vm_memory_high_watermark", "0.00001")
    try:
        task.write(1, 2)
        for _ in range(3):
            task.sink.execute(TICK)
        assert task.collector.acked == [] and "low on memory" in task.texts()[0]
    finally:
        broker.control("set_vm_memory_high_watermark", "0.6")
    task.write(3)
    end = time.monotonic() + PATIENCE_S
    while len(task.collector.acked) < 3 and time.monotonic() < end:
        task.sink.execute(TICK)
    assert numbers(broker, queue) == [1, 2, 3]
    task.sink.cleanup()


def kind_on(broker: RabbitBroker, queue: str, **options: Any) -> SinkKind:
    return SinkKind(
        "RabbitMQ",
        lambda folder: RabbitSink(broker.address, "", queue, staging=folder, timeout="500ms", **options),
        lambda _folder: numbers(broker, queue),
        lambda folder: [path.name for path in folder.glob(".staged/*")],
    )


def test_rows_are_seen_when_their_checkpoint_is_complete(broker: RabbitBroker, tmp_path: Path) -> None:
    kind = kind_on(broker, broker.declare())
    task = SinkTask(kind, tmp_path)
    task.write(1, 2)
    state = task.snapshot(1)
    task.write(3)
    assert kind.rows(tmp_path) == []
    task.output.complete(1)
    task.output.complete(1)
    assert kind.rows(tmp_path) == [1, 2]
    # Row 3 has no checkpoint; the next process finds nothing to publish.
    task.snapshot(2)
    task.die()
    SinkTask(kind, tmp_path, state=state).die()
    assert kind.rows(tmp_path) == [] and kind.staged(tmp_path) == []


def test_a_publication_that_was_cut_off_is_completed_by_the_next_process_with_the_same_ids(
    broker: RabbitBroker, tmp_path: Path
) -> None:
    queue, late = broker.declare(), f"late-{time.monotonic_ns()}"
    kind = SinkKind(
        "RabbitMQ",
        lambda folder: RabbitSink(broker.address, "", lambda tup: late if tup["n"] == 2 else queue, staging=folder),
        lambda _folder: [],
        lambda folder: [path.name for path in folder.glob(".staged/*")],
    )
    task = SinkTask(kind, tmp_path)
    task.write(1, 2, 3)
    state = carried(task.output.snapshot(1))
    for _ in range(2):
        with pytest.raises(TopoEnvironmentError, match="no queue takes"):
            task.output.complete(1)
    first = taken(broker, queue)
    assert [json.loads(body)["n"] for body, _ in first] == [1, 3], "the repetition leaves out confirmed rows"
    task.die()
    with channel_at(broker.address) as channel:
        channel.queue_declare(late, durable=True)
    SinkTask(kind, tmp_path, state=state).die()
    assert taken(broker, queue) == first, "they repeat, and a reader knows them by their ids"
    assert numbers(broker, late) == [2] and kind.staged(tmp_path) == []
