"""A sink that publishes each row to an MQTT broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from topo.api.bolt import Bolt, Collector, WithRequiredFields
from topo.api.context import TaskContext
from topo.api.durations import duration_ms
from topo.api.tuples import Tuple
from topo.connectors.argument_checks import checks_arguments
from topo.connectors.clients import check_installed
from topo.connectors.mqtt.settings import broker_address, client_id_of, topic_of
from topo.connectors.name_templates import fields_in
from topo.connectors.record_encoder import Select, Serialize, encoder_of, fields_named
from topo.errors import ConfigError, PeerError, TopoEnvironmentError

_MOST_WAITING = 60_000
"""The numbers of packets repeat after 65,535: no two of those that wait may be equal."""
_NOT_AUTHORIZED = 0x87


class MqttSink(Bolt, WithRequiredFields):
    """Publishes each tuple with QoS 1, and acks it when the broker has taken it.

        builder.set_bolt("alerts", MqttSink("mqtt://broker", "alerts/{machine}"))

    | delivery | promise |
    | --- | --- |
    | `at_least_once`, `exactly_once` | no row is missing; after a lost connection, a replay or a recovery it may be there twice |
    | `at_most_once` | a row can be missing |

    A row that the broker refuses fails its tuple. While the broker is away rows wait, up to `max_waiting`.
    """

    @checks_arguments
    def __init__(
        self,
        url: str,
        topic: str | Callable[[Tuple], str],
        *,
        value: str | Select | None = None,
        value_serializer: str | Serialize = "json",
        retain: bool = False,
        client_id: str | None = None,
        max_waiting: int = 10_000,
        keepalive: str | timedelta = "30s",
        tls: Mapping[str, Any] | None = None,
    ) -> None:
        """Keep where to publish; nothing is opened yet.

        Args:
            url: mqtt://user:password@host:port, mqtts://host or mqtt+unix:///path.
            topic: names of fields in braces are replaced, as in "alerts/{machine}"; or a function of the tuple.
            value: the field, or a function of the tuple, that is published; None: an object of all fields.
            value_serializer: "json", "text", "bytes" or a function of the value.
            retain: have the broker keep the last message of each topic for later readers.
            client_id: the client's name; by default topology and component. The task's number is appended.
            max_waiting: rows that wait for the broker, up to 60,000; further ones fail at once.
            keepalive: a broker that is silent for one and a half times that long is given up, and connected to again.
            tls: arguments of paho's `tls_set`, for mqtts: `ca_certs` (the system's certificates without), `certfile`, `keyfile`,
                `keyfile_password`, `ciphers`. The files have to exist where the task runs.

        Raises:
            ConfigError: an argument cannot be used, or paho-mqtt is missing.
        """
        check_installed("MqttSink", "mqtt", "paho-mqtt", "paho")
        self._address = broker_address(url, tls)
        self._topic = topic_of(topic)
        self._encode = encoder_of(value, value_serializer)
        self.required_fields = fields_named(*fields_in(topic, "MqttSink: topic="), value)
        self._keepalive_s = duration_ms(keepalive) // 1000
        if not 1 <= self._keepalive_s <= 65_535 or not 1 <= max_waiting <= _MOST_WAITING:
            raise ConfigError(
                f"MqttSink: keepalive={keepalive!r} must be at least 1s, and max_waiting={max_waiting!r} at least 1 and at most "
                f"{_MOST_WAITING}"
            )
        self._retain, self._client_id, self._max_waiting = retain, client_id, max_waiting

    def prepare(self, context: TaskContext, collector: Collector) -> None:
        """Connect soon."""
        from topo.connectors.mqtt.session import MqttSession

        self._collector, self._log = collector, context.logger
        self._loses_waiting = context.config.delivery == "at_most_once"
        self._waiting: dict[int, tuple[Tuple, str, int] | None] = {}
        """Tuples by packet number, with topic and size; None for those of before a reset, which the client still publishes."""
        self._early: list[tuple[Tuple, str, bytes | None]] | None = []
        """Rows that have come before the first connection, which shows how large they may be; then None."""
        metrics = context.metrics
        self._rows, self._bytes = metrics.counter("rows"), metrics.counter("bytes")
        self._rejected, self._connected = metrics.counter("rejected_rows"), metrics.gauge("connected")
        name = f"{client_id_of(self._client_id, context)}.{context.task_index}"
        self._session = MqttSession(
            "MqttSink",
            self._address,
            name,
            self._keepalive_s,
            0,
            100,
            context.executor,
            self._on_connected,
            collector.report_error,
        )
        self._session.client.on_publish = self._session.guarded(self._on_publish)
        self._session.start()

    def execute(self, tup: Tuple) -> None:
        """Publish a tuple.

        Raises:
            TopoEnvironmentError: too many wait for the broker, or the client does not take it.
            UserError: it cannot be encoded, or has no topic.
        """
        if tup.is_tick:
            self._collector.ack(tup)
            return
        waiting = len(self._waiting) + len(self._early or ())
        if waiting >= self._max_waiting:
            raise TopoEnvironmentError(f"MqttSink: {waiting} rows wait for {self._address.shown}, and this one fails")
        row = (tup, self._topic(tup), self._encode(tup))
        if self._early is None:
            self._publish(*row)
        else:
            self._early.append(row)

    def _publish(self, tup: Tuple, topic: str, payload: bytes | None) -> None:
        mid = self._session.publish(topic, payload, retain=self._retain)
        if mid in self._waiting:
            raise TopoEnvironmentError(f"MqttSink: a message of number {mid} still waits for {self._address.shown}")
        self._waiting[mid] = (tup, topic, len(payload or b""))
        self._connected.set(float(self._session.is_connected))

    def _on_connected(self, _is_known: bool) -> None:
        """Have the first rows published. Messages without an ack the client publishes again."""
        self._session.on_task(self._publish_early, "an MQTT client is connected")

    def _publish_early(self) -> None:
        early, self._early = self._early, None
        for row in early or ():
            try:
                self._publish(*row)
            except Exception as error:
                self._collector.report_error(error)
                self._collector.fail(row[0])

    def _on_publish(self, _client: Any, _data: Any, mid: int, reason: Any, _properties: Any) -> None:
        """The broker has taken or refused a message. Called on the client's thread, or before `publish` returns."""
        self._session.on_task(lambda: self._published(mid, reason), "an MQTT message was published")

    def _published(self, mid: int, reason: Any) -> None:
        found = self._waiting.pop(mid, None)
        if found is None:
            return
        tup, topic, size = found
        self._connected.set(float(self._session.is_connected))
        if reason.is_failure:
            self._rejected.add()
            fix = "; give this user the right to publish there" if reason.value == _NOT_AUTHORIZED else ""
            shown = f"MqttSink: {self._address.shown} refuses a message of topic {topic!r}: {reason}{fix}"
            self._collector.report_error(PeerError(shown))
            self._collector.fail(tup)
            return
        self._rows.add()
        self._bytes.add(size)
        self._collector.ack(tup)

    def on_reset(self) -> None:
        """Forget the tuples that wait: they are replayed. Their packets count until the broker has taken them."""
        self._waiting = dict.fromkeys(self._waiting)
        if self._early:
            self._early = []

    def cleanup(self) -> None:
        """Disconnect; without tracking rows that still wait are lost with the process."""
        waiting = len(self._waiting) + len(self._early or ())
        if waiting and self._loses_waiting:
            self._log.warning("%d rows still waited for %s, and are lost: delivery is at_most_once", waiting, self._address.shown)
        self._session.close()
