"""A spout that reads a queue of RabbitMQ."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from topo.api.context import TaskContext
from topo.api.partition_values import Partition, PartitionOutput, PartitionReader
from topo.api.partitions import PartitionedSpout
from topo.api.spout import SpoutCollector
from topo.connectors.argument_checks import checks_arguments
from topo.connectors.counted_messages import CountedMessages
from topo.connectors.loop_thread import LoopThread
from topo.connectors.rabbitmq.address import RabbitAddress
from topo.connectors.rabbitmq.consumer import QueueArrival, QueueConsumer, SettledOn, check_queue
from topo.connectors.rabbitmq.deliveries import QueueDeliveries, QueueDelivery, Settlement
from topo.connectors.record_decoder import Deserialize, decoder_of, record_fields
from topo.errors import ConfigError, PeerError, TopoEnvironmentError

METADATA = ("exchange", "routing_key", "message_id", "headers", "timestamp", "redelivered", "delivery_count")
_NOTHING = Settlement()


class RabbitSpout(PartitionedSpout):
    """Emits the messages of a queue. The broker keeps each one until it is done. Tasks, and other programs, share the queue.

        builder.set_spout("orders", RabbitSpout("amqp://guest:guest@localhost", "orders", value_deserializer="json"), 2)

    | delivery | promise |
    | --- | --- |
    | `at_least_once` | no message is missing; those that were not acknowledged when a process or connection died may come twice |
    | `exactly_once` | refused: RabbitMQ does not identify messages, and gives one again to any consumer of the queue |
    | `at_most_once` | acknowledged when it was emitted; it can be lost |

    A lost connection repeats no message that has an id, as long as its process lives and no other consumer takes it.
    """

    discovery_interval = None
    is_endless = True

    @checks_arguments
    def __init__(
        self,
        url: str,
        queue: str,
        *,
        tls: Mapping[str, Any] | None = None,
        value_deserializer: str | Deserialize = "bytes",
        fields: Sequence[str] | None = None,
        metadata: Sequence[str] = (),
        prefetch: int = 10_000,
        on_dead: Literal["dead_letter", "reject"] = "dead_letter",
        max_deliveries: int | None = None,
        timeout: str | timedelta = "5s",
        heartbeat: str | timedelta = "30s",
        on_bad_record: Literal["dead_letter", "fail", "drop"] = "dead_letter",
    ) -> None:
        """Keep what to read; nothing is connected yet.

        Args:
            url: "amqp://user:password@host:port/vhost", or "amqps://..." with TLS.
            tls: files of TLS, for a URL with amqps: `ca_certs`, for a broker with a private authority; `certfile`, `keyfile`,
                `keyfile_password`, where it wants certificates of clients; `ciphers`. None: the system's certificates.
            queue: its name. It has to exist.
            value_deserializer: how a body is decoded: "bytes", "text" (UTF-8), "json", or a function of bytes.
            fields: keys of the decoded body that become the fields of the tuple; with a "?" at the end one may be missing, and
                is None. Without, the one field is `value`.
            metadata: more fields: "exchange", "routing_key", "message_id", "headers" (a dict), "timestamp" (milliseconds, or
                None), "redelivered", and "delivery_count" (earlier deliveries, which quorum queues count; else None).
            prefetch: messages that the broker gives a task before they are acknowledged, 1 to 65,535. Acknowledgements go every
                half second.
            on_dead: messages that were given up, failed or bad, are dead letters of the topology. "dead_letter": and are
                acknowledged; "reject": and are rejected: the queue's dead-letter exchange gets them, if it has one.
            max_deliveries: a message of a quorum queue that was delivered so often, and not acknowledged, is given up. None: none
                is.
            timeout: how long an answer may take before the broker counts as lost.
            heartbeat: a broker that is silent for this time is given up, and connected to again.
            on_bad_record: see `PartitionedSpout`.

        Raises:
            ConfigError: an argument cannot be used, or pika is missing.
        """
        self._address = RabbitAddress("RabbitSpout", url, timeout, heartbeat, tls)
        if not isinstance(queue, str) or not queue:
            raise ConfigError(f"RabbitSpout: queue={queue!r} must be the name of a queue")
        if not 1 <= prefetch <= 65_535:
            raise ConfigError(f"RabbitSpout: prefetch={prefetch!r} must be from 1 to 65535")
        if max_deliveries is not None and max_deliveries < 1:
            raise ConfigError(f"RabbitSpout: max_deliveries={max_deliveries!r} must be at least 1, or None")
        self.outputs = record_fields(fields, metadata, METADATA)
        self._decode = decoder_of(value_deserializer, fields)
        self._metadata = tuple(metadata)
        self.queue, self.prefetch, self.on_dead, self.max_deliveries = queue, prefetch, on_dead, max_deliveries
        self.on_bad_record = on_bad_record
        self._reader: _QueueReader | None = None

    def open(self, context: TaskContext, collector: SpoutCollector) -> None:
        """Look the queue up; connect soon.

        Raises:
            ConfigError: the broker refuses this user, has no such queue, or cannot keep the promise.
        """
        if context.config.delivery == "exactly_once":
            raise ConfigError(
                "RabbitSpout: RabbitMQ does not identify messages, and gives an open one again to any consumer of it, so a "
                "repeat could not be recognised: delivery='exactly_once' is refused; take 'at_least_once', and sinks with a key"
            )
        self._collector, self._tasks = collector, context.parallelism
        check_queue(self._address, self.queue, f"topo {context.topology}.{context.component}")
        super().open(context, collector)

    def partitions(self) -> Collection[Partition]:
        """Return a consumer for each task."""
        return [Partition(f"consumer-{number}", self.queue, number) for number in range(self._tasks)]

    def reader(self, context: TaskContext) -> PartitionReader:
        """Return the reader of a task."""
        self._reader = _QueueReader(self, self._address, context, self._collector)
        return self._reader

    def fail(self, message_id: Any) -> None:
        """Note a message that was given up, for `on_dead`. Its dead letter is stored."""
        if self._reader is not None:
            self._reader.dead(message_id[1])

    def row_of(self, arrival: QueueArrival) -> tuple[Any, ...]:
        """Return the values of a message. Raises what its deserializer raises."""
        value = self._decode(arrival.body)
        return (*value, *[_metadata_of(arrival, name) for name in self._metadata]) if self._metadata else value


@dataclass(slots=True)
class _Taken:
    """A message that is to be emitted."""

    arrival: QueueArrival
    delivery: QueueDelivery

    @property
    def position(self) -> int:
        return self.delivery.position

    @position.setter
    def position(self, position: int) -> None:
        self.delivery.position = position


class _QueueReader:
    """Reads the queue for one task, whose one partition is the consumer."""

    def __init__(self, spout: RabbitSpout, address: RabbitAddress, context: TaskContext, collector: SpoutCollector) -> None:
        self._spout, self._collector = spout, collector
        self._consumer = QueueConsumer(
            address, spout.queue, spout.prefetch, f"topo {context.topology}.{context.component}.{context.task_index}"
        )
        self._deliveries = QueueDeliveries(rejects_dead=spout.on_dead == "reject", most_done=2 * spout.prefetch)
        self._thread: LoopThread[QueueArrival, SettledOn] = LoopThread(
            self._consumer.run,
            context.executor,
            self._report,
            # Those of a lost connection may wait when those of the next one come.
            most_items=2 * spout.prefetch + 1,
            name="topo-rabbitmq",
        )
        self._messages = CountedMessages(self._row_of, lambda taken: taken.arrival.body)
        self._partition: Partition | None = None
        self._is_started = self._is_paused = False
        self._reported = set[str]()
        """Errors since the last connection."""
        metrics = context.metrics
        self._bytes, self._connected = metrics.counter("bytes"), metrics.gauge("connected")

    def _report(self, error: BaseException) -> None:
        """Report a loss once until there is a connection again, and behind it each cause that somebody has to mend."""
        if not self._reported or (isinstance(error, ConfigError) and str(error) not in self._reported):
            self._reported.add(str(error))
            self._collector.report_error(error)

    def assign(self, partition: Partition, position: Any, _found_later: bool) -> Any:
        """Connect, the first time; else have polled messages that were not taken given again."""
        self._partition = partition
        if not self._is_started:
            self._is_started = True
            self._thread.start()
        return self._messages.back_to(position)

    def release(self, _partition: Partition) -> None:
        """Read no more for now; the consumer stays connected."""
        self._partition, self._is_paused = None, False

    def pause(self, _partition: Partition, paused: bool) -> None:
        """Give no messages for a while."""
        self._is_paused = paused

    def poll(self, output: PartitionOutput) -> None:
        """Give the messages that have come."""
        self._look()
        if self._partition is not None and not self._is_paused:
            self._messages.give(output, self._partition, self._next)

    def _look(self) -> None:
        is_connected = self._consumer.is_reading
        self._connected.set(float(is_connected))
        if is_connected and self._reported:
            self._reported.clear()
            self._collector.report_error(TopoEnvironmentError(f"queue {self._spout.queue!r} is read again"))

    def _next(self, room: int) -> Iterator[_Taken]:
        for arrival in self._thread.take(room):
            if arrival.channel != self._consumer.channel:
                # The broker gives it again.
                continue
            properties = arrival.properties
            known_as = None if properties.message_id is None else (str(properties.message_id), hash(arrival.body))
            delivery = self._deliveries.arrive(
                arrival.method.delivery_tag, arrival.channel, known_as, is_redelivered=arrival.method.redelivered
            )
            if delivery is not None:
                self._bytes.add(len(arrival.body))
                yield _Taken(arrival, delivery)

    def _row_of(self, taken: _Taken) -> tuple[Any, ...]:
        unread = getattr(taken.arrival.properties, "unread", None)
        if unread is not None:
            raise PeerError(
                f"its properties cannot be decoded: {unread}; correct the headers that its sender gives it"
            ) from unread
        most = self._spout.max_deliveries
        count = None if most is None else delivery_count(taken.arrival)
        if most is not None and count is not None and count >= most:
            raise PeerError(f"it was delivered {count} times before, and not acknowledged (max_deliveries={most})")
        return self._spout.row_of(taken.arrival)

    def dead(self, position: int) -> None:
        """The message at a position was given up."""
        self._deliveries.dead(position)

    def committed(self, positions: Mapping[str, Any]) -> None:
        """Settle done messages."""
        channel = self._consumer.channel
        for position in positions.values():
            settlement = self._deliveries.settle(position or 0, channel)
            if settlement != _NOTHING:
                # Where it is not taken the connection is lost, and the broker gives the messages again.
                self._thread.send(SettledOn(channel, settlement))

    def lag(self) -> int | None:
        """Return how many messages wait here; the first consumer adds those that wait at the broker for any."""
        shared = self._consumer.waiting if self._partition is not None and self._partition.number == 0 else 0
        return None if shared is None else self._thread.items + shared

    def close(self) -> None:
        """Disconnect; the broker gives open messages to others."""
        self._thread.close()


def delivery_count(arrival: QueueArrival) -> int | None:
    """Return how often a message was delivered before; None where its queue does not count it."""
    count = (arrival.properties.headers or {}).get("x-delivery-count")
    return None if count is None else int(count)


def _metadata_of(arrival: QueueArrival, name: str) -> Any:
    method, properties = arrival.method, arrival.properties
    match name:
        case "exchange" | "routing_key" | "redelivered":
            return getattr(method, name)
        case "message_id":
            return properties.message_id
        case "headers":
            return _plain(properties.headers or {})
        case "timestamp":
            return None if properties.timestamp is None else 1000 * int(properties.timestamp)
        case _:
            return delivery_count(arrival)


def _plain(value: Any) -> Any:
    """Return a value of a header as a tuple may have it."""
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    return value if value is None or isinstance(value, str | bytes | bool | int | float) else str(value)
