"""The broker that the tests of Kafka's connectors rely on does to them what its methods say."""

from __future__ import annotations

import pytest

from tests.servers.kafka import PASSWORD, STRANGER, USER, Broker, sasl

pytestmark = [pytest.mark.integration, pytest.mark.server, pytest.mark.xdist_group("kafka")]


def test_a_killed_broker_comes_back_with_its_records(broker: Broker) -> None:
    topic = broker.create_topic(2)
    broker.produce(topic, ["a", "b"], partition=1, key="k")
    before = broker.address, broker.pid
    broker.kill()
    broker.start_again()
    assert broker.address == before[0] and broker.pid != before[1]
    assert [(one.partition(), one.key(), one.value()) for one in broker.records(topic)] == [(1, b"k", b"a"), (1, b"k", b"b")]


def test_a_frozen_broker_answers_nothing_until_it_is_thawed(broker: Broker) -> None:
    from confluent_kafka import KafkaException

    topic = broker.create_topic()
    broker.freeze()
    try:
        with pytest.raises(KafkaException):
            broker.admin().list_topics(timeout=0.3)
    finally:
        broker.thaw()
    assert broker.records(topic) == []


def test_who_may_not_write_is_refused_at_the_secured_address(broker: Broker) -> None:
    from confluent_kafka import Producer

    topic = broker.create_topic()
    refused = {}
    for user in (USER, STRANGER):
        producer = Producer({"bootstrap.servers": broker.secured_address, "log_level": 0, **sasl(user, PASSWORD)})
        producer.produce(topic, user, on_delivery=lambda error, _record, user=user: refused.update({user: error}))
        producer.flush(20)
    assert refused[USER] is None
    assert refused[STRANGER].name() == "TOPIC_AUTHORIZATION_FAILED"
    assert [one.value() for one in broker.records(topic)] == [USER.encode()]
