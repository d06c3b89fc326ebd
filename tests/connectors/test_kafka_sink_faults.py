"""KafkaSink while processes, the broker and their connection fail: each record once for a reader of committed records."""

from __future__ import annotations

import json
from collections.abc import Callable
from ctypes import CDLL, c_void_p
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.children import pipe, start_child
from tests.contract.killing import KILLED, Report, Steps
from tests.contract.two_phase_sinks import SinkKind, SinkTask, started
from tests.servers.kafka import PASSWORD, STRANGER, USER, Broker, sasl
from tests.unit.connectors.drive import tracked
from topo.errors import ConfigError, NotFoundError, SinkBlockedError, TopoEnvironmentError, UserError

pytest.importorskip("confluent_kafka")

import confluent_kafka
from confluent_kafka import Consumer, Producer, TopicPartition

from topo.connectors.kafka import KafkaSink, targets, transactions

pytestmark = [pytest.mark.integration, pytest.mark.server, pytest.mark.xdist_group("kafka-out")]
_CALLS = ("init_transactions", "begin_transaction", "produce", "send_offsets_to_transaction", "commit_transaction")


def kind_of(address: str, topic: str, **options: Any) -> SinkKind:
    """A sink on one topic; reading is up to the test."""
    return SinkKind(
        "kafka",
        lambda folder: KafkaSink(topic, bootstrap_servers=address, staging=folder, **options),
        lambda _folder: [],
        lambda folder: [path.name for path in folder.glob(".staged/*")],
    )


def rows(broker: Broker, topic: str) -> list[int]:
    return [json.loads(record.value())["n"] for record in broker.records(topic)]


# -- processes ---------------------------------------------------------------------------------------------------------------


def life(address: str, topic: str, folder: Path) -> Callable[[Report], None]:
    """A process that takes two checkpoints, and reports each one in front of its commit."""

    def work(report: Report) -> None:
        task = SinkTask(kind_of(address, topic), folder)
        for checkpoint in (1, 2):
            task.write(10 * checkpoint, 10 * checkpoint + 1)
            report(task.snapshot(checkpoint))
            task.output.complete(checkpoint)

    return work


def killed_before_call(work: Callable[[Report], None], last: int, writer: Any) -> None:
    """Do the work in this process, which ends before its call number `last` of Kafka's client, or behind the last one."""
    steps = Steps(last)

    class Counted(confluent_kafka.Producer):
        def __getattribute__(self, name: str) -> Any:
            call = super().__getattribute__(name)
            if name not in _CALLS:
                return call

            def counted(*arguments: Any, **options: Any) -> Any:
                steps.step()
                if name == "produce":
                    steps.step()
                done = call(*arguments, **options)
                if name == "commit_transaction":
                    steps.step()
                return done

            return counted

    confluent_kafka.Producer = Counted  # type: ignore[misc]
    work(lambda news: writer.send_bytes(json.dumps(news).encode()))
    steps.end(0)


def test_killed_before_any_call_of_the_client_each_record_is_there_once(broker: Broker, tmp_path: Path) -> None:
    last, code, covered = 0, KILLED, set()
    while code == KILLED:
        topic, folder = broker.create_topic(), tmp_path / str(last)
        reader, writer = pipe()
        child = start_child(partial(killed_before_call, life(broker.address, topic, folder), last), writer)
        writer.close()
        states: list[Any] = []
        while True:
            try:
                states.append(json.loads(reader.recv_bytes()))
            except EOFError:
                break
        child.join()
        assert child.exitcode in (0, KILLED)
        code = child.exitcode
        # All checkpoints that were reported are complete; the last commit may be done, or half done.
        task = SinkTask(kind_of(broker.address, topic), folder, state=states[-1] if states else None)
        expected = [10, 11, 20, 21][: 2 * len(states)]
        assert rows(broker, topic) == expected
        assert kind_of(broker.address, topic).staged(folder) == []
        task.write(7)
        task.snapshot(3)
        task.output.complete(3)
        task.die()
        assert rows(broker, topic) == [*expected, 7]
        covered.add(len(states))
        # Neighbours of one kind are alike: half of the calls are enough.
        last += 2
    assert covered == {0, 1, 2} and last > 10


