"""topo: topologies of spouts and bolts in Python, every task a process, every message tracked.

These are the public names; whatever is not here may change. The ready-made components are imported on first use. `Counter` and
`Tuple` are public too, but not taken by `from topo import *`: they would replace those of `collections` and `typing`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from topo.api import aggregates, windows
from topo.api.async_io import AsyncMode, AsyncTimeoutError, ExponentialBackoffRetry, FixedDelayRetry
from topo.api.batch_bolt import BatchBolt, BatchCollector
from topo.api.bolt import BasicBolt, BasicCollector, Bolt, Collector, StatefulBolt
from topo.api.column_batch import ColumnBatch
from topo.api.columns import ColumnBolt, ColumnCollector, ColumnSpout, ColumnSpoutCollector, StatefulColumnBolt
from topo.api.context import Connection, TaskContext
from topo.api.groupings import CustomGrouping
from topo.api.hooks import Hook
from topo.api.metrics import Counter as Counter
from topo.api.metrics import Gauge, Histogram, Metrics
from topo.api.operator_bolts import AsyncBolt, ProcessBolt, ProcessCollector, ProcessContext, TimeDomain, WindowBolt
from topo.api.partition_values import BadRecord, Partition, PartitionOutput, PartitionReader, SourceRow, SourceRows
from topo.api.partitions import PartitionedSpout
from topo.api.spout import BlockingSpout, RetryingSpout, Spout, SpoutCollector
from topo.api.streams import direct
from topo.api.topology import Topology
from topo.api.tuples import Tuple as Tuple
from topo.api.two_phase import TwoPhaseSink
from topo.api.watermarks import WatermarkGenerator, WatermarkStrategy
from topo.builder import BoltDeclarer, TopologyBuilder
from topo.config import TopologyConfig
from topo.deprecation import old_names
from topo.errors import (
    ConfigError,
    EmitError,
    NotFoundError,
    PeerError,
    SinkBlockedError,
    TopoEnvironmentError,
    TopoError,
    TopoInternalError,
    TopologyError,
    TupleStateError,
    UnsupportedValueError,
    UserError,
)
from topo.version import __version__

if TYPE_CHECKING:
    from topo.connectors.delta.sink import DeltaSink
    from topo.connectors.files_sink import FilesSink
    from topo.connectors.files_spout import FilesSpout
    from topo.connectors.http.http_sink import HttpSink
    from topo.connectors.http.stream_spouts import SseSpout, WebSocketSpout
    from topo.connectors.http.webhook_spout import WebhookSpout
    from topo.connectors.iceberg.sink import IcebergSink
    from topo.connectors.iterable_spout import IterableSpout
    from topo.connectors.json_lines_sink import JsonLinesSink
    from topo.connectors.kafka.sink import KafkaSink
    from topo.connectors.kafka.spout import KafkaSpout
    from topo.connectors.memory_spout import MemoryPartitions, MemorySpout
    from topo.connectors.mqtt.mqtt_sink import MqttSink
    from topo.connectors.mqtt.mqtt_spout import MqttSpout
    from topo.connectors.nats import NatsSink, NatsSpout
    from topo.connectors.postgres.cdc_spout import PostgresCdcSpout
    from topo.connectors.postgres.sink import PostgresSink
    from topo.connectors.postgres.spout import PostgresSpout
    from topo.connectors.print_bolt import PrintBolt
    from topo.connectors.rabbitmq.sink import RabbitSink
    from topo.connectors.rabbitmq.spout import RabbitSpout
    from topo.connectors.redis import RedisGroupSpout, RedisSink, RedisStreamSink, RedisStreamSpout
    from topo.connectors.sqlite_sink import SqliteSink
    from topo.connectors.tail_spout import TailSpout
    from topo.connectors.text_file_spout import TextFileSpout

_RENAMED = {
    "AsyncTimeout": "AsyncTimeoutError",
    "EnvironmentFault": "TopoEnvironmentError",
    "FrameworkBug": "TopoInternalError",
    "NotFound": "NotFoundError",
    "SinkStuck": "SinkBlockedError",
    "ValueNotCarried": "UnsupportedValueError",
}
_LAZY = {
    "DeltaSink": "topo.connectors.delta.sink",
    "FilesSink": "topo.connectors.files_sink",
    "FilesSpout": "topo.connectors.files_spout",
    "HttpSink": "topo.connectors.http.http_sink",
    "IcebergSink": "topo.connectors.iceberg.sink",
    "IterableSpout": "topo.connectors.iterable_spout",
    "JsonLinesSink": "topo.connectors.json_lines_sink",
    "KafkaSink": "topo.connectors.kafka.sink",
    "KafkaSpout": "topo.connectors.kafka.spout",
    "MemoryPartitions": "topo.connectors.memory_spout",
    "MemorySpout": "topo.connectors.memory_spout",
    "PostgresCdcSpout": "topo.connectors.postgres.cdc_spout",
    "MqttSink": "topo.connectors.mqtt.mqtt_sink",
    "MqttSpout": "topo.connectors.mqtt.mqtt_spout",
    "PostgresSink": "topo.connectors.postgres.sink",
    "PostgresSpout": "topo.connectors.postgres.spout",
    "NatsSink": "topo.connectors.nats",
    "NatsSpout": "topo.connectors.nats",
    "PrintBolt": "topo.connectors.print_bolt",
    "RabbitSink": "topo.connectors.rabbitmq.sink",
    "RabbitSpout": "topo.connectors.rabbitmq.spout",
    "RedisGroupSpout": "topo.connectors.redis",
    "RedisSink": "topo.connectors.redis",
    "RedisStreamSink": "topo.connectors.redis",
    "RedisStreamSpout": "topo.connectors.redis",
    "SseSpout": "topo.connectors.http.stream_spouts",
    "SqliteSink": "topo.connectors.sqlite_sink",
    "TailSpout": "topo.connectors.tail_spout",
    "TextFileSpout": "topo.connectors.text_file_spout",
    "WebSocketSpout": "topo.connectors.http.stream_spouts",
    "WebhookSpout": "topo.connectors.http.webhook_spout",
}

__all__ = [
    "AsyncBolt",
    "AsyncMode",
    "AsyncTimeoutError",
    "BadRecord",
    "BasicBolt",
    "BasicCollector",
    "BatchBolt",
    "BatchCollector",
    "BlockingSpout",
    "Bolt",
    "BoltDeclarer",
    "Collector",
    "ColumnBatch",
    "ColumnBolt",
    "ColumnCollector",
    "ColumnSpout",
    "ColumnSpoutCollector",
    "ConfigError",
    "Connection",
    "CustomGrouping",
    "DeltaSink",
    "EmitError",
    "ExponentialBackoffRetry",
    "FilesSink",
    "FilesSpout",
    "FixedDelayRetry",
    "Gauge",
    "Histogram",
    "Hook",
    "HttpSink",
    "IcebergSink",
    "IterableSpout",
    "JsonLinesSink",
    "KafkaSink",
    "KafkaSpout",
    "MemoryPartitions",
    "MemorySpout",
    "Metrics",
    "MqttSink",
    "MqttSpout",
    "NatsSink",
    "NatsSpout",
    "NotFoundError",
    "Partition",
    "PartitionOutput",
    "PartitionReader",
    "PartitionedSpout",
    "PeerError",
    "PostgresCdcSpout",
    "PostgresSink",
    "PostgresSpout",
    "PrintBolt",
    "ProcessBolt",
    "ProcessCollector",
    "ProcessContext",
    "RabbitSink",
    "RabbitSpout",
    "RedisGroupSpout",
    "RedisSink",
    "RedisStreamSink",
    "RedisStreamSpout",
    "RetryingSpout",
    "SinkBlockedError",
    "SourceRow",
    "SourceRows",
    "Spout",
    "SpoutCollector",
    "SqliteSink",
    "SseSpout",
    "StatefulBolt",
    "StatefulColumnBolt",
    "TailSpout",
    "TaskContext",
    "TextFileSpout",
    "TimeDomain",
    "TopoEnvironmentError",
    "TopoError",
    "TopoInternalError",
    "Topology",
    "TopologyBuilder",
    "TopologyConfig",
    "TopologyError",
    "TupleStateError",
    "TwoPhaseSink",
    "UnsupportedValueError",
    "UserError",
    "WatermarkGenerator",
    "WatermarkStrategy",
    "WebSocketSpout",
    "WebhookSpout",
    "WindowBolt",
    "__version__",
    "aggregates",
    "direct",
    "windows",
]


_old_name = old_names(__name__, _RENAMED)


def __getattr__(name: str) -> Any:
    """Import a ready-made component when it is first asked for; give what an old name stands for."""
    if name not in _LAZY:
        return _old_name(name)
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_LAZY[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
