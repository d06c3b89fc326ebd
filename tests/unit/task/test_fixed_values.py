"""Values stay as they were when they were emitted, whatever their owner and their other receivers do with them afterwards."""

from __future__ import annotations

from typing import Any

from tests.tasks.bolts import KINDS, done, emit, relay
from tests.tasks.components import Plain, Replaying, Scripted, Sink, chain
from tests.tasks.solo import Solo
from tests.unit.worker.hosted import Hosted
from topo.builder import TopologyBuilder
from topo.wire.control import ComponentError
from topo.wire.frames import FrameKind


@KINDS
def test_a_task_sends_each_state_of_a_list_that_its_bolt_fills_further(kind: Any) -> None:
    kept: list[Any] = []

    def run(tup: Any, collector: Any) -> None:
        kept.append(tup[0])
        emit(tup, collector, kept)
        done(tup, collector)

    _, task = relay(kind, run)
    task.feed(1, 2, 3)
    task.run()
    assert task.values() == [(1,), (1, 2), (1, 2, 3)]
    assert len(task.frames(FrameKind.ACK)) == 1


def packed(*bolts: Any, spout: Any, **settings: Any) -> Hosted:
    """A spout, and bolts that all read it, in one worker."""
    builder = TopologyBuilder("packed").config(workers=1, **settings)
    builder.set_spout("a", spout)
    for place, bolt in enumerate(bolts):
        builder.set_bolt(f"bolt-{place}", bolt).shuffle_grouping("a")
    return Hosted(builder.build())


def test_receivers_in_one_worker_each_have_values_of_their_own() -> None:
    seen: list[Any] = []

    def spoil(tup: Any, collector: Any) -> None:
        seen.append(dict(tup["value"]))
        tup["value"]["n"] = "spoiled"

    row = {"n": 0}

    def emit(number: int) -> Any:
        def step(collector: Any) -> None:
            row["n"] = number
            collector.emit((row,), number)

        return step

    packed(Plain(spoil, ()), Plain(spoil, ()), spout=Scripted(list(map(emit, range(3))))).run(1.0)
    assert sorted(found["n"] for found in seen) == [0, 0, 1, 1, 2, 2]


def test_a_replay_has_the_values_of_the_first_time() -> None:
    seen: list[Any] = []

    def spoil_and_fail(tup: Any, collector: Any) -> None:
        seen.append(dict(tup["value"]))
        tup["value"]["n"] = "spoiled"
        raise ValueError("not this time")

    host = packed(Plain(spoil_and_fail, ()), spout=Replaying([lambda c: c.emit(({"n": 1},), 1)]), backoff="10ms")
    host.run(2.0)
    assert seen == [{"n": 1}] * 3


def test_a_value_that_cannot_be_carried_is_refused_within_a_worker_too() -> None:
    seen: list[Any] = []
    host = packed(Plain(lambda tup, collector: seen.append(tup[0]), ()), spout=Scripted([lambda c: c.emit((object(),), 1)]))
    host.run(1.0)
    assert seen == []
    errors = [message.message for message in host.messages(ComponentError)]
    assert any("field 'value': a value of type object" in text for text in errors)


def test_a_value_that_cannot_be_carried_stays_refused_when_it_is_changed() -> None:
    """A list with a file in it, cleared behind the emit: an empty list, which was never emitted, must not be sent."""
    found: list[Any] = [object()]

    def work(tup: Any, collector: Any) -> None:
        collector.emit((found,))
        found.clear()

    solo = Solo(chain(Replaying(), Plain(work), Sink()), "b")
    ids = solo.feed(1)
    solo.run()
    assert solo.values() == [] and solo.roots(FrameKind.FAIL) == ids.roots
    assert "a value of type object" in solo.errors()[0]
