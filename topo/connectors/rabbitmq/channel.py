"""A channel of a connection to RabbitMQ, as coroutines on an asyncio loop."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from topo.connectors.rabbitmq.address import RabbitAddress
from topo.connectors.tls_context import client_context
from topo.errors import ConfigError

_CLOSE_S = 2.0


class RabbitChannel:
    """A connection with one channel.

    Args:
        address: of the broker.
        name: of the connection, which the broker shows.

    Attributes:
        lost: done, with the reason, when connection or channel is closed.
    """

    def __init__(self, address: RabbitAddress, name: str) -> None:
        self._address, self._name = address, name
        self.lost: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self.channel: Any = None
        self._connection: Any = None

    async def open(self) -> None:
        """Connect.

        Raises:
            ConfigError: a file of TLS cannot be used.
            Exception: the broker is not reached, or has refused.
        """
        from pika import SSLOptions

        from topo.connectors.rabbitmq.connection import QueueConnection

        # Each attempt to connect would be logged, also as an error; what counts is reported.
        logging.getLogger("pika").setLevel(logging.CRITICAL)
        loop = asyncio.get_running_loop()
        opened: asyncio.Future[Any] = loop.create_future()
        parameters = self._address.parameters(self._name)
        if self._address.tls:
            parameters.ssl_options = SSLOptions(_context(self._address), parameters.host)
        self._connection = QueueConnection(
            parameters,
            on_open_callback=lambda _: _settle(opened, None),
            on_open_error_callback=lambda _, error: _settle(opened, error=_as_error(error)),
            on_close_callback=lambda _, reason: self._is_lost(reason),
            custom_ioloop=loop,
        )
        try:
            await asyncio.wait_for(opened, self._address.timeout_s)
            self.channel = await self.done(lambda ready: self._connection.channel(on_open_callback=ready))
            self.channel.add_on_close_callback(lambda _, reason: self._is_lost(reason))
        except BaseException:
            await self.close()
            raise

    async def done(self, request: Callable[[Callable[[Any], object]], object]) -> Any:
        """Make a request with a callback for its answer, and return the answer.

        Raises:
            Exception: the channel was closed for it.
            TimeoutError: there was none.
        """
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        request(lambda value: _settle(answer, value))
        await self.wait_for(answer, self._address.timeout_s)
        if answer.done():
            return answer.result()
        answer.cancel()
        if self.lost.done():
            raise self.lost.result()
        raise TimeoutError(f"no answer came within {self._address.timeout_s:g} s")

    async def wait_for(self, future: asyncio.Future[Any], timeout_s: float | None = None) -> None:
        """Wait until a future is done, the channel is lost, or time is up."""
        waited: set[asyncio.Future[Any]] = {future, self.lost}
        await asyncio.wait(waited, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)

    def on_blocked(self, take: Callable[[str], object]) -> None:
        """Have a function called with the reason when the broker takes no messages for now, and with "" when it does again."""
        self._connection.add_on_connection_blocked_callback(lambda _, frame: take(str(frame.method.reason)))
        self._connection.add_on_connection_unblocked_callback(lambda *_: take(""))

    def give_up(self, reason: BaseException) -> None:
        """Count as lost."""
        self._is_lost(reason)

    def _is_lost(self, reason: BaseException) -> None:
        _settle(self.lost, _as_error(reason))

    async def close(self) -> None:
        """Close the connection in order, if the broker takes part in it."""
        connection = self._connection
        if connection is None or connection.is_closed:
            return
        closed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        with suppress(Exception):
            connection.add_on_close_callback(lambda *_: _settle(closed))
            connection.close()
            await asyncio.wait([closed], timeout=_CLOSE_S)
        if not closed.done():
            # A frozen broker answers nothing; nothing of this connection may run on.
            with suppress(Exception):
                connection._transport.abort()
            await asyncio.sleep(0)


def _context(address: RabbitAddress) -> ssl.SSLContext:
    try:
        return client_context(address.tls)
    except ConfigError as error:
        raise ConfigError(f"{address.component}: {address}: tls: {error}") from None


def _settle(future: asyncio.Future[Any], value: Any = None, error: BaseException | None = None) -> None:
    """Have a future done, unless it is. Callbacks may come late, and twice."""
    if future.done():
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)


def _as_error(reason: Any) -> BaseException:
    return reason if isinstance(reason, BaseException) else ConnectionError(str(reason))
