"""The table of metrics agrees with the page, the dashboard and the alerts, and with the conventions of Prometheus."""

from __future__ import annotations

import re
import runpy
from collections import Counter
from pathlib import Path

import pytest

from tests.operate.slow_cases import Case, Numbers, Work
from topo import TopologyBuilder
from topo.observability.overview import BOUNDS_S, Figures
from topo.operate.metric_table import TABLE, user_metrics

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_has_the_table() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "metrics_page.py"))
    text = (ROOT / "docs" / "metrics.md").read_text()
    assert text == script["page"](text), "write it again: python scripts/metrics_page.py"


def test_the_dashboard_is_the_script_s() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "grafana.py"))
    assert (ROOT / "deploy" / "grafana" / "topo.json").read_text() == script["text"](), (
        "write it again: python scripts/grafana.py"
    )


@pytest.mark.parametrize("path", ["deploy/grafana/topo.json", "deploy/prometheus/alerts.yaml"])
def test_dashboard_and_alerts_name_metrics_of_the_table(path: str) -> None:
    known = {one.name for one in TABLE} | {f"{one.name}_bucket" for one in TABLE if one.kind == "histogram"}
    used = set(re.findall(r"\btopo_\w+", (ROOT / path).read_text()))
    assert len(used) > 8
    assert used - known == set()


def test_names_follow_the_conventions() -> None:
    assert [name for name, count in Counter(one.name for one in TABLE).items() if count > 1] == []
    assert [one.name for one in TABLE if (one.kind == "counter") != one.name.endswith("_total")] == []
    assert [one.name for one in TABLE if re.search(r"_(ms|s|kb|mb|count)(_total)?$", one.name)] == []
    assert [one.name for one in TABLE if not one.help.endswith(".")] == []


def mixed(case: Case, builder: TopologyBuilder) -> None:
    builder.set_spout("numbers", Numbers(case, every_s=0.05))
    builder.set_bolt("work", Work(case, 0.01), 2).shuffle_grouping("numbers")


@pytest.fixture(scope="module")
def shown() -> Figures:
    return Case(mixed, delivery="exactly_once", checkpoint_interval="2s").go(15.0)


def test_every_metric_of_a_running_topology_has_samples_with_its_labels(shown: Figures) -> None:
    # There is no event time and no finding, and simulated workers are no processes.
    none = {"topo_watermark_lag_seconds", "topo_finding", "topo_worker_resident_memory_bytes", "topo_worker_starved_ratio"}
    empty = set()
    for metric in TABLE:
        samples = list(metric.samples(shown))
        assert all(len(labels) == len(metric.subject.labels) for labels, _ in samples), metric.name
        assert len({labels for labels, _ in samples}) == len(samples), metric.name
        if not samples:
            empty.add(metric.name)
    assert empty == none


def test_figures_are_those_of_the_overview(shown: Figures) -> None:
    samples = {metric.name: dict(metric.samples(shown)) for metric in TABLE}
    rows = {row["component"]: row for row in shown["components"]}
    assert samples["topo_tuples_executed_total"] == {("work",): rows["work"]["counters"]["executed"]}
    assert samples["topo_tuples_emitted_total"]["numbers",] == rows["numbers"]["counters"]["emitted"] > 200
    assert samples["topo_status"]["RUNNING",] == 1.0 == sum(samples["topo_status"].values())
    assert samples["topo_checkpoints_total"]["complete",] >= 3
    work = samples["topo_execute_seconds"]["work",]
    counts = dict(zip(BOUNDS_S, work["counts"], strict=True))
    # A tuple takes 10 ms: between 4**-4 and 4**-3 seconds.
    assert (counts[4.0**-4], counts[4.0**-3], work["count"]) == (0, work["count"], rows["work"]["counters"]["executed"])
    assert work["sum_s"] == pytest.approx(0.01 * work["count"])


def test_user_metrics_whose_names_become_alike_are_one() -> None:
    row = {"component": "parse", "user": {"counters": {"bad lines": 2, "bad-lines": 3}, "gauges": {"größe": 1.5}}}
    assert user_metrics({"components": [row]}) == {
        ("topo_user_bad_lines_total", "counter", "parse"): 5.0,
        ("topo_user_gr__e", "gauge", "parse"): 1.5,
    }


def test_a_gauge_that_is_called_as_a_counter_becomes_has_a_name_of_its_own() -> None:
    rows = [
        {"component": "parse", "user": {"counters": {"lines": 2}, "gauges": {"lines_total": 7.0, "of_all_total": 9.0}}},
        {"component": "store", "user": {"counters": {}, "gauges": {"lines_total": 8.0}}},
    ]
    assert user_metrics({"components": rows}) == {
        ("topo_user_lines_total", "counter", "parse"): 2.0,
        ("topo_user_lines_total_gauge", "gauge", "parse"): 7.0,
        ("topo_user_of_all_total", "gauge", "parse"): 9.0,
        ("topo_user_lines_total_gauge", "gauge", "store"): 8.0,
    }
