"""A registry that answers as Confluent's own does: a schema of Protobuf is its text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


@contextmanager
def registry_of(schemas: dict[int, dict[str, Any]], *, missing: bytes | None = None) -> Iterator[str]:
    """Run one on loopback, and give its URL.

    Args:
        schemas: by their ids. Whatever is registered has id 1.
        missing: its answer for an id that it does not have; None: that of a registry.
    """
    unknown = missing if missing is not None else json.dumps({"error_code": 40403, "message": "Schema not found"}).encode()

    class Answers(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            found = schemas.get(int(self.path.partition("?")[0].rpartition("/")[2]))
            self._answer(404, unknown) if found is None else self._answer(200, json.dumps(found).encode())

        def do_POST(self) -> None:
            given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._answer(200, json.dumps({"id": 1, "version": 1, **given}).encode())

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
