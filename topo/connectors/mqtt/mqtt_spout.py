"""A spout that reads topics of an MQTT broker."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from topo.api.context import TaskContext
from topo.api.durations import duration_ms
from topo.api.partition_values import Partition, PartitionOutput, PartitionReader
from topo.api.partitions import PartitionedSpout
from topo.api.spout import SpoutCollector
from topo.connectors.argument_checks import checks_arguments
from topo.connectors.clients import check_installed
from topo.connectors.counted_messages import CountedMessages
from topo.connectors.mqtt.deliveries import Delivery, SessionMessages, digest_of
from topo.connectors.mqtt.settings import broker_address, check_filter, client_id_of, number_of
from topo.connectors.record_decoder import decoder_of, record_fields
from topo.errors import ConfigError

if TYPE_CHECKING:
    from topo.connectors.mqtt.session import MqttSession

SESSION = Partition("session")
METADATA = ("topic", "retain")
_MOST_UNTRACKED = 10_000
"""Messages of QoS 0 that wait; the broker does not hold them back."""
_ASK_S = 10.0
"""Between two requests for a topic that the broker refuses."""


class MqttSpout(PartitionedSpout):
    """Emits the messages of topics. The broker keeps each one until it is done: QoS 1, a persistent session, acks by hand.

        builder.set_spout("readings", MqttSpout("mqtt://broker", "sensors/+/temperature", metadata=("topic",)))

    | delivery | promise |
    | --- | --- |
    | `at_least_once` | no message of QoS 1 or 2 is missing; those that were not acked when a process died come twice |
    | `exactly_once` | refused: MQTT has no ids by which a repeat could be recognised |
    | `at_most_once` | acked when it was emitted; it can be lost |

    Messages that are published with QoS 0, or before the first connection, the broker does not keep. It has one task.
    """

    discovery_interval = None
    is_endless = True

    @checks_arguments
    def __init__(
        self,
        url: str,
        topics: str | Sequence[str],
        *,
        client_id: str | None = None,
        value_deserializer: str | Callable[[bytes], Any] = "bytes",
        fields: Sequence[str] | None = None,
        metadata: Sequence[str] = (),
        receive_maximum: int = 10_000,
        session_expiry: str | timedelta = "7d",
        keepalive: str | timedelta = "30s",
        tls: Mapping[str, Any] | None = None,
        on_bad_record: Literal["dead_letter", "fail", "drop"] = "dead_letter",
    ) -> None:
        """Keep what to read; nothing is opened yet.

        Args:
            url: mqtt://user:password@host:port, mqtts://host or mqtt+unix:///path.
            topics: one or several, with + and #.
            client_id: names the session at the broker; by default topology and component.
            value_deserializer: "bytes", "text", "json" or a function of bytes.
            fields: keys of the decoded payload that become fields; without, the one field is `value`.
            metadata: appended fields, of "topic" and "retain".
            receive_maximum: messages that the broker sends before they are acked, up to 65,535. Acks go every half second.
            session_expiry: how long the broker keeps messages while no process is connected.
            keepalive: a broker that is silent for one and a half times that long is given up, and connected to again.
            tls: arguments of paho's `tls_set`, for mqtts: `ca_certs` (the system's certificates without), `certfile`, `keyfile`,
                `keyfile_password`, `ciphers`. The files have to exist where the task runs.
            on_bad_record: see `PartitionedSpout`.

        Raises:
            ConfigError: an argument cannot be used, or paho-mqtt is missing.
        """
        check_installed("MqttSpout", "mqtt", "paho-mqtt", "paho")
        self._address = broker_address(url, tls)
        self._topics = (topics,) if isinstance(topics, str) else tuple(topics)
        if not self._topics or not all(self._topics):
            raise ConfigError(f"MqttSpout: topics={topics!r} must be one or several topics")
        for topic in self._topics:
            check_filter(topic)
        self._keepalive_s, self._keep_s = duration_ms(keepalive) // 1000, duration_ms(session_expiry) // 1000
        if not 1 <= self._keepalive_s <= 65_535 or not 1 <= self._keep_s < 2**32 or not 1 <= receive_maximum <= 65_535:
            raise ConfigError(
                f"MqttSpout: keepalive={keepalive!r} and session_expiry={session_expiry!r} must be at least 1s, and "
                f"receive_maximum={receive_maximum!r} from 1 to 65535"
            )
        self.outputs = record_fields(fields, metadata, METADATA)
        self._decode = decoder_of(value_deserializer, fields)
        self._metadata = tuple(metadata)
        self._client_id, self._most = client_id, receive_maximum
        self.on_bad_record = on_bad_record

    def open(self, context: TaskContext, collector: SpoutCollector) -> None:
        """Connect soon.

        Raises:
            ConfigError: the topology wants what MQTT cannot give.
        """
        if context.config.delivery == "exactly_once":
            raise ConfigError(
                "MqttSpout: MQTT has no ids by which a repeated message could be recognised, so delivery='exactly_once' is "
                "refused; take 'at_least_once', and sinks with a key"
            )
        if context.parallelism > 1:
            raise ConfigError("MqttSpout: a session is read by one task; leave its parallelism at 1, and have bolts with more")
        self._collector = collector
        super().open(context, collector)

    def partitions(self) -> Collection[Partition]:
        """Return the one session."""
        return (SESSION,)

    def reader(self, context: TaskContext) -> PartitionReader:
        """Return a reader of the session."""
        return _SessionReader(self, context, self._collector)

    def session(self, reader: _SessionReader, context: TaskContext) -> MqttSession:
        """Return a session whose messages a reader takes."""
        from topo.connectors.mqtt.session import MqttSession

        session = MqttSession(
            "MqttSpout",
            self._address,
            client_id_of(self._client_id, context),
            self._keepalive_s,
            self._keep_s,
            self._most,
            context.executor,
            reader.on_connected,
            self._collector.report_error,
        )
        session.client.on_message = session.guarded(reader.on_message)
        session.client.on_subscribe = session.guarded(reader.on_subscribed)
        return session

    def row_of(self, message: Any) -> tuple[Any, ...]:
        """Return the values of a message. Raises what its deserializer raises."""
        known = {"topic": message.topic, "retain": message.retain}
        return (*self._decode(message.payload), *(known[name] for name in self._metadata))

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics to subscribe to."""
        return self._topics


