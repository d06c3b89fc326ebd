"""Rules about trouble, by changes of the overview of a healthy topology, about which there is no finding."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.operate.slow_cases import Case, Numbers, Work, problem_of
from topo import TopologyBuilder
from topo.operate.diagnosis import RULES, diagnose


def well(case: Case, builder: TopologyBuilder) -> None:
    builder.set_spout("numbers", Numbers(case, every_s=0.01))
    builder.set_bolt("parse", Work(case, 0.006)).shuffle_grouping("numbers")
    builder.set_bolt("store", Work(case), 2).fields_grouping("parse", "key")


@pytest.fixture(scope="module")
def healthy() -> dict[str, Any]:
    return Case(well, delivery="exactly_once", checkpoint_interval="5s").go(30.0)


def test_a_topology_that_keeps_up_has_a_note_at_most(healthy: dict[str, Any]) -> None:
    assert [one.severity for one in diagnose(healthy)] in ([], ["note"])


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
        (grows("numbers", "dead_lettered"), "dead letters", "numbers", "numbers gives up 30 messages a minute"),
        (grows("store", "late_dropped"), "late data", "store", "store drops 30 inputs a minute"),
        (grows("numbers", "timed_out"), "timeouts", "numbers", "a bolt forgets to ack"),
        (checkpoint_hangs, "checkpoint slow", "store", "checkpoint 9 is under way for 7 s, and waits for the parts of"),
        (checkpoint_with_much_state, "checkpoint slow", "store", "store[1] stores its part for 3.5 s"),
        (starved, "too many processes", "", "5 workers share 2 cores of here: they use 2.5 of them, and wait for 2.5 more"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_trouble_is_named_with_its_figures_and_a_command(
    healthy: dict[str, Any],
    change: Callable[[dict[str, Any]], None],
    kind: str,
    component: str,
    text: str,
) -> None:
    overview = copy.deepcopy(healthy)
    change(overview)
    (found,) = diagnose(overview)
    assert (found.kind, found.component) == (kind, component)
    assert text in found.sentence
    assert found.commands and found.figures and found.remedy
    assert found.as_data()["commands"] == list(found.commands)
    assert [problem for command in found.commands if (problem := problem_of(command))] == []


def test_a_sink_that_holds_its_inputs_may_wait_for_its_target(healthy: dict[str, Any]) -> None:
    overview = copy.deepcopy(healthy) | {"delivery": "at_least_once"}
    grows("numbers", "timed_out")(overview)
    row(overview, "store")["counters"] |= {"executed": 80, "acked": 10, "failed": 0}
    for component in ("parse",):
        row(overview, component)["counters"] |= {"executed": 0, "acked": 0, "failed": 0}
    (found,) = diagnose(overview)
    assert "store has 70 inputs that it has not acked; it waits for its target, or forgets to ack them" in found.sentence
    assert found.commands == (f"topo errors {overview['topology']} --component store",)


def test_a_young_topology_is_not_judged_by_its_start(healthy: dict[str, Any]) -> None:
    overview = copy.deepcopy(healthy)
    overview["uptime_s"] = 3.0
    row(overview, "parse").update(capacity=1.0, capacity_mean=1.0, in_front=5000, wait_s=9.0)
    assert diagnose(overview) == []
    overview["uptime_s"] = 20.0
    assert [one.kind for one in diagnose(overview)] == ["bottleneck"]


def test_a_component_that_is_hot_only_before_a_hotter_one_is_not_blamed(healthy: dict[str, Any]) -> None:
    overview = copy.deepcopy(healthy)
    for component in ("parse", "store"):
        row(overview, component).update(capacity=0.95, capacity_mean=0.95, in_front=100, wait_s=1.0)
    assert [one.component for one in diagnose(overview)] == ["store"]


def test_a_checkpoint_that_storage_or_a_sink_holds_up_is_not_blamed_on_queues(healthy: dict[str, Any]) -> None:
    overview = copy.deepcopy(healthy)
    checkpoint_hangs(overview)
    (found,) = diagnose(overview)
    assert found.remedy.startswith("barriers queue behind tuples")
    row(overview, "store")["growing"] = {"errors": 0.5}
    found = diagnose(overview)[-1]
    assert (found.kind, found.commands) == ("checkpoint slow", ("topo errors case --component store",))
    overview |= {"status": "DEGRADED", "reason": "cannot write master.json: No space left on device"}
    found = diagnose(overview)[-1]
    assert found.kind == "checkpoint slow" and found.remedy == "fix the reason of DEGRADED first"


def checkpoint_without_slow_part(overview: dict[str, Any]) -> None:
    checkpoint_with_much_state(overview)
    overview["checkpoints"]["slowest"] |= {"duration_ms": 10.0, "alignment_ms": 0.0, "pause_ms": 0.0}


def test_a_slow_checkpoint_without_bolts_or_queues_blames_no_bolt(healthy: dict[str, Any]) -> None:
    overview = copy.deepcopy(healthy)
    checkpoint_without_slow_part(overview)
    for component in ("parse", "store"):
        row(overview, component)["wait_s"] = 0.0
    (found,) = diagnose(overview)
    assert found.component == "" and "waits for barriers or the store" in found.sentence
    row(overview, "store")["wait_s"] = 3.0
    (found,) = diagnose(overview)
    assert found.component == "store" and "in front of store" in found.sentence
    overview["components"] = [one for one in overview["components"] if one["kind"] == "spout"]
    overview["edges"] = []
    assert "checkpoint slow" in [one.kind for one in diagnose(overview)]


def test_a_rule_that_raises_ends_neither_status_nor_a_scrape(healthy: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    def broken(_view: Any) -> Any:
        raise ValueError("no such figure")

    overview = copy.deepcopy(healthy)
    crash_loop(overview)
    assert [one.kind for one in diagnose(overview, (("broken", "problem", broken), *RULES))] == ["worker lost again and again"]
    assert "broken" in caplog.text and "no such figure" in caplog.text


def test_event_time_is_held_back_by_a_silent_source_alone(healthy: dict[str, Any]) -> None:
    overview = copy.deepcopy(healthy)
    time = {"lag_s": 60.0, "held_back_by": "parse[0]", "emits_per_s": 0.0}
    row(overview, "store")["event_time"] = time
    assert "event time held back" not in [one.kind for one in diagnose(overview)]
    time["held_back_by"] = "numbers[0]"
    # A source with rows: the lag is the constant one of its strategy.
    assert "event time held back" not in [one.kind for one in diagnose(overview)]
    row(overview, "numbers")["out_per_s"] = 0.0
    (found,) = [one for one in diagnose(overview) if one.kind == "event time held back"]
    assert found.commands == ("topo history case --series lag",)
    time["lag_s"] = None
    (found,) = [one for one in diagnose(overview) if one.kind == "event time held back"]
    # The history has no series of a lag that was never known.
    assert found.commands == ("topo status case",)


@pytest.mark.parametrize("lost", [{"restarts": 1}, {"epoch": 2}])
def test_no_held_inputs_are_named_after_a_loss(healthy: dict[str, Any], lost: dict[str, int]) -> None:
    overview = copy.deepcopy(healthy)
    overview["delivery"] = "at_least_once"
    row(overview, "store")["counters"] |= {"executed": 900, "acked": 100, "failed": 0}
    grows("numbers", "timed_out")(overview)
    (found,) = diagnose(overview)
    assert "store has 800 inputs" in found.sentence
    overview |= lost
    (found,) = diagnose(overview)
    assert "inputs that it has not acked" not in found.sentence and found.component == "numbers"
