"""Whole topologies, their tasks joined by hand: nothing locks up, nothing is lost, everything ends."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tasks.components import Manual, Plain, Replaying, Scripted, Sink, chain
from tests.tasks.environment import routes
from tests.tasks.ring import Ring
from topo.builder import TopologyBuilder
from topo.ids import Epoch, TaskId
from topo.task.events import RoutesChanged
from topo.wire.control import ComponentError, DeadLetter, DeadLettersStored, EdgeLost, Go, PositionReport
from topo.wire.frames import Frame, FrameKind

WORDS = [f"word{number:02}" for number in range(60)]


def diamond(spout: Any, sink: Any, **config: Any) -> Ring:
    """A spout, two ways of different kinds with several tasks, and a sink that joins them; two ackers."""
    builder = TopologyBuilder("diamond").config(ackers=2, **config)
    builder.set_spout("a", spout)
    builder.set_bolt("left", Plain, parallelism=2).shuffle_grouping("a")
    builder.set_bolt("right", Manual, parallelism=3).fields_grouping("a", "value")
    builder.set_bolt("sink", sink).all_grouping("left").shuffle_grouping("right")
    return Ring(builder.build())


@pytest.mark.parametrize("local", [False, True])
@pytest.mark.parametrize("window", [1, 2, 16])
@pytest.mark.parametrize("batch", [1, 7])
def test_a_chain_of_any_window_gets_through_and_ends(window: int, batch: int, local: bool) -> None:
    spout, sink = Scripted(WORDS), Sink()
    topology = chain(spout, Plain(), Manual(), sink, edge_window=window, batch_size=batch, outbox_limit=1)
    ring = Ring(topology, local=local).start()
    ring.run()
    assert ring.is_over
    assert sorted(sink.seen) == sorted(WORDS)
    assert sorted(spout.called("ack")) == sorted(WORDS)
    assert ring.messages(EdgeLost) == []


@settings(max_examples=25)
@given(
    window=st.integers(1, 4),
    batch=st.integers(1, 9),
    limit=st.integers(1, 3),
    pending=st.integers(1, 30),
    fanout=st.integers(0, 7),
)
def test_no_choice_of_limits_locks_up_a_fan_out_through_full_edges(
    window: int, batch: int, limit: int, pending: int, fanout: int
) -> None:
    def many(tup: Any, collector: Any) -> None:
        for _ in range(fanout):
            collector.emit(tup.values)

    spout, sink = Scripted(WORDS[:24]), Sink()
    builder = TopologyBuilder("fan").config(edge_window=window, batch_size=batch, outbox_limit=limit, max_spout_pending=pending)
    builder.set_spout("a", spout)
    builder.set_bolt("b", Plain(many)).shuffle_grouping("a")
    builder.set_bolt("c", Plain, parallelism=3).all_grouping("b")
    builder.set_bolt("d", sink).fields_grouping("c", "value")
    ring = Ring(builder.build()).start()
    ring.run()
    assert ring.is_over
    assert Counter(sink.seen) == Counter({word: 3 * fanout for word in WORDS[:24] if fanout})
    assert sorted(spout.called("ack")) == sorted(WORDS[:24])


def before_a_stalled_sink(**limits: Any) -> tuple[Ring, TaskId]:
    """A spout, a bolt and a sink that reads nothing, after many steps of all others."""
    ring = Ring(chain(Scripted(range(400)), Plain(), Sink(), max_spout_pending=1000, **limits)).start()
    slow = ring.plan.tasks_of("c")[0]
    for _ in range(300):
        for task in ring.tasks:
            if task != slow:
                ring.step(task)
    return ring, slow


def test_the_windows_bound_the_frames_under_way_however_slow_the_sink() -> None:
    ring, slow = before_a_stalled_sink(edge_window=4, batch_size=1, outbox_limit=3, queue_time="off")
    assert len(ring.inboxes[slow]) == 4
    # A slice of eight may begin with the outbox just below its limit.
    assert all(task.outbound.outbox.waiting <= 3 + 8 for task in ring.tasks.values())
    assert sum(task.counters.emitted for task in ring.tasks.values()) < 100
    ring.run()
    assert ring.is_over


def test_a_bolt_that_has_processed_nothing_has_a_tuple_under_way_and_one_that_waits() -> None:
    ring, slow = before_a_stalled_sink()
    held = ring.tasks[ring.plan.tasks_of("b")[0]].outbound.outbox.edges[slow].held
    assert 2 <= held <= 4, "a slice of four was the largest that came before the first confirmation"
    ring.run()
    assert ring.is_over


def test_a_diamond_acks_everything_once_and_ends() -> None:
    spout, sink = Replaying(WORDS), Sink()
    ring = diamond(spout, sink, batch_size=4).start()
    ring.run()
    assert ring.is_over
    assert Counter(sink.seen) == Counter(WORDS + WORDS)
    assert sorted(spout.called("ack")) == sorted(WORDS)
    assert ring.messages(PositionReport)[-1].position


def test_a_message_that_fails_once_is_replayed_and_the_others_are_not() -> None:
    broken: list[Any] = []

    def once(tup: Any, collector: Any) -> None:
        if tup.values[0] == "word07" and not broken:
            broken.append(tup)
            raise ValueError("once")

    spout, sink = Replaying(WORDS), Plain(once, ())
    ring = Ring(chain(spout, Plain(), sink)).start()
    ring.run()
    assert ring.is_over
    assert Counter(sink.seen) == Counter([*WORDS, "word07"])
    assert sorted(spout.called("ack")) == sorted(WORDS)
    assert len(ring.messages(ComponentError)) == 1


def test_a_poison_message_goes_to_the_dead_letters_and_the_topology_ends() -> None:
    def poison(tup: Any, collector: Any) -> None:
        if tup.values[0] == "word07":
            raise ValueError("always")

    spout, sink = Replaying(WORDS), Plain(poison, ())
    ring = Ring(chain(spout, Plain(), sink, attempts=3)).start()
    ring.run(until=lambda: bool(ring.messages(DeadLetter)))
    assert not ring.is_over
    (dead,) = ring.messages(DeadLetter)
    assert dead.attempts == 3
    ring.handle(dead.task, DeadLettersStored(dead.task, [dead.id]))
    ring.run()
    assert ring.is_over
    assert spout.called("fail") == ["word07"]
    assert sorted([*spout.called("ack"), "word07"]) == sorted(WORDS)


@pytest.mark.parametrize("kind", [FrameKind.DATA, FrameKind.INIT, FrameKind.ACK, FrameKind.ACKED, FrameKind.END])
def test_a_lost_frame_is_found_and_a_new_epoch_mends_it(kind: FrameKind) -> None:
    lost: list[Frame] = []

    def lose(target: TaskId, frame: Frame) -> bool:
        if frame.kind is kind and not lost:
            lost.append(frame)
            return True
        return False

    spout, sink = Replaying(WORDS), Sink()
    ring = Ring(chain(spout, Plain(), sink, batch_size=4, progress_timeout="5s"))
    ring.lose = lose
    ring.start()
    ring.run(until=lambda: bool(ring.messages(EdgeLost)))
    assert lost and ring.messages(EdgeLost)
    ring.reports.clear()
    ring.start(2)
    ring.run()
    assert ring.is_over
    assert set(sink.seen) == set(WORDS)
    assert sorted(spout.called("ack")) == sorted(WORDS)


@settings(max_examples=25)
@given(moments=st.lists(st.integers(0, 60), min_size=1, max_size=3), window=st.integers(1, 3), seed=st.integers(0, 99))
def test_recoveries_at_any_moment_lose_nothing(moments: list[int], window: int, seed: int) -> None:
    spout, sink = Replaying(WORDS), Sink()
    ring = diamond(spout, sink, batch_size=3, edge_window=window, max_spout_pending=20).start()
    order = list(ring.tasks)
    for number, steps in enumerate(moments):
        for step in range(steps):
            ring.step(order[(step * 7 + seed) % len(order)])
        ring.reports.clear()
        ring.start(2 + number)
    ring.run()
    assert ring.is_over
    assert set(sink.seen) == set(WORDS)
    assert sorted(spout.called("ack")) == sorted(WORDS)
    assert spout.called("fail") == []


def test_tasks_may_adopt_an_epoch_one_by_one_with_frames_under_way() -> None:
    spout, sink = Replaying(WORDS), Sink()
    ring = Ring(chain(spout, Plain(), sink, batch_size=4)).start()
    for _ in range(5):
        for task in ring.tasks:
            ring.step(task)
    for task in reversed(list(ring.tasks)):
        ring.handle(task, RoutesChanged(routes(ring.plan, 2), frozenset()))
        ring.settle()
    for task in ring.tasks:
        ring.handle(task, Go(Epoch(2)))
    ring.run()
    assert ring.is_over
    assert set(sink.seen) == set(WORDS)
    assert ring.messages(EdgeLost) == []


def test_the_end_passes_through_and_every_bolt_flushes_before_it() -> None:
    class Summing(Plain):
        def __init__(self) -> None:
            super().__init__(self.add)
            self.total = 0

        def add(self, tup: Any, collector: Any) -> None:
            self.total += tup.values[0]

        def end_of_input(self, collector: Any) -> None:
            collector.emit((self.total,))

    sink = Sink()
    ring = Ring(chain(Scripted(range(1, 11)), Plain(), Summing(), sink)).start()
    ring.run()
    assert ring.is_over
    assert sink.seen == [55]
    assert sink.calls == ["prepare", "end_of_input"]


def test_without_ackers_a_topology_gets_through_and_ends() -> None:
    spout, sink = Scripted(WORDS), Sink()
    ring = Ring(chain(spout, Plain(), sink, ackers=0, edge_window=1, batch_size=2)).start()
    ring.run()
    assert ring.is_over
    assert sink.seen == WORDS
    assert spout.called("ack") == WORDS
