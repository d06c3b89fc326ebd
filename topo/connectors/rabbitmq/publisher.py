"""Messages on their way to an exchange, each with its confirm; calls block, on a loop that runs during them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple, TypeVar

from topo.connectors.rabbitmq.address import RabbitAddress
from topo.connectors.rabbitmq.channel import RabbitChannel
from topo.errors import TopoEnvironmentError

Answer = TypeVar("Answer")

_SLICE_S = 0.1
"""How often it is looked whether confirms still come."""
_MOST_BYTES = 128 << 20
"""Of a message, where the broker has no other limit; it closes the channel for a larger one."""
_TOO_LARGE = re.compile(r"larger than configured max size (\d+)")
"""In the error with which a broker closes the channel."""


class RoutedMessage(NamedTuple):
    """A message: routing key, body, and the id that its reader may recognise it by."""

    routing_key: str
    body: bytes
    id: str


class Confirms:
    """The messages of a batch whose confirms have not come.

    Args:
        messages: in the order of publication.
        end: is set when all have come.

    Attributes:
        waiting: the places of messages without a confirm.
        refused: why a message was not taken, by its place.
    """

    def __init__(self, messages: Sequence[RoutedMessage], end: asyncio.Future[None]) -> None:
        self.messages, self.end = messages, end
        self.waiting = dict.fromkeys(range(len(messages)))
        self.refused: dict[int, str] = {}

    def returned(self, routing_key: str, message_id: str, body: bytes, why: str) -> None:
        """A message came back, before its confirm: no queue takes it."""
        found = RoutedMessage(routing_key, body, message_id)
        for place in self.waiting:
            if place not in self.refused and self.messages[place] == found:
                self.refused[place] = why
                return

    def confirmed(self, place: int, *, is_multiple: bool, is_taken: bool) -> None:
        """A confirm has come: of one message, or of all that wait up to it."""
        for one in [one for one in self.waiting if one <= place] if is_multiple else [place]:
            if one in self.waiting:
                del self.waiting[one]
                if not is_taken:
                    self.refused[one] = "the broker has not taken it"
        if not self.waiting and not self.end.done():
            self.end.set_result(None)


class RabbitPublisher:
    """A channel with confirms. When it was lost, or idle for long, the next call opens another.

    Messages that a broker without memory or disk leaves unread stay on its channel: a repetition waits for their confirms.

    Args:
        address: of the broker.
        exchange: "" for the default one, whose routing keys are names of queues.
        content_type: of the messages; None: none.
        name: of the connection.

    Attributes:
        most_bytes: of a message; less than the usual limit once the broker has stated another.
    """

    def __init__(self, address: RabbitAddress, exchange: str, content_type: str | None, name: str) -> None:
        self._address, self._exchange, self._content_type, self._name = address, exchange, content_type, name
        self._loop = asyncio.new_event_loop()
        self._connection: RabbitChannel | None = None
        self._batch = Confirms((), self._loop.create_future())
        self._first_tag = 1
        """That of the batch's first message, on this channel."""
        self._used_s = 0.0
        self._blocked = ""
        self.most_bytes = _MOST_BYTES

    def check(self) -> None:
        """Connect, and look the exchange up.

        Raises:
            ConfigError: the broker refuses this user, or has no such exchange.
            TopoEnvironmentError: it is not reached.
        """
        self._run(self._open())

    def publish(self, messages: Sequence[RoutedMessage]) -> dict[int, str]:
        """Publish messages in their order, and wait for their confirms.

        Returns:
            Why a message was not taken, by its place.

        Raises:
            ConfigError: there is no such exchange any more, or no right to write to it.
            TopoEnvironmentError: a confirm has not come; the broker may have the message all the same.
        """
        large = {
            place: f"it has {size} bytes, and the broker takes {self.most_bytes}"
            for place, message in enumerate(messages)
            if (size := len(message.body)) > self.most_bytes
        }
        places = [place for place in range(len(messages)) if place not in large]
        try:
            refused = self._run(self._publish([messages[place] for place in places]))
        except TopoEnvironmentError as error:
            found = _TOO_LARGE.search(str(error))
            if found is None or int(found[1]) >= self.most_bytes:
                raise
            self.most_bytes = int(found[1])
            return self.publish(messages)
        return large | {places[at]: why for at, why in refused.items()}

    def close(self) -> None:
        """Close the connection and the loop. It may be called again."""
        if not self._loop.is_closed():
            self._loop.run_until_complete(self._drop())
            self._loop.close()

    def _run(self, action: Coroutine[Any, Any, Answer]) -> Answer:
        try:
            return self._loop.run_until_complete(action)
        except Exception as error:
            # A broker without memory has the messages, unread: it would take them later, and those of each repetition.
            if not (isinstance(error, TimeoutError) and self._blocked):
                self._loop.run_until_complete(self._drop())
            raise self._address.explained(error, f"exchange {self._exchange!r}") from None

    async def _drop(self) -> None:
        connection, self._connection, self._blocked = self._connection, None, ""
        if connection is not None:
            await connection.close()

    async def _open(self) -> RabbitChannel:
        # Between calls heartbeats have no answer: the broker closes a connection after two of them.
        is_stale = self._loop.time() - self._used_s > self._address.heartbeat_s / 2
        if self._connection is not None and not self._connection.lost.done() and not is_stale:
            return self._connection
        await self._drop()
        self._connection = connection = RabbitChannel(self._address, self._name)
        await connection.open()
        channel = connection.channel
        connection.on_blocked(self._on_blocked)
        if self._exchange:
            await connection.done(lambda ready: channel.exchange_declare(self._exchange, passive=True, callback=ready))
        channel.add_on_return_callback(self._on_return)
        await connection.done(lambda ready: channel.confirm_delivery(self._on_confirm, callback=ready))
        self._first_tag, self._batch = 1, Confirms((), self._loop.create_future())
        self._used_s = self._loop.time()
        return connection

    def _on_blocked(self, reason: str) -> None:
        self._blocked = reason

    def _on_return(self, _channel: Any, method: Any, properties: Any, body: bytes) -> None:
        why = f"no queue takes routing key {method.routing_key!r}: {method.reply_text}"
        self._batch.returned(method.routing_key, properties.message_id, body, why)

    def _on_confirm(self, frame: Any) -> None:
        method = frame.method
        place = method.delivery_tag - self._first_tag
        self._batch.confirmed(place, is_multiple=method.multiple, is_taken=method.NAME == "Basic.Ack")

    async def _publish(self, messages: Sequence[RoutedMessage]) -> dict[int, str]:
        from pika import BasicProperties, DeliveryMode

        connection, batch = await self._open(), self._batch
        if not batch.waiting or batch.messages != messages:
            self._first_tag += len(batch.messages)
            batch = self._batch = Confirms(messages, self._loop.create_future())
            for message in messages:
                properties = BasicProperties(
                    message_id=message.id, delivery_mode=DeliveryMode.Persistent, content_type=self._content_type
                )
                connection.channel.basic_publish(self._exchange, message.routing_key, message.body, properties, mandatory=True)
        left, until = len(batch.waiting), self._loop.time() + self._address.timeout_s
        while batch.waiting:
            await connection.wait_for(batch.end, _SLICE_S)
            if len(batch.waiting) < left:
                left, until = len(batch.waiting), self._loop.time() + self._address.timeout_s
            elif connection.lost.done():
                raise connection.lost.result()
            elif self._loop.time() > until:
                self._used_s = self._loop.time()
                why = f"; the broker takes no messages: {self._blocked}" if self._blocked else ""
                raise TimeoutError(f"{left} messages were not confirmed within {self._address.timeout_s:g} s{why}")
        self._used_s = self._loop.time()
        return batch.refused
