"""Kafka: a source, a sink, formats with a schema registry. The client, confluent-kafka, is imported when one of them is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from topo.connectors.kafka.schemas import Avro, Protobuf
    from topo.connectors.kafka.sink import KafkaSink
    from topo.connectors.kafka.spout import KafkaSpout

__all__ = ["Avro", "KafkaSink", "KafkaSpout", "Protobuf"]

_LAZY = {
    "Avro": "topo.connectors.kafka.schemas",
    "KafkaSink": "topo.connectors.kafka.sink",
    "KafkaSpout": "topo.connectors.kafka.spout",
    "Protobuf": "topo.connectors.kafka.schemas",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)
