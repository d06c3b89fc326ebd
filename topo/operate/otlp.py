"""Overview and traces for a collector of OpenTelemetry, by OTLP over HTTP.

A histogram keeps its buckets: four to a doubling are scale 2 of exponential histograms.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from topo.api.metrics import BUCKETS_PER_DOUBLING
from topo.errors import UserError
from topo.extras import EXTRAS, pip_install
from topo.operate.metric_table import COUNTER, HISTOGRAM, families
from topo.operate.overviews import ask_overview, look_at
from topo.operate.traces import Trace, Traces
from topo.operate.view import Overview
from topo.storage.state_folder import StateFolder
from topo.version import __version__

try:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.metrics import export as metrics
    from opentelemetry.sdk.metrics._internal.point import Buckets
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExportResult
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags
except ImportError as error:
    raise UserError(f"OTLP needs the packages of OpenTelemetry: {pip_install(EXTRAS['otel'])}") from error

SCALE = 2
LOWEST_INDEX = -30 * BUCKETS_PER_DOUBLING - 1
"""The index of bucket 0, which is the count of zeros; bucket 1 begins at 2**-30."""
MOST_SPANS = 500
"""In one request."""

_RESOURCE = Resource({"service.name": "topo", "service.version": __version__})
_SCOPE = InstrumentationScope("topo", __version__)


def endpoint(url: str, signal: str) -> str:
    """Return where a collector takes "metrics" or "traces". Raises UserError for an address that is none."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise UserError(f"--otlp takes the address of a collector, such as http://127.0.0.1:4318; got {url!r}")
    return url if parts.path.endswith(f"/v1/{signal}") else f"{url.rstrip('/')}/v1/{signal}"


class MetricPusher:
    """Pushes the figures of all topologies of a home, or of some.

    Args:
        url: of the collector.
        names: the topologies; empty: all that there are each time.
    """

    def __init__(self, home: Path, url: str, names: Iterable[str] = ()) -> None:
        self._state = StateFolder(home)
        self._names = tuple(names)
        self._exporter = OTLPMetricExporter(endpoint=endpoint(url, "metrics"))
        self._started: dict[tuple[str, int], int] = {}
        """By topology and term: when its counts began. One value each: a start that moves would be a restart."""

    def push(self) -> bool:
        """Push once; return whether the collector has taken it."""
        found = self.metrics(*look_at(self._state, self._names, lambda folder: ask_overview(folder, buckets=True)))
        scope = metrics.ScopeMetrics(scope=_SCOPE, metrics=found, schema_url="")
        resource = metrics.ResourceMetrics(resource=_RESOURCE, scope_metrics=[scope], schema_url="")
        return self._exporter.export(metrics.MetricsData([resource])) is metrics.MetricExportResult.SUCCESS

    def metrics(self, running: Mapping[str, Overview], ended: Mapping[str, str]) -> list[metrics.Metric]:
        """Return the metrics of topologies that run, by their overviews, and of those that have ended, by their last status."""
        now = time.time()
        at, since = round(now * 1e9), {}
        for name, one in running.items():
            since[name] = self._started.setdefault((name, one["term"]), round((now - one["uptime_s"]) * 1e9))
        found = []
        for family in families(running, ended):
            points = []
            for name, labels, figure in family.samples:
                attributes = {"topology": name, **dict(zip(family.labels, labels, strict=True))}
                points.append(_point(family.kind, attributes, figure, since.get(name, at), at))
            unit = "s" if "_seconds" in family.name else "By" if "_bytes" in family.name else "1"
            found.append(metrics.Metric(family.name, family.help, unit, _data(family.kind, points)))
        return found


def _data(kind: str, points: list[Any]) -> Any:
    total = metrics.AggregationTemporality.CUMULATIVE
    if kind == HISTOGRAM:
        return metrics.ExponentialHistogram(points, total)
    return metrics.Sum(points, total, True) if kind == COUNTER else metrics.Gauge(points)


def _point(kind: str, attributes: dict[str, str], figure: Any, since: int, now: int) -> Any:
    if kind != HISTOGRAM:
        return metrics.NumberDataPoint(attributes, since, now, figure)
    counts = {int(bucket): count for bucket, count in figure["buckets"].items()}
    zeros = counts.pop(0, 0)
    first, last = min(counts, default=1), max(counts, default=0)
    positive = Buckets(first + LOWEST_INDEX, [counts.get(bucket, 0) for bucket in range(first, last + 1)])
    # The extremes are not known to the master.
    return metrics.ExponentialHistogramDataPoint(
        attributes, since, now, figure["count"], figure["sum_s"], SCALE, zeros, positive, Buckets(0, []), 0, None, None
    )  # fmt: skip


def push_traces(url: str, topology: str, term: int, traces: Traces, chosen: Sequence[Trace]) -> int:
    """Push messages as traces; return how many spans there were.

    Raises:
        UserError: the collector has not taken them.
    """
    exporter = OTLPSpanExporter(endpoint=endpoint(url, "traces"))
    spans = [span for trace in chosen for span in spans_of(topology, term, traces, trace)]
    for begin in range(0, len(spans), MOST_SPANS):
        if exporter.export(spans[begin : begin + MOST_SPANS]) is not SpanExportResult.SUCCESS:
            raise UserError(f"{url} has not taken the traces; the lines above say why")
    return len(spans)


def spans_of(topology: str, term: int, traces: Traces, trace: Trace) -> list[ReadableSpan]:
    """Return the spans of a message: one for itself, one for each tuple. Ids are the same each time that they are exported."""
    trace_id = int.from_bytes(blake2b(f"{topology}\0{term}\0{trace.root}".encode(), digest_size=16).digest(), "big")

    def context(edge: str) -> SpanContext:
        return SpanContext(trace_id, int(edge or trace.root, 16), is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))

    def made(edge: str, task: int, began: int, ended: int, outcome: str, parents: Sequence[str], **more: Any) -> ReadableSpan:
        component, index = traces.tasks[task]
        return ReadableSpan(
            name=component,
            context=context(edge),
            parent=context(parents[-1]) if parents else None,
            links=[Link(context(parent)) for parent in parents[:-1]],
            resource=_RESOURCE,
            instrumentation_scope=_SCOPE,
            kind=SpanKind.CONSUMER if edge else SpanKind.PRODUCER,
            attributes={
                "topo.topology": topology, "topo.component": component, "topo.task": index, "topo.outcome": outcome, **more
            },
            status=Status(StatusCode.OK if outcome in ("acked", "in a window") else StatusCode.ERROR),
            start_time=began * 1000,
            end_time=max(began, ended) * 1000,
        )  # fmt: skip

    whole = made("", trace.task, trace.at, trace.ended, trace.outcome, (), **{"topo.message": repr(trace.message)})
    return [whole] + [
        made(
            span.edge, span.task, span.left, span.ended, span.outcome, span.parents,
            **{"topo.arrived_us": span.arrived, "topo.began_us": span.began},
        )
        for span in sorted(trace.spans.values(), key=lambda span: (span.left, span.edge))
    ]  # fmt: skip
