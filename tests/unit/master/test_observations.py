"""The observations of a topology: leases, lives of workers, and which tuples may be shown."""

from __future__ import annotations

from typing import Any

import pytest

from topo import BasicBolt, BasicCollector, IterableSpout, TopologyBuilder, Tuple
from topo.api.spout import Spout
from topo.errors import UserError
from topo.ids import Incarnation, WorkerId
from topo.master.observations import LEASE_S, MOST, MOST_OUT, MOST_ROWS, Observations
from topo.plan.physical import physical_plan
from topo.wire import control


class Words(Spout):
    outputs = ("word", "secret")

    def next_tuple(self) -> None:
        pass


class Count(BasicBolt):
    outputs = ("word", "count")

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        pass


@pytest.fixture
def observations() -> Observations:
    builder = TopologyBuilder("watched")
    builder.config(secret_fields="secret, other")
    builder.set_spout("words", Words())
    builder.set_spout("hidden", Words(), tap="off")
    builder.set_bolt("count", Count(), parallelism=2).shuffle_grouping("words")
    builder.set_bolt("behind", Count()).shuffle_grouping("hidden")
    return Observations(physical_plan(builder.build()))


def begin(observations: Observations, component: str = "count", now: float = 0.0, for_s: float = 60.0, **spec: object) -> int:
    number: int = observations.observe("tap", component, spec, for_s, now)["id"]
    return number


def lives_of(observations: Observations, component: str, incarnation: int = 7) -> list[tuple[WorkerId, Incarnation]]:
    plan = observations._plan
    return [(plan.worker_of(task), Incarnation(incarnation)) for task in plan.tasks_of(component)]


def test_each_life_gets_an_observation_once_and_a_later_life_too(observations: Observations) -> None:
    begin(observations)
    lives = lives_of(observations, "count")
    sent = observations.messages(lives, 1.0)
    assert [life for life, _ in sent] == lives
    assert all(isinstance(message, control.Observe) and message.for_s == 59.0 for _, message in sent)
    assert observations.messages(lives, 2.0) == []
    later = [lives[0], (lives[1][0], Incarnation(9))]
    assert [life for life, _ in observations.messages(later, 3.0)] == later[1:]
    assert observations.messages(lives_of(observations, "words"), 3.0) == []


def test_a_lease_that_is_not_renewed_ends_the_observation(observations: Observations) -> None:
    number, lives = begin(observations), lives_of(observations, "count")
    observations.messages(lives, 0.0)
    observations.observed(number, LEASE_S - 1)
    assert observations.messages(lives, LEASE_S + 1) == []
    ends = observations.messages(lives, 2 * LEASE_S)
    assert ends == [(life, control.Unobserve(number)) for life in lives]
    with pytest.raises(UserError, match="has ended: it was not asked for during 10 s"):
        observations.observed(number, 2 * LEASE_S)


def test_the_last_rows_can_be_read_when_the_time_is_up(observations: Observations) -> None:
    number = begin(observations, for_s=1.0)
    observations.messages(lives_of(observations, "count"), 0.0)
    task = observations._plan.tasks_of("count")[0]
    assert not observations.observed(number, 0.9)["ended"]
    observations.messages((), 1.1)
    observations.took(control.Observed(number, task, rows=[{"n": 1}], seen=5, looked=4, matched=3, dropped=2), 1.2)
    answer = observations.observed(number, 1.3)
    assert answer["ended"] and answer["rows"] == [{"n": 1}]
    assert [answer[name] for name in ("seen", "looked", "matched", "dropped")] == [5, 4, 3, 2]
    assert observations.observed(number, 1.4, after=answer["last"])["rows"] == []


def test_rows_are_bounded_and_those_of_other_tasks_left_out(observations: Observations) -> None:
    number, plan = begin(observations), observations._plan
    observations.took(control.Observed(number, plan.tasks_of("words")[0], rows=[{"n": 0}]), 0.0)
    observations.took(control.Observed(99, plan.tasks_of("count")[0], rows=[{"n": 0}]), 0.0)
    observations.took(control.Observed(number, plan.tasks_of("count")[0], rows=[{"n": 0}] * (MOST_ROWS + 5)), 0.0)
    assert len(observations.observed(number, 0.0)["rows"]) == MOST_ROWS


def test_there_are_at_most_eight(observations: Observations) -> None:
    numbers = [begin(observations) for _ in range(MOST)]
    with pytest.raises(UserError, match="observed 8 times already"):
        begin(observations)
    observations.unobserve(numbers[0], 0.0)
    begin(observations)
    begin(observations, now=LEASE_S + 1)


def test_a_log_level_has_no_lease(observations: Observations) -> None:
    observations.observe("log-level", "", {"levels": {"": "debug"}}, 600.0, 0.0)
    (row,) = observations.log_levels(5 * LEASE_S)
    assert (row["logger"], row["level"]) == ("", "DEBUG")
    assert observations.log_levels(600.0) == []


