"""Kafka on several brokers: a broker that was behind is elected, and the coordinator of a marker is gone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.servers import kafka
from topo import KafkaSpout
from topo.connectors.kafka.transactions import Transactions
from topo.testing.partition_harness import PartitionHarness

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("kafka")]


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[list[kafka.Broker]]:
    """Three of one cluster; the first is the controller, too."""
    (tmp_path / "1").mkdir()
    started = [kafka.start(tmp_path / "1")]
    try:
        started += [kafka.start_beside(started[0], tmp_path / str(number), number) for number in (2, 3)]
        yield started
    finally:
        for one in started:
            if one.process.poll() is None:
                one.kill()


def wait(condition: Callable[[], object], *read: PartitionHarness) -> None:
    """Take turns of tasks that read until a condition holds."""
    until = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < until, [(one.read, one.errors) for one in read]
        for one in read:
            one.turns(1)
            one.clock.advance("50ms")
        time.sleep(0.02)


def test_records_that_others_have_replaced_are_lost_though_the_log_is_longer_by_now(brokers: list[kafka.Broker]) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import NewTopic

    first, leader, behind = brokers
    admin = first.admin()
    config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    admin.create_topics([NewTopic("orders", 1, replica_assignment=[[2, 3]], config=config)])["orders"].result(60)

    def state() -> tuple[int, list[int]] | None:
        try:
            found: Any = admin.list_topics("orders", timeout=10).topics["orders"].partitions.get(0)
        except KafkaException:
            # The client has asked the broker that was killed.
            return None
        return None if found is None else (found.leader, sorted(found.isrs))

    wait(lambda: state() == (2, [2, 3]))
    first.produce("orders", [f"a{n}" for n in range(5)])

    def harness(on_lost: Any) -> PartitionHarness:
        options: Any = {"value_deserializer": "text", "config": {"log_level": 0}}
        return PartitionHarness(lambda: KafkaSpout("orders", bootstrap_servers=first.address, on_lost=on_lost, **options))

    skips, fails = harness("skip"), harness("fail")

    def losses(one: PartitionHarness) -> int:
        return len([error for error in map(str, one.errors) if "ends at offset 5 and 10 is to be read next" in error])

    wait(lambda: len(skips.all_rows()) == len(fails.all_rows()) == 5, skips, fails)
    behind.kill()
    wait(lambda: state() == (2, [2]))
    first.produce("orders", [f"b{n}" for n in range(5)])
    wait(lambda: len(skips.all_rows()) == len(fails.all_rows()) == 10, skips, fails)
    leader.kill()
    behind.start_again()
    wait(lambda: state() == (3, [3]))
    first.forget()
    first.produce("orders", [f"c{n}" for n in range(20)])
    wait(lambda: len(skips.all_rows()) == 30 and losses(fails) > 1, skips, fails)
    replaced = [f"c{n}" for n in range(20)]
    assert skips.read["orders-0"][10:] == replaced and losses(skips) == 1
    assert len(fails.all_rows()) == 10, "it stands still"
    skips.stop()
    fails.stop()


def java_hash(text: str) -> int:
    """Return the hash by which a broker chooses the coordinator of a group."""
    found = 0
    for character in text:
        found = (31 * found + ord(character)) & 0xFFFFFFFF
    return found & 0x7FFFFFFF


def test_a_commit_ends_in_time_though_the_coordinator_of_its_marker_is_gone(tmp_path: Path) -> None:
    from confluent_kafka import OFFSET_INVALID, Consumer, KafkaException, Producer, TopicPartition

    (tmp_path / "1").mkdir()
    started = [kafka.start(tmp_path / "1", settings={"offsets.topic.num.partitions": "2"})]
    try:
        settings = {"bootstrap.servers": started[0].address, "log_level": 0}
        topic = started[0].create_topic()
        # The coordinator of transactions is broker 1, which is alone as yet.
        Producer({**settings, "transactional.id": "first"}).init_transactions(60)
        started.append(kafka.start_beside(started[0], tmp_path / "2", 2))
        admin = started[0].admin()
        wait(lambda: len(admin.list_topics(timeout=10).brokers) == 2)

        def is_at(number: int) -> bool:
            """Whether a marker is settled. A broker that has just begun to answer is no coordinator yet."""
            try:
                (found,) = group.committed([TopicPartition(topic, 0)], timeout=10)
            except KafkaException:
                return False
            return bool(found.offset == number)

        group = Consumer({**settings, "group.id": "first"})
        wait(lambda: is_at(OFFSET_INVALID))
        offsets = admin.list_topics("__consumer_offsets", timeout=10).topics["__consumer_offsets"].partitions
        second = next(number for number, one in offsets.items() if one.leader == 2)
        writer = next(name for name in "abcdefgh" if java_hash(f"topo.{name}") % 2 == second)
        seen: list[float] = []

        def opened() -> Transactions:
            until = time.monotonic() + 60
            while True:
                try:
                    return Transactions(settings, writer, topic, lambda: seen.append(time.monotonic()))
                except KafkaException as error:
                    # A broker that has just begun to answer is no coordinator yet.
                    assert time.monotonic() < until, error

        first = opened()
        first.commit(1, "one", [(topic, b"1", None, 0, 0, None)])
        # The brokers end a transaction in their logs after they have confirmed its commit.
        group = Consumer({**settings, "group.id": f"topo.{writer}", "isolation.level": "read_committed"})
        wait(lambda: is_at(1))
        assert [record.value() for record in started[0].records(topic)] == [b"1"]
        started[1].kill()
        seen[:] = [time.monotonic()]
        with pytest.raises(KafkaException, match="no coordinator of the group of the marker answers"):
            first.commit(2, "two", [(topic, b"2", None, 0, 0, None)])
        seen.append(time.monotonic())
        assert max(after - before for before, after in pairwise(seen)) < 2, "it shows progress"
        first.close()
        started[1].start_again()
        again = opened()
        assert again.marker.number == 1
        again.commit(2, "two", [(topic, b"2", None, 0, 0, None)])
        assert [record.value() for record in started[0].records(topic)] == [b"1", b"2"]
        again.close()
    finally:
        for one in started:
            if one.process.poll() is None:
                one.kill()
