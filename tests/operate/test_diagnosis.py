"""Rules about trouble, by changes of the overview of a healthy topology, about which there is no finding."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.operate.slow_cases import Case, Numbers, Work
from topo import TopologyBuilder
from topo.operate.diagnosis import diagnose


def well(case: Case, builder: TopologyBuilder) -> None:
    builder.set_spout("numbers", Numbers(case, every_s=0.01))
    builder.set_bolt("parse", Work(case, 0.006)).shuffle_grouping("numbers")
    builder.set_bolt("store", Work(case), 2).fields_grouping("parse", "key")


@pytest.fixture(scope="module")
def overviews() -> tuple[dict[str, Any], dict[str, Any]]:
    ten, minute = Case(well, delivery="exactly_once", checkpoint_interval="5s").go(30.0)
    return ten, minute


def test_a_topology_that_keeps_up_has_a_note_at_most(overviews: tuple[dict[str, Any], dict[str, Any]]) -> None:
    assert [one.severity for one in diagnose(*overviews)] in ([], ["note"])


def row(overview: dict[str, Any], component: str) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in overview["components"] if one["component"] == component)
    return found


def crash_loop(overview: dict[str, Any]) -> None:
    overview["status"] = "DEGRADED"
    overview["workers"][1] |= {"losses": 4, "lost_why": "killed by signal 11"}


def grows(component: str, counter: str) -> Callable[[dict[str, Any]], None]:
    return lambda overview: row(overview, component).update(growing={counter: 0.5})


def checkpoint_hangs(overview: dict[str, Any]) -> None:
    overview["checkpoints"]["under_way"] = {"checkpoint": 9, "since_s": 7.0, "waiting_for": "the parts of tasks 3 (store)"}


def checkpoint_with_much_state(overview: dict[str, Any]) -> None:
    overview["checkpoints"]["last"] |= {"duration_s": 4.0}
    overview["checkpoints"]["slowest"] |= {"component": "store", "index": 1, "duration_ms": 3500.0}


def starved(overview: dict[str, Any]) -> None:
    for worker in overview["workers"]:
        worker |= {"host": "here", "cores": 2.0, "cpu": 0.5, "starved": 0.5}


@pytest.mark.parametrize(
    ("change", "kind", "component", "text"),
    [
        (crash_loop, "worker lost again and again", "", "worker 1 was lost 4 times: killed by signal 11"),
        (grows("parse", "errors"), "errors", "parse", "parse has 30 errors a minute"),
        (grows("numbers", "dead_lettered"), "dead letters", "numbers", "30 messages of numbers a minute are given up"),
        (grows("store", "late_dropped"), "late data", "store", "store drops 30 inputs a minute"),
        (grows("numbers", "timed_out"), "timeouts", "numbers", "a bolt forgets to ack"),
        (checkpoint_hangs, "checkpoint slow", "store", "checkpoint 9 is under way for 7 s, and waits for the parts of"),
        (checkpoint_with_much_state, "checkpoint slow", "store", "store[1] stores its part for 3.5 s"),
        (starved, "too many processes", "", "5 workers share 2 cores of here: they use 2.5 of them, and wait for 2.5 more"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_trouble_is_named_with_its_figures_and_a_command(
    overviews: tuple[dict[str, Any], dict[str, Any]],
    change: Callable[[dict[str, Any]], None],
    kind: str,
    component: str,
    text: str,
) -> None:
    ten, minute = copy.deepcopy(overviews)
    change(ten)
    change(minute)
    (found,) = diagnose(ten, minute)
    assert (found.kind, found.component) == (kind, component)
    assert text in found.sentence
    assert found.commands and found.figures and found.remedy
    assert found.as_data()["commands"] == list(found.commands)


def test_a_young_topology_is_not_judged_by_its_start(overviews: tuple[dict[str, Any], dict[str, Any]]) -> None:
    ten, minute = copy.deepcopy(overviews)
    for overview in (ten, minute):
        overview["uptime_s"] = 3.0
        row(overview, "parse").update(capacity=1.0, capacity_mean=1.0, in_front=5000, wait_s=9.0)
    assert diagnose(ten, minute) == []
    ten["uptime_s"] = 20.0
    assert [one.kind for one in diagnose(ten, minute)] == ["bottleneck"]


def test_a_component_that_is_hot_only_before_a_hotter_one_is_not_blamed(
    overviews: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    ten, minute = copy.deepcopy(overviews)
    for component in ("parse", "store"):
        row(ten, component).update(capacity=0.95, capacity_mean=0.95, in_front=100, wait_s=1.0)
    assert [one.component for one in diagnose(ten, minute)] == ["store"]