def test_a_trace_is_of_all_tasks_and_shared_by_the_spouts(observations: Observations) -> None:
    answer = observations.observe("trace", "", {"rate": 3, "settle_s": 2.0}, 60.0, 0.0)
    plan = observations._plan
    assert answer["tasks"] == {str(task.id): [task.component, task.index] for task in plan.tasks}
    lives = [(worker, Incarnation(7)) for worker in range(len(plan.workers))]
    sent = [message for _, message in observations.messages(lives, 0.0) if isinstance(message, control.Observe)]
    assert {task for message in sent for task in message.tasks} == {task.id for task in plan.tasks}
    assert sent[0].spec == {"rate": 1.5, "settle_s": 2.0, "spouts": list(plan.spouts)}
    with pytest.raises(UserError, match="is traced already: one trace at a time; end it, or wait 10 s"):
        observations.observe("trace", "", {}, 60.0, 1.0)
    observations.unobserve(answer["id"], 1.0)
    observations.observe("trace", "", {}, 60.0, 1.0)


@pytest.mark.parametrize(
    ("settings", "spec", "component", "why"),
    [
        ({"ackers": 0}, {}, "", "watched has ackers=0: no message has a root, so none can be traced"),
        ({"delivery": "exactly_once"}, {}, "", "only barriers are tracked there, so no message can be traced"),
        ({}, {"spout": "count"}, "", "watched has no spout 'count'; it has words"),
        ({}, {"rate": 500}, "", "up to 100 messages a second; 500 were asked for"),
        ({}, {}, "count", "leave the component out"),
    ],
)
def test_what_may_not_be_traced_is_refused(settings: dict[str, Any], spec: dict[str, Any], component: str, why: str) -> None:
    builder = TopologyBuilder("watched")
    builder.config(**settings)
    builder.set_spout("words", IterableSpout(["a"], fields=("word",)))
    builder.set_bolt("count", Count()).shuffle_grouping("words")
    with pytest.raises(UserError, match=why):
        Observations(physical_plan(builder.build())).observe("trace", component, spec, 60.0, 0.0)


@pytest.mark.parametrize(("kind", "for_s", "why"), [("tap", 3.6e6, "up to 24h; got 1000h"), ("trace", -1.0, "up to 1h; got")])
def test_a_time_that_is_too_long_is_refused_in_the_units_of_settings(
    observations: Observations, kind: str, for_s: float, why: str
) -> None:
    with pytest.raises(UserError, match=f"a {kind} lasts {why}"):
        observations.observe(kind, "count", {}, for_s, 0.0)


def test_emitted_tuples_in_the_rows_of_a_trace_are_bounded_and_those_that_have_arrived_forgotten(
    observations: Observations,
) -> None:
    number, task = observations.observe("trace", "", {}, 60.0, 0.0)["id"], observations._plan.tasks_of("count")[0]
    wide = {"kind": "span", "out": [["e", 3, 0]] * 100}
    observations.took(control.Observed(number, task, rows=[wide] * 500), 0.0)
    answer = observations.observed(number, 0.0)
    assert (len(answer["rows"]), answer["dropped"]) == (MOST_OUT // 100, 500 - MOST_OUT // 100)
    observations.observed(number, 0.0, after=answer["last"])
    assert not observations._known[number].rows and observations._known[number].out == 0


def test_rows_that_nobody_has_asked_for_in_time_are_counted(observations: Observations) -> None:
    number, task = begin(observations), observations._plan.tasks_of("count")[0]
    observations.took(control.Observed(number, task, rows=[{"n": 0}] * MOST_ROWS), 0.0)
    assert observations.observed(number, 0.0)["dropped"] == 0
    observations.took(control.Observed(number, task, rows=[{"n": 0}] * MOST_ROWS), 0.0)
    assert observations.observed(number, 0.0)["dropped"] == 0
    observations.took(control.Observed(number, task, rows=[{"n": 0}] * (MOST_ROWS + 5)), 0.0)
    assert observations.observed(number, 0.0)["dropped"] == 5


@pytest.mark.parametrize(
    ("component", "spec", "why"),
    [
        ("counts", {}, "watched has no component 'counts'; it has"),
        ("count", {"index": 2}, "count has 2 tasks, 0 to 1; there is no task 2"),
        ("words", {"index": 1}, "words has 1 task, 0; there is no task 1"),
        ("count", {"stream": "late"}, "count has no stream 'late'; it has default"),
        ("count", {"where": "length > 1"}, "count has no field 'length'; it has count, word"),
        ("count", {"where": "import"}, "is not an expression"),
        ("words", {"where": "secret == 'x'"}, "field 'secret' is secret"),
        ("words", {"direction": "in"}, "words takes nothing; leave out --in"),
        ("hidden", {}, "not shown: its setting is tap=off"),
        ("behind", {"direction": "in"}, "the tuples of hidden are not shown"),
        ("count", {"rate": 5000}, "up to 1,000 tuples a second"),
    ],
)
def test_what_may_not_be_tapped_is_refused(observations: Observations, component: str, spec: dict[str, object], why: str) -> None:
    with pytest.raises(UserError, match=why):
        begin(observations, component, **spec)
