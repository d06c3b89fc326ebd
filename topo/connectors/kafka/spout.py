"""A spout that reads topics of Kafka."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal

from topo.api.context import TaskContext
from topo.api.partition_values import Partition
from topo.api.partitions import PartitionedSpout
from topo.api.spout import SpoutCollector
from topo.connectors.argument_checks import checks_arguments
from topo.connectors.clients import check_installed
from topo.connectors.kafka.cluster import Cluster
from topo.connectors.kafka.offsets import Place, check_names, checked_place
from topo.connectors.kafka.reader import KafkaReader
from topo.connectors.kafka.records import RecordFormat
from topo.connectors.kafka.schemas import RegistryFormat
from topo.connectors.kafka.settings import checked_config, servers_of
from topo.connectors.kafka.topic_names import check_topic
from topo.connectors.record_decoder import Deserialize
from topo.errors import ConfigError, TopoEnvironmentError, TopoInternalError

_FIXED = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
}
_REFUSED = {
    "group.id": "give it as group_id=",
    "enable.auto.commit": "topo commits the offsets that are done",
    "enable.auto.offset.store": "topo commits the offsets that are done",
    "auto.offset.reset": "start= names where reading begins, and on_lost= what happens when records are gone",
    "enable.partition.eof": "the spout needs the ends of partitions",
    "on_commit": "topo reports positions that the group does not take",
    "allow.auto.create.topics": "a spout creates no topics",
}
_DEFAULTS = {
    "isolation.level": "read_committed",
    # The client's own 64 MiB would be the memory of each task.
    "queued.max.messages.kbytes": 16384,
    # A full queue is looked at this often; at the client's own second reading stops that long.
    "fetch.queue.backoff.ms": 20,
}
_TOPIC_FIXES = {"*^$+?[|(\\": "give a regular expression as pattern=", ",": "give several as a tuple of names"}
_IDLE_S = 0.1
"""How often the task is asked while nothing comes: a record wakes it."""


class KafkaSpout(PartitionedSpout):
    """Emits the records of topics of Kafka; each partition of a topic is read in its order.

        KafkaSpout("orders", bootstrap_servers="localhost:9092", value_deserializer="json", fields=("user", "cents"))
        KafkaSpout(("orders", "refunds"), bootstrap_servers=("a:9092", "b:9092"), group_id="billing", metadata=("key", "topic"))
        KafkaSpout(pattern="^orders-", bootstrap_servers="localhost:9092", start="latest")

    | delivery | promise |
    | --- | --- |
    | `at_least_once` | no record is missing; some repeat after a recovery |
    | `exactly_once` | reads again from the checkpoint's offsets; those of the group follow the checkpoint |
    | `at_most_once` | an offset counts as soon as its record was emitted |

    The spout joins no consumer group: which task reads a partition is arithmetic, and no broker rebalances anything.
    """

    @checks_arguments
    def __init__(
        self,
        topics: str | Sequence[str] | None = None,
        *,
        bootstrap_servers: str | Sequence[str],
        pattern: str | None = None,
        group_id: str | None = None,
        start: Place = None,
        stop: Place = None,
        value_deserializer: str | Deserialize | RegistryFormat = "bytes",
        key_deserializer: str | Deserialize | RegistryFormat = "bytes",
        fields: Sequence[str] | None = None,
        metadata: Sequence[str] = (),
        timestamp: str | None = "record",
        on_tombstone: Literal["emit", "drop"] = "emit",
        discovery_interval: str | timedelta = "1m",
        max_drift: str | timedelta | None = None,
        on_lost: Literal["fail", "skip"] = "fail",
        on_bad_record: Literal["dead_letter", "fail", "drop"] = "dead_letter",
        batch: int = 1000,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        """Keep what to read; nothing is connected yet.

        Args:
            topics: a name, or several; they have to exist. None: those of `pattern`.
            bootstrap_servers: one broker or several, "host:port" each, by which all are found.
            pattern: a regular expression; topics whose names it finds are read, those too that are created later.
            group_id: a consumer group whose offsets follow those that are done, for monitors of lag and start="committed". No
                other program may consume in it.
            start: where a partition begins that topo has no position of: "earliest"; "latest", behind what there is; "committed",
                behind the offsets of the group, where it has none as "earliest"; a datetime with a time zone; offsets by
                partition, such as {"orders-3": 1700}, the others as "earliest". None: "committed" with a group_id,
                else "earliest". Partitions that come later begin at their first record.
            stop: where a partition ends: "latest", as it is when a task opens; a datetime; offsets by partition, in front of
                which they end. With it partitions are looked for once, and the input ends when all have ended.
            value_deserializer, key_deserializer: "bytes", "text", "json", a function of bytes, or `Avro` and `Protobuf` of
                topo.connectors.kafka with a schema registry.
            fields: keys of the decoded value that become the fields of the tuple; a "?" at the end lets one be missing: it is
                None then. Without, the one field is `value`.
            metadata: fields behind those: of "key", "topic", "partition", "offset", "timestamp", "headers".
            timestamp: the event time of a tuple: "record", the record's own; the name of a field, milliseconds since 1970; None.
            on_tombstone: a record without a value is a tuple of None ("emit"), or none at all ("drop").
            discovery_interval: how often new partitions, and topics of `pattern`, are looked for.
            max_drift, on_lost, on_bad_record: see `PartitionedSpout`.
            batch: the most records of one poll.
            config: settings of the client by the names of librdkafka, such as security.protocol. Those that would break a promise
                are refused.

        Raises:
            ConfigError: an argument cannot be used, or confluent-kafka is missing.
        """
        check_installed("KafkaSpout", "kafka", "confluent-kafka", "confluent_kafka")
        self._topics = _checked_topics(topics, pattern)
        self._pattern = pattern
        self._servers = servers_of(bootstrap_servers)
        self._config = checked_config("KafkaSpout", config or {}, _REFUSED)
        if group_id == "":
            raise ConfigError(f"group_id={group_id!r} must be a name")
        self._group_id = group_id
        self._start = checked_place("start", start, ("earliest", "latest", "committed"))
        if self._start is None:
            self._start = "earliest" if group_id is None else "committed"
        if self._start == "committed" and group_id is None:
            raise ConfigError("start='committed' needs group_id=, the group whose offsets count")
        self._stop = checked_place("stop", stop, ("latest",))
        self._format = RecordFormat(value_deserializer, key_deserializer, fields, metadata, timestamp, on_tombstone)
        self.outputs = self._format.outputs
        if batch < 1:
            raise ConfigError(f"batch={batch!r} must be a number of records, at least 1")
        self.discovery_interval = None if stop is not None else discovery_interval
        self.max_drift, self.on_lost, self.on_bad_record, self.batch_size = max_drift, on_lost, on_bad_record, batch
        self._cluster: Cluster | None = None
        self._collector: SpoutCollector | None = None
        self._reader: KafkaReader | None = None

    # -- called by the engine ------------------------------------------------------------------------------------------------

    def partitions(self) -> list[Partition]:
        """Return the partitions of the topics that exist."""
        if self._cluster is None:
            raise TopoInternalError("a KafkaSpout is asked for its partitions and is not open")
        # With stop= they are found once, and a topic that is left out would count as read.
        return self._cluster.partitions(all_named=self._stop is not None)

    def open(self, context: TaskContext, collector: SpoutCollector) -> None:
        """Connect, and look up the topics and the places where their partitions begin.

        Raises:
            TopoError: no broker answers, the login or a request is refused, or a topic is missing; with the fix.
        """
        self._collector = collector
        super().open(context, collector)

    def reader(self, context: TaskContext) -> KafkaReader:
        """Return the reader of a task."""
        assert self._collector is not None
        settings = self._settings(context)
        shared = {name: value for name, value in settings.items() if name not in _CONSUMER_ONLY} | {"log_level": 0}
        cluster = self._cluster = Cluster(shared, self._topics, self._pattern)
        found = cluster.partitions(all_named=True)
        if not found:
            self._collector.report_error(
                TopoEnvironmentError(f"no topic matches pattern={self._pattern!r} yet; those that are created will be read")
            )
        names = [one.name for one in found]
        check_names("start", self._start, names)
        check_names("stop", self._stop, names)
        reader = self._reader = KafkaReader(
            settings,
            context,
            self._format,
            cluster,
            self._start,
            self._stop,
            self._collector.report_error,
            commits=self._group_id is not None,
        )
        try:
            mine = [one for one in found if one.owner(context.parallelism) == context.task_index]
            reader.prepare(mine, context.committed_position or {})
        except Exception:
            reader.close()
            raise
        return reader

    def next_tuple(self) -> None:
        """Emit the records that have come."""
        super().next_tuple()
        if self._reader is not None and self._reader.is_waiting and self._collector is not None:
            self._collector.nothing_before(_IDLE_S)

    def _settings(self, context: TaskContext) -> dict[str, Any]:
        group = self._group_id or f"topo.{context.topology}.{context.component}"
        servers = {"bootstrap.servers": self._servers, "group.id": group}
        return {"client.id": f"topo-{context.component}", **_DEFAULTS, **self._config, **_FIXED, **servers}


_CONSUMER_ONLY = {*_FIXED, *_DEFAULTS, "group.id"}
"""Settings that a client for the topics alone would warn of."""


def _checked_topics(topics: str | Sequence[str] | None, pattern: str | None) -> tuple[str, ...] | None:
    if (topics is None) == (pattern is None):
        raise ConfigError("KafkaSpout reads either topics=, a name or several, or those of pattern=; give one of both")
    if pattern is not None:
        try:
            re.compile(pattern)
        except (re.error, TypeError) as error:
            raise ConfigError(f"pattern={pattern!r} is no regular expression: {error}") from error
        return None
    names = (topics,) if isinstance(topics, str) else tuple(topics or ())
    if not names:
        raise ConfigError(f"topics={topics!r} must be the name of a topic, or several")
    for name in names:
        check_topic(name, "topics", _TOPIC_FIXES)
    if len(set(names)) < len(names):
        raise ConfigError(f"topics={topics!r} has a name twice; give each once")
    return names
