"""KafkaSpout on a cluster of which a broker that was behind is elected."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers import kafka
from topo import KafkaSpout
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
    from confluent_kafka.admin import NewTopic

    first, leader, behind = brokers
    admin = first.admin()
    config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    admin.create_topics([NewTopic("orders", 1, replica_assignment=[[2, 3]], config=config)])["orders"].result(60)

    def state() -> tuple[int, list[int]] | None:
        found: Any = admin.list_topics("orders", timeout=10).topics["orders"].partitions.get(0)
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
