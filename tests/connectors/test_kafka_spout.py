"""KafkaSpout on a real broker: where it begins and ends, losses, the group, errors by name, secrets."""

from __future__ import annotations

import json
import secrets
import time
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.connectors.kafka_sources import PatientSpout
from tests.integration.test_docs_code import ROOT, code_of
from tests.servers.kafka import PASSWORD, STRANGER, USER, Broker, sasl
from topo import KafkaSpout
from topo.errors import ConfigError, NotFoundError, TopoError
from topo.testing import TopologyTest
from topo.testing.partition_harness import PartitionHarness

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("kafka")]


@pytest.fixture
def topic(broker: Broker) -> str:
    """A topic of two partitions: 0 to 4 in the first, 10 to 14 in the second."""
    name = broker.create_topic(2)
    for number in range(2):
        broker.produce(name, [str(10 * number + n) for n in range(5)], number)
    return name


def harness_of(broker: Broker, topics: Any, **given: Any) -> PartitionHarness:
    settings = {"bootstrap_servers": broker.address, "value_deserializer": "json", "discovery_interval": "10s", **given}
    return PartitionHarness(lambda: PatientSpout(topics, **settings))


def read(harness: PartitionHarness, turns: int = 4) -> dict[str, list[Any]]:
    """Return the numbers that were read, by the number of the partition."""
    harness.turns(turns)
    return {name.rpartition("-")[2]: values for name, values in sorted(harness.read.items())}


# -- where it begins and ends ------------------------------------------------------------------------------------------------


def test_reading_begins_where_the_settings_have_it(broker: Broker, topic: str) -> None:
    assert read(harness_of(broker, topic)) == {"0": [*range(5)], "1": [*range(10, 15)]}
    assert read(harness_of(broker, topic, start={f"{topic}-0": 3, f"{topic}-1": 5})) == {"0": [3, 4]}
    latest = harness_of(broker, topic, start="latest")
    assert read(latest) == {}
    broker.produce(topic, ["5"], 0)
    assert read(latest) == {"0": [5]}
    later = int(time.time()) + 60
    broker.produce(topic, ["6"], 0, timestamp=later * 1000)
    assert read(harness_of(broker, topic, start=datetime.fromtimestamp(later - 30, UTC))) == {"0": [6]}


def test_where_latest_is_was_decided_before_a_record_came(broker: Broker, topic: str) -> None:
    harness = harness_of(broker, topic, start="latest")
    assert read(harness) == {}
    harness.stop()
    broker.produce(topic, ["5"], 0)
    harness.start(2)
    assert read(harness) == {"0": [5]}


def test_the_input_ends_where_the_settings_have_it(broker: Broker, topic: str) -> None:
    harness = harness_of(broker, topic, stop={f"{topic}-0": 3, f"{topic}-1": 0})
    assert read(harness) == {"0": [0, 1, 2]} and harness.has_ended
    harness = harness_of(broker, topic, stop="latest")
    broker.produce(topic, ["5"], 0)
    assert read(harness) == {"0": [*range(5)], "1": [*range(10, 15)]} and harness.has_ended


def test_a_partition_ends_behind_records_that_are_none(broker: Broker) -> None:
    """Aborted records, and the record of their abort, are offsets without messages, before the end and at it."""
    topic = broker.create_topic()
    for number, commits in enumerate((True, False)):
        transact(broker, topic, [str(number)], commits)
    harness = harness_of(broker, topic, stop="latest")
    harness.turns(1)
    spout: Any = harness.tasks[0].spout
    assert read(harness, 10) == {"0": [0]} and harness.has_ended and spout._reader.lag() == 0


def transact(broker: Broker, topic: str, values: list[str], commits: bool) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": secrets.token_hex(6)})
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=0)
    producer.flush(30)
    (producer.commit_transaction if commits else producer.abort_transaction)(30)


