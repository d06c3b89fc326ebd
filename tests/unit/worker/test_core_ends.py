"""How a worker ends, its note of a crash, and its exit code."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tasks.components import Plain, Replaying, Scripted
from tests.tasks.environment import routes
from tests.unit.worker.hosted import LINES, Hosted, word_count
from topo.errors import TopoInternalError
from topo.ids import Epoch, TaskId
from topo.wire import control
from topo.worker.core import EXIT_CRASHED, EXIT_DONE


def test_a_closed_worker_ends_in_order() -> None:
    spout = Scripted(LINES)
    topology, _ = word_count(spout)
    host = Hosted(topology)
    host.run(5.0)
    host.send(control.Close(Epoch(1)))
    assert host.worker.exit is not None and host.worker.exit.code == EXIT_DONE
    assert {closed.task for closed in host.messages(control.Closed)} == set(host.worker.tasks)
    assert spout.calls[-1] == ("close",)


def test_a_stop_ends_the_worker_and_says_why() -> None:
    topology, _ = word_count(Scripted(LINES))
    host = Hosted(topology)
    host.send(control.Stop("killed by the user"))
    assert host.worker.exit is not None
    assert (host.worker.exit.code, host.worker.exit.why) == (EXIT_DONE, "stopped by the master: killed by the user")


def test_the_first_reason_to_end_stands() -> None:
    topology, _ = word_count(Scripted(LINES))
    host = Hosted(topology)
    host.send(control.Stop("first"))
    host.send(control.Close(Epoch(1)))
    assert host.worker.exit is not None and "first" in host.worker.exit.why


class NoText(Exception):
    def __str__(self) -> str:
        return self.detail  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize(
    ("raised", "kind", "message"),
    [
        (OSError("no database"), "OSError", "no database"),
        (NoText(), "NoText", "(its text cannot be read: AttributeError)"),
    ],
)
def test_an_exception_that_ends_the_process_is_reported_and_has_an_exit_code(raised: Exception, kind: str, message: str) -> None:
    class Broken(Plain):
        def prepare(self, context: Any) -> None:
            raise raised

    topology, _ = word_count(Scripted(LINES), counted=Broken())
    host = Hosted(topology, starts=False)
    host.send(routes(host.plan, 1))
    assert host.worker.exit is not None
    assert (host.worker.exit.code, host.worker.exit.why) == (EXIT_CRASHED, f"component 'c' raised {kind}: {message}")
    (error,) = host.messages(control.ComponentError)
    assert (error.component, error.kind, error.message, error.file) == ("c", kind, message, __file__)


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_an_exit_of_user_code_ends_the_process_with_its_report(kind: type[BaseException]) -> None:
    class Leaves(Plain):
        def execute(self, tup: Any, collector: Any) -> None:
            raise kind("enough")

    topology, _ = word_count(Scripted(LINES), counted=Leaves())
    host = Hosted(topology)
    host.run(1.0)
    assert host.worker.exit is not None
    assert (host.worker.exit.code, host.worker.exit.why) == (EXIT_CRASHED, f"component 'c' raised {kind.__name__}: enough")
    (error,) = host.messages(control.ComponentError)
    assert (error.component, error.kind, error.file) == ("c", kind.__name__, __file__)


def test_a_crash_leaves_the_note_of_what_was_in_flight_with_its_positions() -> None:
    class Poison(Plain):
        def execute(self, tup: Any, collector: Any) -> None:
            raise ValueError("fatal")

    topology, _ = word_count(Replaying(["x y", "z"], ends=False), counted=Poison(), on_error="crash", queue_time="off")
    host = Hosted(topology)
    host.run(1.0)
    assert host.worker.exit is not None and host.worker.exit.code == EXIT_CRASHED
    task, roots, positions = host.notes.written[-1]
    assert (task, len(roots)) == (3, 3)
    assert positions == [(1, "x y"), (1, "z")]
    assert not host.notes.is_clear


def test_positions_of_plain_spouts_are_not_noted() -> None:
    topology, _ = word_count(Scripted(LINES))
    host = Hosted(topology)
    host.run(1.0)
    assert host.notes.written and all(not positions for _, _, positions in host.notes.written)
    assert host.notes.is_clear


def test_a_fault_of_the_engine_is_not_taken_for_the_users() -> None:
    topology, _ = word_count(Scripted(LINES))
    host = Hosted(topology)

    def broken(now: float) -> None:
        raise TopoInternalError("ours")

    host.worker.tasks[TaskId(2)].turn = broken  # type: ignore[method-assign]
    with pytest.raises(TopoInternalError):
        host.run(1.0)
    assert host.worker.exit is None
