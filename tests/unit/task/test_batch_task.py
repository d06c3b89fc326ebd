"""A batching bolt as a task: acks, fails, the end and epochs; the test plays the neighbours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.tasks.components import Scripted, Sink, chain
from tests.tasks.solo import Solo
from topo import BatchBolt
from topo.builder import TopologyBuilder
from topo.wire.control import TuplesFailed
from topo.wire.frames import FrameKind


class Batches(BatchBolt):
    """Runs a function for each batch; without one it passes the values on."""

    outputs: Any = ("value",)

    def __init__(self, size: int = 3, run: Callable[[Any, Any], None] | None = None, **more: Any) -> None:
        super().__init__(size, **more)
        self.run = run or self.relay
        self.seen: list[list[Any]] = []
        self.calls: list[str] = []

    @staticmethod
    def relay(tuples: Any, collector: Any) -> None:
        for tup in tuples:
            collector.emit(tup.values, tup)

    def prepare(self, context: Any) -> None:
        self.calls.append("prepare")

    def execute_batch(self, tuples: Any, collector: Any) -> None:
        self.seen.append([tup[0] for tup in tuples])
        self.run(tuples, collector)

    def end_of_input(self, collector: Any) -> None:
        self.calls.append("end_of_input")
        collector.emit(("the end",), None)

    def on_reset(self) -> None:
        self.calls.append("on_reset")

    def cleanup(self) -> None:
        self.calls.append("cleanup")


def alone(bolt: Batches, **settings: Any) -> Solo:
    return Solo(chain(Scripted(), bolt, Sink(), **{"delivery": "at_least_once", **settings}), "b")


def test_while_a_batch_is_open_the_task_is_not_quiet() -> None:
    task = alone(Batches(3, lambda tuples, collector: None))
    task.feed("x")
    task.run()
    assert not task.task.is_quiet and task.frames(FrameKind.DATA, FrameKind.ACK) == []
    assert task.task.statistics().levels["batched"] == 1
    task.wait(1)
    assert task.task.statistics().levels["batched"] == 0


def test_one_row_can_descend_from_all_of_a_batch() -> None:
    def add(tuples: Any, collector: Any) -> None:
        collector.emit((sum(tup[0] for tup in tuples),), tuples)

    task = alone(Batches(3, add))
    ids = task.feed(1, 2, 3)
    task.run()
    (frame,) = task.frames(FrameKind.DATA)
    assert task.values() == [6]
    assert frame.count_list() == [3] and sorted(frame.root_list()) == ids.roots
    assert sorted(task.acks()) == ids.roots


def test_a_tuple_that_the_call_fails_does_not_fail_the_others() -> None:
    def refuse_y(tuples: Any, collector: Any) -> None:
        for tup in tuples:
            if tup[0] == "y":
                collector.fail(tup, KeyError("unknown y"))

    task = alone(Batches(3, refuse_y))
    ids = task.feed("x", "y", "z")
    task.run()
    assert sorted(task.acks()) == [ids.roots[0], ids.roots[2]]
    assert task.roots(FrameKind.FAIL) == [ids.roots[1]]
    (report,) = task.messages(TuplesFailed)
    assert ["KeyError" in str(cause) and "unknown y" in str(cause) for cause, _ in report.causes] == [True]


def test_at_the_end_the_open_batch_goes_first() -> None:
    bolt = Batches(3)
    task = alone(bolt)
    task.feed("x")
    task.end_inputs()
    assert bolt.seen == [["x"]] and bolt.calls == ["prepare", "end_of_input"]
    assert task.values() == ["x", "the end"]


def test_a_replay_after_the_end_waits_no_longer_than_any_other_tuple() -> None:
    bolt = Batches(3)
    task = alone(bolt)
    task.end_inputs()
    ids = task.feed("again")
    task.wait(0.2)
    assert bolt.seen == [["again"]]
    assert list(task.acks()) == ids.roots


def test_a_new_epoch_drops_the_open_batch_since_its_tuples_are_replayed() -> None:
    bolt = Batches(2)
    task = alone(bolt)
    task.feed("x")
    task.run()
    task.begin_epoch(2)
    task.feed("x", "y")
    task.run()
    task.wait(1)
    assert bolt.seen == [["x", "y"]] and bolt.calls == ["prepare", "on_reset"]


def test_wrong_settings_are_refused_when_the_topology_is_built() -> None:
    def problems(bolt: Any, grouping: str = "shuffle", parallelism: int = 1, **settings: Any) -> str:
        builder = TopologyBuilder("t").config(message_timeout="10s")
        builder.set_spout("a", Scripted())
        declarer = builder.set_bolt("b", bolt, parallelism, **settings)
        getattr(declarer, f"{grouping}_grouping")("a")
        with pytest.raises(Exception) as caught:
            builder.build()
        return str(caught.value)

    assert "use fields_grouping('a', 'value')" in problems(Batches(key="value"))
    assert "gets no ticks; use wait=..." in problems(Batches(), tick_interval="1s")
    assert "messages would fail meanwhile" in problems(Batches(wait="10s"))
    for size, wait in ((0, "1s"), (1.5, "1s"), (70_000, "1s"), (10, "0s")):
        with pytest.raises(Exception, match=r"size=|wait="):
            Batches(size, wait=wait)  # type: ignore[arg-type]
