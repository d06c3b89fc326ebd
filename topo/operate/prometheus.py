"""`GET /metrics`: the figures of all topologies of a state folder, in the text format of Prometheus.

The figures are those of `overview`; nothing is computed here. A master is asked at most once a second, however many scrape.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socket import SHUT_RDWR, socket
from socketserver import ThreadingTCPServer
from threading import Lock, Timer
from typing import Any

from topo.errors import TopoError, UserError
from topo.extras import EXTRAS, pip_install
from topo.observability.overview import BOUNDS_S
from topo.operate.metric_table import families
from topo.operate.overviews import AskOverview, ask_overview, look_at
from topo.storage.state_folder import StateFolder

try:
    from prometheus_client import generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
except ImportError as error:
    raise UserError(f"metrics need prometheus-client: {pip_install(EXTRAS['metrics'])}") from error

FRESH_S = 1.0
REQUEST_S = 10.0
"""A whole request, from the accept to the last byte of the answer, takes no longer."""

_FAMILIES: Mapping[str, Callable[..., Any]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}


class TopologyCollector:
    """Collects from all topologies of a home, or from some.

    Args:
        names: the topologies; empty: all that there are at each scrape.
        ask: returns the overview of a running topology, None where it does not answer.
    """

    def __init__(
        self, home: Path, names: Iterable[str] = (), clock: Callable[[], float] = time.monotonic, ask: AskOverview = ask_overview
    ) -> None:
        self._state = StateFolder(home)
        self._names = tuple(names)
        self._clock = clock
        self._ask = ask
        self._lock = Lock()
        self._text = b""
        self._fresh_until = -1.0

    def text(self) -> bytes:
        """Return the answer to a scrape."""
        with self._lock:
            if self._clock() >= self._fresh_until:
                self._text = generate_latest(self)
                self._fresh_until = self._clock() + FRESH_S
            return self._text

    def collect(self) -> Iterator[Any]:
        """Return all families with their samples. Called by prometheus-client."""
        for family in families(*look_at(self._state, self._names, self._ask)):
            made = _FAMILIES[family.kind](family.name, family.help, labels=["topology", *family.labels])
            for topology, labels, figure in family.samples:
                if family.kind == "histogram":
                    buckets = [(repr(bound), float(count)) for bound, count in zip(BOUNDS_S, figure["counts"], strict=True)]
                    made.add_metric([topology, *labels], [*buckets, ("+Inf", float(figure["count"]))], figure["sum_s"])
                else:
                    made.add_metric([topology, *labels], figure)
            yield made


class MetricsServer(ThreadingTCPServer):
    """Answers scrapes, each in a thread: `serve_forever`, until `shutdown`, then `server_close`.

    Attributes:
        address: host and port.

    Raises:
        UserError: the address is taken, or not one of this machine.
    """

    request_queue_size = 16
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, collector: TopologyCollector, host: str, port: int, request_s: float = REQUEST_S) -> None:
        self.collector, self._request_s = collector, request_s
        try:
            super().__init__((host, port), _ScrapeHandler)
        except OSError as error:
            raise UserError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
        self.address = f"{host}:{self.server_address[1]}"

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        # A client that sends nothing, or a byte now and then, must not keep a thread and a file for ever.
        timer = Timer(self._request_s, _cut, (request,))
        timer.daemon = True
        timer.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            timer.cancel()

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A client that goes away is no error of this server.
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


def _cut(request: socket) -> None:
    with suppress(OSError):
        request.shutdown(SHUT_RDWR)


class _ScrapeHandler(BaseHTTPRequestHandler):
    server: MetricsServer

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != "/metrics":
            self._answer(404, b"there is /metrics\n")
            return
        try:
            self._answer(200, self.server.collector.text(), "text/plain; version=0.0.4; charset=utf-8")
        except TopoError as error:
            self._answer(503, f"{error}\n".encode())

    do_HEAD = do_GET

    def do_POST(self) -> None:
        self._answer(405, b"GET /metrics\n")

    do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_POST

    def _answer(self, status: int, content: bytes, kind: str = "text/plain; charset=utf-8") -> None:
        self.send_response(status)
        for name, value in (("Content-Type", kind), ("Content-Length", str(len(content))), ("X-Content-Type-Options", "nosniff")):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else content)

    def log_message(self, format: str, *args: Any) -> None:
        pass
