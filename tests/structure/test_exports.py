"""The public names, pinned: adding one is a decision, and taking one away breaks users."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest

import topo
from topo.launch.spark.host_probe import PACKAGES
from topo_cli.main import COMMANDS, LazyGroup

PUBLIC = [
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
    "Counter",
    "CustomGrouping",
    "DeltaSink",
    "EmitError",
    "MemoryPartitions",
    "MemorySpout",
    "Partition",
    "PartitionedSpout",
    "PartitionOutput",
    "PartitionReader",
    "SourceRow",
    "SourceRows",
    "TopoEnvironmentError",
    "ExponentialBackoffRetry",
    "FilesSink",
    "FilesSpout",
    "FixedDelayRetry",
    "TopoInternalError",
    "Gauge",
    "Histogram",
    "Hook",
    "HttpSink",
    "IcebergSink",
    "IterableSpout",
    "JsonLinesSink",
    "KafkaSink",
    "KafkaSpout",
    "Metrics",
    "MqttSink",
    "MqttSpout",
    "NatsSink",
    "NatsSpout",
    "NotFoundError",
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
    "TopoError",
    "Topology",
    "TopologyBuilder",
    "TopologyConfig",
    "TopologyError",
    "Tuple",
    "TupleStateError",
    "TwoPhaseSink",
    "UserError",
    "UnsupportedValueError",
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

HEAVY = {"zmq", "msgpack", "click", "rich", "psutil", "asyncio", "multiprocessing", "pyarrow", "pyspark"}

NOT_IN_A_WORKER = {"hashlib", "_hashlib", "secrets", "logging.handlers", "socket", "zipfile", "tempfile", "ctypes", "zoneinfo"}
NOT_IN_A_WORKER |= {"topo.operators.windows.operator", "topo.task.runners.async_calls"}
"""What cost each worker 5 MB: OpenSSL alone has 3.4 MB. A worker with windows or asynchronous calls loads these then."""

NAMED_ONLY = {"Counter", "Tuple"}
"""Public names that `from topo import *` leaves alone."""


def test_the_public_names_are_these() -> None:
    assert sorted([*topo.__all__, *NAMED_ONLY]) == sorted(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_is_there_and_documented(name: str) -> None:
    value = getattr(topo, name)
    assert name in dir(topo)
    if isinstance(value, type):
        assert value.__doc__, f"{name} has no docstring"
        undocumented = [
            member
            for member, function in vars(value).items()
            if callable(function) and not member.startswith("_") and not getattr(function, "__doc__", None)
        ]
        assert undocumented == []


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Sprout'"):
        topo.Sprout  # noqa: B018


def test_importing_topo_loads_nothing_heavy() -> None:
    program = "import sys, topo; from topo import Spout, TopologyBuilder; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert HEAVY & set(loaded) == set()


def test_a_worker_loads_no_openssl_and_nothing_of_submissions() -> None:
    program = "import sys, topo.worker.process; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert NOT_IN_A_WORKER & set(loaded) == set()


def test_an_agent_and_its_workers_load_the_packages_that_hosts_are_asked_for() -> None:
    """A host of a Spark cluster may have no others."""
    program = "import sys, topo.launch.spark.agent, topo.worker.process; print(*[f'{name}={getattr(module, \"__file__\", None)}' "
    program += "for name, module in sys.modules.items() if '.' not in name])"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    installed = {name for name, _, file in (one.partition("=") for one in printed) if "site-packages" in file}
    # Where typing_extensions is installed msgspec uses it.
    assert {name for name in installed if not name.startswith("_")} - {"topo", "typing_extensions"} == set(PACKAGES)


def test_all_names_can_be_imported_at_once() -> None:
    program = "from topo import *; print(JsonLinesSink, TextFileSpout)"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_can_be_imported(name: str) -> None:
    group = LazyGroup("topo")
    command = group.get_command(click.Context(group), name)

    assert command is not None and command.help
