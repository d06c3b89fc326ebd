"""KafkaSpout keeps the contract of sources with partitions, on a real broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.connectors.kafka_sources import Topics
from tests.servers.kafka import Broker
from topo.testing.contracts import PartitionedSpoutContract, SourceUnderTest

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("kafka")]


class TestKafkaSpout(PartitionedSpoutContract):
    @pytest.fixture(autouse=True)
    def _with_broker(self, broker: Broker) -> None:
        self.broker = broker

    def source(self, folder: Path) -> SourceUnderTest:
        return Topics(self.broker)
