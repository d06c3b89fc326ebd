"""KafkaSink with records, topics and rights that the broker refuses."""

from __future__ import annotations

import time
from ctypes import CDLL, c_void_p
from pathlib import Path

import pytest

from tests.connectors.kafka_sinks import kind_of, rows
from tests.contract.two_phase_sinks import SinkKind, SinkTask, started
from tests.servers.kafka import PASSWORD, STRANGER, USER, Broker, sasl
from tests.unit.connectors.drive import tracked
from topo.errors import ConfigError, NotFoundError, SinkBlockedError, TopoEnvironmentError, UserError

pytest.importorskip("confluent_kafka")

import confluent_kafka
from confluent_kafka import Producer

from topo.connectors.kafka import KafkaSink, targets

pytestmark = [pytest.mark.integration, pytest.mark.server, pytest.mark.xdist_group("kafka-out")]


def test_a_record_that_the_topic_does_not_take_fails_alone(broker: Broker, tmp_path: Path) -> None:
    topic = broker.create_topic(max_message_bytes="5000")
    task = SinkTask(kind_of(broker.address, topic), tmp_path)
    task.write(1)
    with pytest.raises(UserError, match=r"is too large for topic 'topic-.*', which takes 5000: raise its max.message.bytes"):
        task.sink.execute(tracked(n=1, text="x" * 5000))
    task.write(*range(2, 2000))
    task.snapshot(1)
    task.output.complete(1)
    assert rows(broker, topic) == list(range(1, 2000))


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_a_record_without_a_key_is_refused_by_a_compacted_topic(broker: Broker, tmp_path: Path, delivery: str) -> None:
    topic = broker.create_topic(cleanup_policy="compact")
    sink = KafkaSink(topic, bootstrap_servers=broker.address, key="n", staging=tmp_path)
    started(sink, delivery=delivery)
    with pytest.raises(UserError, match="is compacted and takes no record without a key"):
        sink.execute(tracked(n=None))


def test_records_that_the_broker_refuses_fail_and_their_neighbours_do_not(broker: Broker) -> None:
    topic = broker.create_topic(cleanup_policy="delete")
    sink = KafkaSink(topic, bootstrap_servers=broker.address, key="k", max_batch=5)
    collector = started(sink, delivery="at_least_once")
    errors: list[str] = []
    collector.report_error = lambda error: errors.append(str(error))  # type: ignore[method-assign]
    # The sink has seen a topic that takes records without keys.
    compact(broker, topic)
    inputs = [tracked(k=None if n == 2 else "key", n=n) for n in range(5)]
    for one in inputs:
        sink.execute(one)
    assert collector.failed == [inputs[2]]
    assert collector.acked == [inputs[0], inputs[1], inputs[3], inputs[4]]
    assert rows(broker, topic) == [0, 1, 3, 4]
    (error,) = errors
    assert "1 of 5 records were not written" in error


def test_a_fatal_error_of_the_client_fails_no_later_batch(broker: Broker) -> None:
    topic = broker.create_topic()
    sink = KafkaSink(topic, bootstrap_servers=broker.address, max_batch=1)
    collector = started(sink, delivery="at_least_once")
    errors: list[str] = []
    collector.report_error = lambda error: errors.append(str(error))  # type: ignore[method-assign]
    sink.execute(tracked(n=1))
    end_fatally(sink._deliveries._producer)  # type: ignore[union-attr]
    sink.execute(tracked(n=2))
    sink.execute(tracked(n=3))
    assert len(collector.failed) == 1 and len(errors) == 1
    assert rows(broker, topic) == [1, 3]


def end_fatally(producer: Producer) -> None:
    """Have the client believe that the broker has lost records of it."""
    (library,) = Path(confluent_kafka.__file__).parent.parent.glob("confluent_kafka.libs/librdkafka-*")
    handle = c_void_p.from_address(id(producer) + object.__basicsize__)
    raise_fatal = CDLL(str(library)).rd_kafka_test_fatal_error
    assert raise_fatal(handle, confluent_kafka.KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, b"planted") == 0


