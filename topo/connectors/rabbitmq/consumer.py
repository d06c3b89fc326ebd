"""The consumer of a queue, on the loop of its task's helper thread."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, NamedTuple

from topo.connectors.loop_thread import LoopLink
from topo.connectors.rabbitmq.address import RabbitAddress
from topo.connectors.rabbitmq.channel import RabbitChannel
from topo.connectors.rabbitmq.deliveries import Settlement
from topo.errors import TopoEnvironmentError


class QueueArrival(NamedTuple):
    """A delivery as it has come: number of the channel, pika's method and properties, and the body."""

    channel: int
    method: Any
    properties: Any
    body: bytes


class SettledOn(NamedTuple):
    """A settlement, and the number of the channel that it is about."""

    channel: int
    settlement: Settlement


_WATCH_S = 5.0
"""Between two looks at the queue, for the lag."""
ConsumerLink = LoopLink[QueueArrival, SettledOn]


class QueueConsumer:
    """Reads a queue over one channel after the other.

    Attributes:
        channel: number of the channel that is open; 0: none. Read by the task's thread.
        is_reading: whether the broker has taken the consumer.
        waiting: messages of the queue that the broker has given to no consumer, as of the last look; None before the first one.
        watch_s: between two looks.
    """

    def __init__(self, address: RabbitAddress, queue: str, prefetch: int, name: str) -> None:
        self._address, self._queue, self._prefetch, self._name = address, queue, prefetch, name
        self.channel, self.is_reading = 0, False
        self.waiting: int | None = None
        self.watch_s = _WATCH_S

    async def run(self, link: ConsumerLink) -> None:
        """Connect, and pass deliveries on until the channel is lost.

        Raises:
            Exception: it is, or there was none.
        """
        connection = RabbitChannel(self._address, self._name)
        try:
            await connection.open()
            channel = connection.channel
            await connection.done(lambda ready: channel.basic_qos(prefetch_count=self._prefetch, callback=ready))

            def take(_channel: Any, method: Any, properties: Any, body: bytes) -> None:
                if not link.put_nowait(QueueArrival(link.run, method, properties, body)):
                    connection.give_up(ConnectionError("deliveries of an earlier connection wait still"))

            channel.add_on_cancel_callback(
                lambda _: connection.give_up(ConnectionError(f"the broker has ended the consumer of queue {self._queue!r}"))
            )
            # A delivery may come before the answer is seen.
            self.channel = link.run
            await connection.done(lambda ready: channel.basic_consume(self._queue, take, callback=ready))
            self.is_reading = True
            await self._serve(link, connection)
        except asyncio.CancelledError:
            self._settle_rest(link, connection)
            raise
        except Exception as error:
            raise self._address.explained(error, f"queue {self._queue!r}") from None
        finally:
            self.channel, self.is_reading = 0, False
            await connection.close()

    async def _serve(self, link: ConsumerLink, connection: RabbitChannel) -> None:
        settling = asyncio.ensure_future(self._settle_all(link, connection))
        watching = asyncio.ensure_future(self._watch(connection))
        try:
            await connection.wait_for(settling)
        finally:
            settling.cancel()
            watching.cancel()
        if connection.lost.done():
            raise connection.lost.result()
        settling.result()

    async def _watch(self, connection: RabbitChannel) -> None:
        """Look how many messages wait."""
        # A lost connection shows elsewhere.
        with suppress(Exception):
            while True:
                found = await connection.done(
                    lambda ready: connection.channel.queue_declare(self._queue, passive=True, callback=ready)
                )
                self.waiting = found.method.message_count
                await asyncio.sleep(self.watch_s)

    async def _settle_all(self, link: ConsumerLink, connection: RabbitChannel) -> None:
        while True:
            _settle(connection.channel, link.run, await link.get())

    def _settle_rest(self, link: ConsumerLink, connection: RabbitChannel) -> None:
        """Settle done messages before the connection is closed in order."""
        if connection.lost.done() or connection.channel is None:
            return
        while (settled := link.get_nowait()) is not None:
            _settle(connection.channel, link.run, settled)


def _settle(channel: Any, number: int, settled: SettledOn) -> None:
    """Settle done messages. Rejected ones go first, since `up_to` may pass over them."""
    if settled.channel != number:
        return
    rejected, up_to, acknowledged = settled.settlement
    for tag in rejected:
        channel.basic_reject(tag, requeue=False)
    if up_to:
        channel.basic_ack(up_to, multiple=True)
    for tag in acknowledged:
        channel.basic_ack(tag)


def check_queue(address: RabbitAddress, queue: str, name: str) -> None:
    """Connect once, and look the queue up. A broker that is not reached is no error.

    Raises:
        ConfigError: the broker refuses this user, or has no such queue.
    """

    async def look() -> None:
        connection = RabbitChannel(address, name)
        try:
            await connection.open()
            await connection.done(lambda ready: connection.channel.queue_declare(queue, passive=True, callback=ready))
        except Exception as error:
            found = address.explained(error, f"queue {queue!r}")
            if not isinstance(found, TopoEnvironmentError):
                raise found from None
        finally:
            await connection.close()

    asyncio.run(look())
