"""A spout whose messages are done when a checkpoint covers them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.tasks.components import Replaying, Scripted, Sink, chain
from tests.tasks.environment import Store
from tests.tasks.solo import Solo
from topo.builder import TopologyBuilder
from topo.checkpoint.alignment import Snapshot
from topo.checkpoint.source_progress import UncommittedMessages
from topo.dead_letters.pending import MOST_HELD
from topo.ids import Epoch
from topo.task.events import Turn
from topo.task.guarantees.checkpointed_source import CheckpointedSource
from topo.task.task import Task
from topo.wire.control import BeginCheckpoint, CheckpointWanted, Close
from topo.wire.frames import FrameKind

MESSAGES = 5_000


@dataclass
class Tagged:
    tags: set[int]


class Endless(Scripted):
    """Numbers without end."""

    last = 0

    def next_tuple(self) -> None:
        self.last += 1
        self.collector.emit((self.last,), message_id=self.last)


class EndlessPositions(Replaying, Endless):
    """The same, from a source with positions."""

    next_tuple = Endless.next_tuple


class Unwilling(Scripted):
    """Its `ack` raises."""

    def ack(self, message_id: Any) -> None:
        super().ack(message_id)
        raise ValueError("no")


def spout_of(source: Any, store: Store | None = None, *, checkpoint: int = 0, **settings: Any) -> Solo:
    """A spout at the beginning, or at a checkpoint."""
    solo = Solo(chain(source, Sink(), delivery="exactly_once", **settings), "a", is_open=False, store=store)
    solo.begin_epoch(1, checkpoint=checkpoint)
    return solo


def step(solo: Solo) -> None:
    solo.turn()
    solo.confirm_all()


def cover(solo: Solo, checkpoint: int) -> None:
    solo.handle(BeginCheckpoint(solo.epoch, checkpoint))
    solo.complete(checkpoint)


def spout_with_messages(covered: int, more: int, kind: type[Scripted] = Scripted) -> tuple[Solo, Scripted]:
    """A spout that has emitted a number of messages before a checkpoint that is complete now, and has more to emit."""
    source = kind(range(covered + more), ends=False)
    solo = spout_of(source)
    while len(source.steps) > more:
        step(solo)
    solo.handle(BeginCheckpoint(solo.epoch, 1))
    return solo, source


def test_many_covered_messages_are_acked_in_parts_and_the_spout_emits_in_between() -> None:
    solo, spout = spout_with_messages(MESSAGES, 10_000)
    emitted = solo.task.counters.emitted
    solo.complete(1)
    seen = []
    while len(spout.acked) < emitted:
        assert solo.task.has_work
        before = len(spout.acked)
        step(solo)
        seen.append(len(spout.acked) - before)
    assert spout.acked == list(range(emitted))
    assert len(seen) > 2 and max(seen) < emitted / 2
    assert solo.task.counters.emitted > emitted


def test_a_spout_gets_the_remaining_acks_before_it_is_closed() -> None:
    solo, spout = spout_with_messages(MESSAGES, 0)
    solo.complete(1)
    solo.handle(Close(Epoch(1)))
    assert spout.acked == list(range(MESSAGES))
    assert spout.calls[-1] == ("close",)


def test_an_ack_that_raises_at_the_end_prevents_neither_the_others_nor_close() -> None:
    source = Unwilling(range(10), ends=False)
    solo = spout_of(source, on_error="crash")
    while source.steps:
        step(solo)
    cover(solo, 1)
    solo.handle(Close(Epoch(1)))
    assert source.acked == list(range(10))
    assert source.calls[-1] == ("close",)
    assert solo.task.counters.errors == 10


@pytest.mark.parametrize("kind", [Scripted, Replaying])
def test_covered_messages_without_an_ack_are_acked_once_after_a_recovery(kind: type[Scripted]) -> None:
    """A source with positions is opened again behind the last of them."""
    solo, spout = spout_with_messages(MESSAGES, 0, kind)
    solo.complete(1)
    solo.turn()
    assert len(spout.acked) < MESSAGES / 2
    solo.adopt(2, checkpoint=1)
    solo.open_inputs()
    solo.run()
    assert spout.failed == []
    assert spout.acked == list(range(MESSAGES))
    if kind is Replaying:
        assert spout.calls[-2:] == [("close",), ("open", MESSAGES - 1)]


def test_messages_lost_in_a_recovery_are_finally_failed_until_they_are_emitted_again() -> None:
    source = Scripted(range(4), ends=False)
    solo = spout_of(source)
    while source.steps:
        step(solo)
    solo.begin_epoch(2)
    assert source.failed == [0, 1, 2, 3]
    assert solo.task.statistics().counters.finally_failed == 4
    source.steps += [1, 3]
    solo.clock.now += 1.0
    solo.run()
    assert solo.task.statistics().counters.finally_failed == 2


@pytest.mark.parametrize("dies", [True, False])
def test_covered_messages_without_an_ack_are_acked_once_by_a_later_process(dies: bool) -> None:
    store = Store()
    source = Scripted(range(MESSAGES), ends=False)
    solo = spout_of(source, store)
    while source.steps:
        step(solo)
    cover(solo, 1)
    solo.turn()
    acked = source.acked
    assert 0 < len(acked) < MESSAGES
    solo.handle(BeginCheckpoint(solo.epoch, 2))
    if dies:
        source = Scripted([number for number in range(MESSAGES) if number not in acked], ends=False)
        solo = spout_of(source, store, checkpoint=2)
    else:
        solo.begin_epoch(2, checkpoint=2)
    for _ in range(30):
        step(solo)
    assert source.steps == [] and solo.rows() == [], "none is sent a second time"
    assert source.failed == []
    assert source.acked == [number for number in range(MESSAGES) if dies is False or number not in acked]


def test_a_redelivered_message_without_an_ack_is_recognised_again() -> None:
    store = Store()
    store.kept[1] = Snapshot(values={"source": {"ids": tuple(range(MESSAGES))}, "watermark": -(2**63)})
    first = Scripted(range(MESSAGES), ends=False)
    solo = spout_of(first, store, checkpoint=1)
    while first.steps:
        solo.task.handle(Turn(), solo.clock.now)
    assert len(first.acked) < MESSAGES
    solo.handle(BeginCheckpoint(solo.epoch, 2))
    again = Scripted(set(range(MESSAGES)).difference(first.acked), ends=False)
    solo = spout_of(again, store, checkpoint=2)
    for _ in range(30):
        step(solo)
    assert solo.rows() == []
    assert sorted(first.acked + again.acked) == list(range(MESSAGES))


@pytest.mark.parametrize("wrap", [lambda one: one, lambda one: (1, (one,)), lambda one: frozenset([frozenset(one), 3]), Tagged])
def test_a_redelivered_message_with_a_set_is_recognised_in_whatever_order_the_set_is(wrap: Any) -> None:
    """The order of a set of strings differs from process to process; here it is that of the insertions."""
    one, same = {0, 8}, {8, 0}
    assert one == same and list(one) != list(same)
    store = Store()
    solo = spout_of(Scripted([lambda c: c.emit((wrap(one),), message_id=1)], ends=False), store)
    step(solo)
    solo.handle(BeginCheckpoint(solo.epoch, 1))
    again = Scripted([lambda c: c.emit((wrap(same),), message_id=1), lambda c: c.emit((wrap({1}),), 2)], ends=False)
    solo = spout_of(again, store, checkpoint=1)
    solo.run()
    assert solo.errors() == [] and solo.values() == [wrap({1})] and again.acked == [1]


def uncommitted_of(solo: Solo) -> UncommittedMessages:
    assert isinstance(solo.task, Task) and isinstance(solo.task.guarantee, CheckpointedSource)
    return solo.task.guarantee.uncommitted


def turns(solo: Solo, count: int) -> Iterable[int]:
    """Let the task work as fast as it may, without a look at its rows."""
    for number in range(1, count + 1):
        solo.task.handle(Turn(), solo.clock.now)
        for target, edge in solo.task.outbound.outbox.edges.items():
            while not edge.is_confirmed:
                solo.confirm(target)
        solo.out.clear()
        yield number


@pytest.mark.parametrize("source", [Endless, EndlessPositions])
def test_messages_that_wait_for_their_ack_become_fewer_however_fast_the_spout_emits(source: Any) -> None:
    solo = spout_of(source(), max_spout_pending=200_000)
    uncommitted = uncommitted_of(solo)
    kept = []
    for number in turns(solo, 300):
        if number % 50 == 0:
            assert uncommitted.unreported == 0, "all are acked before the next checkpoint covers as many"
            cover(solo, number)
            kept.append(uncommitted.unreported)
    assert solo.task.counters.emitted > 100_000
    assert max(kept) < 60_000


def test_the_pending_limit_counts_messages_that_wait_for_a_checkpoint_or_their_ack() -> None:
    solo = spout_of(Endless(), max_spout_pending=4_000)
    uncommitted = uncommitted_of(solo)
    for number in turns(solo, 100):
        if number % 10 == 0:
            cover(solo, number)
        assert uncommitted.uncovered + uncommitted.unreported < 4_000 + solo.task.config.batch_size


class Forking(Replaying):
    """Odd numbers on one stream, even ones on another. The call that emits 4 raises."""

    outputs = {"odd": ("value",), "even": ("value",)}

    def next_tuple(self) -> None:
        number = self.steps.pop(0) if self.steps else None
        if number is not None:
            self.collector.emit((number,), message_id=number, stream="odd" if number % 2 else "even")
            if number == 4:
                raise ValueError("not this one")


@pytest.mark.parametrize(("numbers", "last"), [([1, 2, 3], 3), ([1, 2], 2), ([2, 3, 4], 3)])
def test_a_checkpoint_has_the_position_of_the_last_message_over_all_streams(numbers: list[int], last: int) -> None:
    builder = TopologyBuilder("forks").config(delivery="exactly_once")
    builder.set_spout("a", Forking(numbers, ends=False))
    builder.set_bolt("b", Sink()).shuffle_grouping("a", stream="odd").shuffle_grouping("a", stream="even")
    solo = Solo(builder.build(), "a")
    for _ in range(3):
        step(solo)
    solo.handle(BeginCheckpoint(solo.epoch, 1))
    assert sorted(solo.values()) == [number for number in numbers if number != 4]
    assert solo.store.kept[1].values["source"] == {"position": last}


def behind_the_end(source: Any, ids: tuple[Any, ...]) -> Solo:
    """A new process of a spout whose checkpoint is behind the end of its input, and has these ids without an ack."""
    state: dict[str, Any] = {"position": 3} if isinstance(source, Replaying) else {"ids": ids}
    solo = Solo(chain(source, Sink(), delivery="exactly_once"), "a", is_open=False)
    solo.store.kept[1] = Snapshot(values={"source": state, "watermark": -(2**63)})
    solo.begin_epoch(1, checkpoint=1, ended=[solo.id])
    solo.run()
    return solo


def ends_of(solo: Solo) -> int:
    """The number of ends that the spout has sent; each is the last frame."""
    ends = solo.frames(FrameKind.END)
    assert not ends or solo.frames()[-1].kind is FrameKind.END
    return len(ends)


def wait_in_turns(solo: Solo) -> None:
    """Let six seconds pass."""
    for _ in range(300):
        solo.clock.now += 0.02
        solo.turn()


@pytest.mark.parametrize("source", [Replaying, Scripted])
def test_a_spout_whose_end_is_in_the_checkpoint_sends_it_without_a_user_call(source: Any) -> None:
    made = source([4, 5])
    solo = behind_the_end(made, ())
    assert ends_of(solo) == 1
    assert solo.rows() == []
    solo.handle(Close(Epoch(1)))
    assert made.calls == []


def test_a_queue_behind_its_end_gets_acks_of_redelivered_covered_messages() -> None:
    source = Scripted([1, 2], ends=False)
    solo = behind_the_end(source, (1, 2))
    assert source.acked == [1, 2] and solo.rows() == []
    assert ends_of(solo) == 1


def test_a_queue_behind_its_end_that_redelivers_nothing_ends_after_a_while() -> None:
    source = Scripted([], ends=False)
    solo = behind_the_end(source, (1, 2))
    wait_in_turns(solo)
    assert ends_of(solo) == 1


@pytest.mark.parametrize("source", [Scripted, Replaying])
def test_a_spout_behind_its_end_is_opened_at_a_checkpoint_ahead_of_the_end(source: Any) -> None:
    """The checkpoint behind the end was damaged, and an earlier one took its place."""
    spout = source([1])
    solo = behind_the_end(spout, ())
    assert spout.calls == [] and solo.values() == []
    solo.begin_epoch(2)
    solo.run()
    assert spout.calls == [("open", None), ("activate",)] and solo.values() == [1]


@pytest.mark.parametrize("redelivered", [[], [1, 2]])
def test_a_queue_is_read_again_when_an_epoch_begins_ahead_of_its_restored_end(redelivered: list[int]) -> None:
    """The checkpoint behind the end was damaged after it had been restored, and an earlier one took its place."""
    source = Scripted(redelivered, ends=False)
    solo = behind_the_end(source, (1, 2))
    wait_in_turns(solo)
    assert ends_of(solo) == 1
    solo.begin_epoch(2)
    source.steps += [2, 3]
    solo.clock.now += 1.0
    solo.run()
    assert solo.values() == [2, 3] and solo.frames(FrameKind.END) == []
    source.ends = True
    solo.clock.now += 1.0
    solo.run()
    assert len(solo.frames(FrameKind.END)) == 1


def test_a_queue_that_has_ended_stays_so_in_an_epoch_ahead_of_its_restored_end() -> None:
    source = Scripted([])
    solo = behind_the_end(source, (1, 2))
    assert ends_of(solo) == 1
    solo.begin_epoch(2)
    source.steps.append(3)
    solo.clock.now += 1.0
    solo.run()
    assert solo.values() == [] and len(solo.frames(FrameKind.END)) == 1


class Counting(Scripted):
    """Numbers its messages itself, from 1 in each process."""

    def open(self, context: Any, collector: Any) -> None:
        super().open(context, collector)
        self.count = 0

    def next_tuple(self) -> None:
        if self.steps:
            self.count += 1
            self.collector.emit((self.steps.pop(0),), message_id=self.count)


def test_new_messages_under_covered_ids_of_a_counter_are_dead_letters() -> None:
    store = Store()
    first = spout_of(Counting(["a", "b"], ends=False), store)
    for _ in range(3):
        step(first)
    first.handle(BeginCheckpoint(first.epoch, 1))
    solo = spout_of(Counting(["b", "c", "d"], ends=False), store, checkpoint=1)
    solo.out.clear()
    for _ in range(4):
        step(solo)
    solo.handle(BeginCheckpoint(solo.epoch, 2))
    solo.complete(2)
    assert solo.values() == ["d"]
    assert [values for values, _ in solo.dead_letters()] == [("b",), ("c",)]
    assert all("use the source's own ids, not a counter" in why for why in solo.dead_letter_errors())


class Odd(EndlessPositions):
    """Values that cannot be carried, from a source with positions."""

    def next_tuple(self) -> None:
        self.last += 1
        self.collector.emit(({self.last: object()},), message_id=self.last)


def test_a_source_that_waits_because_of_many_dead_letters_has_asked_for_a_checkpoint() -> None:
    solo = spout_of(Odd())
    while solo.task.counters.emitted < MOST_HELD:
        step(solo)
    step(solo)
    emitted = solo.task.counters.emitted
    step(solo)
    assert solo.task.counters.emitted == emitted, "it does not wait"
    assert len(solo.messages(CheckpointWanted)) == 1
