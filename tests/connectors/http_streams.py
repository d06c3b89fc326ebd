"""A server that sends: server-sent events, and messages over WebSockets."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

from aiohttp import WSCloseCode, web

from tests.servers.server import free_port


class StreamServer:
    """A server in this process, on a separate thread.

    Attributes:
        events: (id, data) of all events that there are; a client gets those behind its Last-Event-ID.
        asked: the Last-Event-ID of each request.
        status, retry_after: of further requests that are refused.
        asked_at: when each request has come.
        silent_s: how long further requests for a WebSocket get no answer.
        received: texts that clients have sent over WebSockets.
        answers_pings: whether further WebSockets do.
        tokens: the Authorization of each request.
        keys: the X-Api-Key of each request.
        moved_to: where requests to /moved are redirected.
    """

    def __init__(self) -> None:
        self.port = free_port()
        self.events: list[tuple[str, str]] = []
        self.asked: list[str | None] = []
        self.tokens: list[str | None] = []
        self.keys: list[str | None] = []
        self.moved_to = ""
        self.received: list[str] = []
        self.status = 200
        self.retry_after: str | None = None
        self.asked_at: list[float] = []
        self.silent_s = 0.0
        self.answers_pings = True
        self._answers: set[Any] = set()
        self._sockets: set[web.WebSocketResponse] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._runner: web.AppRunner | None = None
        self.start()

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(20)

    def start(self) -> None:
        """Listen, at the same port as before."""

        async def start() -> None:
            app = web.Application()
            app.router.add_get("/events", self._events)
            app.router.add_get("/socket", self._socket)
            app.router.add_get("/moved", self._moved)
            self._runner = web.AppRunner(app, shutdown_timeout=0.1)
            await self._runner.setup()
            await web.TCPSite(self._runner, "127.0.0.1", self.port).start()

        self._run(start())

    def stop(self) -> None:
        """Listen no more, and cut all connections."""

        async def stop() -> None:
            assert self._runner is not None
            self._cut()
            await self._runner.cleanup()

        self._run(stop())

    def close(self) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self) -> None:
        """Reset all connections."""

        async def cut() -> None:
            self._cut()

        self._run(cut())

    def _cut(self) -> None:
        for transport in self._answers:
            transport.abort()
        self._answers.clear()

    @property
    def open(self) -> int:
        return len(self._answers)

    def append(self, *events: tuple[str, str]) -> None:
        self.events.extend(events)

    def send(self, *messages: str | bytes) -> None:
        """Send messages over all WebSockets."""

        async def send() -> None:
            for socket in self._sockets:
                for one in messages:
                    await (socket.send_str(one) if isinstance(one, str) else socket.send_bytes(one))

        self._run(send())

    def leave(self, code: int = WSCloseCode.GOING_AWAY, reason: str = "") -> None:
        """Close all WebSockets in order."""

        async def leave() -> None:
            for socket in list(self._sockets):
                await socket.close(code=code, message=reason.encode())

        self._run(leave())

    async def _moved(self, request: web.Request) -> web.StreamResponse:
        self._note(request)
        return web.Response(status=307, headers={"Location": self.moved_to})

    def _note(self, request: web.Request) -> None:
        self.tokens.append(request.headers.get("Authorization"))
        self.keys.append(request.headers.get("X-Api-Key"))
        self.asked_at.append(time.monotonic())

    def _refusal(self) -> web.Response:
        headers = {} if self.retry_after is None else {"Retry-After": self.retry_after}
        return web.Response(status=self.status, headers=headers, text="no")

    async def _events(self, request: web.Request) -> web.StreamResponse:
        last = request.headers.get("Last-Event-ID")
        self.asked.append(last)
        self._note(request)
        if self.status != 200:
            return self._refusal()
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        self._answers.add(request.transport)
        await answer.write(b"retry: 10\n\n")
        ids = [name for name, _ in self.events]
        at = ids.index(last) + 1 if last in ids else 0 if last is None else len(ids)
        while request.transport is not None and not request.transport.is_closing():
            while at < len(self.events):
                name, data = self.events[at]
                at += 1
                await answer.write(f"id: {name}\ndata: {data}\n\n".encode() if name else f"data: {data}\n\n".encode())
            await asyncio.sleep(0.005)
        return answer

    async def _socket(self, request: web.Request) -> web.StreamResponse:
        self._note(request)
        if self.status != 200:
            return self._refusal()
        await asyncio.sleep(self.silent_s)
        socket = web.WebSocketResponse(autoping=self.answers_pings)
        await socket.prepare(request)
        self._answers.add(request.transport)
        self._sockets.add(socket)
        try:
            async for message in socket:
                self.received.append(message.data)
        finally:
            self._sockets.discard(socket)
        return socket


def wait_turns(turn: Callable[[], None], condition: Callable[[], object], errors: list[BaseException]) -> None:
    """Give turns until a condition holds."""
    until = threading.Event()
    for _ in range(4000):
        if condition():
            return
        turn()
        until.wait(0.005)
    raise AssertionError(f"gave up waiting; errors {errors}")
