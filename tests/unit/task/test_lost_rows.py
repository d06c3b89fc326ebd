"""Rows that cannot be sent, in a topology with checkpoints: no root fails with them, and they are dead letters."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.task.harness import CODEC, Manual, Plain, Replaying, Scripted, Sink, Solo, chain, with_store
from topo.builder import TopologyBuilder
from topo.wire.control import BeginCheckpoint, CheckpointComplete, DeadLetter, DeadLettersStored, PartToRead
from topo.wire.frames import barrier_frame, pack_words


class Odd:
    """A type that no codec knows."""

    def __repr__(self) -> str:
        return "Odd()"


def pass_barrier(solo: Solo, checkpoint: int) -> None:
    for sender in solo.senders():
        if sender not in solo.plan.ackers:
            root = pack_words([checkpoint])
            solo.deliver(barrier_frame(solo.stamp(sender), solo.id, solo.next_number(sender), checkpoint, root, root))
    solo.run()


def letters(solo: Solo) -> list[tuple[Any, str, int]]:
    return [
        (CODEC.unpack_value(letter.values), letter.errors[0].partition(" (")[0], letter.attempts)
        for letter in solo.messages(DeadLetter)
    ]


ODD = ("(Odd(),)", "ValueNotCarried: component 'b', stream 'default': field 'value': a value of type Odd")


def emit_odd(tup: Any, collector: Any) -> None:
    collector.emit(tup.values)
    collector.emit((Odd(),))


def emit_odd_and_ack(tup: Any, collector: Any) -> None:
    emit_odd(tup, collector)
    collector.ack(tup)


@pytest.mark.parametrize("bolt", [Plain(emit_odd), Manual(emit_odd_and_ack)])
def test_a_row_that_cannot_be_carried_is_a_dead_letter_of_the_checkpoint_behind_it(bolt: Any) -> None:
    solo = with_store(Solo(chain(Scripted(), bolt, Sink(), delivery="exactly_once"), "b"))
    solo.feed(1, tracked=False)
    pass_barrier(solo, 1)
    assert solo.values() == [1]
    assert letters(solo) == [], "a recovery may bring its input again"
    solo.handle(CheckpointComplete(1))
    ((values, why, attempts),) = letters(solo)
    assert (values, why[: len(ODD[1])], attempts) == (*ODD, 1)
    solo.handle(DeadLettersStored(solo.id, [solo.messages(DeadLetter)[0].id]))
    assert solo.task.counters.dead_lettered == 1


def test_that_the_edge_has_no_room_does_not_put_it_off_to_the_next_checkpoint() -> None:
    topology = chain(Scripted(), Plain(emit_odd), Sink(), delivery="exactly_once", edge_window=1, batch_size=1)
    solo = with_store(Solo(topology, "b"))
    solo.feed(1, tracked=False)
    solo.turn()
    assert not solo.task.outbox.has_room(solo.plan.tasks_of("c")[0])
    solo.feed(2, tracked=False)
    pass_barrier(solo, 1)
    solo.handle(CheckpointComplete(1))
    assert len(letters(solo)) == 2


def test_a_row_that_was_lost_behind_the_checkpoint_is_lost_anew_after_a_recovery_and_a_letter_once() -> None:
    solo = with_store(Solo(chain(Scripted(), Plain(emit_odd), Sink(), delivery="exactly_once"), "b"))
    pass_barrier(solo, 1)
    solo.handle(CheckpointComplete(1))
    solo.feed(1, tracked=False)
    solo.run()
    solo.adopt(2, checkpoint=1, restore={solo.id: [PartToRead("file", 1, "checksum", "b", solo.id, 0, (1, 0), True)]})
    solo.open_inputs()
    solo.feed(1, tracked=False)
    pass_barrier(solo, 2)
    solo.handle(CheckpointComplete(2))
    assert len(letters(solo)) == 1


@pytest.mark.parametrize("bolt", [Plain(), Manual()])
def test_a_row_whose_key_cannot_be_one_is_a_dead_letter(bolt: Any) -> None:
    builder = TopologyBuilder("keyed").config(delivery="exactly_once")
    builder.set_spout("a", Scripted())
    builder.set_bolt("b", bolt).shuffle_grouping("a")
    builder.set_bolt("c", Sink(), parallelism=2).fields_grouping("b", "value")
    solo = with_store(Solo(builder.build(), "b"))
    solo.feed(1, {"no": "key"}, tracked=False)
    pass_barrier(solo, 1)
    solo.handle(CheckpointComplete(1))
    assert solo.values() == [1]
    assert [values for values, _, _ in letters(solo)] == [({"no": "key"},)]


@pytest.mark.parametrize("source", [Scripted, Replaying])
def test_a_row_of_a_spout_that_cannot_be_carried_is_a_dead_letter_when_its_message_is_covered(source: Any) -> None:
    def emit(collector: Any) -> None:
        collector.emit((1,), message_id=1)
        collector.emit((Odd(),), message_id=2)

    solo = with_store(Solo(chain(source([emit], ends=False), Sink(), delivery="exactly_once"), "a"))
    solo.run()
    solo.handle(BeginCheckpoint(solo.epoch, 1))
    assert letters(solo) == []
    solo.handle(CheckpointComplete(1))
    assert solo.values() == [1]
    assert [values for values, _, _ in letters(solo)] == ["(Odd(),)"]
    solo.handle(DeadLettersStored(solo.id, [solo.messages(DeadLetter)[0].id]))
    assert solo.task.counters.dead_lettered == 1


def test_with_at_least_once_the_root_fails_and_there_is_no_letter_of_the_bolt() -> None:
    solo = Solo(chain(Scripted(), Plain(emit_odd), Sink()), "b")
    solo.feed(1)
    solo.run()
    assert letters(solo) == [] and len(solo.errors()) == 1


def emit_odd_unanchored(tup: Any, collector: Any) -> None:
    collector.emit((Odd(),))
    collector.ack(tup)


def emit_odd_anchored(tup: Any, collector: Any) -> None:
    collector.emit((Odd(),), tup)
    collector.ack(tup)


@pytest.mark.parametrize(
    ("bolt", "delivery", "unsent"),
    [
        (Plain(emit_odd), "at_most_once", 1),
        (Manual(emit_odd_anchored), "at_most_once", 1),
        (Manual(emit_odd_unanchored), "at_least_once", 1),
        (Manual(emit_odd_anchored), "at_least_once", 0),
        (Plain(emit_odd), "at_least_once", 0),
    ],
)
def test_a_row_with_which_no_message_fails_is_counted(bolt: Any, delivery: str, unsent: int) -> None:
    solo = Solo(chain(Scripted(), bolt, Sink(), delivery=delivery), "b")
    solo.feed(1, tracked=delivery != "at_most_once")
    solo.run()
    assert solo.task.counters.unsent == unsent