def compact(broker: Broker, topic: str) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

    entry = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    admin = broker.admin()
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(30)


def test_a_missing_topic_is_refused_when_the_sink_opens_and_is_not_made_by_that(broker: Broker) -> None:
    sink = KafkaSink("missing", bootstrap_servers=broker.address)
    with pytest.raises(NotFoundError, match=r"topic 'missing' cannot be written: .* create it, or correct its name"):
        started(sink, delivery="at_least_once")
    # The broker creates topics that clients ask for, unless these ask it not to.
    assert "missing" not in broker.admin().list_topics(timeout=10).topics


def test_a_topic_of_the_tuple_that_is_missing_fails_that_tuple_alone(broker: Broker, tmp_path: Path) -> None:
    markers, topic = broker.create_topic(), broker.create_topic()
    sink = KafkaSink(
        lambda tup: topic if tup["n"] else "missing", bootstrap_servers=broker.address, marker_topic=markers, staging=tmp_path
    )
    task = SinkTask(SinkKind("", lambda _: sink, lambda _: [], lambda _: []), tmp_path)
    with pytest.raises(NotFoundError, match="topic 'missing'"):
        task.write(0)
    task.write(1, 2)
    task.snapshot(1)
    task.output.complete(1)
    assert (rows(broker, topic), rows(broker, markers)) == ([1, 2], [])


def test_no_tuple_is_at_fault_where_no_broker_answers_for_its_topic(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(targets, "ANSWER_S", 1.0)
    markers, topic = broker.create_topic(), broker.create_topic()
    sink = KafkaSink(lambda tup: topic, bootstrap_servers=broker.address, marker_topic=markers, staging=tmp_path)
    task = SinkTask(SinkKind("", lambda _: sink, lambda _: [], lambda _: []), tmp_path)
    broker.kill()
    try:
        with pytest.raises(SinkBlockedError, match=r"no broker of bootstrap_servers=.* answers"):
            task.write(1)
    finally:
        broker.start_again()


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"bootstrap.servers": "127.0.0.1:1"}, "Connection refused"),
        ({"bootstrap.servers": "no.such.host.invalid:9092"}, "Failed to resolve 'no.such.host.invalid:9092'"),
        ({"security.protocol": "SSL"}, "connecting to a PLAINTEXT broker"),
    ],
)
def test_the_reason_why_no_broker_answers_is_named(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, given: dict[str, str], reason: str
) -> None:
    # A busy broker takes its time to refuse a handshake.
    monkeypatch.setattr(targets, "ANSWER_S", 5.0 if "security.protocol" in given else 1.0)
    found = targets.Targets({"bootstrap.servers": broker.address, "log_level": 2, **given}, lambda: None)
    with pytest.raises(SinkBlockedError, match=rf"no broker of bootstrap_servers=.* answers; start it, or correct .*{reason}"):
        found.limits("orders")


