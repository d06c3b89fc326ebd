"""OTLP: figures and traces as a collector gets them, from the commands, on a topology that runs."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.cli.drive import piped
from tests.operate.test_traces import ROWS, TASKS
from tests.servers.server import need
from topo.api.metrics import BUCKET_COUNT, bucket_of, upper_bound
from topo.errors import UserError
from topo.operate.metric_table import TABLE
from topo.operate.traces import Traces

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("prometheus")]

TOPOLOGY = """
import time
from topo import BasicBolt, Spout, TopologyBuilder

class Numbers(Spout):
    outputs = ("n",)
    def open(self, context, collector):
        self.collector, self.number = collector, 0
    def next_tuple(self):
        time.sleep(0.005)
        self.collector.emit((self.number,), message_id=self.number)
        self.number += 1

class Work(BasicBolt):
    def prepare(self, context):
        self.seen = context.metrics.counter("seen numbers")
    def execute(self, tup, collector):
        self.seen.add()

def topology():
    builder = TopologyBuilder("watched")
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("work", Work()).shuffle_grouping("numbers")
    return builder.build()
"""


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    need(("opentelemetry",), "prometheus")


class Collector:
    """Takes OTLP over HTTP, and parses it.

    Attributes:
        requests: by path.
    """

    def __init__(self) -> None:
        self.requests: dict[str, list[Any]] = {}
        self.status = 200
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                collector.requests.setdefault(self.path, []).append(_parsed(self.path, body))
                self.send_response(collector.status)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05})
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


def _parsed(path: str, body: bytes) -> Any:
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    kinds = {"/v1/metrics": ExportMetricsServiceRequest, "/v1/traces": ExportTraceServiceRequest}
    return kinds[path].FromString(body)


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


def attributes(one: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in one.attributes}


@pytest.mark.timeout(300)
def test_a_collector_gets_figures_and_traces_of_a_topology_that_runs(tmp_path: Path, collector: Collector) -> None:
    (tmp_path / "watched.py").write_text(TOPOLOGY)
    home = ("--home", tmp_path / "home")
    assert piped("submit", tmp_path / "watched.py", *home, "--wait").code == 0
    try:
        trace = piped("trace", "watched", "--rate", "5", "--for", "2s", "--slowest", "2", "--otlp", collector.url, *home)
        assert trace.code == 0 and f"spans pushed to {collector.url}" in trace.err, trace.err
        pushed = piped("metrics", "--otlp", collector.url, "--once", *home)
        assert pushed.code == 0, pushed.err
        collector.status = 400
        assert piped("metrics", "--otlp", collector.url, "--once", *home).code == 1
    finally:
        piped("kill", "watched", "-y", *home)

    (request,) = collector.requests["/v1/traces"]
    spans = request.resource_spans[0].scope_spans[0].spans
    messages = {span.span_id: span for span in spans if not span.parent_span_id}
    tuples = [span for span in spans if span.parent_span_id]
    assert messages and len(tuples) == len(messages)
    for span in tuples:
        parent = messages[span.parent_span_id]
        assert (span.name, parent.name, span.trace_id) == ("work", "numbers", parent.trace_id)
        assert parent.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano <= parent.end_time_unix_nano
        assert attributes(span)["topo.outcome"] == "acked"

    metrics = {one.name: one for one in collector.requests["/v1/metrics"][0].resource_metrics[0].scope_metrics[0].metrics}
    assert metrics.keys() <= {one.name for one in TABLE} | {"topo_user_seen_numbers_total"}
    (up,) = metrics["topo_up"].gauge.data_points
    assert (up.as_double, attributes(up)) == (1.0, {"topology": "watched"})
    emitted = metrics["topo_tuples_emitted_total"].sum
    assert emitted.is_monotonic and emitted.data_points[0].as_double > 10
    (times,) = metrics["topo_execute_seconds"].exponential_histogram.data_points
    assert (times.scale, attributes(times)) == (2, {"topology": "watched", "component": "work"})
    assert times.count == times.zero_count + sum(times.positive.bucket_counts) > 10
    assert 0 < times.start_time_unix_nano < times.time_unix_nano


def test_buckets_are_those_of_scale_2() -> None:
    from opentelemetry.sdk.metrics._internal.exponential_histogram.mapping.logarithm_mapping import LogarithmMapping

    from topo.operate.otlp import LOWEST_INDEX, SCALE

    mapping = LogarithmMapping(SCALE)
    for bucket in range(1, BUCKET_COUNT - 1):
        middle = upper_bound(bucket) * 2**-0.125
        assert bucket_of(middle) == bucket
        assert mapping.map_to_index(middle) == bucket + LOWEST_INDEX


def test_ids_are_the_same_whoever_exports_and_all_parents_but_the_last_are_links() -> None:
    from topo.operate.otlp import spans_of

    traces = Traces(TASKS)
    # The last tuple is anchored on another one, too.
    other = {**ROWS[2], "out": [["cc", 3, 1339]]}
    traces.take([*ROWS[:2], other, *ROWS[3:]])
    spans = spans_of("flow", 3, traces, traces.all()[0])
    assert [span.context.span_id for span in spans] == [0x4000000000000001, 0xAA, 0xBB, 0xCC]
    assert [span.parent and span.parent.span_id for span in spans] == [None, 0x4000000000000001, 0xAA, 0xAA]
    assert [link.context.span_id for link in spans[3].links] == [0xBB]
    again = spans_of("flow", 3, traces, traces.all()[0])
    assert {span.context.trace_id for span in (*spans, *again)} == {spans[0].context.trace_id}
    assert spans_of("flow", 4, traces, traces.all()[0])[0].context.trace_id != spans[0].context.trace_id


@pytest.mark.parametrize("url", ["127.0.0.1:4318", "ftp://host", "http://"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    from topo.operate.otlp import endpoint

    with pytest.raises(UserError, match="takes the address of a collector, such as"):
        endpoint(url, "metrics")


def test_an_address_may_name_the_signal() -> None:
    from topo.operate.otlp import endpoint

    assert endpoint("http://host:4318/", "traces") == "http://host:4318/v1/traces"
    assert endpoint("http://host/otlp/v1/metrics", "metrics") == "http://host/otlp/v1/metrics"
