"""A task whose part of a checkpoint cannot be read says why, and waits for other Routes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.task.harness import Solo
from topo.api.bolt import StatefulBolt
from topo.api.topology import TopologyBuilder
from topo.components.iterable_spout import IterableSpout
from topo.errors import CheckpointDamaged, CheckpointRefused, EnvironmentFault, UserError
from topo.task.commands import TellMaster
from topo.task.snapshots import Snapshot
from topo.wire.control import PartToRead, RestoreFailed, TaskReady


class Sums(StatefulBolt):
    outputs = ("sum",)

    def prepare(self, context: Any) -> None:
        self.sum = 0

    def execute(self, tup: Any, collector: Any) -> None:
        self.sum += tup.values[0]

    def snapshot(self) -> int:
        return self.sum

    def restore(self, state: Any) -> None:
        self.sum = state or 0


class Unreadable:
    """A store that fails to read."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def read(self, folder: str, checkpoint: int, parts: Sequence[PartToRead]) -> list[Snapshot]:
        raise self.error


@pytest.mark.parametrize(
    ("error", "is_transient"),
    [
        (EnvironmentFault("the master has not answered"), True),
        (CheckpointDamaged("7/2", "it is cut short"), False),
        (CheckpointRefused("a newer topo has written it"), False),
    ],
)
def test_storage_that_fails_is_told_from_a_part_that_is_damaged(error: Exception, is_transient: bool) -> None:
    builder = TopologyBuilder("sums")
    builder.set_spout("numbers", IterableSpout([1]))
    builder.set_bolt("sums", Sums()).global_grouping("numbers")
    solo = Solo(builder.build(), "sums", is_open=False)
    store: Any = Unreadable(error)
    solo.task.ports = replace(solo.task.ports, snapshots=store)
    part = PartToRead("7/2", 100, "c", "sums", solo.id, 0, (0, 127), True)
    solo.adopt(3, checkpoint=7, restore={solo.id: [part]})
    solo.open_inputs()
    told = [command.message for command in solo.out if isinstance(command, TellMaster)]
    assert RestoreFailed(solo.id, solo.epoch, 7, str(error), is_transient) in told
    assert not any(isinstance(message, TaskReady) for message in told)


class KeyedSums(Sums):
    key = "value"


class Kept(Unreadable):
    """A store that has one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    def read(self, folder: str, checkpoint: int, parts: Sequence[PartToRead]) -> list[Snapshot]:
        return [self.snapshot]


@pytest.mark.parametrize(
    ("bolt", "snapshot", "words"),
    [
        (Sums(), Snapshot(lambda: {5: b"x"}), "goes by a key"),
        (KeyedSums(), Snapshot(values={"user": b"x"}), "goes by no key"),
    ],
)
def test_state_in_another_form_than_the_bolts_is_refused_where_the_manifest_does_not_say_so(
    bolt: Sums, snapshot: Snapshot, words: str
) -> None:
    builder = TopologyBuilder("sums")
    builder.set_spout("numbers", IterableSpout([1]))
    builder.set_bolt("sums", bolt).fields_grouping("numbers", "value")
    solo = Solo(builder.build(), "sums", is_open=False)
    store: Any = Kept(snapshot)
    solo.task.ports = replace(solo.task.ports, snapshots=store)
    with pytest.raises(UserError, match=words):
        solo.adopt(3, checkpoint=7, restore={solo.id: [PartToRead("7/2", 100, "c", "sums", solo.id, 0, (0, 127), True)]})
