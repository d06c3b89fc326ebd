"""A task whose part of a checkpoint cannot be read says why, and waits for other Routes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.unit.task.harness import Solo
from topo.api.bolt import StatefulBolt
from topo.api.two_phase import TwoPhaseSink
from topo.builder import TopologyBuilder
from topo.checkpoint.alignment import Snapshot, StoredPart
from topo.connectors.iterable_spout import IterableSpout
from topo.errors import CheckpointDamaged, CheckpointRefused, EnvironmentFault, UserError
from topo.ids import Epoch
from topo.task.commands import TellMaster
from topo.wire.control import Close, PartToRead, RestoreFailed, TaskReady


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
    solo.task.ports.snapshots = store
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
    solo.task.ports.snapshots = store
    with pytest.raises(UserError, match=words):
        solo.adopt(3, checkpoint=7, restore={solo.id: [PartToRead("7/2", 100, "c", "sums", solo.id, 0, (0, 127), True)]})


class Once(Kept):
    """A store that has one snapshot, of which reads fail while `error` is set."""

    def __init__(self, snapshot: Snapshot, error: Exception | None) -> None:
        self.snapshot, self.error = snapshot, error

    def read(self, folder: str, checkpoint: int, parts: Sequence[PartToRead]) -> list[Snapshot]:
        if self.error is not None:
            raise self.error
        return [self.snapshot]

    def write(self, checkpoint: int, snapshot: Snapshot, stored: Any) -> None:
        stored(StoredPart("file", 1, "checksum"), None)


class Noting(TwoPhaseSink):
    """Notes which of its methods are called."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def open(self, context: Any) -> None:
        self.calls.append("open")

    def write(self, tup: Any) -> None:
        self.calls.append("write")

    def pre_commit(self) -> Any:
        return "token"

    def commit(self, token: Any) -> None:
        self.calls.append(("commit", token))

    def abort(self, token: Any) -> None:
        self.calls.append(("abort", token))

    def recover(self, tokens: Sequence[Any]) -> None:
        self.calls.append(("recover", *tokens))

    def on_reset(self) -> None:
        self.calls.append("on_reset")

    def close(self) -> None:
        self.calls.append("close")


def noting(store: Any) -> tuple[Solo, Noting, dict[Any, list[PartToRead]]]:
    sink = Noting()
    builder = TopologyBuilder("sums")
    builder.set_spout("numbers", IterableSpout([1]))
    builder.set_bolt("sink", sink, tick_interval="1s").global_grouping("numbers")
    solo = Solo(builder.config(delivery="exactly_once").build(), "sink", is_open=False)
    solo.task.ports.snapshots = store
    return solo, sink, {solo.id: [PartToRead("7/2", 100, "c", "sink", solo.id, 0, (1, 0), True)]}


AWAY = EnvironmentFault("the disk is away")


def test_a_sink_whose_part_cannot_be_read_is_not_called_until_it_can_be() -> None:
    store = Once(Snapshot(values={"staged": [[7, "staged before"]]}), AWAY)
    solo, sink, parts = noting(store)
    for epoch in (3, 4):
        solo.adopt(epoch, checkpoint=7, restore=parts)
        solo.open_inputs()
        solo.clock.now += 5.0
        solo.run()
    assert sink.calls == []
    store.error = None
    solo.adopt(5, checkpoint=7, restore=parts)
    assert sink.calls == ["open", ("abort", None), ("recover", "staged before")]


def test_a_sink_that_runs_is_left_alone_while_its_part_cannot_be_read() -> None:
    store = Once(Snapshot(values={"staged": []}), None)
    solo, sink, parts = noting(store)
    solo.adopt(3)
    solo.open_inputs()
    sink.calls.clear()
    store.error = AWAY
    solo.adopt(4, checkpoint=7, restore=parts)
    solo.open_inputs()
    solo.clock.now += 5.0
    solo.run()
    assert sink.calls == []
    solo.handle(Close(Epoch(1)))
    assert sink.calls == [("abort", None), "close"]
