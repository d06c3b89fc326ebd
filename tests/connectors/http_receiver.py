"""A program that takes requests, and answers them as a test wants."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Got:
    """A request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Receiver:
    """The requests that have come, and the answers to them.

    Attributes:
        answers: (status, headers) of the next requests; then `usual`. None: the connection is cut instead of an answer. Headers
            X-Text, X-Times and X-Length are the text of the answer, how often it is sent, and the length that is promised.
        usual: the answer to all others.
        hold: while it is not set, requests wait.
    """

    url: str = ""
    requests: list[Got] = field(default_factory=list)
    answers: deque[tuple[int, dict[str, str]] | None] = field(default_factory=deque)
    usual: Callable[[Got], tuple[int, dict[str, str]]] = lambda _got: (200, {})
    hold: threading.Event = field(default_factory=threading.Event)
    most_at_a_time: int = 0
    _at_a_time: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, got: Got) -> tuple[int, dict[str, str]] | None:
        with self._lock:
            self.requests.append(got)
            self._at_a_time += 1
            self.most_at_a_time = max(self.most_at_a_time, self._at_a_time)
            answer = self.answers.popleft() if self.answers else self.usual(got)
        self.hold.wait(20)
        with self._lock:
            self._at_a_time -= 1
        return answer

    @property
    def bodies(self) -> list[bytes]:
        return [got.body for got in self.requests]

    @property
    def ids(self) -> list[str]:
        return [got.headers["Idempotency-Key"] for got in self.requests]


@contextmanager
def receiving(port: int = 0) -> Iterator[Receiver]:
    receiver = Receiver()
    receiver.hold.set()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            answer = receiver.take(Got(self.command, self.path, dict(self.headers.items()), body))
            if answer is None:
                self.close_connection = True
                return
            status, headers = answer
            text = headers.get("X-Text", "text").encode() * int(headers.get("X-Times", 1))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", headers.get("X-Length", str(len(text))))
            self.end_headers()
            self.wfile.write(text)

        do_POST = do_PUT = do_PATCH = do_DELETE = do_GET = _serve

        def log_message(self, *_arguments: Any) -> None: ...

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_arguments: Any) -> None: ...

    with Server(("127.0.0.1", port), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        receiver.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield receiver
        finally:
            receiver.hold.set()
            server.shutdown()
            thread.join()
