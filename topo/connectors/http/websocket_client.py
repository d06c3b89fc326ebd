"""A client of a WebSocket."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence

import aiohttp

from topo.connectors.http.redirects import guarded
from topo.connectors.http.stream_reader import StreamLink, StreamMessage, keep_connected
from topo.errors import PeerError


class _PatientSocket(aiohttp.ClientWebSocketResponse):  # type: ignore[misc]
    """Does not take a server for dead whose answer to a ping lies behind messages that wait for the topology."""

    def _pong_not_received(self) -> None:
        if self._waiting:
            super()._pong_not_received()
        else:
            # The socket is not read now. The server is pinged again later.
            self._reset_heartbeat()


class WebSocketClient:
    """One connection after the other; see `WebSocketSpout` for the arguments.

    With `drops`, messages wait in a ring: when it is full the oldest is dropped. Without, the socket is not read meanwhile.
    """

    replays = False

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        subscribe: Sequence[str],
        heartbeat_s: float,
        most_waiting: int,
        largest: int,
        *,
        drops: bool,
    ) -> None:
        self._url, self._headers, self._subscribe, self._heartbeat_s = url, headers, subscribe, heartbeat_s
        self._largest, self._drops = largest, drops
        self._ring: deque[StreamMessage] = deque(maxlen=most_waiting)
        self._has_come = asyncio.Event()
        self._is_moving = False
        self.is_connected = False
        self.dropped = self.reconnects = 0

    async def run(self, link: StreamLink, last_id: str) -> None:
        """Hand over messages until it is cancelled."""
        self._has_come = asyncio.Event()
        mover = asyncio.create_task(self._move(link))
        try:
            traces = guarded(self._url, self._headers, self._subscribe)
            async with aiohttp.ClientSession(ws_response_class=_PatientSocket, trace_configs=traces) as session:

                async def connect() -> bool:
                    return await self._read(session, link)

                def promise() -> str:
                    return "it connects again, and messages until then are lost"

                await keep_connected(link, self, connect, lambda: None, promise)
        finally:
            mover.cancel()

    async def _move(self, link: StreamLink) -> None:
        """Hand over the messages of the ring."""
        while True:
            while self._ring:
                await link.put(self._ring.popleft())
            self._is_moving = False
            self._has_come.clear()
            await self._has_come.wait()

    async def _read(self, session: aiohttp.ClientSession, link: StreamLink) -> bool:
        """Read one connection to its end."""
        try:
            async with session.ws_connect(
                self._url, headers=self._headers, heartbeat=self._heartbeat_s, max_msg_size=self._largest
            ) as socket:
                for text in self._subscribe:
                    await socket.send_str(text)
                self.is_connected = True
                async for message in socket:
                    if message.type is aiohttp.WSMsgType.TEXT:
                        await self._take(message.data.encode(), link)
                    elif message.type is aiohttp.WSMsgType.BINARY:
                        await self._take(message.data, link)
                    else:
                        break
                reason = socket.exception()
                raise PeerError(f"lost the connection: closed with {socket.close_code}{f' ({reason})' if reason else ''}")
        except aiohttp.ClientError as error:
            raise PeerError(f"lost the connection: {type(error).__name__}: {error}") from error

    async def _take(self, data: bytes, link: StreamLink) -> None:
        if not self._drops:
            await link.put(StreamMessage(data))
            return
        # The ring is for those that find the queue full, and for those behind them.
        if not self._is_moving and link.put_nowait(StreamMessage(data)):
            return
        self._is_moving = True
        self.dropped += len(self._ring) == self._ring.maxlen
        self._ring.append(StreamMessage(data))
        self._has_come.set()
