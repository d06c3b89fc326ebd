"""A sink that writes tuples as records of Kafka topics."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from topo.api.batch_limits import batch_within_pending, check_batch_age
from topo.api.context import TaskContext
from topo.api.tuples import Tuple
from topo.api.two_phase import TwoPhaseSink
from topo.connectors.argument_checks import checks_arguments
from topo.connectors.clients import check_installed
from topo.connectors.kafka.deliveries import Deliveries
from topo.connectors.kafka.marker import NO_NUMBER, CommitMarker, check_reopened, has_published
from topo.connectors.kafka.outgoing import OutgoingRecord, RecordMaker
from topo.connectors.kafka.schemas import RegistryFormat
from topo.connectors.kafka.settings import checked_config, explained, explaining, servers_of
from topo.connectors.kafka.targets import Targets
from topo.connectors.kafka.topic_names import check_topic
from topo.connectors.kafka.transactions import Transactions, is_fenced
from topo.connectors.record_encoder import Select, Serialize, fields_named
from topo.connectors.secrets import masked_settings
from topo.connectors.server_link import ServerLink
from topo.connectors.staged_count import StagedCount
from topo.connectors.staged_rows import StagedRows, staging_of
from topo.errors import ConfigError, StagedRowsLostError, TopoEnvironmentError, TopoError

_REFUSED = {
    "transactional.id": "topo names the transactions of each task",
    "enable.idempotence": "without it repeats and another order are possible; it is always on",
    "acks": "topo acks what all replicas in sync have; it is always 'all'",
    "request.required.acks": "topo acks what all replicas in sync have; it is always 'all'",
    "delivery.report.only.error": "topo reads the delivery reports",
    "dr_cb": "topo reads the delivery reports",
    "on_delivery": "topo reads the delivery reports",
    "group.id": "topo names the group of each task's marker",
}
_BATCH_BYTES = 1_000_000
"""`message.max.bytes` of the client where nothing else is set."""
_ANY_PAST_MS = 1e15
"""A topic that takes older records than this takes all that there are; Kafka's default is the largest integer."""


