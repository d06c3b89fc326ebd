"""A client of a WebSocket."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence

import aiohttp

from topo.connectors.http.answers import missing_answer, retry_after_s
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

    Attributes:
        handshake_s: how long a server may take to answer the request.
    """

    replays = False
    handshake_s = 30.0

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
        self._asked_s: float | None = None
        """The pause that the last answer has asked for."""
        self.is_connected = False
        self.dropped = self.reconnects = 0

    async def run(self, link: StreamLink, last_id: str) -> None:
        """Hand over messages until it is cancelled."""
        self._has_come = asyncio.Event()
        mover = asyncio.create_task(self._move(link))
        try:
            traces = guarded(self._url, self._headers, self._subscribe)
            timeout = aiohttp.ClientTimeout(total=self.handshake_s)
            async with aiohttp.ClientSession(ws_response_class=_PatientSocket, trace_configs=traces, timeout=timeout) as session:

                async def connect() -> bool:
                    return await self._read(session, link)

                def promise() -> str:
                    return "it connects again, and messages until then are lost"

                await keep_connected(link, self, connect, lambda: self._asked_s, promise)
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
        self._asked_s = None
        try:
            async with session.ws_connect(
                # The library refuses messages of the limit, too.
                self._url,
                headers=self._headers,
                heartbeat=self._heartbeat_s,
                max_msg_size=self._largest + 1,
            ) as socket:
                for text in self._subscribe:
                    await socket.send_str(text)
                self.is_connected = True
                while (message := await socket.receive()).type in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY):
                    data = message.data
                    await self._take(data.encode() if isinstance(data, str) else data, link)
                raise PeerError(f"lost the connection: {self._end_of(socket, message)}")
        except TimeoutError as error:
            raise PeerError(f"the server has not answered within {self.handshake_s:g} s") from error
        except aiohttp.WSServerHandshakeError as error:
            headers = error.headers or {}
            self._asked_s = retry_after_s(headers.get("Retry-After"), headers.get("Date"))
            raise PeerError(f"the server has refused the connection: {error.status}, {error.message}") from error
        except aiohttp.ClientError as error:
            raise PeerError(f"lost the connection: {missing_answer(error, self._url)}") from error

    def _end_of(self, socket: aiohttp.ClientWebSocketResponse, last: aiohttp.WSMessage) -> str:
        """Return why a connection has ended."""
        code, reason = socket.close_code, socket.exception()
        if last.type is aiohttp.WSMsgType.CLOSE:
            code, reason = last.data or code, last.extra
        elif last.type is aiohttp.WSMsgType.ERROR:
            reason = last.data
            if code == aiohttp.WSCloseCode.MESSAGE_TOO_BIG:
                reason = f"a message is longer than max_message, {self._largest} bytes; raise it"
        return f"closed with {code}{f' ({reason})' if str(reason or '') else ''}"

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
