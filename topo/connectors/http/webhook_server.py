"""The server of a `WebhookSpout`: takes requests, hands them to the task, and answers them when their messages are done.

A request is in one state:

| state    | meaning                                          | leaves it by                                     |
| -------- | ------------------------------------------------ | ------------------------------------------------ |
| arriving | its body is read; it holds one of the places     | refused; `put_nowait`                            |
| open     | its message is in the queue, or in the topology  | `MessageDone`; the answer's time-out; the server's end |

A message whose requests have all left is known until `MessageDone`, so that another body with its id is refused.

Requests of the same id that are open together are one message, and all get its answer. All of it runs on the loop of a
`LoopThread`.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import resource
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from topo.connectors.http.requests import ID_HEADER, RefusedBodyError, given_id, is_signed, shown_headers, unpacked
from topo.connectors.loop_thread import LoopLink

_BODY_S = 30.0
"""How long a sender may take for its body."""
_IDLE_S = 75.0
"""How long a connection may be open without a request, or with a part of one."""


@dataclass(frozen=True, slots=True)
class WebhookRequest:
    """A request that waits for the task.

    Attributes:
        digest: of the body; None where the sender has given no id, by which it could repeat the request.
        values: of the decoded body.
        headers: without credentials and signature.
    """

    id: str
    digest: bytes | None
    values: tuple[Any, ...]
    path: str
    headers: dict[str, str]
    size: int


@dataclass(frozen=True, slots=True)
class MessageDone:
    """The outcome of a message: processed, or failed. With the digest of its request."""

    id: str
    is_acked: bool
    digest: bytes | None = None


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Settings of a server; see `WebhookSpout`."""

    host: str
    port: int
    path: str
    secret: bytes | None = field(repr=False)
    signature_header: str
    max_body: int
    most_open: int
    answer_timeout_s: float
    retry_after_s: int
    decode: Callable[[bytes], tuple[Any, ...]]


@dataclass(slots=True)
class _Open:
    """A message whose answer is due, to each of the requests with its id."""

    digest: bytes
    is_acked: asyncio.Future[bool]


@dataclass(slots=True)
class RequestCounts:
    """Figures that the loop's thread writes, and the task reads.

    Attributes:
        refused: requests that were answered with 503 at once.
        unauthorised: those without a valid signature.
        bad: those that cannot be read, or decoded.
        is_listening: whether senders can connect.
    """

    refused: int = 0
    unauthorised: int = 0
    bad: int = 0
    is_listening: bool = False


