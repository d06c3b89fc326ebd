"""A heartbeat reports statistics of every task, including a task whose component was never opened or failed to open."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.runners.kinds import KINDS, echo
from tests.tasks.components import CHECKPOINTED, TRACKED, Scripted, Sink
from tests.tasks.environment import Store
from tests.tasks.solo import Solo
from topo.builder import TopologyBuilder
from topo.checkpoint.alignment import Snapshot
from topo.errors import TopoEnvironmentError, UserError
from topo.ids import Epoch
from topo.wire.control import Close

ALL = pytest.mark.parametrize("kind", KINDS)
KEYED = pytest.mark.parametrize("kind", ["process", "window"])
INPUT = {"values": (1,), "timestamp": None, "origin": ("a", 1, "default", ("value",))}


def unopened(kind: str, guarantee: str = CHECKPOINTED) -> Solo:
    """Return a task without routes."""
    builder = TopologyBuilder("contract").config(delivery=guarantee)
    builder.set_spout("a", Scripted())
    builder.set_bolt("b", KINDS[kind](echo)).fields_grouping("a", "value")
    builder.set_bolt("sink", Sink()).global_grouping("b")
    return Solo(builder.build(), "b", is_open=False)


def restore(solo: Solo, epoch: int) -> None:
    solo.adopt(epoch, checkpoint=1)


def levels(solo: Solo) -> dict[str, float]:
    """Return the levels of the next heartbeat."""
    return dict(solo.task.statistics().levels)


def store_of(solo: Solo, snapshot: Snapshot) -> None:
    store: Any = Store()
    store.kept[1] = snapshot
    solo.env.snapshots = store


class Unreadable(Store):
    """A store that fails to read."""

    def read(self, _folder: str, checkpoint: int, _parts: Any) -> list[Snapshot]:
        raise TopoEnvironmentError("the disk is away")


@pytest.mark.parametrize("guarantee", [TRACKED, CHECKPOINTED])
@ALL
def test_a_task_reports_statistics_after_close_without_routes(kind: str, guarantee: str) -> None:
    solo = unopened(kind, guarantee)
    assert "state_entries" not in levels(solo)
    solo.handle(Close(Epoch(1)))
    assert solo.task.is_closed
    assert "state_entries" not in levels(solo)


@ALL
def test_a_task_reports_statistics_while_its_part_is_unreadable(kind: str) -> None:
    solo = unopened(kind)
    store: Any = Unreadable()
    solo.env.snapshots = store
    restore(solo, 1)
    assert "state_entries" not in levels(solo)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "bolt"])
def test_a_task_reports_statistics_after_held_inputs_are_refused(kind: str) -> None:
    solo = unopened(kind)
    store_of(solo, Snapshot(values={"held": {"tasks": 1, "inputs": [INPUT]}}))
    with pytest.raises(UserError, match="was a Bolt that held inputs back"):
        restore(solo, 1)
    assert "state_entries" not in levels(solo)


def undecodable() -> dict[int, Any]:
    raise UserError("a class of the state is missing")


@KEYED
@pytest.mark.parametrize("was_open", [False, True])
def test_a_task_reports_statistics_after_its_state_fails_to_decode(kind: str, was_open: bool) -> None:
    solo = unopened(kind)
    if was_open:
        solo.adopt(1)
    store_of(solo, Snapshot(undecodable))
    with pytest.raises(UserError, match="a class of the state is missing"):
        restore(solo, 2)
    assert "state_entries" not in levels(solo)


@KEYED
def test_an_open_task_reports_its_state_after_each_restore_and_close(kind: str) -> None:
    solo = unopened(kind)
    for epoch in (1, 2):
        solo.adopt(epoch)
        assert levels(solo)["state_entries"] == 0.0
    solo.handle(Close(Epoch(1)))
    assert levels(solo)["state_entries"] == 0.0