def test_the_lag_is_the_records_that_were_not_read(broker: Broker, topic: str) -> None:
    harness = harness_of(broker, topic, batch=3)
    spout: Any = harness.tasks[0].spout
    harness.turns(4)
    assert 0 < spout._reader.lag() < 10
    harness.turns(10)
    assert spout._reader.lag() == 0


# -- the group ---------------------------------------------------------------------------------------------------------------


def test_the_group_follows_what_is_done_and_another_topology_begins_there(broker: Broker, topic: str) -> None:
    group = f"group-{topic}"
    harness = harness_of(broker, topic, group_id=group, stop={f"{topic}-0": 2, f"{topic}-1": 5})
    assert len(read(harness)["0"]) == 2
    harness.tasks[0].commit()
    harness.stop()
    assert read(harness_of(broker, topic, group_id=group)) == {"0": [2, 3, 4]}


def test_a_group_that_takes_no_positions_is_reported_once_and_reading_continues(broker: Broker, topic: str) -> None:
    from confluent_kafka import Consumer

    group = f"group-{topic}"
    other = Consumer({"bootstrap.servers": broker.address, "group.id": group})
    other.subscribe([topic])
    until = time.monotonic() + 30
    while not other.assignment() and time.monotonic() < until:
        other.poll(0.1)
    harness = harness_of(broker, topic, group_id=group, start="earliest")
    read(harness)
    for number in range(3):
        broker.produce(topic, [str(100 + number)], 0)
        read(harness)
        harness.tasks[0].commit()
        time.sleep(0.2)
    harness.turns(3)
    other.close()
    assert [group in str(error) and "does not take the positions" in str(error) for error in harness.errors] == [True]
    assert len(harness.all_rows()) == 13


# -- losses ------------------------------------------------------------------------------------------------------------------


def remove_before(broker: Broker, topic: str, offset: int) -> None:
    """Remove records of the first partition, as retention does."""
    from confluent_kafka import TopicPartition

    admin = broker.admin()
    for answer in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        answer.result(30)


def test_records_in_front_of_removed_ones_are_given_though_both_come_at_once(broker: Broker) -> None:
    # The broker keeps each request back for 2 s: the second one, for offset 3, until both have happened.
    config = {"fetch.min.bytes": 1_000_000, "fetch.wait.max.ms": 2000}
    settings: dict[str, Any] = {"bootstrap_servers": broker.address, "value_deserializer": "json", "config": config}
    for _ in range(5):
        name = broker.create_topic()
        broker.produce(name, ["0", "1", "2"])
        harness = PartitionHarness(lambda name=name: KafkaSpout(name, on_lost="skip", **settings))  # type: ignore[misc]
        harness.turns(1)
        time.sleep(3)
        broker.produce(name, ["3", "4", "5"])
        remove_before(broker, name, 5)
        time.sleep(2)
        until = time.monotonic() + 15
        while 5 not in harness.read.get(f"{name}-0", []) and time.monotonic() < until:
            harness.turns(1)
            time.sleep(0.05)
        if "has no records 3 to 4 any more" in str(harness.errors):
            assert harness.read == {f"{name}-0": [0, 1, 2, 5]}
            return
        # On a busy machine the second request may have begun, or ended, at another moment.
    pytest.fail(f"records were never removed while the broker kept a request for them back: {harness.read}, {harness.errors}")


def test_records_that_retention_has_removed_are_reported(broker: Broker) -> None:
    for on_lost, expected in (("fail", [0]), ("skip", [0, 3, 4])):
        name = broker.create_topic()
        broker.produce(name, [str(n) for n in range(5)])
        harness = harness_of(broker, name, on_lost=on_lost, batch=1)
        harness.turns(2)
        harness.stop()
        assert harness.read == {f"{name}-0": [0]}
        remove_before(broker, name, 3)
        harness.start(1)
        assert read(harness, 20) == {"0": expected}
        assert f"partition '{name}-0' has no records 1 to 2 any more" in str(harness.errors[0]), harness.errors
        assert len(harness.errors) == 1


