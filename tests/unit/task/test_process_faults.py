"""What a process runs out of is no fault of the tuple or the snapshot at hand: the process ends, and a new one is started."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from tests.tasks.components import Manual, Plain, Scripted, Sink, chain
from tests.tasks.solo import Solo
from topo.errors import TopoEnvironmentError, UnsupportedStateError, UnsupportedValueError
from topo.user_errors import MAX_MESSAGE
from topo.wire.control import ComponentError, DeadLetter, SnapshotFailed


def no_room() -> TopoEnvironmentError:
    error = TopoEnvironmentError("cannot write x: Too many open files")
    error.__cause__ = OSError(errno.EMFILE, "Too many open files")
    return error


def solo_with(error: Exception) -> Solo:
    """A bolt whose snapshots cannot be stored."""
    solo = Solo(chain(Scripted(), Plain(), Sink(), delivery="exactly_once"), "b")
    solo.store.unwritable = error
    return solo


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't start new thread"), no_room()])
def test_a_process_that_can_take_no_snapshot_ends(error: Exception) -> None:
    with pytest.raises(type(error)):
        solo_with(error).barrier(1)


def test_a_failure_of_storage_is_reported_and_is_no_error_of_the_component() -> None:
    """The checkpoint may have been given up before, and its folder removed while the part was written."""
    solo = solo_with(TopoEnvironmentError("cannot write task-00002.part: No such file or directory"))
    solo.barrier(1)
    (failed,) = solo.messages(SnapshotFailed)
    assert "No such file" in failed.why
    assert solo.errors() == []


@pytest.mark.parametrize("kind", [UnsupportedStateError, UnsupportedValueError])
def test_state_that_cannot_be_stored_is_an_error_of_the_component(kind: type[Exception]) -> None:
    solo = solo_with(kind("object"))
    solo.barrier(1)
    assert [error.partition(":")[0] for error in solo.errors()] == [kind.__name__]
    (failed,) = solo.messages(SnapshotFailed)
    (error,) = solo.messages(ComponentError)
    assert failed.why == error.message == "object", "the master goes by it"


class NoText(Exception):
    def __str__(self) -> str:
        return self.detail  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize(
    ("error", "why"),
    [(NoText(), "(its text cannot be read: AttributeError)"), (ValueError("x" * 20_000_000), "x" * MAX_MESSAGE)],
    ids=["raises", "is too long"],
)
def test_a_snapshot_that_fails_is_reported_whatever_the_text_of_its_error(error: Exception, why: str) -> None:
    """A text that raises, or is longer than a message to the master."""
    solo = solo_with(error)
    solo.barrier(1)
    (failed,) = solo.messages(SnapshotFailed)
    assert failed.why == why


def run_out(tup: Any, collector: Any) -> None:
    raise MemoryError


@pytest.mark.parametrize("kind", [Plain, Manual])
@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once", "at_most_once"])
def test_a_bolt_that_runs_out_of_memory_ends_its_process(kind: Any, delivery: str) -> None:
    solo = Solo(chain(Scripted(), kind(run_out), Sink(), delivery=delivery), "b")
    solo.env.is_memory_short = lambda: True
    solo.feed(1, tracked=delivery == "at_least_once")
    with pytest.raises(MemoryError):
        solo.run()


def test_a_bolt_that_asks_for_too_much_at_once_fails_its_tuple() -> None:
    solo = Solo(chain(Scripted(), Plain(run_out), Sink(), delivery="exactly_once"), "b")
    solo.feed(1, tracked=False)
    solo.run()
    assert (solo.task.counters.failed, solo.messages(DeadLetter)) == (1, [])