@dataclass(slots=True, eq=False)
class _Arrival:
    """A message that has come.

    Attributes:
        connection: number of the connection, from 1.
        message: None: the broker has lost the session.
        delivery: what acks it.
    """

    connection: int
    message: Any
    delivery: Delivery = field(default_factory=lambda: Delivery(0, b"", 0))

    @property
    def position(self) -> int:
        """That of its row."""
        return self.delivery.position

    @position.setter
    def position(self, position: int) -> None:
        self.delivery.position = position


class _SessionReader:
    """Reads the session. The client's thread calls `on_connected`, `on_subscribed` and `on_message` alone."""

    def __init__(self, spout: MqttSpout, context: TaskContext, collector: SpoutCollector) -> None:
        self._spout, self._collector = spout, collector
        self._arrived: deque[_Arrival] = deque()
        """Messages that wait, in the order of arrival."""
        self._untracked = 0
        """How many of them have QoS 0."""
        self._is_mail_posted = False
        self._connection = 0
        self._deliveries = SessionMessages()
        self._messages: CountedMessages[_Arrival] = CountedMessages(
            lambda arrival: spout.row_of(arrival.message), lambda arrival: arrival.message.payload
        )
        self._is_started = self._is_assigned = self._is_paused = self._has_reported_topics = False
        self._numbers = frozenset(map(number_of, spout.topics))
        self._asked: dict[int, str] = {}
        """Topics whose subscription was not answered, by the number of its packet."""
        self._refused = set[str]()
        self._clock, self._ask_at = context.clock, 0.0
        self._dropped = self._dropped_before = 0
        metrics = context.metrics
        self._bytes, self._lost, self._connected = (
            metrics.counter("bytes"),
            metrics.counter("lost_records"),
            metrics.gauge("connected"),
        )
        self._session = spout.session(self, context)

    # -- on the client's thread ------------------------------------------------------------------------------------------

    def on_connected(self, is_known: bool) -> None:
        """Subscribe, which changes nothing where the session has the topics already."""
        self._connection += 1
        if not is_known:
            self._arrived.append(_Arrival(self._connection, None))
        for topic in self._spout.topics:
            self._subscribe(topic)

    def _subscribe(self, topic: str) -> None:
        from paho.mqtt.subscribeoptions import SubscribeOptions

        # Else the broker would send retained messages again, for each connection.
        options = SubscribeOptions(qos=1, retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB)
        _, mid = self._session.client.subscribe(topic, options=options, properties=self._session.numbered(number_of(topic)))
        if mid is not None:
            self._asked[mid] = topic

    def on_subscribed(self, _client: Any, _data: Any, mid: int, reasons: Sequence[Any], _properties: Any) -> None:
        """Report a topic that the broker refuses, once until it takes it."""
        topic = self._asked.pop(mid, None)
        if topic is None:
            return
        if not reasons[0].is_failure:
            if topic in self._refused:
                self._refused.discard(topic)
                self._session.report(f"the broker takes the topic {topic!r} now")
        elif topic not in self._refused:
            self._refused.add(topic)
            what = f"the broker refuses the topic {topic!r}, and it is tried again: {reasons[0]}"
            self._session.report(f"{what}; give this user the right to subscribe")

    def on_message(self, _client: Any, _data: Any, message: Any) -> None:
        """Keep a message for the task, and wake it."""
        if message.qos == 0:
            if self._untracked >= _MOST_UNTRACKED:
                self._dropped += 1
                return
            self._untracked += 1
        self._arrived.append(_Arrival(self._connection, message))
        if not self._is_mail_posted:
            self._is_mail_posted = True
            self._session.on_task(self._on_mail, "MQTT messages have come")

    # -- on the task's thread --------------------------------------------------------------------------------------------

    def _on_mail(self) -> None:
        self._is_mail_posted = False

    def assign(self, _partition: Partition, position: Any, _found_later: bool) -> Any:
        """Connect, the first time; else have polled messages that were not taken given again: the broker repeats none."""
        self._is_assigned = True
        if not self._is_started:
            self._is_started = True
            self._session.start()
        return self._messages.back_to(position)

    def release(self, _partition: Partition) -> None:
        """Read no more for now; the session stays connected."""
        self._is_assigned = self._is_paused = False

    def pause(self, _partition: Partition, paused: bool) -> None:
        """Give no messages for a while."""
        self._is_paused = paused

    def poll(self, output: PartitionOutput) -> None:
        """Give the messages that have come."""
        self._connected.set(float(self._session.is_connected))
        if self._refused and self._session.is_connected and self._clock() >= self._ask_at:
            # Few brokers end the connection when a right is granted, which would have the topics asked for again.
            self._ask_at = self._clock() + _ASK_S
            for topic in [*self._refused]:
                self._subscribe(topic)
        self._lost.add(self._dropped - self._dropped_before)
        self._dropped_before = self._dropped
        if self._is_assigned and not self._is_paused:
            self._messages.give(output, SESSION, self._next)

    def _next(self, room: int) -> Iterator[_Arrival]:
        for _ in range(min(room, len(self._arrived))):
            arrival = self._arrived.popleft()
            if arrival.message is None:
                self._deliveries.forget_connection()
            elif self._is_new(arrival):
                yield arrival

    def _is_new(self, arrival: _Arrival) -> bool:
        """Whether a message that has come is to be emitted."""
        message = arrival.message
        if message.qos == 0:
            self._untracked -= 1
        if not self._is_wanted(message):
            if message.qos:
                self._session.client.ack(message.mid, 1)
            return False
        if message.qos:
            digest = digest_of(message.topic, message.payload)
            delivery = self._deliveries.arrive(message.mid, digest, arrival.connection, is_duplicate=message.dup)
            if delivery is None:
                if self._deliveries.is_done(message.mid, digest):
                    self._session.client.ack(message.mid, 1)
                return False
            arrival.delivery = delivery
        self._bytes.add(len(message.payload))
        return True

    def _is_wanted(self, message: Any) -> bool:
        """Whether a message is of a topic that is read: a session outlives changes of `topics`. The first other is reported."""
        numbers = getattr(message.properties, "SubscriptionIdentifier", None)
        if not numbers or not self._numbers.isdisjoint(numbers):
            return True
        if not self._has_reported_topics:
            self._has_reported_topics = True
            self._session.report(
                f"the session has subscriptions of before: messages such as that of topic {message.topic!r} are left out, since "
                "topics= does not name them; with another client_id= the broker sends them no more"
            )
        return False

    def committed(self, positions: Mapping[str, Any]) -> None:
        """Ack done messages, in the order of arrival, as the protocol wants it."""
        connection = self._connection if self._session.is_connected else 0
        for mid in self._deliveries.complete(positions.get(SESSION.name) or 0, connection):
            self._session.client.ack(mid, 1)

    def lag(self) -> int | None:
        """Return None: it is not known."""
        return None

    def close(self) -> None:
        """Disconnect; the broker keeps the session."""
        self._session.close()