def test_a_broker_that_does_not_answer_for_the_limits_of_a_topic_leaves_them_open(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(targets, "ANSWER_S", 1.0)
    topic = broker.create_topic(max_message_bytes="5000")
    found = targets.Targets({"bootstrap.servers": broker.address}, lambda: None)
    ask = found._partitions

    def ask_and_freeze(name: str) -> int:
        count = ask(name)
        broker.freeze()
        return count

    monkeypatch.setattr(found, "_partitions", ask_and_freeze)
    try:
        with pytest.raises(SinkBlockedError, match=r"no broker of bootstrap_servers=.* answers"):
            found.limits(topic)
    finally:
        broker.thaw()
    monkeypatch.undo()
    assert found.limits(topic).most_bytes == 5000


def test_exactly_once_with_several_topics_needs_one_for_the_markers(broker: Broker, tmp_path: Path) -> None:
    sink = KafkaSink(lambda _: "topic", bootstrap_servers=broker.address, staging=tmp_path)
    with pytest.raises(ConfigError, match="needs marker_topic="):
        started(sink)


def test_a_wrong_password_is_refused_at_once_and_is_nowhere_in_the_message(broker: Broker) -> None:
    topic = broker.create_topic()
    right, wrong = sasl(USER, PASSWORD), sasl(USER, "not-the-password")
    started(KafkaSink(topic, bootstrap_servers=broker.secured_address, config=right), delivery="at_least_once")
    sink = KafkaSink(topic, bootstrap_servers=broker.secured_address, config=wrong)
    with pytest.raises(TopoEnvironmentError, match="refuses the login") as refused:
        started(sink, delivery="at_least_once")
    assert "not-the-password" not in f"{refused.value!r} {sink!r}"


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_who_may_not_write_is_refused_with_the_right_that_is_missing(broker: Broker, tmp_path: Path, delivery: str) -> None:
    topic = broker.create_topic()
    sink = KafkaSink(topic, bootstrap_servers=broker.secured_address, config=sasl(STRANGER, PASSWORD), staging=tmp_path)
    with pytest.raises(TopoEnvironmentError, match=r"grant the user .* on the topic; for a sink Describe and Write"):
        started(sink, delivery=delivery)


def test_who_may_see_a_topic_and_not_write_it_fails_tuples_with_the_right_that_is_missing(broker: Broker) -> None:
    topic = broker.create_topic()
    broker.grant("TOPIC", topic, "DESCRIBE")
    sink = KafkaSink(topic, bootstrap_servers=broker.secured_address, config=sasl(STRANGER, PASSWORD), max_batch=1)
    collector = started(sink, delivery="at_least_once")
    errors: list[str] = []
    collector.report_error = lambda error: errors.append(str(error))  # type: ignore[method-assign]
    for n in range(2):
        sink.execute(tracked(n=n))
    assert len(collector.failed) == 2 and len(errors) == 2
    assert all("grant the user of config= " in error and "Write" in error for error in errors), errors
    broker.grant("TOPIC", topic, "WRITE")
    until = time.monotonic() + 30
    while not collector.acked and time.monotonic() < until:
        sink.execute(tracked(n=3))
    assert rows(broker, topic) == [3]


def test_each_right_that_exactly_once_needs_is_named_while_it_is_missing(broker: Broker, tmp_path: Path) -> None:
    topic, login = broker.create_topic(), sasl(STRANGER, PASSWORD)
    broker.grant("TOPIC", topic, "DESCRIBE", "WRITE")
    kind = kind_of(broker.secured_address, topic, config=login)
    needed = [
        ("on transactional ids", "TRANSACTIONAL_ID", "topo.", ("DESCRIBE", "WRITE")),
        ("Read on the group", "GROUP", "topo.", ("READ",)),
    ]
    for missing, resource, name, operations in needed:
        with pytest.raises(TopoEnvironmentError, match=missing):
            SinkTask(kind, tmp_path)
        broker.grant(resource, name, *operations)
    task = SinkTask(kind, tmp_path)
    task.write(1, 2)
    task.snapshot(1)
    with pytest.raises(TopoEnvironmentError, match="with exactly_once Read"):
        task.output.complete(1)
    broker.grant("TOPIC", topic, "READ")
    task.output.complete(1)
    assert rows(broker, topic) == [1, 2]


def test_a_record_that_the_broker_refuses_in_a_transaction_is_named_and_none_is_published(broker: Broker, tmp_path: Path) -> None:
    topic = broker.create_topic(cleanup_policy="delete")
    task = SinkTask(kind_of(broker.address, topic), tmp_path)
    # The sink has seen a topic that takes records without keys.
    compact(broker, topic)
    task.write(1, 2)
    task.snapshot(1)
    with pytest.raises(TopoEnvironmentError, match=r"2 staged records cannot be published now: .*"):
        task.output.complete(1)
    assert rows(broker, topic) == []
