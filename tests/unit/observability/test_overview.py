"""The short answers of the master: small, in plain values, and the same figures as those of `topo status`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from topo import BasicBolt, BasicCollector, IterableSpout, TopologyBuilder, Tuple
from topo.errors import UserError
from topo.observability.overview import overview, questions
from topo.testing import TopologyTest
from topo.wire.frames import MIN_WATERMARK


class Pass(BasicBolt):
    outputs = ("value",)

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        collector.emit(tup.values)


def run_of(delivery: str = "at_least_once") -> TopologyTest:
    builder = TopologyBuilder("short").config(delivery=delivery, checkpoint_interval="1s")
    builder.set_spout("numbers", IterableSpout(list(range(40))))
    builder.set_bolt("pass", Pass(), 2).shuffle_grouping("numbers")
    builder.set_bolt("end", Pass()).shuffle_grouping("pass")
    return TopologyTest(builder.build(), sources={"numbers": list(range(40))})


def asked(run: TopologyTest, verb: str, **arguments: Any) -> Any:
    return questions(run._cluster.master, run.clock)[verb](**arguments)


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_overview_is_plain_data_with_the_figures_of_status(delivery: str) -> None:
    run = run_of(delivery)
    run.advance("5s")
    status, shown = run.status(), asked(run, "overview")
    assert json.loads(json.dumps(shown)) == shown
    assert {row["component"]: row["counters"]["emitted"] for row in shown["components"] if row["kind"] != "acker"} == {
        row["component"]: row["counters"]["emitted"] for row in status["components"] if row["kind"] != "acker"
    }
    assert shown["totals"] == status["totals"]
    assert shown["totals"]["emitted"] == 40
    edges = {(edge["source"], edge["target"]): edge["tuples"] for edge in shown["edges"]}
    assert edges == {("numbers", "pass"): 40, ("pass", "end"): 40}
    assert [edge["in_front"] for edge in shown["edges"]] == [0, 0]


def test_overview_of_a_topology_that_has_not_begun_has_the_keys_of_one_that_runs() -> None:
    run = run_of()
    first = overview(run._cluster.master, 0.0)
    run.advance("5s")
    run.status()
    later = asked(run, "overview")
    assert first.keys() == later.keys()
    for before, after in zip(first["components"], later["components"], strict=True):
        assert before.keys() == after.keys()


def test_component_has_its_tasks_and_its_edges() -> None:
    run = run_of()
    run.advance("5s")
    run.status()
    shown = asked(run, "component", component="pass")
    assert [task["index"] for task in shown["tasks"]] == [0, 1]
    assert sum(task["counters"]["executed"] for task in shown["tasks"]) == shown["component"]["counters"]["executed"] == 40
    assert [(edge["source"], edge["target"]) for edge in shown["edges"]] == [("numbers", "pass"), ("pass", "end")]


@pytest.mark.parametrize(
    ("verb", "arguments", "text"),
    [
        ("overview", {"window": "2h"}, "there is no window '2h'; there are 1s, 10s, 1m, 10m, all"),
        ("component", {"component": "pas"}, "short has no component 'pas'; it has numbers, pass, end"),
    ],
)
def test_a_question_about_an_unknown_thing_is_refused_with_the_known_ones(verb: str, arguments: Any, text: str) -> None:
    with pytest.raises(UserError) as caught:
        asked(run_of(), verb, **arguments)
    assert str(caught.value).startswith(text)


def test_parts_of_a_checkpoint_are_known_by_task() -> None:
    run = run_of("exactly_once")
    run.advance("5s")
    run.status()
    shown = asked(run, "overview")["checkpoints"]
    parts = asked(run, "checkpoint", checkpoint=shown["last"]["checkpoint"])
    assert {(part["component"], part["index"]) for part in parts} == {("numbers", 0), ("pass", 0), ("pass", 1), ("end", 0)}
    assert sum(part["bytes"] for part in parts) == shown["last"]["bytes"]
    assert shown["slowest"] == parts[0]
    assert asked(run, "checkpoint", checkpoint=10_000) == []


def test_an_edge_has_the_watermark_of_its_input_where_there_is_one() -> None:
    run = run_of()
    run.advance("5s")
    master = run._cluster.master
    assert [edge for edge in asked(run, "overview")["edges"] if "watermark_ms" in edge] == []
    passing, end = (master.plan.tasks_of(name) for name in ("pass", "end"))
    master.figures.add(
        {passing[0]: {"watermarks": {"numbers": 9}}, end[0]: {"watermarks": {"pass": MIN_WATERMARK}}}, run.clock() + 10
    )
    shown = {edge["source"]: edge["watermark_ms"] for edge in asked(run, "overview")["edges"]}
    assert shown == {"numbers": 9, "pass": None}


@pytest.mark.parametrize(
    ("sent", "unconfirmed", "per_s", "in_front", "wait_s"),
    [(0, 0, 8, 0, 0.0), (2, 2, 8, 0, 0.0), (12, 2, 8, 10, 1.25), (1, 3, 8, 0, 0.0), (3, 2, 0, 1, None)],
)
def test_tuples_that_are_processed_and_not_confirmed_do_not_wait(
    sent: int, unconfirmed: int, per_s: int, in_front: int, wait_s: float | None
) -> None:
    run = run_of()
    run.advance("5s")
    master = run._cluster.master
    source, one = (master.plan.tasks_of(name)[0] for name in ("numbers", "pass"))
    now = run.clock() + 10
    for seconds in range(3):
        executed = {"counters": {"executed": 1000 + per_s * seconds}, "levels": {"unconfirmed": unconfirmed}}
        master.figures.add({source: {"edges": {"pass": (1000, sent, 0.0)}}, one: executed}, now + seconds)
    row = next(row for row in overview(master, now + 2, "1s")["components"] if row["component"] == "pass")
    assert (row["in_front"], row["in_per_s"], row["wait_s"]) == (in_front, per_s, wait_s)
    assert "unconfirmed" not in row["levels"]
