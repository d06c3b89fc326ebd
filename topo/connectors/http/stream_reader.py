"""Reads one stream of messages that a server sends: a source of one partition, which a `LoopThread` fills.

A position is (number of the message, id that the server has given it): numbers rise, so that ids need not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from topo.api.context import TaskContext
from topo.api.partition_values import Partition, PartitionOutput
from topo.connectors.loop_thread import LoopLink, LoopThread
from topo.errors import PeerError, TopoEnvironmentError

STREAM = Partition("stream")
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
_MOST_ASKED_S = 600.0
"""The longest pause that a server may ask for."""
_MOST_WAITING = 1000


@dataclass(frozen=True, slots=True)
class StreamMessage:
    """A message as it has come.

    Attributes:
        extra: values of metadata.
        last_id: by which the server finds the next one; "" where it has none.
        error: why it cannot be taken.
    """

    data: bytes
    extra: tuple[Any, ...] = ()
    last_id: str = ""
    error: Exception | None = None


class StreamEnd:
    """The server has no more messages."""


StreamLink = LoopLink[StreamMessage | StreamEnd, Any]


class StreamClient(Protocol):
    """Reads from the server, on the loop of a `LoopThread`.

    Attributes:
        replays: whether the server sends messages again behind an id.
        dropped: messages that were dropped since the queue was full.
        is_connected: whether the server sends.
        reconnects: connections that were made after the first one.
    """

    replays: bool
    dropped: int
    is_connected: bool
    reconnects: int

    async def run(self, link: StreamLink, last_id: str) -> None:
        """Hand over messages behind an id until it is cancelled."""


async def keep_connected(
    link: StreamLink,
    client: StreamClient,
    connect: Callable[[], Awaitable[bool]],
    pause_s: Callable[[], float | None],
    text: Callable[[], str],
) -> None:
    """Connect again, whenever a connection ends, until the server has no more; a loss is reported once.

    Args:
        connect: reads one connection to its end; sets `is_connected` when the server sends. Returns whether there is no more.
        pause_s: before the next connection, if the server has named one, of 1 s to 10 min; else it doubles from 1 s to 30 s.
        text: of the report, behind the reason.
    """
    is_reported, waits_s, clock = False, FIRST_PAUSE_S, asyncio.get_running_loop().time
    while True:
        began = clock()
        error: Exception = PeerError("the server has ended the connection")
        try:
            if await connect():
                await link.put(StreamEnd())
                return
        except (OSError, TimeoutError, PeerError) as raised:
            error = raised
        if client.is_connected:
            client.is_connected = is_reported = False
            # A server that ends each connection at once, as without a valid token, is not asked every second.
            waits_s = FIRST_PAUSE_S if clock() - began > waits_s else waits_s
        if not is_reported:
            is_reported = True
            link.report(TopoEnvironmentError(f"{error}; {text()}"))
        asked_s = pause_s()
        await asyncio.sleep(waits_s if asked_s is None else min(max(asked_s, FIRST_PAUSE_S), _MOST_ASKED_S))
        waits_s = min(2 * waits_s, LONGEST_PAUSE_S)
        client.reconnects += 1


class PushedReader:
    """The reader of a spout with one stream.

    Args:
        make_client: returns a client for each beginning.
        decode: of a message's bytes.
        clean: takes secrets out of an error's text.
    """

    def __init__(
        self,
        make_client: Callable[[], StreamClient],
        decode: Callable[[bytes], tuple[Any, ...]],
        context: TaskContext,
        report: Callable[[BaseException], object],
        clean: Callable[[str], str],
        name: str,
    ) -> None:
        self._make_client, self._decode, self._context, self._clean, self._name = make_client, decode, context, clean, name
        self._report_error = report
        self._loop: LoopThread[StreamMessage | StreamEnd, Any] | None = None
        self._client: StreamClient = make_client()
        self._number = 0
        self._is_assigned = self._is_paused = False
        self._missed: list[int | None] = []
        """How many messages were lost, of losses that are to be reported; None where it is not known."""
        self._dropped = self._reconnects = 0
        self._bytes = context.metrics.counter("bytes")
        self._reconnect_count = context.metrics.counter("reconnects")
        self._connected = context.metrics.gauge("connected")

    def _report(self, error: BaseException) -> None:
        if isinstance(error, TopoEnvironmentError):
            error = TopoEnvironmentError(f"{self._name}: {self._clean(str(error))}")
        self._report_error(error)

    def assign(self, _partition: Partition, position: Any, _found_later: bool) -> Any:
        """Read behind a position."""
        number, last_id = (0, "") if position is None else position
        is_first = self._loop is None
        if position is not None and not (self._client.replays and last_id) and (is_first or number < self._number):
            self._missed.append(None if is_first else self._number - number)
        if self._client.replays or is_first:
            self._stop()
            self._client = client = self._make_client()
            self._dropped = self._reconnects = 0

            async def main(link: StreamLink) -> None:
                await client.run(link, last_id)

            self._loop = LoopThread(main, self._context.executor, self._report, most_items=_MOST_WAITING, name="topo-stream")
            self._loop.start()
        self._number = number
        self._is_assigned = True
        return (number, last_id)

    def release(self, _partition: Partition) -> None:
        """Read no more. A stream that cannot be read again stays connected."""
        self._is_assigned = self._is_paused = False
        if self._client.replays:
            self._stop()

    def pause(self, _partition: Partition, paused: bool) -> None:
        """Give no messages for a while."""
        self._is_paused = paused

    def poll(self, output: PartitionOutput) -> None:
        """Give the messages that have come."""
        self._show()
        if self._loop is None or not self._is_assigned:
            return
        for count in self._missed:
            known = "messages" if count is None else f"{count} messages"
            output.lost(
                STREAM, count, TopoEnvironmentError(f"{self._name} cannot read {known} again that came before the recovery")
            )
        self._missed.clear()
        if (dropped := self._client.dropped - self._dropped) > 0:
            self._dropped += dropped
            output.lost(STREAM, dropped, TopoEnvironmentError(f"{self._name} drops messages, since the topology is slower"))
        if self._is_paused:
            return
        values: list[tuple[Any, ...]] = []
        positions: list[tuple[int, str]] = []
        for message in self._loop.take(output.room):
            if isinstance(message, StreamEnd):
                self._give(output, values, positions)
                output.ended(STREAM)
                self._is_assigned = False
                return
            self._number += 1
            self._bytes.add(len(message.data))
            position = (self._number, message.last_id)
            try:
                if message.error is not None:
                    raise message.error
                decoded = (*self._decode(message.data), *message.extra)
            except Exception as error:
                self._give(output, values, positions)
                values, positions = [], []
                output.bad(STREAM, position, message.data, error)
            else:
                values.append(decoded)
                positions.append(position)
        self._give(output, values, positions)

    def _give(self, output: PartitionOutput, values: list[tuple[Any, ...]], positions: list[tuple[int, str]]) -> None:
        if values:
            output.rows(STREAM, values, positions)

    def _show(self) -> None:
        self._connected.set(float(self._client.is_connected))
        if self._client.reconnects > self._reconnects:
            self._reconnect_count.add(self._client.reconnects - self._reconnects)
            self._reconnects = self._client.reconnects

    def committed(self, positions: Mapping[str, Any]) -> None:
        """Do nothing: the server does not know of it."""

    def lag(self) -> int | None:
        """Return None: it is not known."""
        return None

    def close(self) -> None:
        """Close the connection."""
        self._stop()

    def _stop(self) -> None:
        if self._loop is not None:
            self._loop.close()
            self._loop = None