def test_another_topology_of_the_same_name_is_refused_and_takes_no_rows(broker: Broker, tmp_path: Path) -> None:
    topic = broker.create_topic()
    first = SinkTask(kind_of(broker.address, topic), tmp_path / "first")
    first.write(1)
    first.snapshot(1)
    first.output.complete(1)
    second = SinkTask(kind_of(broker.address, topic), tmp_path / "second")
    second.write(2)
    second.snapshot(1)
    second.output.complete(1)
    first.write(3)
    state = first.snapshot(2)
    for _ in range(2):
        with pytest.raises(TopoEnvironmentError, match=r"another process has published .* as writer 'test\.sink\.0'"):
            first.output.complete(2)
    # Also after a restart, where the other's marker has the number of its next transaction.
    with pytest.raises(TopoEnvironmentError, match="another process has published"):
        SinkTask(kind_of(broker.address, topic), tmp_path / "first", state=state)
    assert rows(broker, topic) == [1, 2]


def test_staged_records_that_were_removed_are_reported_as_lost(broker: Broker, tmp_path: Path) -> None:
    topic = broker.create_topic()
    task = SinkTask(kind_of(broker.address, topic), tmp_path)
    task.write(1)
    task.snapshot(1)
    task.output.complete(1)
    task.write(2)
    state = task.snapshot(2)
    task.die()
    for file in tmp_path.glob(".staged/*"):
        file.unlink()
    with pytest.raises(Exception, match=r"1 rows were staged in .* which is missing"):
        SinkTask(kind_of(broker.address, topic), tmp_path, state=state)
    assert rows(broker, topic) == [1]


# -- the broker --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "PATIENCE_S", 3.0)


@pytest.fixture
def task(broker: Broker, tmp_path: Path) -> SinkTask:
    """A task with a published row 1 and a staged one 2; errors of the connection are no failure."""
    made = SinkTask(kind_of(broker.address, broker.create_topic(), config={"socket.timeout.ms": 2000}), tmp_path)
    made.collector.report_error = lambda error: None  # type: ignore[method-assign]
    made.write(1)
    made.snapshot(1)
    made.output.complete(1)
    settle(broker, topic_of(made))
    made.write(2)
    made.snapshot(2)
    return made


def settle(broker: Broker, topic: str) -> None:
    """Wait until the broker has ended the transaction of row 1 in its logs, which it does after it has confirmed the commit.

    Kafka 4.3.1 that is killed in between may take its partitions for deleted when it starts, and leave the transaction open.
    """
    place = TopicPartition(topic, 0)
    (found,) = group(broker).committed([place], timeout=30)
    assert found.offset == 0
    assert rows(broker, topic) == [1]


def group(broker: Broker) -> Any:
    """A client of the group that has the markers of the task."""
    settings = {"group.id": "topo.test.sink.0", "enable.auto.commit": False, "isolation.level": "read_committed"}
    return Consumer({"bootstrap.servers": broker.address, **settings})


def complete(task: SinkTask, checkpoint: int) -> None:
    """Have a checkpoint completed as the master does: again after each error, for a broker that has just begun to answer."""
    errors: list[str] = []
    while task.output.staged:
        assert len(errors) < 20, errors
        try:
            task.output.complete(checkpoint)
        except TopoEnvironmentError as error:
            errors.append(str(error))


def topic_of(task: SinkTask) -> str:
    return str(task.sink._topic)  # type: ignore[attr-defined]


@pytest.mark.usefixtures("impatient")
def test_a_broker_that_is_killed_in_front_of_the_commit_has_each_record_once_later(broker: Broker, task: SinkTask) -> None:
    broker.kill()
    with pytest.raises(TopoEnvironmentError, match="1 staged records cannot be published now"):
        task.output.complete(2)
    # Checkpoints are taken meanwhile.
    task.write(3)
    task.snapshot(3)
    broker.start_again()
    complete(task, 3)
    assert rows(broker, topic_of(task)) == [1, 2, 3]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("call", ["send_offsets_to_transaction", "commit_transaction"])
