"""NATS JetStream as a source."""

from topo.connectors.nats.spout import NatsSpout

__all__ = ["NatsSpout"]
