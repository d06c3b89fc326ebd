"""A call that yields has the other tasks of its worker run."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from tests.tasks.components import Plain, Scripted
from tests.unit.worker.hosted import Hosted
from topo.api.topology import Topology
from topo.builder import TopologyBuilder
from topo.errors import TopoInternalError
from topo.wire import control
from topo.worker.core import EXIT_CRASHED


def waiting(execute: Any, **settings: Any) -> tuple[Topology, Plain, list[Any]]:
    """Spout a; bolt b runs the function; bolt c, which reads from both, keeps its inputs."""
    seen: list[Any] = []
    bolt = Plain(execute)
    builder = TopologyBuilder("waiting").config(workers=1, **settings)
    builder.set_spout("a", Scripted([1, 2, 3, 4], ends=False))
    builder.set_bolt("b", bolt).shuffle_grouping("a")
    keep = Plain(lambda tup, collector: seen.append((tup.component, tup.values[0])), ())
    builder.set_bolt("c", keep).shuffle_grouping("a").shuffle_grouping("b")
    return builder.build(), bolt, seen


def test_a_call_that_yields_runs_the_other_tasks_and_is_not_entered_again() -> None:
    order: list[Any] = []

    def execute(tup: Any, collector: Any) -> None:
        order.append(("begins", tup.values[0]))
        if tup.values[0] == 1:
            while len(seen) < 4:
                host.attend()
            bolt.context.executor.execute(lambda: order.append("mail"))
            bolt.context.executor.yield_()
        collector.emit(tup.values)
        order.append(("ends", tup.values[0]))

    topology, bolt, seen = waiting(execute, batch_size=1, queue_time="off")
    host = Hosted(topology)
    host.run(5.0)
    assert order[:3] == [("begins", 1), "mail", ("ends", 1)]
    assert order[3:] == [(what, number) for number in (2, 3, 4) for what in ("begins", "ends")], "frames stay in order"
    assert seen[:4] == [("a", number) for number in (1, 2, 3, 4)]
    assert sorted(seen[4:]) == [("b", number) for number in (1, 2, 3, 4)]
    spout = host.plan.tasks_of("a")[0]
    assert host.worker.tasks[spout].statistics().counters.acked == 4


def test_yield_waits_for_a_mail_by_having_the_others_run() -> None:
    def execute(tup: Any, collector: Any) -> None:
        while tup.values[0] not in reported:
            bolt.context.executor.yield_()

    topology, bolt, seen = waiting(execute, batch_size=1)
    host = Hosted(topology)
    keeper = host.worker.tasks[host.plan.tasks_of("c")[0]]
    reported: list[Any] = []

    def keep(tup: Any, collector: Any) -> None:
        seen.append((tup.component, tup.values[0]))
        bolt.context.executor.execute(lambda: reported.append(tup.values[0]))

    keeper.runner.kind.bolt.run = keep  # type: ignore[attr-defined]
    host.run(5.0)
    assert reported == [1, 2, 3, 4], "each call waited until another task had reported it"


def test_messages_in_process_are_those_of_the_innermost_call() -> None:
    noted: list[Any] = []

    def execute(tup: Any, collector: Any) -> None:
        if tup.values[0] == 1:
            before, named = host.notes.written[-1], host.hand.task
            host.attend()
            noted.extend([before, host.notes.written[-1]])
            assert before[0] == named == host.hand.task == host.plan.tasks_of("b")[0] and not host.notes.is_clear
            assert any(task == host.plan.tasks_of("c")[0] for task, _, _ in host.notes.written)

    topology, _, _ = waiting(execute, batch_size=1)
    host = Hosted(topology)
    host.run(5.0)
    assert len(noted) == 2 and noted[0] == noted[1]
    assert host.notes.is_clear


def test_a_task_that_crashes_while_another_yields_is_blamed_alone() -> None:
    def execute(tup: Any, collector: Any) -> None:
        bolt.context.executor.yield_()

    topology, bolt, _ = waiting(execute, batch_size=1, on_error="crash")
    host = Hosted(topology)
    keeper = host.worker.tasks[host.plan.tasks_of("c")[0]]
    keeper.runner.kind.bolt.run = lambda tup, collector: 1 // 0  # type: ignore[attr-defined]
    host.run(5.0)
    assert host.worker.exit is not None and host.worker.exit.code == EXIT_CRASHED
    assert "'c' raised ZeroDivisionError" in host.worker.exit.why
    assert [error.component for error in host.messages(control.ComponentError)] == ["c"]
    assert host.notes.written[-1][0] == keeper.id and not host.notes.is_clear, "the note names the tuples in processing"


def test_a_bug_of_the_framework_goes_through_the_user_code_that_yields() -> None:
    def execute(tup: Any, collector: Any) -> None:
        with suppress(Exception):
            bolt.context.executor.yield_()

    topology, bolt, _ = waiting(execute, batch_size=1)
    host = Hosted(topology)
    keeper = host.worker.tasks[host.plan.tasks_of("c")[0]]

    def fail(tup: Any, collector: Any) -> None:
        raise TopoInternalError("a bug")

    keeper.runner.kind.run = lambda *_: fail(None, None)  # type: ignore[attr-defined]
    with pytest.raises(TopoInternalError, match="a bug"):
        host.run(5.0)
