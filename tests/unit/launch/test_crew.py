"""Slots and workers on a cluster, by plain calls."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from topo.ids import Incarnation, WorkerId
from topo.launch.spark.agent_pool import PATIENCE_S, AgentPool, CancelJob, PoolCommand, SendToAgent, SubmitJob, WorkerGone
from topo.launch.spark.messages import BeatAnswer, End, Hello, Leave, Run, WorkerOver
from topo.worker.spec import WorkerSpec

TIMEOUT_S = 5.0


@pytest.fixture
def crew() -> Iterator[AgentPool]:
    """Two slots for two workers, their jobs submitted at 0."""
    made = AgentPool(slots=2, workers=2, timeout_s=TIMEOUT_S, fresh_s=2.0)
    assert made.tick(0.0) == [SubmitJob(0, 1), SubmitJob(1, 1)]
    yield made
    made.validate()


def hello(slot: int, submission: int = 1, attempt: int = 0, host: str = "a") -> Hello:
    return Hello(slot, submission, attempt, pid=1, host=host, address="10.0.0.1")


def spec(worker: int, incarnation: int = 1) -> WorkerSpec:
    return WorkerSpec(
        topology="t",
        worker=WorkerId(worker),
        incarnation=Incarnation(incarnation),
        term=1,
        reference="r",
        digest="d",
        master_endpoint="tcp://10.0.0.9:1",
    )


def runs(commands: list[PoolCommand]) -> dict[int, bytes]:
    """The agent that each worker is given to."""
    return {c.message.spec.worker: c.identity for c in commands if isinstance(c, SendToAgent) and isinstance(c.message, Run)}


def begin(crew: AgentPool, now: float = 1.0) -> None:
    """Both slots have agents, on hosts a and b, and each runs the worker of its number."""
    crew.hello(b"A", hello(0, host="a"), now)
    crew.hello(b"B", hello(1, host="b"), now)
    assert runs(crew.start(spec(0), now)) == {0: b"A"}
    assert runs(crew.start(spec(1), now)) == {1: b"B"}


def test_workers_wait_for_agents_and_are_spread_over_their_hosts(crew: AgentPool) -> None:
    assert crew.start(spec(0), 0.0) + crew.start(spec(1), 0.0) == []
    first = crew.hello(b"A", hello(0, host="a"), 1.0)
    assert first[0] == SendToAgent(b"A", BeatAnswer())
    assert runs(first) == {0: b"A"}
    assert not crew.is_complete
    assert runs(crew.hello(b"B", hello(1, host="b"), 1.5)) == {1: b"B"}
    assert crew.is_complete


def test_with_fewer_slots_than_workers_each_agent_takes_its_share() -> None:
    crew = AgentPool(slots=2, workers=5, timeout_s=TIMEOUT_S, fresh_s=2.0)
    crew.tick(0.0)
    for number in range(5):
        crew.start(spec(number), 0.0)
    assert len(runs(crew.hello(b"A", hello(0, host="a"), 1.0))) == 3
    assert len(runs(crew.hello(b"B", hello(1, host="b"), 1.0))) == 2
    crew.validate()


def test_of_agents_that_are_equally_busy_the_one_on_the_less_busy_host_is_taken() -> None:
    crew = AgentPool(slots=3, workers=3, timeout_s=TIMEOUT_S, fresh_s=2.0)
    crew.tick(0.0)
    for identity, slot, host in ((b"A", 0, "a"), (b"B", 1, "a"), (b"C", 2, "c")):
        crew.hello(identity, hello(slot, host=host), 1.0)
    assert runs(crew.start(spec(0), 1.0)) == {0: b"A"}
    assert runs(crew.start(spec(1), 1.0)) == {1: b"C"}


def test_a_worker_that_ends_is_reported_and_starts_again_at_the_same_agent(crew: AgentPool) -> None:
    begin(crew)
    over = WorkerOver(WorkerId(0), Incarnation(1), "exit code 3", b"marker")
    assert crew.worker_over(b"A", over) == [WorkerGone(WorkerId(0), Incarnation(1), "exit code 3", b"marker")]
    assert runs(crew.start(spec(0, 2), 2.0)) == {0: b"A"}


def test_a_new_attempt_of_a_task_means_that_the_agent_and_its_worker_are_gone(crew: AgentPool) -> None:
    begin(crew)
    commands = crew.hello(b"A2", hello(0, attempt=1), 2.0)
    assert commands[0] == WorkerGone(WorkerId(0), Incarnation(1), "its agent has ended")
    assert crew.beat(b"A", 2.1) == [SendToAgent(b"A", Leave("it was given up"))]
    assert runs(crew.start(spec(0, 2), 2.2)) == {0: b"A2"}


def test_an_agent_of_an_older_attempt_or_submission_is_told_to_leave(crew: AgentPool) -> None:
    begin(crew)
    crew.hello(b"A2", hello(0, attempt=1), 2.0)
    for late in (hello(0, attempt=0), hello(0, attempt=1), hello(0, submission=0, attempt=7), hello(9)):
        assert crew.hello(b"late", late, 2.5) == [SendToAgent(b"late", Leave("another agent has its slot"))]


def test_a_silent_agent_is_given_up_and_its_job_replaced(crew: AgentPool) -> None:
    begin(crew)
    crew.beat(b"B", 5.9)
    commands = crew.tick(6.0)
    assert [type(command) for command in commands] == [SendToAgent, CancelJob, WorkerGone, SubmitJob]
    assert commands[1:] == [
        CancelJob(0, 1),
        WorkerGone(WorkerId(0), Incarnation(1), "its agent on a was silent for 5.0 s"),
        SubmitJob(0, 2),
    ]
    # It comes back, and a retry of its cancelled job with it.
    assert crew.beat(b"A", 7.0) == [SendToAgent(b"A", Leave("it was given up"))]
    assert crew.hello(b"A1", hello(0, submission=1, attempt=1), 7.0) == [SendToAgent(b"A1", Leave("another agent has its slot"))]
    assert crew.worker_over(b"A", WorkerOver(WorkerId(0), Incarnation(1), "killed")) == []
    assert crew.hello(b"A2", hello(0, submission=2), 7.5)[0] == SendToAgent(b"A2", BeatAnswer())


def test_a_worker_is_not_given_to_an_agent_that_may_be_dead(crew: AgentPool) -> None:
    begin(crew)
    crew.worker_over(b"A", WorkerOver(WorkerId(0), Incarnation(1), "killed"))
    crew.beat(b"B", 4.0)
    assert runs(crew.start(spec(0, 2), 4.0)) == {}, "A was silent for three seconds, and B has its share"
    crew.beat(b"A", 4.5)
    assert runs(crew.tick(4.5)) == {0: b"A"}


def test_a_worker_that_has_waited_for_long_joins_another(crew: AgentPool) -> None:
    begin(crew)
    for now in (5.0, 8.0, 11.0):
        crew.beat(b"B", now)
    crew.tick(6.0)
    assert runs(crew.start(spec(0, 2), 6.5)) == {}
    assert runs(crew.tick(6.4 + PATIENCE_S)) == {}
    assert runs(crew.tick(6.5 + PATIENCE_S)) == {0: b"B"}


def test_a_job_that_ends_is_submitted_again_ever_more_slowly(crew: AgentPool) -> None:
    begin(crew)
    gone = WorkerGone(WorkerId(1), Incarnation(1), "its agent has ended: the executor is lost")
    assert crew.job_ended(1, 1, "the executor is lost", 60.0)[:1] == [gone]
    assert SubmitJob(1, 2) not in crew.tick(60.0), "it has been done"
    assert crew.job_ended(1, 2, "no", 61.0) == []
    assert SubmitJob(1, 3) not in crew.tick(61.9)
    assert SubmitJob(1, 3) in crew.tick(62.0)
    crew.job_ended(1, 3, "no", 62.5)
    assert SubmitJob(1, 4) not in crew.tick(64.4)
    assert SubmitJob(1, 4) in crew.tick(64.5)
    assert crew.missing()[-1] == (1, "no")


def test_the_end_of_a_job_that_was_replaced_changes_nothing(crew: AgentPool) -> None:
    begin(crew)
    crew.beat(b"B", 6.0)
    crew.tick(6.0)
    assert crew.job_ended(0, 1, "cancelled", 7.0) == []


def test_a_worker_is_stopped_where_it_runs_or_not_started_at_all(crew: AgentPool) -> None:
    crew.start(spec(0), 0.0)
    assert crew.stop(WorkerId(0), Incarnation(7), kill=True) == []
    assert crew.stop(WorkerId(0), Incarnation(1), kill=True) == [
        WorkerGone(WorkerId(0), Incarnation(1), "it was not started yet")
    ]
    begin(crew)
    assert crew.stop(WorkerId(1), Incarnation(1), kill=False) == [SendToAgent(b"B", End(WorkerId(1), Incarnation(1), kill=False))]


def test_the_replacement_of_a_worker_that_is_being_killed_waits_for_its_end(crew: AgentPool) -> None:
    begin(crew)
    assert runs(crew.start(spec(0, 2), 2.0)) == {}
    crew.worker_over(b"A", WorkerOver(WorkerId(0), Incarnation(1), "killed"))
    assert runs(crew.tick(2.1)) == {0: b"A"}