def test_a_broker_that_is_killed_within_the_commit_has_each_record_once_later(broker: Broker, task: SinkTask, call: str) -> None:
    own = task.sink._writers["test.sink.0"]  # type: ignore[attr-defined]

    class Killing:
        """The client of the writer, in front of one of whose calls the broker is killed."""

        def __init__(self, producer: Any) -> None:
            self.producer = producer

        def __getattr__(self, name: str) -> Any:
            if name == call:
                assert self.producer.flush(10) == 0
                broker.kill()
            return getattr(self.producer, name)

    own._producer = Killing(own._producer)
    with pytest.raises(TopoEnvironmentError, match="cannot be published now"):
        task.output.complete(2)
    broker.start_again()
    complete(task, 2)
    assert rows(broker, topic_of(task)) == [1, 2]


@pytest.mark.usefixtures("impatient")
def test_a_broker_that_is_frozen_for_longer_than_the_client_waits_has_each_record_once(broker: Broker, task: SinkTask) -> None:
    broker.freeze()
    try:
        with pytest.raises(TopoEnvironmentError, match="cannot be published now"):
            task.output.complete(2)
    finally:
        broker.thaw()
    complete(task, 2)
    assert rows(broker, topic_of(task)) == [1, 2]


@pytest.mark.usefixtures("impatient")
def test_a_transaction_that_hangs_is_named_and_nothing_is_published_until_it_is_ended(broker: Broker, task: SinkTask) -> None:
    topic = topic_of(task)
    other = Producer({"bootstrap.servers": broker.address, "transactional.id": "other"})
    other.init_transactions(30)
    other.begin_transaction()
    other.send_offsets_to_transaction([TopicPartition(topic, 0, 7)], group(broker).consumer_group_metadata(), 30)
    # A writer that is opened once more has to read the marker.
    task.sink._give_up("test.sink.0")  # type: ignore[attr-defined]
    with pytest.raises(TopoEnvironmentError, match=r"hold a transaction open that has the marker of group 'topo\.test\.sink\.0'"):
        task.output.complete(2)
    assert rows(broker, topic) == [1]
    other.abort_transaction(30)
    complete(task, 2)
    assert rows(broker, topic) == [1, 2]


def test_a_batch_fails_while_the_broker_is_down_and_the_connection_is_reported_once(broker: Broker) -> None:
    topic = broker.create_topic()
    sink = KafkaSink(topic, bootstrap_servers=broker.address, config={"message.timeout.ms": 4000})
    collector = started(sink, delivery="at_least_once")
    errors: list[str] = []
    collector.report_error = lambda error: errors.append(str(error))  # type: ignore[method-assign]
    inputs = [tracked(n=n) for n in range(4)]
    sink.max_batch = 2
    sink.execute(inputs[0])
    sink.end_of_input()
    sink.on_reset()
    broker.kill()
    sink.execute(inputs[1])
    sink.execute(inputs[2])
    broker.start_again()
    sink.execute(inputs[3])
    sink.end_of_input()
    assert (collector.acked, collector.failed) == ([inputs[0], inputs[3]], inputs[1:3])
    assert [sum(text in error for error in errors) for text in ("is not reached", "is reached again")] == [1, 1]
    assert rows(broker, topic) == [0, 3]


# -- records and rights ------------------------------------------------------------------------------------------------------


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


def test_a_missing_topic_is_refused_when_the_sink_opens(broker: Broker) -> None:
    sink = KafkaSink("missing", bootstrap_servers=broker.address)
    with pytest.raises(NotFoundError, match=r"topic 'missing' cannot be written: .* create it, or correct its name"):
        started(sink, delivery="at_least_once")


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
    with pytest.raises(TopoEnvironmentError, match=r"grant the user .* Write, on the topic"):
        started(sink, delivery=delivery)


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
