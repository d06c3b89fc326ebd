"""What a process runs out of is no fault of the tuple or the snapshot at hand: the process ends, and a new one is started."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from tests.unit.task.harness import Manual, Plain, Scripted, Sink, Solo, chain, with_store
from tests.unit.task.test_lost_rows import pass_barrier
from topo.errors import EnvironmentFault, ValueNotCarried
from topo.wire.control import DeadLetter, SnapshotFailed


def no_room() -> EnvironmentFault:
    error = EnvironmentFault("cannot write x: Too many open files")
    error.__cause__ = OSError(errno.EMFILE, "Too many open files")
    return error


class FailingStore:
    """Cannot store a snapshot."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def write(self, checkpoint: int, snapshot: Any, stored: Any) -> None:
        stored(None, self.error)


def solo_with(error: Exception) -> Solo:
    solo = with_store(Solo(chain(Scripted(), Plain(), Sink(), delivery="exactly_once"), "b"))
    solo.task.ports.snapshots = FailingStore(error)  # type: ignore[assignment]
    return solo


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't start new thread"), no_room()])
def test_a_process_that_can_take_no_snapshot_ends(error: Exception) -> None:
    with pytest.raises(type(error)):
        pass_barrier(solo_with(error), 1)


def test_a_storage_that_fails_is_told_to_the_master_and_is_no_error_of_the_component() -> None:
    """The checkpoint may have been given up before, and its folder removed while the part was written."""
    solo = solo_with(EnvironmentFault("cannot write task-00002.part: No such file or directory"))
    pass_barrier(solo, 1)
    (failed,) = solo.messages(SnapshotFailed)
    assert "No such file" in failed.why
    assert solo.errors() == []


def test_state_that_cannot_be_stored_is_an_error_of_the_component() -> None:
    solo = solo_with(ValueNotCarried("object"))
    pass_barrier(solo, 1)
    assert [error.partition(":")[0] for error in solo.errors()] == ["ValueNotCarried"]


def run_out(tup: Any, collector: Any) -> None:
    raise MemoryError


@pytest.mark.parametrize("kind", [Plain, Manual])
@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once", "at_most_once"])
def test_a_bolt_that_runs_out_of_memory_ends_its_process(kind: Any, delivery: str) -> None:
    solo = Solo(chain(Scripted(), kind(run_out), Sink(), delivery=delivery), "b")
    solo.task.ports.is_memory_short = lambda: True
    solo.feed(1, tracked=delivery == "at_least_once")
    with pytest.raises(MemoryError):
        solo.run()


def test_a_bolt_that_asks_for_too_much_at_once_fails_its_tuple() -> None:
    solo = with_store(Solo(chain(Scripted(), Plain(run_out), Sink(), delivery="exactly_once"), "b"))
    solo.feed(1, tracked=False)
    solo.run()
    assert (solo.task.counters.failed, solo.messages(DeadLetter)) == (1, [])
