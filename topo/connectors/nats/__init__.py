"""NATS JetStream as a source and as a target."""

from topo.connectors.nats.sink import NatsSink
from topo.connectors.nats.spout import NatsSpout

__all__ = ["NatsSink", "NatsSpout"]