@pytest.mark.parametrize("is_running", [False, True])
def test_a_topic_that_was_made_once_more_is_another_one(broker: Broker, is_running: bool) -> None:
    name = broker.create_topic()
    broker.produce(name, ["0", "1"])
    harness = harness_of(broker, name, on_lost="skip")
    assert read(harness) == {"0": [0, 1]}
    if not is_running:
        harness.stop()
    broker.delete_topic(name)
    broker.create_topic(1, name)
    # As many records as there were: by the offset alone nothing would be missing.
    broker.produce(name, ["10", "11", "12", "13"])
    if not is_running:
        harness.start(1)
    harness.discover()
    harness.discover()
    assert read(harness)["0"][-4:] == [10, 11, 12, 13]
    lost = [str(error) for error in harness.errors if "was deleted and created once more" in str(error)]
    assert len(lost) == 1, harness.errors
    harness.stop()
    harness.start(1)
    assert read(harness)["0"][-4:] == [10, 11, 12, 13]
    broker.produce(name, ["14"])
    assert read(harness)["0"][-2:] == [13, 14]


def test_a_topic_that_was_made_once_more_is_not_read_with_on_lost_fail(broker: Broker) -> None:
    name = broker.create_topic()
    broker.produce(name, ["0", "1"])
    harness = harness_of(broker, name)
    assert read(harness) == {"0": [0, 1]}
    harness.stop()
    broker.delete_topic(name)
    broker.create_topic(1, name)
    broker.produce(name, ["10", "11", "12", "13"])
    harness.start(1)
    assert read(harness) == {"0": [0, 1]}
    assert "was deleted and created once more: records behind offset 1 are lost" in str(harness.errors[0])


def test_an_offset_behind_the_end_is_reported(broker: Broker, topic: str) -> None:
    harness = harness_of(broker, topic, start={f"{topic}-0": 50, f"{topic}-1": 4})
    assert read(harness, 6) == {"1": [14]}
    assert f"partition '{topic}-0' ends at offset 5 and 50 is to be read next" in str(harness.errors[0])


# -- discovery and drift -----------------------------------------------------------------------------------------------------


def test_partitions_that_are_added_are_read_from_their_beginning(broker: Broker, topic: str) -> None:
    harness = harness_of(broker, topic, start="latest")
    assert read(harness) == {}
    broker.add_partitions(topic, 3)
    broker.produce(topic, ["20", "21"], 2)
    harness.discover()
    assert read(harness) == {"2": [20, 21]} and harness.errors == []


def test_a_partition_that_was_paused_is_read_on_where_it_was(broker: Broker, topic: str) -> None:
    harness = harness_of(broker, topic, batch=2)
    harness.turns(3)
    spout: Any = harness.tasks[0].spout
    spout.set_ahead({f"{topic}-0"})
    before = len(read(harness, 1).get("0", []))
    assert len(read(harness, 8).get("0", [])) == before
    spout.set_ahead(set())
    assert read(harness, 8) == {"0": [*range(5)], "1": [*range(10, 15)]}


# -- errors ------------------------------------------------------------------------------------------------------------------


def test_what_cannot_heal_is_raised_with_what_to_do(broker: Broker, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    secured = {"bootstrap_servers": broker.secured_address}
    cases: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
        ("nowhere", {}, NotFoundError, "topic 'nowhere' cannot be read.*create it"),
        (topic, {**secured, "config": sasl(USER, "planted-too")}, TopoError, "refuses the login; correct"),
        (topic, {**secured, "config": sasl(STRANGER, PASSWORD)}, TopoError, "grant the user of config="),
        (topic, {"config": {"fetch.min.bites": 1}}, ConfigError, "No such configuration property"),
        (topic, {"start": {"orders-9": 1}}, ConfigError, "start= names 'orders-9'"),
    ]
    for topics, given, kind, message in cases:
        with pytest.raises(kind, match=message) as raised:
            harness_of(broker, topics, **given)
        assert "planted" not in str(raised.value) and "planted" not in caplog.text