@dataclass
class WebhookServer:
    """One server, which may be run again after an error.

    Attributes:
        is_paused: set by the task: requests are refused with 503.
        remembered: how many ids of messages that were processed are kept: repeats are answered and not handed over.
    """

    settings: ServerSettings
    counts: RequestCounts = field(default_factory=RequestCounts)
    is_paused: bool = True
    remembered: int = 100_000
    _done: dict[str, bytes] = field(default_factory=dict, repr=False)
    """Digests of the bodies of messages that were processed, by their senders' ids, the oldest first."""

    async def run(self, link: LoopLink[WebhookRequest, MessageDone]) -> None:
        """Listen, and answer requests as the task's messages come, until it is cancelled."""
        self._link = link
        self._open: dict[str, _Open] = {}
        self._places = self.settings.most_open
        app = web.Application(client_max_size=self.settings.max_body)
        app.router.add_post(self.settings.path, self._handle)
        # The library would unpack a body without a bound, and take a part of it for all.
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0, keepalive_timeout=_IDLE_S, auto_decompress=False)
        await runner.setup()
        server, loop = runner.server, asyncio.get_running_loop()
        assert server is not None
        most = min(2 * self.settings.most_open, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)

        def protocol() -> asyncio.Protocol:
            return server() if len(server.connections) < most else _RefusedConnection(self)

        listening: asyncio.Server | None = None
        try:
            listening = await loop.create_server(protocol, self.settings.host, self.settings.port)
            self.counts.is_listening = True
            while True:
                self._on_done(await link.get())
        finally:
            self.counts.is_listening = False
            while (done := link.get_nowait()) is not None:
                self._on_done(done)
            for entry in self._open.values():
                if not entry.is_acked.done():
                    entry.is_acked.set_result(False)
            if listening is not None:
                listening.close()
            await runner.cleanup()

    def _on_done(self, done: MessageDone) -> None:
        if done.is_acked and done.digest is not None:
            self._done[done.id] = done.digest
            if len(self._done) > self.remembered:
                del self._done[next(iter(self._done))]
        entry = self._open.pop(done.id, None)
        # It may be of a server that ended before.
        if entry is not None and not entry.is_acked.done():
            entry.is_acked.set_result(done.is_acked)

    async def _handle(self, request: web.Request) -> web.Response:
        if self.is_paused or self._places <= 0:
            return self._refuse("the topology is paused" if self.is_paused else "too many requests are open")
        self._places -= 1
        try:
            return await self._take(request)
        finally:
            self._places += 1

    async def _take(self, request: web.Request) -> web.Response:
        settings = self.settings
        try:
            async with asyncio.timeout(_BODY_S):
                packed = await request.read()
            body = unpacked(packed, request.headers.get("Content-Encoding", ""), settings.max_body)
        except TimeoutError:
            return self._bad(408, f"the body has not come within {_BODY_S:g} s")
        except web.HTTPRequestEntityTooLarge:
            return self._bad(413, f"the body has more than {settings.max_body} bytes")
        except RefusedBodyError as error:
            return self._bad(error.status, str(error))
        except web.RequestPayloadError as error:
            return self._bad(400, f"the body cannot be read: {error}")
        if settings.secret is not None and not is_signed(settings.secret, body, request.headers.get(settings.signature_header)):
            self.counts.unauthorised += 1
            return web.Response(status=401, text=f"{settings.signature_header} is not the signature of the body\n")
        try:
            given = given_id(request.headers.get(ID_HEADER))
            values = settings.decode(body)
        except Exception as error:
            return self._bad(400, str(error))
        # Without an id of the sender's each request is a message: two with the same body may both be meant.
        name = os.urandom(16).hex() if given is None else given
        digest = hashlib.sha256(body).digest()
        before, entry = self._done.get(name), self._open.get(name)
        if before == digest:
            return web.Response(text="done before\n")
        if before is not None or (entry is not None and entry.digest != digest):
            return self._bad(422, f"a request with this {ID_HEADER} had another body")
        if entry is None:
            headers = shown_headers(request.headers, settings.signature_header)
            kept = None if given is None else digest
            if not self._link.put_nowait(WebhookRequest(name, kept, values, request.path, headers, len(body))):
                return self._refuse("too many requests wait")
            entry = self._open[name] = _Open(digest, asyncio.get_running_loop().create_future())
        return await self._answer(entry)

    async def _answer(self, entry: _Open) -> web.Response:
        """Wait for the message."""
        try:
            async with asyncio.timeout(self.settings.answer_timeout_s):
                is_acked = await asyncio.shield(entry.is_acked)
        except TimeoutError:
            return self._refuse(f"not done within {self.settings.answer_timeout_s:g} s")
        return web.Response(text="done\n") if is_acked else self._refuse("it has failed")

    def _bad(self, status: int, reason: str) -> web.Response:
        self.counts.bad += 1
        return web.Response(status=status, text=f"{reason}\n")

    def _refuse(self, reason: str) -> web.Response:
        self.counts.refused += 1
        after = {"Retry-After": str(self.settings.retry_after_s)}
        return web.Response(status=503, headers=after, text=f"{reason}; send it again\n")


class _RefusedConnection(asyncio.Protocol):
    """Answers a connection beyond those that there may be, whatever its request, and closes it."""

    def __init__(self, server: WebhookServer) -> None:
        self._server = server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._server.counts.refused += 1
        after = self._server.settings.retry_after_s
        head = f"HTTP/1.1 503 Service Unavailable\r\nRetry-After: {after}\r\nConnection: close"
        transport.write(f"{head}\r\nContent-Length: 0\r\n\r\n".encode())
        transport.close()
