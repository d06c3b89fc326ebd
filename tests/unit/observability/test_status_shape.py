"""The status has one shape from the first moment on: a count that has not begun is 0, not absent."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.observability.test_overview import Pass
from topo import IterableSpout, ProcessBolt, TopologyBuilder
from topo.ids import WorkerId
from topo.master.outcome import Outcome, OutcomeKind
from topo.observability.status import describe, never_ran
from topo.testing import TopologyTest


class Seen(ProcessBolt):
    def process(self, tup: Any, context: Any, collector: Any) -> None:
        pass


def shape(value: Any) -> Any:
    """The keys of a status, at every level; lists by their items."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items() if key not in ("latencies_s", "complete_latency_s", "event_time")}
    return [shape(item) for item in value] if isinstance(value, list) else None


def run_of(delivery: str) -> TopologyTest:
    builder = TopologyBuilder("shape").config(delivery=delivery)
    builder.set_spout("numbers", IterableSpout([1, 2]))
    builder.set_bolt("pass", Pass()).shuffle_grouping("numbers")
    builder.set_bolt("seen", Seen(key="value")).fields_grouping("pass", "value")
    return TopologyTest(builder.build(), sources={"numbers": [1, 2]})


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_status_has_every_figure_before_the_first_heartbeat(delivery: str) -> None:
    run = run_of(delivery)
    master = run._cluster.master
    first = describe(master, 0.0)
    run.advance("3s")
    later = run.status()

    assert shape(first["totals"]) == shape(later["totals"])
    for rows in ("components", "tasks"):
        for before, after in zip(first[rows], later[rows], strict=True):
            name = after["component"]
            assert before["counters"].keys() == after["counters"].keys(), name
            assert before["levels"].keys() == after["levels"].keys(), name
            assert before["latencies_s"].keys() == after["latencies_s"].keys(), name
            assert not any(before["counters"].values())
    assert shape(first["workers"]) == shape(later["workers"])


def test_a_worker_that_has_not_started_has_no_process_id() -> None:
    """With 0 a script's `kill` would end the script's own processes."""
    cluster = run_of("at_least_once")._cluster
    cluster.master.membership.slots[WorkerId(0)].pid = 0
    assert describe(cluster.master, 0.0)["workers"][0]["pid"] is None


def test_status_of_a_topology_that_could_not_begin_has_the_same_keys() -> None:
    run = run_of("at_least_once")
    run.advance("3s")
    running, failed = run.status(), never_ran("shape", Outcome(OutcomeKind.CRASHED, "the code is gone"))

    assert failed.keys() == running.keys()
    assert failed["totals"].keys() == running["totals"].keys()