def test_a_group_that_the_user_may_not_read_is_named_at_once(broker: Broker, topic: str) -> None:
    broker.grant("TOPIC", topic, "READ")
    login = {"bootstrap_servers": broker.secured_address, "config": sasl(STRANGER, PASSWORD), "group_id": f"group-{topic}"}
    with pytest.raises(TopoError, match=r"'committed' cannot be looked up: grant the user .* Read on the group"):
        harness_of(broker, topic, **login)
    harness = harness_of(broker, topic, **login, start="earliest")
    read(harness)
    harness.tasks[0].commit()
    until = time.monotonic() + 30
    while not harness.errors and time.monotonic() < until:
        harness.turns(1)
    assert ["does not take the positions" in str(error) for error in harness.errors] == [True]
    assert len(harness.all_rows()) == 10


def test_a_broker_that_does_not_answer_is_named() -> None:
    config = {"socket.timeout.ms": 500}
    with pytest.raises(TopoError, match=r"no broker .*='127.0.0.1:1' answers; start it, or correct .*Connection refused"):
        PartitionHarness(lambda: PatientSpout("orders", bootstrap_servers="127.0.0.1:1", config=config))


def test_a_spout_is_closed_while_the_broker_answers_no_commit(broker: Broker, topic: str) -> None:
    harness = harness_of(broker, topic, group_id=f"group-{topic}")
    read(harness)
    spout: Any = harness.tasks[0].spout
    broker.freeze()
    try:
        spout.on_committed({f"{topic}-0": ("000000.x", 4)})
        closing = Thread(target=spout.close, daemon=True)
        closing.start()
        closing.join(20.0)
        assert not closing.is_alive()
    finally:
        broker.thaw()


def test_with_a_stop_a_topic_that_is_not_found_is_no_end_of_the_input(broker: Broker, topic: str) -> None:
    harness = harness_of(broker, topic, stop="latest", discovery_interval="1m")
    broker.delete_topic(topic)
    harness.turns(2)
    assert "do not have it; create it" in str(harness.errors[0])
    assert not harness.tasks[0].has_ended


def test_the_login_of_the_config_is_used(broker: Broker, topic: str) -> None:
    harness = harness_of(broker, topic, bootstrap_servers=broker.secured_address, config=sasl(USER, PASSWORD))
    assert read(harness)["0"] == [*range(5)] and harness.errors == []


def test_a_pattern_without_a_topic_is_reported_and_its_topics_are_read_when_they_come(broker: Broker) -> None:
    prefix = f"late{secrets.token_hex(4)}"
    harness = harness_of(broker, None, pattern=f"^{prefix}")
    harness.turns(2)
    assert "no topic matches" in str(harness.errors[0])
    broker.produce(broker.create_topic(1, f"{prefix}-a"), ["1"])
    harness.discover()
    assert read(harness) == {"0": [1]} and len(harness.errors) == 1


# -- the page ----------------------------------------------------------------------------------------------------------------


def test_the_topology_of_the_page_writes_each_order_once(broker: Broker, tmp_path: Path) -> None:
    page: dict[str, Any] = {}
    exec(compile(code_of(ROOT / "docs" / "connectors" / "kafka.md"), "kafka.md", "exec"), page)
    delete_if_there(broker, "orders")
    broker.create_topic(2, "orders")
    for n in range(10):
        broker.produce("orders", [json.dumps({"user": "ann", "cents": n})], n % 2)

    def build() -> Any:
        return page["orders"](broker.address, tmp_path / "out")

    page["KafkaSpout"] = PatientSpout
    test = TopologyTest(build)
    test.advance("3s")
    test.crash("orders")
    broker.produce("orders", [json.dumps({"user": "bob", "cents": 10, "note": "late"})], 1)
    test.advance("10s")
    rows = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    assert sorted(row["cents"] for row in rows) == [*range(11)]
    assert [row["note"] for row in rows if row["user"] == "bob"] == ["late"]
    broker.delete_topic("orders")


def delete_if_there(broker: Broker, topic: str) -> None:
    if topic in broker.admin().list_topics(timeout=10).topics:
        broker.delete_topic(topic)
