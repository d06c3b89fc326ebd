"""A task whose part of a checkpoint cannot be read reports why, and waits for other Routes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.tasks.components import Replaying, Scripted, Sink, chain
from tests.tasks.solo import Solo
from topo.api.bolt import StatefulBolt
from topo.api.two_phase import TwoPhaseSink
from topo.builder import TopologyBuilder
from topo.checkpoint.alignment import Snapshot
from topo.connectors.iterable_spout import IterableSpout
from topo.errors import CheckpointDamagedError, CheckpointRefusedError, TopoEnvironmentError, UserError
from topo.ids import Epoch
from topo.wire.control import Activate, Close, Deactivate, RestoreFailed, TaskReady


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


def restoring(bolt: Any, **settings: Any) -> Solo:
    """The task of a bolt before its first epoch."""
    builder = TopologyBuilder("sums").config(delivery="exactly_once")
    builder.set_spout("numbers", IterableSpout([1]))
    builder.set_bolt("bolt", bolt, **settings).fields_grouping("numbers", "value")
    return Solo(builder.build(), "bolt", is_open=False)


@pytest.mark.parametrize(
    ("error", "is_transient"),
    [
        (TopoEnvironmentError("the master has not answered"), True),
        (CheckpointDamagedError("7/2", "it is cut short"), False),
        (CheckpointRefusedError("a newer topo has written it"), False),
    ],
)
def test_storage_that_fails_is_reported_as_transient_and_a_damaged_part_is_not(error: Exception, is_transient: bool) -> None:
    solo = restoring(Sums())
    solo.store.unreadable = error
    solo.adopt(3, checkpoint=7)
    solo.open_inputs()
    assert RestoreFailed(solo.id, solo.epoch, 7, str(error), is_transient) in solo.messages(RestoreFailed)
    assert solo.messages(TaskReady) == []


class KeyedSums(Sums):
    key = "value"


@pytest.mark.parametrize(
    ("bolt", "snapshot", "words"),
    [
        (Sums(), Snapshot(lambda: {5: b"x"}), "goes by a key"),
        (KeyedSums(), Snapshot(values={"user": b"x"}), "goes by no key"),
    ],
)
def test_state_in_another_form_than_the_bolts_is_refused(bolt: Sums, snapshot: Snapshot, words: str) -> None:
    solo = restoring(bolt)
    solo.store.kept[7] = snapshot
    with pytest.raises(UserError, match=words):
        solo.adopt(3, checkpoint=7)


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


AWAY = TopoEnvironmentError("the disk is away")


def wait(solo: Solo) -> None:
    """Open the edges, and let five ticks come due."""
    solo.open_inputs()
    solo.clock.now += 5.0
    solo.run()


def test_a_sink_whose_part_cannot_be_read_is_not_called_until_it_can_be() -> None:
    sink = Noting()
    solo = restoring(sink, tick_interval="1s")
    solo.store.kept[7] = Snapshot(values={"staged": [[7, "staged before"]]})
    solo.store.unreadable = AWAY
    for epoch in (3, 4):
        solo.adopt(epoch, checkpoint=7)
        wait(solo)
    assert sink.calls == []
    solo.store.unreadable = None
    solo.adopt(5, checkpoint=7)
    assert sink.calls == ["open", ("abort", None), ("recover", "staged before")]


def test_a_sink_that_runs_is_left_alone_while_its_part_cannot_be_read() -> None:
    sink = Noting()
    solo = restoring(sink, tick_interval="1s")
    solo.adopt(3)
    solo.open_inputs()
    sink.calls.clear()
    solo.store.unreadable = AWAY
    solo.adopt(4, checkpoint=7)
    wait(solo)
    assert sink.calls == []
    solo.handle(Close(Epoch(1)))
    assert sink.calls == [("abort", None), "close"]


@pytest.mark.parametrize("kind", [Scripted, Replaying])
def test_a_spout_is_activated_only_after_its_part_has_been_read(kind: type[Scripted]) -> None:
    spout = kind(ends=False)
    solo = Solo(chain(spout, Sink(), delivery="exactly_once"), "a")
    solo.handle(Deactivate())
    spout.calls.clear()
    solo.store.kept[7] = Snapshot(values={"source": {}})
    solo.store.unreadable = AWAY
    solo.adopt(2, checkpoint=7)
    solo.handle(Activate())
    assert spout.calls == []
    solo.store.unreadable = None
    solo.adopt(3, checkpoint=7)
    solo.open_inputs()
    assert spout.called("activate") == []
    solo.go()
    assert spout.called("activate") == ["activate"]
