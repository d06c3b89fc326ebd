"""A client of server-sent events."""

from __future__ import annotations

from collections.abc import Mapping

import aiohttp

from topo.connectors.http.answers import missing_answer, retry_after_s
from topo.connectors.http.redirects import guarded
from topo.connectors.http.sse_events import EventParser, ServerEvent
from topo.connectors.http.stream_reader import StreamLink, StreamMessage, keep_connected
from topo.errors import PeerError


class SseClient:
    """One stream of events; see `SseSpout` for the arguments."""

    replays = True

    def __init__(
        self, url: str, headers: Mapping[str, str], events: frozenset[str], metadata: tuple[str, ...], silence_s: float, most: int
    ) -> None:
        self._url, self._headers, self._events, self._metadata = url, headers, events, metadata
        self._silence_s, self._most = silence_s, most
        self._last_id = ""
        self._retry_ms: int | None = None
        self._asked_s: float | None = None
        """The pause that the last refusal has asked for."""
        self.is_connected = False
        self.dropped = self.reconnects = 0

    async def run(self, link: StreamLink, last_id: str) -> None:
        """Hand over events behind an id until the server has no more."""
        # A run that follows an error continues behind the last event that was handed over.
        self._last_id = self._last_id or last_id
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._silence_s, sock_read=self._silence_s)
        async with aiohttp.ClientSession(timeout=timeout, trace_configs=guarded(self._url, self._headers)) as session:

            async def connect() -> bool:
                return await self._read(session, link)

            await keep_connected(link, self, connect, self._pause_s, self._promise)

    def _promise(self) -> str:
        place = "behind the last event" if self._last_id else "and events until then are lost, since they have no ids"
        return f"it connects again, {place}"

    def _pause_s(self) -> float | None:
        if self._asked_s is not None or self._retry_ms is None:
            return self._asked_s
        return self._retry_ms / 1000

    async def _read(self, session: aiohttp.ClientSession, link: StreamLink) -> bool:
        """Read one connection; return whether the server has no more events."""
        headers = {**self._headers, "Accept": "text/event-stream", "Cache-Control": "no-store"}
        if self._last_id:
            headers["Last-Event-ID"] = self._last_id
        self._asked_s = None
        try:
            async with session.get(self._url, headers=headers) as answer:
                if answer.status == 204:
                    return True
                if answer.status != 200 or answer.content_type != "text/event-stream":
                    self._asked_s = retry_after_s(answer.headers.get("Retry-After"), answer.headers.get("Date"))
                    raise PeerError(f"answered {answer.status} with {answer.content_type}, and not with text/event-stream")
                self.is_connected = True
                parser = EventParser(self._last_id, self._most)
                async for data in answer.content.iter_any():
                    for event in parser.feed(data):
                        await self._take(event, link)
                    self._retry_ms = parser.retry_ms if parser.retry_ms is not None else self._retry_ms
        except TimeoutError as error:
            raise PeerError(f"nothing has come for {self._silence_s:g} s") from error
        except aiohttp.ClientError as error:
            raise PeerError(f"lost the connection: {missing_answer(error, self._url)}") from error
        return False

    async def _take(self, event: ServerEvent, link: StreamLink) -> None:
        if not self._events or event.name in self._events:
            known = {"id": event.last_id, "event": event.name}
            error = ValueError(f"the event has more than {self._most} characters") if event.is_cut else None
            extra = tuple(known[name] for name in self._metadata)
            await link.put(StreamMessage(event.data.encode(), extra, event.last_id, error))
        self._last_id = event.last_id
