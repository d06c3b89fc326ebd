"""The lag of spouts whose server has not answered: it is not known, and 0 would say that nothing is left to read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from topo import NatsSpout, RabbitSpout, RedisStreamSpout, TaskContext
from topo.api.partition_values import Partition
from topo.api.partitions import PartitionedSpout
from topo.connectors.postgres.keyset import KeysetBatch
from topo.connectors.postgres.keyset_reader import KeysetReader
from topo.testing.partition_harness import PartitionHarness

SPOUTS: dict[str, Callable[[], PartitionedSpout]] = {
    "redis": lambda: RedisStreamSpout("redis://127.0.0.1:1", "s", timeout="1s"),
    "nats": lambda: NatsSpout("nats://127.0.0.1:1", "S", timeout="1s"),
    "pika": lambda: RabbitSpout("amqp://127.0.0.1:1", "q"),
}
PARTITION = Partition("p", "g", 0)


@pytest.mark.parametrize(("package", "position"), [("redis", (1, 0, 1)), ("nats", (1, 1)), ("pika", None)])
def test_there_is_no_lag_before_the_server_has_answered(package: str, position: Any) -> None:
    pytest.importorskip(package)
    harness = PartitionHarness(SPOUTS[package])
    harness.turns(3)
    assert "lag" not in harness.tasks[0].metrics.snapshot().gauges
    if position is not None:
        reader = harness.tasks[0].spout._running._reader
        assert reader.lag() == 0, "it has nothing to read"
        reader.assign(PARTITION, position, False)
        assert reader.lag() is None
    harness.stop()


def test_there_is_no_lag_of_a_table_before_it_was_looked_at() -> None:
    class Rows:
        def check(self, source: str) -> None: ...

        def greatest(self, source: str) -> int | None: ...

        def read(self, source: str, number: int, behind: int, limit: int) -> KeysetBatch:
            raise OSError("planted: away")

        def close(self) -> None: ...

    reader = KeysetReader(Rows(), TaskContext("flow", "in", 1), 1.0, 10, None, 1)
    assert reader.lag() == 0
    reader.assign(PARTITION, None, True)
    assert reader.lag() is None
