"""A spout whose messages are done when a checkpoint covers them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.unit.task.harness import CODEC, Replaying, Scripted, Sink, Solo, Storing, chain
from topo.builder import TopologyBuilder
from topo.checkpoint.alignment import Snapshot
from topo.ids import Epoch
from topo.task.events import Turn
from topo.wire.control import BeginCheckpoint, CheckpointComplete, Close, DeadLetter, Go, PartToRead
from topo.wire.frames import FrameKind

MESSAGES = 5_000


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


def part(solo: Solo) -> dict[Any, list[PartToRead]]:
    return {solo.id: [PartToRead("file", 1, "checksum", "a", solo.id, 0, (1, 0), True)]}


def spout_of(source: Any, store: Storing | None = None, *, checkpoint: int = 0, **settings: Any) -> Solo:
    """A spout at the beginning, or at a checkpoint."""
    solo = Solo(chain(source, Sink(), delivery="exactly_once", **settings), "a", is_open=False)
    ports: Any = store or Storing()
    solo.task.ports.snapshots = ports
    solo.adopt(1, checkpoint=checkpoint, restore=part(solo) if checkpoint else {})
    solo.open_inputs()
    solo.handle(Go(Epoch(1)))
    return solo


def step(solo: Solo) -> None:
    solo.turn()
    solo.confirm_all()


def covered(solo: Solo, checkpoint: int) -> None:
    solo.handle(BeginCheckpoint(solo.epoch, checkpoint))
    solo.handle(CheckpointComplete(checkpoint))


def spout_with_messages(covered: int, more: int) -> tuple[Solo, Scripted]:
    """A spout that has emitted so many messages before a checkpoint that is complete now, and has more to emit."""
    source = Scripted(range(covered + more), ends=False)
    solo = spout_of(source)
    while len(source.steps) > more:
        step(solo)
    solo.handle(BeginCheckpoint(solo.epoch, 1))
    return solo, source


def test_of_many_covered_messages_a_part_is_told_and_the_spout_emits_in_between() -> None:
    solo, spout = spout_with_messages(MESSAGES, 10_000)
    emitted = solo.task.counters.emitted
    solo.handle(CheckpointComplete(1))
    seen = []
    while len(spout.told("ack")) < emitted:
        assert solo.task.has_work
        before = len(spout.told("ack"))
        step(solo)
        seen.append(len(spout.told("ack")) - before)
    assert spout.told("ack") == list(range(emitted))
    assert len(seen) > 2 and max(seen) < emitted / 2
    assert solo.task.counters.emitted > emitted


def test_a_spout_that_is_closed_is_told_the_rest_before() -> None:
    solo, spout = spout_with_messages(MESSAGES, 0)
    solo.handle(CheckpointComplete(1))
    solo.handle(Close(Epoch(1)))
    assert spout.told("ack") == list(range(MESSAGES))
    assert spout.calls[-1] == ("close",)


def test_an_ack_that_raises_at_the_end_keeps_neither_the_others_nor_the_close_away() -> None:
    source = Unwilling(range(10), ends=False)
    solo = spout_of(source, on_error="crash")
    while source.steps:
        step(solo)
    covered(solo, 1)
    solo.handle(Close(Epoch(1)))
    assert source.told("ack") == list(range(10))
    assert source.calls[-1] == ("close",)
    assert solo.task.counters.errors == 10


def test_what_was_covered_and_not_told_is_told_after_a_recovery_and_does_not_fail() -> None:
    solo, spout = spout_with_messages(MESSAGES, 0)
    solo.handle(CheckpointComplete(1))
    solo.turn()
    solo.adopt(2, checkpoint=1, restore=part(solo))
    solo.open_inputs()
    solo.run()
    assert spout.told("fail") == []
    assert spout.told("ack") == list(range(MESSAGES))


def test_what_a_recovery_has_lost_is_finally_failed_until_it_is_emitted_again() -> None:
    source = Scripted(range(4), ends=False)
    solo = spout_of(source)
    while source.steps:
        step(solo)
    solo.adopt(2)
    solo.open_inputs()
    solo.handle(Go(solo.epoch))
    assert source.told("fail") == [0, 1, 2, 3]
    assert solo.task.statistics().counters.finally_failed == 4
    source.steps += [1, 3]
    solo.clock.now += 1.0
    solo.run()
    assert solo.task.statistics().counters.finally_failed == 2


@pytest.mark.parametrize("dies", [True, False])
def test_what_was_covered_and_not_told_at_the_next_checkpoint_is_told_once_and_not_sent_again(dies: bool) -> None:
    store = Storing()
    source = Scripted(range(MESSAGES), ends=False)
    solo = spout_of(source, store)
    while source.steps:
        step(solo)
    covered(solo, 1)
    solo.turn()
    told = source.told("ack")
    assert 0 < len(told) < MESSAGES
    solo.handle(BeginCheckpoint(solo.epoch, 2))
    if dies:
        source = Scripted([number for number in range(MESSAGES) if number not in told], ends=False)
        solo = spout_of(source, store, checkpoint=2)
    else:
        solo.adopt(2, checkpoint=2, restore=part(solo))
        solo.open_inputs()
        solo.handle(Go(solo.epoch))
    solo.out.clear()
    for _ in range(30):
        step(solo)
    assert source.steps == [] and solo.rows() == [], "nothing is sent again"
    assert source.told("fail") == []
    assert source.told("ack") == [number for number in range(MESSAGES) if dies is False or number not in told]


def test_what_came_again_and_was_not_told_at_the_next_checkpoint_is_recognised_a_second_time() -> None:
    store = Storing()
    store.kept[1] = Snapshot(values={"source": {"ids": tuple(range(MESSAGES))}, "watermark": -(2**63)})
    first = Scripted(range(MESSAGES), ends=False)
    solo = spout_of(first, store, checkpoint=1)
    while first.steps:
        solo.task.handle(Turn(), solo.clock.now)
    assert len(first.told("ack")) < MESSAGES
    solo.handle(BeginCheckpoint(solo.epoch, 2))
    again = Scripted(set(range(MESSAGES)).difference(first.told("ack")), ends=False)
    solo = spout_of(again, store, checkpoint=2)
    solo.out.clear()
    for _ in range(30):
        step(solo)
    assert solo.rows() == []
    assert sorted(first.told("ack") + again.told("ack")) == list(range(MESSAGES))


def turns(solo: Solo, count: int) -> Iterable[int]:
    """Let the task work as fast as it may, without a look at what it sends."""
    for number in range(1, count + 1):
        solo.task.handle(Turn(), solo.clock.now)
        for target, edge in solo.task.outbox.edges.items():
            while not edge.is_confirmed:
                solo.confirm(target)
        solo.out.clear()
        yield number


@pytest.mark.parametrize("source", [Endless, EndlessPositions])
def test_what_waits_to_be_told_becomes_less_however_fast_the_spout_emits(source: Any) -> None:
    solo = spout_of(source(), max_spout_pending=200_000)
    task: Any = solo.task
    kept = []
    for number in turns(solo, 300):
        if number % 50 == 0:
            assert task.uncommitted.untold == 0, "all are told before the next checkpoint covers as many"
            covered(solo, number)
            kept.append(task.uncommitted.untold)
    assert task.counters.emitted > 100_000
    assert max(kept) < 60_000


def test_a_queue_gives_no_more_while_as_many_as_may_be_pending_wait_to_be_told_or_covered() -> None:
    solo = spout_of(Endless(), max_spout_pending=4_000)
    task: Any = solo.task
    for number in turns(solo, 100):
        if number % 10 == 0:
            covered(solo, number)
        assert task.uncommitted.uncovered + task.uncommitted.untold < 4_000 + task.config.batch_size


def test_a_source_with_positions_is_told_of_what_is_done_before_it_is_opened_again() -> None:
    source = Replaying(range(MESSAGES), ends=False)
    solo = spout_of(source)
    while source.steps:
        step(solo)
    covered(solo, 1)
    solo.adopt(2, checkpoint=1, restore=part(solo))
    assert source.calls[-3:] == [("deactivate",), ("close",), ("open", MESSAGES - 1)]
    assert source.told("ack") == list(range(MESSAGES))
    solo.open_inputs()
    solo.run()
    assert source.calls[-1] == ("open", MESSAGES - 1), "no message is told twice"


def test_a_checkpoint_that_is_complete_in_the_words_of_the_routes_alone_is_told_before_the_spout_is_opened_again() -> None:
    source = Replaying(range(10), ends=False)
    solo = spout_of(source)
    while source.steps:
        step(solo)
    solo.handle(BeginCheckpoint(solo.epoch, 1))
    solo.adopt(2, checkpoint=1, restore=part(solo))
    assert source.calls[-1] == ("open", 9)
    assert source.told("ack") == list(range(10)) and solo.task.counters.acked == 10


class Forking(Replaying):
    """Odd numbers on one stream, even ones on another. The call that emits 4 raises."""

    outputs = {"odd": ("value",), "even": ("value",)}

    def next_tuple(self) -> None:
        number = self.steps.pop(0) if self.steps else None
        if number is not None:
            self.collector.emit((number,), message_id=number, stream="odd" if number % 2 else "even")
            if number == 4:
                raise ValueError("not this one")


def forking_spout(source: Forking, **settings: Any) -> tuple[Solo, Storing]:
    builder = TopologyBuilder("forks").config(**settings)
    builder.set_spout("a", source)
    builder.set_bolt("b", Sink()).shuffle_grouping("a", stream="odd").shuffle_grouping("a", stream="even")
    solo, store = Solo(builder.build(), "a"), Storing()
    ports: Any = store
    solo.task.ports.snapshots = ports
    return solo, store


@pytest.mark.parametrize(("numbers", "last"), [([1, 2, 3], 3), ([1, 2], 2), ([2, 3, 4], 3)])
def test_the_position_in_a_checkpoint_is_that_of_the_last_message_over_all_streams(numbers: list[int], last: int) -> None:
    solo, store = forking_spout(Forking(numbers, ends=False), delivery="exactly_once")
    for _ in range(3):
        step(solo)
    solo.handle(BeginCheckpoint(solo.epoch, 1))
    assert sorted(solo.values()) == [number for number in numbers if number != 4]
    assert store.kept[1].values["source"] == {"position": last}


@pytest.mark.parametrize("source", [Scripted, Replaying])
def test_an_id_that_is_not_hashable_is_reported_and_its_message_is_not_sent(source: Any) -> None:
    def emit(collector: Any) -> None:
        collector.emit((1,), message_id="a")
        collector.emit((2,), message_id=["b"])

    store = Storing()
    solo = spout_of(source([emit], ends=False), store)
    for _ in range(3):
        step(solo)
    solo.handle(BeginCheckpoint(solo.epoch, 1))
    assert solo.values() == [1]
    found = store.kept[1].values["source"]
    assert found.get("ids") == ["a"] or found == {"position": "a"}
    (error,) = solo.errors()
    assert error == (
        "EmitError: component 'a' emitted with message id ['b'] (list), which is not hashable; "
        "use an int, a string or a tuple of these"
    )
    solo.adopt(2, checkpoint=1, restore=part(solo))


def behind_the_end(source: Any, ids: tuple[Any, ...]) -> Solo:
    """A new process of a spout whose checkpoint is behind the end of its input; of these ids it was not told."""
    store = Storing()
    told: dict[str, Any] = {"position": 3} if isinstance(source, Replaying) else {"ids": ids}
    store.kept[1] = Snapshot(values={"source": told, "watermark": -(2**63)})
    solo = Solo(chain(source, Sink(), delivery="exactly_once"), "a", is_open=False)
    ports: Any = store
    solo.task.ports.snapshots = ports
    solo.adopt(1, checkpoint=1, restore=part(solo), ended=[solo.id])
    solo.open_inputs()
    solo.handle(Go(Epoch(1)))
    solo.run()
    return solo


@pytest.mark.parametrize("source", [Replaying, Scripted])
def test_a_spout_whose_end_is_in_the_checkpoint_passes_it_on_and_its_user_is_not_called(source: Any) -> None:
    made = source([4, 5])
    solo = behind_the_end(made, ())
    assert [frame.kind for frame in solo.frames() if frame.kind is FrameKind.END] == [FrameKind.END]
    assert solo.rows() == []
    solo.handle(Close(Epoch(1)))
    assert made.calls == []


def test_a_queue_whose_end_is_in_the_checkpoint_is_told_of_covered_messages_that_it_delivers_again() -> None:
    source = Scripted([1, 2], ends=False)
    solo = behind_the_end(source, (1, 2))
    assert source.told("ack") == [1, 2] and solo.rows() == []
    assert solo.frames()[-1].kind is FrameKind.END


def test_a_queue_whose_end_is_in_the_checkpoint_is_not_waited_for_without_end() -> None:
    source = Scripted([], ends=False)
    solo = behind_the_end(source, (1, 2))
    for _ in range(300):
        solo.clock.now += 0.02
        solo.turn()
    assert solo.frames()[-1].kind is FrameKind.END


def test_a_new_message_behind_the_end_in_the_checkpoint_is_a_dead_letter() -> None:
    source = Scripted([3], ends=False)
    solo = behind_the_end(source, (1, 2))
    assert solo.rows() == []
    assert solo.frames()[-1].kind is FrameKind.END
    (error,) = solo.errors()
    assert error.startswith("EmitError: component 'a' emitted a new message, and checkpoint 1 is behind the end of its input")
    solo.handle(BeginCheckpoint(solo.epoch, 2))
    solo.handle(CheckpointComplete(2))
    assert [letter.errors for letter in solo.messages(DeadLetter)] == [[f"{error} (component 'a')"]]


class Counting(Scripted):
    """Numbers its messages itself, anew in each process."""

    def open(self, context: Any, collector: Any) -> None:
        super().open(context, collector)
        self.count = 0

    def next_tuple(self) -> None:
        if self.steps:
            self.count += 1
            self.collector.emit((self.steps.pop(0),), message_id=self.count)


def test_new_messages_under_ids_that_a_counter_gives_anew_are_dead_letters_and_not_taken_for_covered_ones() -> None:
    store = Storing()
    first = spout_of(Counting(["a", "b"], ends=False), store)
    for _ in range(3):
        step(first)
    first.handle(BeginCheckpoint(first.epoch, 1))
    solo = spout_of(Counting(["b", "c", "d"], ends=False), store, checkpoint=1)
    solo.out.clear()
    for _ in range(4):
        step(solo)
    solo.handle(BeginCheckpoint(solo.epoch, 2))
    solo.handle(CheckpointComplete(2))
    assert solo.values() == ["d"]
    letters = [CODEC.unpack_value(letter.values) for letter in solo.messages(DeadLetter)]
    assert letters == [("b",), ("c",)]
    assert all("use the source's own ids, not a counter" in letter.errors[0] for letter in solo.messages(DeadLetter))
