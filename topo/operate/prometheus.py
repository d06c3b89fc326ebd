"""`GET /metrics`: the figures of all topologies of a state folder, in the text format of Prometheus.

The figures are those of `overview`; nothing is computed here. A master is asked at most once a second, however many scrape.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from socket import SHUT_RDWR, socket
from socketserver import ThreadingMixIn
from threading import Lock, Thread, Timer
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from topo.errors import TopoError, UserError
from topo.extras import EXTRAS, pip_install
from topo.master_process.client import Client
from topo.observability.overview import BOUNDS_S
from topo.operate.metric_table import TABLE, Metric, statuses, user_metrics
from topo.storage.state_folder import StateFolder, TopologyFolder

try:
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
except ImportError as error:
    raise UserError(f"metrics need prometheus-client: {pip_install(EXTRAS['metrics'])}") from error

DEADLINE_S = 2.0
"""A master that takes longer to answer is not up for this scrape."""
FRESH_S = 1.0
REQUEST_S = 10.0
"""A whole request, from the accept to the last byte of the answer, takes no longer."""
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Family = Any
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
        self,
        home: Path,
        names: Iterable[str] = (),
        clock: Callable[[], float] = time.monotonic,
        ask: Callable[[TopologyFolder], Mapping[str, Any] | None] | None = None,
    ) -> None:
        self._state = StateFolder(home)
        self._names = tuple(names)
        self._clock = clock
        self._ask = ask or _overview
        self._lock = Lock()
        self._text = b""
        self._fresh_until = -1.0

    def text(self) -> bytes:
        """Return the answer to a scrape."""
        with self._lock:
            if self._clock() >= self._fresh_until:
                registry = CollectorRegistry()
                registry.register(self)
                self._text = generate_latest(registry)
                self._fresh_until = self._clock() + FRESH_S
            return self._text

    def describe(self) -> Iterable[Family]:
        """Return nothing: names are not known before a scrape, since user code has metrics, too."""
        return ()

    def collect(self) -> Iterator[Family]:
        """Return all families with their samples. Called by prometheus-client."""
        folders = []
        for name in self._names or self._state.names():
            # A topology may be removed at any moment.
            with suppress(TopoError):
                folders.append(self._state.find(name))
        answers = overviews(folders, self._ask)
        running = {name: overview for name, overview in answers.items() if overview is not None}
        for metric in TABLE:
            family = _family(metric.name, metric.kind, metric.help, metric.labels)
            for name, overview in running.items():
                _add(family, metric, name, overview)
            if metric.name == "topo_up":
                for name in answers.keys() - running.keys():
                    family.add_metric([name], 0.0)
            elif metric.name == "topo_status":
                for folder in folders:
                    if folder.name not in running and (word := _last_status(folder)):
                        for labels, value in statuses(word):
                            family.add_metric([folder.name, *labels], value)
            if family.samples:
                yield family
        yield from _of_users(running)


def overviews(
    folders: Sequence[TopologyFolder],
    ask: Callable[[TopologyFolder], Mapping[str, Any] | None],
    deadline_s: float = DEADLINE_S,
) -> dict[str, Mapping[str, Any] | None]:
    """Ask all masters at once; None for those without an answer in time, which take no time from the others."""
    answers: dict[str, Mapping[str, Any] | None] = {folder.name: None for folder in folders}

    def put(folder: TopologyFolder) -> None:
        answers[folder.name] = ask(folder) if folder.is_running() else None

    threads = [Thread(target=put, args=(folder,), daemon=True) for folder in folders]
    for thread in threads:
        thread.start()
    until = time.monotonic() + deadline_s
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    # A copy: an answer after the deadline is for no scrape.
    return dict(answers)


def _family(name: str, kind: str, text: str, labels: Iterable[str]) -> Family:
    return _FAMILIES[kind](name, text, labels=["topology", *labels])


def _add(family: Family, metric: Metric, topology: str, overview: Mapping[str, Any]) -> None:
    for labels, figure in metric.read(overview):
        if metric.kind == "histogram":
            buckets = [(_bound(bound), float(count)) for bound, count in zip(BOUNDS_S, figure["counts"], strict=True)]
            family.add_metric([topology, *labels], [*buckets, ("+Inf", float(figure["count"]))], figure["sum_s"])
        else:
            family.add_metric([topology, *labels], figure)


def _of_users(running: Mapping[str, Mapping[str, Any]]) -> Iterator[Family]:
    families: dict[str, tuple[str, Family]] = {}
    for topology, overview in running.items():
        for name, kind, labels, value in user_metrics(overview):
            # A name that is a counter in one topology and a gauge in another has `_total` in the first alone.
            _, family = families.setdefault(name, (kind, _family(name, kind, "Kept by user code.", ("component",))))
            family.add_metric([topology, *labels], value)
    for _, family in families.values():
        yield family


def _bound(bound: float) -> str:
    return repr(bound)


def _overview(folder: TopologyFolder) -> Mapping[str, Any] | None:
    try:
        answer: Mapping[str, Any] = Client(folder.name, folder.path.parents[1]).request("overview", DEADLINE_S)
    except TopoError:
        return None
    return answer


def _last_status(folder: TopologyFolder) -> str:
    """Return the status of a topology without a master; "" when it was lost, or is stalled."""
    try:
        summary = None if folder.is_running() else folder.last_summary()
    except TopoError:
        return ""
    return "" if summary is None else str(summary["status"])


# -- HTTP ----------------------------------------------------------------------------------------------------------------


class MetricsServer:
    """Answers scrapes, each in a thread, until `close`.

    Attributes:
        address: host and port.

    Raises:
        UserError: the address is taken, or not one of this machine.
    """

    def __init__(self, collector: TopologyCollector, host: str, port: int, request_s: float = REQUEST_S) -> None:
        self._collector = collector
        try:
            self._server = make_server(host, port, self._answer, server_class=_Server, handler_class=_QuietHandler)
        except OSError as error:
            raise UserError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
        self._server.request_s = request_s
        self.address = f"{host}:{self._server.server_port}"

    def serve(self) -> None:
        """Answer until another thread, or a signal handler, ends this."""
        self._server.serve_forever(poll_interval=0.1)

    def close(self) -> None:
        """End `serve`, which another thread is in, and listen no more."""
        self._server.shutdown()
        self.release()

    def release(self) -> None:
        """Listen no more; `serve` has ended."""
        self._server.server_close()

    def _answer(self, environment: Mapping[str, Any], start: Callable[..., Any]) -> list[bytes]:
        path, method = environment.get("PATH_INFO", ""), environment.get("REQUEST_METHOD", "")
        if path != "/metrics":
            status, content = "404 Not Found", b"there is /metrics\n"
        elif method not in ("GET", "HEAD"):
            status, content = "405 Method Not Allowed", b"GET /metrics\n"
        else:
            status, content = "200 OK", self._collector.text()
        kind = CONTENT_TYPE if status.startswith("200") else "text/plain; charset=utf-8"
        start(status, [("Content-Type", kind), ("Content-Length", str(len(content))), ("X-Content-Type-Options", "nosniff")])
        return [b"" if method == "HEAD" else content]


class _Server(ThreadingMixIn, WSGIServer):
    request_queue_size = 16
    daemon_threads = True
    request_s = REQUEST_S

    def server_bind(self) -> None:
        # The base class looks the name of the host up, which may take seconds and is not needed.
        self.server_name, self.server_port = "", 0
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        # A client that sends nothing, or a byte now and then, must not keep a thread and a file for ever.
        timer = Timer(self.request_s, _cut, (request,))
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


class _QuietHandler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass
