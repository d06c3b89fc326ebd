"""A session with an MQTT broker: the client's own thread connects, and connects again after a loss."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

from paho.mqtt.client import Client, MQTTv5, error_string
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from topo.api.context import Executor
from topo.connectors.mqtt.settings import BrokerAddress
from topo.connectors.tls import tls_advice
from topo.connectors.tls_context import client_context, load_client
from topo.errors import ConfigError, TopoEnvironmentError, TopoError, UnsupportedValueError

_LONGEST_PAUSE_S = 30
_NO_ENTRY = (0x86, 0x87, 0x8C)
"""Reasons of a broker that does not know or let in the user."""
# Mosquitto refuses a message above its `message_size_limit` so, which the standard has for other packets alone: paho would end
# the connection, and each later one over which it sends the message again.
_TOO_LARGE = 0x95, "Packet too large"


def _take_refusals_of_size(code: Any) -> None:
    if hasattr(code, "names"):
        code.names[_TOO_LARGE[0]][_TOO_LARGE[1]].append(PacketTypes.PUBACK)
        return
    # Before version 2.2 each code has its own table.
    make = code.__init__

    def made(self: Any, *args: Any, **options: Any) -> None:
        make(self, *args, **options)
        self.names[_TOO_LARGE[0]][_TOO_LARGE[1]].append(PacketTypes.PUBACK)

    code.__init__ = made


_take_refusals_of_size(ReasonCode)


class MqttSession:
    """One client. Its callbacks run on the client's thread, and are `guarded`: an exception would end it in silence.

    Args:
        name: of the component's class, for messages.
        keep_s: how long the broker keeps the session after a connection; 0: no longer.
        most: messages without an ack that the broker may have sent.
        on_connected: called for each connection with whether the broker has known the session.
        report: called on the task's thread with errors.

    Attributes:
        is_connected: whether messages can pass.
    """

    def __init__(
        self,
        name: str,
        address: BrokerAddress,
        client_id: str,
        keepalive_s: int,
        keep_s: int,
        most: int,
        executor: Executor | None,
        on_connected: Callable[[bool], object],
        report: Callable[[BaseException], object],
    ) -> None:
        self._name, self._address, self._keepalive_s, self._keep_s, self._most = name, address, keepalive_s, keep_s, most
        self._executor, self._on_connected, self._report = executor, on_connected, report
        self.is_connected = False
        self._is_closing = False
        self._reported = set[str]()
        """Texts of losses since the last connection."""
        self._takes_numbers = False
        self._most_bytes: int | None = None
        """Of a packet that the broker takes, as it has stated at the last connection."""
        transport: Any = "unix" if address.is_unix else "tcp"
        self.client = client = Client(
            CallbackAPIVersion.VERSION2, client_id, protocol=MQTTv5, transport=transport, manual_ack=True
        )
        if address.user is not None:
            client.username_pw_set(address.user, address.password)
        if address.tls is not None:
            try:
                context = client_context(address.tls)
            except ConfigError as error:
                raise ConfigError(f"{name} {address.shown}: tls: {error}") from None
            client.tls_set_context(context)
            client.on_pre_connect = self.guarded(lambda *_: self._read_certificate(context))
        client.reconnect_delay_set(1, _LONGEST_PAUSE_S)
        client.on_connect, client.on_disconnect, client.on_connect_fail = (
            self.guarded(one) for one in (self._connect, self._disconnect, self._no_connect)
        )

    def start(self) -> None:
        """Start the client's thread, which connects."""
        # Its constructor has no types.
        make: Any = Properties
        properties = make(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = self._keep_s
        properties.ReceiveMaximum = self._most
        address = self._address
        # paho wants a port above 0 for a Unix socket, too.
        self.client.connect_async(address.host, address.port or 1, self._keepalive_s, clean_start=False, properties=properties)
        self.client.loop_start()

    def numbered(self, number: int) -> Any:
        """Return properties of a subscription with a number, where the broker takes it; else None."""
        if not self._takes_numbers:
            return None
        make: Any = Properties
        properties = make(PacketTypes.SUBSCRIBE)
        properties.SubscriptionIdentifier = number
        return properties

    def publish(self, topic: str, payload: bytes | None, *, retain: bool) -> int:
        """Have a message published with QoS 1, as soon as there is a connection. Returns the number of its packet.

        Raises:
            TopoEnvironmentError: the client has not taken it, as when its queue is full.
            UnsupportedValueError: the broker would end the connection for it, and each later one over which it is sent again.
        """
        size = _packet_bytes(topic, payload or b"")
        if self._most_bytes is not None and size > self._most_bytes:
            raise UnsupportedValueError(
                f"{self._name} {self._address.shown}: a message of {size} bytes; the broker takes {self._most_bytes}"
            )
        info = self.client.publish(topic, payload, qos=1, retain=retain)
        if info.rc not in (MQTTErrorCode.MQTT_ERR_SUCCESS, MQTTErrorCode.MQTT_ERR_NO_CONN):
            raise TopoEnvironmentError(f"{self._name} {self._address.shown}: a message was not taken: {error_string(info.rc)}")
        mid: int = info.mid
        return mid

    def guarded(self, callback: Callable[..., object]) -> Callable[..., None]:
        """Return a callback for the client that reports an exception."""

        @wraps(callback)
        def call(*args: Any) -> None:
            try:
                callback(*args)
            except Exception as error:
                self.report(f"{type(error).__name__}: {error}")

        return call

    def close(self) -> None:
        """Disconnect in order, and end the thread."""
        self._is_closing = True
        self.client.disconnect()
        self.client.loop_stop()

    def on_task(self, action: Callable[[], object], description: str) -> None:
        """Have an action run on the task's thread, if the task has not ended. Any thread may call it."""
        if self._executor is None:
            action()
            return
        try:
            self._executor.execute(action, description)
        except TopoError:
            # The task has ended.
            self._is_closing = True

    def report(self, text: str) -> None:
        """Report an error to the task. Any thread may call it."""
        error = TopoEnvironmentError(f"{self._name} {self._address.shown}: {text}")
        self.on_task(lambda: self._report(error), "an error of an MQTT client")

    def _connect(self, _client: Any, _data: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            what = "; check user and password" if reason.value in _NO_ENTRY else ""
            self._lost(f"the broker refuses the connection: {reason}{what}. It is tried again", is_cause=True)
            return
        self._most_bytes = getattr(properties, "MaximumPacketSize", None)
        self._takes_numbers = getattr(properties, "SubscriptionIdentifierAvailable", 1) == 1
        self.is_connected = True
        self._reported.clear()
        self._on_connected(flags.session_present)

    def _disconnect(self, _client: Any, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        was_connected, self.is_connected = self.is_connected, False
        if was_connected:
            self._lost(f"lost the connection: {reason}; it connects again")
            return
        text, tls = f"the connection ended before the broker has answered: {reason}; it connects again", self._address.tls
        if tls is None and not self._address.is_unix:
            text += ". A port that wants TLS ends it so: begin the URL with mqtts:// then"
        elif tls is not None and "certfile" not in tls:
            text += ". A broker that wants the client's certificate ends it so: give it as tls={'certfile': ..., 'keyfile': ...}"
        elif tls is not None:
            text += (
                f". A broker that does not take the client's certificate, {str(tls['certfile'])!r}, ends it so: it may have "
                "expired, or be of an authority that the broker does not know"
            )
        self._lost(text, is_cause=tls is not None)

    def _no_connect(self, _client: Any, _data: Any) -> None:
        # The client calls this while it handles the error.
        error = sys.exception()
        advice = tls_advice(error or "", "tls={'ca_certs': ...}", "tls={'certfile': ..., 'keyfile': ...}", "mqtt://")
        if not advice and self._address.tls is not None and isinstance(error, ConnectionResetError):
            advice = "a port without TLS ends connections so: begin the URL with mqtt:// then"
        self._lost(
            f"cannot connect: {error or 'no answer'}; {f'{advice}. It' if advice else 'it'} is tried again", is_cause=bool(advice)
        )

    def _read_certificate(self, context: Any) -> None:
        """Read the client's certificate again, which may have been renewed."""
        try:
            load_client(context, self._address.tls or {})
        except ConfigError as error:
            self._lost(f"tls: {error}", is_cause=True)

    def _lost(self, text: str, *, is_cause: bool = False) -> None:
        """Report a loss once until there is a connection again, and behind it each cause that somebody has to mend."""
        if not self._is_closing and (not self._reported or (is_cause and text not in self._reported)):
            self._reported.add(text)
            self.report(text)


def _packet_bytes(topic: str, payload: bytes) -> int:
    """Return the size of a message's packet: kind, length in groups of 7 bits, and what that counts."""
    # Of which 5 are the topic's length, the number, and an empty list of properties.
    counted = len(topic.encode()) + len(payload) + 5
    return 1 + -(-counted.bit_length() // 7) + counted
