"""KafkaSink while processes, the broker and their connection fail: each record once for a reader of committed records."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.children import pipe, start_child
from tests.connectors.kafka_sinks import kind_of, rows
from tests.connectors.sink_tasks import ReportingTask
from tests.contract.killing import KILLED, Report, Steps
from tests.contract.two_phase_sinks import SinkTask, started
from tests.integration.support import eventually
from tests.servers.kafka import Broker
from tests.unit.connectors.drive import tracked
from topo.errors import NotFoundError, TopoEnvironmentError, TopoError

pytest.importorskip("confluent_kafka")

import confluent_kafka
from confluent_kafka import Consumer, Producer, TopicPartition

from topo.connectors.kafka import KafkaSink, transactions

pytestmark = [pytest.mark.integration, pytest.mark.server, pytest.mark.xdist_group("kafka-out")]
_CALLS = ("init_transactions", "begin_transaction", "produce", "send_offsets_to_transaction", "commit_transaction")


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


def test_a_topic_that_is_deleted_is_named_and_rows_are_published_when_it_is_there_again(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "PATIENCE_S", 2.0)
    topic = broker.create_topic()
    task = SinkTask(kind_of(broker.address, topic), tmp_path)
    task.write(1)
    task.snapshot(1)
    task.output.complete(1)
    # With it the broker drops the marker of the task.
    broker.delete_topic(topic)
    task.write(2)
    task.snapshot(2)
    with pytest.raises(
        NotFoundError, match=f"topic '{topic}' is gone, and 1 staged records cannot be published now: .* create it"
    ):
        task.output.complete(2)
    broker.create_topic(name=topic)
    eventually(lambda: is_published(task, 2), what="the publication of a row")
    assert rows(broker, topic) == [2]


def is_published(task: SinkTask, checkpoint: int) -> bool:
    with suppress(TopoError):
        task.output.complete(checkpoint)
        return True
    return False


def test_a_deleted_topic_is_named_by_the_error_of_records_without_checkpoints(broker: Broker) -> None:
    topic = broker.create_topic()
    sink = KafkaSink(topic, bootstrap_servers=broker.address, config={"message.timeout.ms": 2000})
    task = ReportingTask(sink, "at_least_once")
    broker.delete_topic(topic)
    sink.execute(tracked(n=1))
    sink.end_of_input()
    sink.close()
    (error,) = task.texts()
    assert f"topic '{topic}' is gone, and 1 of 1 records were not written" in error