class KafkaSink(TwoPhaseSink):
    """Writes one record for each tuple.

        builder.set_bolt("totals", KafkaSink("totals", bootstrap_servers="localhost:9092", key="user")).shuffle_grouping("count")

    | delivery | promise |
    | --- | --- |
    | `at_least_once` | no record is missing; some repeat after a recovery, or when a broker has answered too late |
    | `exactly_once` | each record once, when the checkpoint that covers it is complete, for readers of committed records |
    | `at_most_once` | records can be missing |

    With `exactly_once` records are staged in files until their checkpoint is complete, and written then together with a marker in
    one Kafka transaction. No transaction is open longer than that: a topology that is down holds no reader up, and nothing
    expires but the marker, with the offsets of groups without members (7 days by default).
    """

    @checks_arguments
    def __init__(
        self,
        topic: str | Callable[[Tuple], str],
        *,
        bootstrap_servers: str | Sequence[str],
        key: str | Select | None = None,
        value: str | Select | None = None,
        headers: str | Select | None = None,
        partition: str | Select | None = None,
        timestamp: str | Select | None = "tuple",
        value_serializer: str | Serialize | RegistryFormat = "json",
        key_serializer: str | Serialize | RegistryFormat = "text",
        marker_topic: str | None = None,
        staging: str | os.PathLike[str] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        max_batch: int = 1000,
        flush_interval: str | timedelta | float = "100ms",
        config: Mapping[str, Any] | None = None,
    ) -> None:
        """Keep what to write; nothing is opened yet.

        Args:
            topic: an existing topic; or a function of the tuple, which returns one.
            bootstrap_servers: addresses of brokers, "host:port".
            key: a field's name or a function of the tuple; records of one key are in one partition, in their order. None: no key.
            value: a field's name or a function of the tuple; None: an object of all fields. A value of None is a tombstone.
            headers: a field's name or a function: a mapping or pairs of names, and texts, bytes or None.
            partition: a field's name or a function, where the key is not to choose.
            timestamp: "tuple": the tuple's own; or a field's name or a function, for milliseconds since 1970; None: the time of
                sending.
            value_serializer: "json", "text", "bytes", a function of the value that returns bytes, or `Avro` and `Protobuf` of
                topo.connectors.kafka with a schema registry.
            key_serializer: the same for the key.
            marker_topic: with `exactly_once` and a function for `topic`: an existing topic that the markers are stored for. No
                record is written to it.
            staging: a folder or URL for staged records that all workers reach. None: beside the checkpoints.
            storage_options: for fsspec, where `staging` is a URL.
            max_batch: tuples that are written together, but with `exactly_once`.
            flush_interval: the longest that a tuple waits for others, but with `exactly_once`. At most half of `message_timeout`.
            config: further settings of the client, by librdkafka's names.

        Raises:
            ConfigError: an argument cannot be used, or confluent-kafka is not installed.
        """
        check_installed("KafkaSink", "kafka", "confluent-kafka", "confluent_kafka")
        super().__init__(max_batch=max_batch, flush_interval=flush_interval)
        self._servers = servers_of(bootstrap_servers)
        self._config = checked_config("KafkaSink", config or {}, _REFUSED)
        self._maker = RecordMaker(
            topic,
            key=key,
            value=value,
            headers=headers,
            partition=partition,
            timestamp=timestamp,
            value_serializer=value_serializer,
            key_serializer=key_serializer,
        )
        self.required_fields = fields_named(key, value, headers, partition, None if timestamp == "tuple" else timestamp)
        self._topic = topic if isinstance(topic, str) else None
        if marker_topic is not None:
            check_topic(marker_topic, "marker_topic")
        self._marker_topic = marker_topic or self._topic
        self._staging, self._storage_options = staging, storage_options

    def __repr__(self) -> str:
        shown = masked_settings({"bootstrap.servers": self._servers, **self._config})
        return f"KafkaSink({self._topic or 'topic of the tuple'!r}, {shown})"

    def open(self, context: TaskContext) -> None:
        """Look the topics and schemas up.

        Raises:
            TopoError: a topic is missing or may not be written, no broker or registry answers, a schema is missing or refused, or
                a setting cannot be used; it has the fix.
        """
        check_batch_age(context, "KafkaSink", "flush_interval")
        self.max_batch = batch_within_pending(context, self.max_batch, "max_batch")
        self._progress = context.progress
        self._link = ServerLink(f"Kafka at {self._servers!r}", context, self._report)
        metrics = context.metrics
        self._rows_counter, self._bytes_counter = metrics.counter("rows"), metrics.counter("bytes")
        self._rejected_counter, self._retries_counter = metrics.counter("rejected_rows"), metrics.counter("retries")
        self._staged_count = StagedCount(metrics)
        self._publish_time, self._commit_time = metrics.histogram("publish_ms"), metrics.histogram("commit_ms")
        self._clock = context.clock
        self._maker.report_units_to(self._report)
        for encoder in self._maker.encoders:
            encoder.open(self._progress)
        self._settings = self._client_settings(context)
        self._targets = Targets(self._settings, self._progress)
        if self._is_staged and self._marker_topic is not None:
            self._targets.limits(self._marker_topic)
        if self._topic is not None and "message.max.bytes" not in self._config:
            # The client would make batches of several records that the topic does not take.
            self._settings["message.max.bytes"] = max(1000, min(_BATCH_BYTES, self._targets.limits(self._topic).most_bytes))
        self._batch_bytes = int(self._settings["message.max.bytes"])
        self._easy_size = 0
        """Up to this size nothing is to be checked of a record with a key."""
        if self._topic is not None and not self._maker.names_partitions:
            self._easy_size = self._batch_bytes if self._targets.limits(self._topic).most_bytes >= self._batch_bytes else 0
        self._has_reported_age = False
        self._easy_from, self._easy_to = self._easy_times()
        """Between these times of a record, in milliseconds since 1970, nothing is to be checked of it."""
        self._records: list[OutgoingRecord] = []
        self._size = 0
        self._deliveries: Deliveries | None = None
        self._writers: dict[str, Transactions] = {}
        self._known: dict[str, CommitMarker] = {}
        """Markers as this process has last seen them, by writer."""
        if self._is_staged:
            self._open_staging(context)
        else:
            self._deliveries = Deliveries(self._settings, self._progress)

    def _client_settings(self, context: TaskContext) -> dict[str, Any]:
        # A batch that is not delivered by then fails, and is replayed.
        timeout = context.config.message_timeout_s
        is_given = self._is_staged or "message.timeout.ms" in self._config
        deadline = {} if is_given or not timeout else {"delivery.timeout.ms": max(1000, int(timeout * 500))}
        # A request within a transaction blocks for as long, whatever timeout it is given: less than a worker may take for a call.
        longest = min(10.0, (context.config.progress_timeout_s or 30.0) / 3)
        return {
            "bootstrap.servers": self._servers,
            "client.id": f"topo-{context.topology}-{context.component}-{context.task_index}",
            "linger.ms": 5,
            "compression.type": "lz4",
            # That of the client of Java. librdkafka's own spreads records with an empty key over all partitions.
            "partitioner": "murmur2_random",
            # Else a broker, by its defaults, makes a topic of a misspelt name, with one partition.
            "allow.auto.create.topics": False,
            # A commit writes the records of a whole checkpoint; brokers allow no more by default.
            **({"transaction.timeout.ms": 900_000} if self._is_staged else {}),
            "message.max.bytes": _BATCH_BYTES,
            "queue.buffering.max.kbytes": 65536,
            # A broker that is back is found within a second.
            "reconnect.backoff.max.ms": 1000,
            "socket.timeout.ms": max(1000, int(longest * 1000)),
            # Each attempt to connect would be logged; `error_cb` has what counts.
            "log_level": 2,
            **deadline,
            **self._config,
            "enable.idempotence": True,
            "acks": "all",
            "error_cb": self._on_client_error,
            "logger": context.logger,
        }

    def _open_staging(self, context: TaskContext) -> None:
        if self._marker_topic is None:
            raise ConfigError(
                "KafkaSink with a function for topic= needs marker_topic= with exactly_once: an existing topic, for which the "
                "markers of its tasks are stored; no record is written to it"
            )
        place = staging_of(context, self._staging, "KafkaSink")
        self._staged = StagedRows(context, place, "KafkaSink", self._report, self._storage_options)
        self._writer = f"{context.topology}.{context.component}.{context.task_index}"
        self._number = NO_NUMBER
        """How many records the files of this process have that are not published."""

    # -- one tuple -------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start with no records."""
        self._records = []
        self._size = 0

    def write(self, tup: Tuple) -> None:
        """Add a record. Raises UserError for a tuple that has none, or none that its topic takes, and SinkBlockedError."""
        record, size = self._maker.record(tup)
        moment = record[4]
        if size > self._easy_size or record[2] is None or (moment and not self._easy_from <= moment <= self._easy_to):
            self._check(record, size)
        if self._is_staged:
            self._staged.add(record, size)
        else:
            self._records.append(record)
        self._size += size

    def _check(self, record: OutgoingRecord, size: int) -> None:
        topic, now_ms = record[0], time.time() * 1000
        limits = self._targets.limits(topic, record[3])
        limits.check(record, size, self._batch_bytes, now_ms)
        self._easy_from, self._easy_to = self._easy_times()
        if record[4] and not self._has_reported_age and (why := limits.short_life(topic, record[4], now_ms)):
            self._has_reported_age = True
            self._collector.report_error(TopoEnvironmentError(why))

    def _easy_times(self) -> tuple[float, float]:
        if self._topic is None:
            return 1.0, 0.0
        limits, now_ms = self._targets.limits(self._topic), time.time() * 1000
        # Where old records are refused each one is checked.
        first_ms = 0.0 if self._has_reported_age else now_ms - limits.kept_ms
        return first_ms, now_ms + limits.future_ms if limits.past_ms > _ANY_PAST_MS else 0.0

    # -- without checkpoints ---------------------------------------------------------------------------------------------

    def publish(self) -> None:
        """Write the batch. The tuples of records that were not delivered fail, and no others."""
        assert self._deliveries is not None
        began = self._clock()
        failed = self._deliveries.send(self._records)
        self._publish_time.record((self._clock() - began) * 1000)
        self._rows_counter.add(len(self._records) - len(failed))
        self._bytes_counter.add(self._size)
        if len(failed) < len(self._records):
            self._link.restored()
        if failed:
            self._rejected_counter.add(len(failed))
            error = next(iter(failed.values()))
            what = f"{len(failed)} of {len(self._records)} records were not written, and their tuples fail"
            self._collector.report_error(self._explained(error, what, self._records[next(iter(failed))][0]))
            for place in failed:
                self._collector.fail(self._committing[place])
            self._committing = [tup for place, tup in enumerate(self._committing) if place not in failed]

    def _report(self, error: BaseException) -> None:
        self._collector.report_error(error)

    def _explained(self, error: Any, what: str, topic: str | None) -> TopoError:
        """Return an error of records of a topic; None: of several."""
        from confluent_kafka import KafkaError

        if topic is not None and error.name() in ("_TIMED_OUT", "_MSG_TIMED_OUT") and self._targets.is_missing(topic):
            error, what = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), f"topic {topic!r} is gone, and {what}"
        return explained(error, what, self._settings)

    # -- with checkpoints ------------------------------------------------------------------------------------------------

    def pre_commit(self) -> Any:
        """Have the records in a staged file. The token: the writer, the transaction's number, the file, and how many records."""
        count = self._staged.count
        name = self._staged.seal()
        if name is None:
            return None
        self._number += 1
        self._bytes_counter.add(self._size)
        self._staged_count.set(name, count)
        return [self._writer, self._number, name, count]

    def commit(self, token: Any) -> None:
        """Publish the records and the marker in one Kafka transaction."""
        from confluent_kafka import KafkaException

        writer, number, name, count = token
        for is_last in (False, True):
            try:
                self._commit_once(writer, number, name, count)
                break
            except KafkaException as error:
                # Whether the transaction was committed, the next producer finds out by the marker.
                self._give_up(writer)
                self._retries_counter.add()
                if is_last or not is_fenced(error):
                    what = f"{count} staged records cannot be published now"
                    raise self._explained(error.args[0], what, self._topic) from None
            except BaseException:
                self._give_up(writer)
                raise
        self._staged.remove(name)
        self._staged_count.set(name, 0)
        self._link.restored()

    def _commit_once(self, writer: str, number: int, name: str, count: int) -> None:
        began = self._clock()
        transactions = self._opened(writer, number, name)
        marker = transactions.marker
        if not has_published(writer, marker, number, name, lambda: self._staged.is_staged(name)):
            try:
                transactions.commit(number, name, self._staged.rows(name, count))  # type: ignore[arg-type]
            except StagedRowsLostError as error:
                self._give_up(writer)
                # The file is removed when its records are published, and the marker may have expired since then.
                is_lost = self._staged.is_new or marker.number != NO_NUMBER
                self._collector.report_error(error if is_lost else _without_marker(writer, error))
                return
            self._commit_time.record((self._clock() - began) * 1000)
            self._rows_counter.add(count)
        self._known[writer] = transactions.marker

    def _opened(self, writer: str, number: int, name: str) -> Transactions:
        transactions = self._writers.get(writer)
        if transactions is None:
            transactions = self._open_writer(writer)
            if writer in self._known:
                check_reopened(writer, self._known[writer], transactions.marker, number, name)
        return transactions

    def _open_writer(self, writer: str) -> Transactions:
        assert self._marker_topic is not None
        opened = self._writers[writer] = Transactions(self._settings, writer, self._marker_topic, self._progress)
        return opened

    def _give_up(self, writer: str) -> None:
        transactions = self._writers.pop(writer, None)
        if transactions is not None:
            transactions.close()

    def abort(self, token: Any) -> None:
        """Drop staged records; None: those of the open transaction."""
        if token is not None:
            self._staged.remove(token[2])
            self._staged_count.set(token[2], 0)
        elif self._is_staged:
            self._staged.discard()

    def recover(self, tokens: Sequence[Any]) -> None:
        """Fence the former process, publish the committed records, and remove the others of this task and of tasks that ended."""
        if not self._is_staged:
            return
        self._known.clear()
        with explaining(f"the transactions of writer {self._writer!r} cannot be taken over", self._settings):
            own = self._writers.get(self._writer) or self._open_writer(self._writer)
        self._known[self._writer] = own.marker
        super().recover(tokens)
        for writer in set(self._writers) - {self._writer}:
            self._give_up(writer)
        self._staged.clean()
        self._number = max(self._number, self._known[self._writer].number)

    def close(self) -> None:
        """Close the clients."""
        if self._deliveries is not None:
            self._deliveries.close()
        for writer in list(self._writers):
            self._give_up(writer)

    def _on_client_error(self, error: Any) -> None:
        if error.name() == "_ALL_BROKERS_DOWN":
            self._link.lost(explained(error, "the connection is lost", self._settings))


def _without_marker(writer: str, error: StagedRowsLostError) -> TopoEnvironmentError:
    return TopoEnvironmentError(
        f"{error} Kafka has no marker of writer {writer!r}: it expires with the offsets of groups without members "
        "(offsets.retention.minutes of the broker), so these rows are taken for published before"
    )
