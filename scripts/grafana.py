"""Writes deploy/grafana/topo.json, a dashboard of the metrics of `topo metrics`: `python scripts/grafana.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[1] / "deploy" / "grafana" / "topo.json"

ONE = 'topology="$topology"'
PANELS: tuple[tuple[str, str, str, tuple[tuple[str, str], ...]], ...] = (
    ("Status", "stat", "none", ((f"topo_status{{{ONE}}} == 1", "{{status}}"),)),
    ("Findings", "table", "none", ((f"topo_finding{{{ONE}}}", "{{kind}} {{component}}"),)),
    ("Messages a second", "timeseries", "ops", (
        (f'sum(rate(topo_tuples_emitted_total{{{ONE}}}[1m]) and on (topology, component) topo_messages_pending)', "emitted"),
        (f'sum(rate(topo_tuples_acked_total{{{ONE}}}[1m]) and on (topology, component) topo_messages_pending)', "acked"),
    )),
    ("Messages pending", "timeseries", "short", ((f"topo_messages_pending{{{ONE}}}", "{{component}}"),)),
    ("Complete latency", "timeseries", "s", (
        (f"histogram_quantile(0.5, sum by (le) (rate(topo_complete_seconds_bucket{{{ONE}}}[1m])))", "p50"),
        (f"histogram_quantile(0.99, sum by (le) (rate(topo_complete_seconds_bucket{{{ONE}}}[1m])))", "p99"),
    )),
    ("Capacity of the busiest task", "timeseries", "percentunit", ((f"topo_capacity_ratio{{{ONE}}}", "{{component}}"),)),
    ("Tuples executed a second", "timeseries", "ops", ((f"rate(topo_tuples_executed_total{{{ONE}}}[1m])", "{{component}}"),)),
    ("Tuples in front", "timeseries", "short", ((f"topo_waiting_tuples{{{ONE}}}", "{{component}}"),)),
    ("Busy", "timeseries", "percentunit", (
        (f"rate(topo_busy_seconds_total{{{ONE}}}[1m]) / on (topology, component) topo_tasks", "{{component}}"),
    )),
    ("Blocked by the components after it", "timeseries", "percentunit", (
        (f"rate(topo_blocked_seconds_total{{{ONE}}}[1m]) / on (topology, component) topo_tasks", "{{component}}"),
    )),
    ("Execute latency, p99", "timeseries", "s", (
        (f"histogram_quantile(0.99, sum by (le, component) (rate(topo_execute_seconds_bucket{{{ONE}}}[1m])))", "{{component}}"),
    )),
    ("Edges: tuples a second", "timeseries", "ops", ((f"rate(topo_edge_tuples_total{{{ONE}}}[1m])", "{{source}} > {{target}}"),)),
    ("Errors, failures and timeouts a second", "timeseries", "ops", (
        (f"rate(topo_errors_total{{{ONE}}}[1m])", "errors {{component}}"),
        (f"rate(topo_tuples_failed_total{{{ONE}}}[1m])", "failed {{component}}"),
        (f"rate(topo_messages_timed_out_total{{{ONE}}}[1m])", "timed out {{component}}"),
    )),
    ("Cores of the workers", "timeseries", "percentunit", ((f"rate(topo_worker_cpu_seconds_total{{{ONE}}}[1m])", "{{worker}}"),)),
    ("Memory of the workers", "timeseries", "bytes", ((f"topo_worker_resident_memory_bytes{{{ONE}}}", "{{worker}}"),)),
    ("Watermark lag", "timeseries", "s", ((f"topo_watermark_lag_seconds{{{ONE}}}", "{{component}}"),)),
    ("Checkpoints", "timeseries", "s", (
        (f"topo_checkpoint_duration_seconds{{{ONE}}}", "duration"),
        (f"topo_checkpoint_age_seconds{{{ONE}}}", "age"),
    )),
)  # fmt: skip
"""Title, kind, unit, and for each line its expression and legend."""


def dashboard() -> dict[str, Any]:
    """Return the dashboard, two panels a row."""
    source = {"type": "prometheus", "uid": "${datasource}"}
    panels = []
    for number, (title, kind, unit, targets) in enumerate(PANELS):
        panels.append(
            {
                "id": number + 1,
                "title": title,
                "type": kind,
                "datasource": source,
                "gridPos": {"h": 8, "w": 12, "x": 12 * (number % 2), "y": 8 * (number // 2)},
                "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
                "options": {"textMode": "name"} if kind == "stat" else {},
                "targets": [
                    {
                        "refId": chr(ord("A") + place),
                        "expr": expression,
                        "legendFormat": legend,
                        "datasource": source,
                        **({"format": "table", "instant": True} if kind == "table" else {}),
                    }
                    for place, (expression, legend) in enumerate(targets)
                ],
            }
        )
    variables = [
        {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"},
        {
            "name": "topology",
            "type": "query",
            "datasource": source,
            "query": {"query": "label_values(topo_up, topology)", "refId": "topology"},
            "refresh": 2,
            "sort": 1,
        },
    ]
    return {
        "title": "topo",
        "uid": "topo",
        "schemaVersion": 39,
        "refresh": "5s",
        "time": {"from": "now-30m", "to": "now"},
        "templating": {"list": variables},
        "panels": panels,
    }


def text() -> str:
    """Return the file."""
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    PAGE.write_text(text())
