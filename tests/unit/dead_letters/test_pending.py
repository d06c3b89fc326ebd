"""Dead letters that wait for their checkpoint, against a model that keeps every dead letter and every snapshot."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topo.dead_letters.pending import PendingDeadLetters
from topo.hot import Ids
from topo.ids import TaskId
from topo.wire.codec import MAX_ELEMENTS, Codec
from topo.wire.control import DeadLetter

CODEC = Codec()
IDS = Ids(b"dead letters")


class Master:
    """The master: a dead letter is stored once for each identity."""

    def __init__(self) -> None:
        self.dead_letters: dict[int, DeadLetter] = {}

    def __call__(self, dead_letter: DeadLetter) -> None:
        known = self.dead_letters.setdefault(dead_letter.identity, dead_letter)
        assert known.values == dead_letter.values, f"{dead_letter.identity} is another dead letter than before"

    @property
    def values(self) -> list[Any]:
        return [CODEC.unpack_value(dead_letter.values)[0] for dead_letter in self.dead_letters.values()]


@given(
    st.lists(
        st.sampled_from(("add", "add", "snapshot", "complete", "complete again", "stored", "recover")),
        max_size=60,
    )
)
@settings(max_examples=300, deadline=None)
def test_a_letter_is_told_when_a_checkpoint_covers_it_and_stored_once(steps: list[str]) -> None:
    master = Master()
    held = PendingDeadLetters(TaskId(1), CODEC, IDS, master)
    given_up: list[int] = []
    covered: dict[int, list[int]] = {0: []}
    states: dict[int, Any] = {}
    checkpoint = complete = fresh = 0
    for name in steps:
        if name == "add":
            # After a recovery other tuples may be given up than before.
            fresh += 1
            given_up.append(fresh)
            held.add((fresh,), "why", 3)
        elif name == "snapshot":
            checkpoint += 1
            states[checkpoint], covered[checkpoint] = held.snapshot(checkpoint), list(given_up)
        elif name == "complete" and checkpoint in states:
            complete = max(complete, checkpoint)
            held.publish(complete)
        elif name == "complete again" and complete:
            held.publish(complete)
        elif name == "stored":
            held.stored(list(master.dead_letters))
        elif name == "recover":
            states = {complete: states[complete]} if complete else {}
            given_up = list(covered[complete])
            held.restore(states.values(), complete)
            if complete:
                held.publish(complete)
        assert sorted(master.values) == covered[complete]
    held.stored(list(master.dead_letters))
    assert len(held) == len(given_up) - len(covered[complete])


def test_letters_of_two_tasks_that_one_takes_over_keep_apart() -> None:
    old = []
    for task in (1, 2):
        before = PendingDeadLetters(TaskId(task), CODEC, IDS, Master())
        before.add((f"of {task}",), "why", 1)
        old.append(before.snapshot(5))
    master = Master()
    after = PendingDeadLetters(TaskId(1), CODEC, IDS, master)
    after.restore(old, 5)
    after.publish(5)
    assert sorted(master.values) == ["of 1", "of 2"]
    after.add(("new",), "why", 1)
    after.snapshot(6)
    after.publish(6)
    assert sorted(master.values) == ["new", "of 1", "of 2"]


def test_after_a_fall_back_new_dead_letters_are_reported_beside_stored_ones() -> None:
    master = Master()
    held = PendingDeadLetters(TaskId(1), CODEC, IDS, master)
    first = held.snapshot(1)
    held.add(("A",), "why", 1)
    held.snapshot(2)
    held.publish(2)
    held.stored(list(master.dead_letters))
    held.restore([first], 1)
    held.add(("B",), "why", 1)
    held.snapshot(3)
    held.publish(3)
    assert master.values == ["A", "B"]


def test_a_letter_is_the_same_for_whoever_goes_on_from_its_checkpoint() -> None:
    master = Master()
    held = PendingDeadLetters(TaskId(1), CODEC, IDS, master)
    held.add(("A",), "why", 1)
    state = held.snapshot(2)
    held.publish(2)
    held.stored(list(master.dead_letters))
    later = PendingDeadLetters(TaskId(7), CODEC, Ids(b"others"), master)
    later.restore([state], 2)
    later.publish(2)
    assert master.values == ["A"] and len(later) == 1
    assert later.stored(list(master.dead_letters)) == 1


def test_letters_of_a_checkpoint_from_before_they_had_identities_are_told_apart() -> None:
    master = Master()
    held = PendingDeadLetters(TaskId(1), CODEC, IDS, master)
    held.restore([{"count": 1, "held": [(1, CODEC.pack_value((one,)), "why", 3)]} for one in "AB"], 2)
    held.publish(2)
    assert master.values == ["A", "B"]


def test_values_that_cannot_be_carried_are_kept_in_words() -> None:
    master = Master()
    held = PendingDeadLetters(TaskId(1), CODEC, IDS, master)
    held.add((object,), "why", 1)
    held.snapshot(1)
    held.publish(1)
    (dead_letter,) = master.dead_letters.values()
    assert "object" in CODEC.unpack_value(dead_letter.values)


class Mute:
    """Neither carried nor shown."""

    def __repr__(self) -> str:
        raise ValueError("no")


class Torn:
    def __repr__(self) -> str:
        return "\udc80"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ((Mute(),), "(ValueError in repr)"),
        ((Torn(),), "(\\udc80,)"),
        ((b"x" * (16 << 20),), "(b'xxxx"),
        (([1] * (MAX_ELEMENTS + 1),), "([1, 1, "),
    ],
)
def test_values_that_are_too_long_or_cannot_be_shown_are_kept_in_other_words(values: Any, words: str) -> None:
    master = Master()
    held = PendingDeadLetters(TaskId(1), CODEC, IDS, master)
    held.add(values, "why", 1)
    held.snapshot(1)
    held.publish(1)
    (dead_letter,) = master.dead_letters.values()
    kept = CODEC.unpack_value(dead_letter.values)
    assert kept.startswith(words) and len(kept) <= 10_000


def test_a_stored_dead_letter_is_not_reported_again_after_a_recovery() -> None:
    master: list[DeadLetter] = []
    held = PendingDeadLetters(TaskId(1), CODEC, IDS, master.append)
    held.add((1,), "why", 3)
    state = held.snapshot(1)
    held.publish(1)
    assert held.stored([master[0].identity]) == 1
    held.restore([state], 1)
    held.publish(1)
    assert len(master) == 1 and len(held) == 0
    assert held.stored([master[0].identity]) == 0


def test_how_full_it_is_goes_by_number_and_bytes_and_by_those_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topo.dead_letters.pending.MOST_HELD", 4)
    monkeypatch.setattr("topo.dead_letters.pending.MOST_HELD_BYTES", 1000)
    master = Master()
    pending = PendingDeadLetters(TaskId(1), CODEC, IDS, master)
    pending.add((b"a",), "why", 1)
    assert pending.fullness == 0.25
    pending.add((b"x" * 2000,), "why", 1)
    assert pending.fullness > 2
    state = pending.snapshot(1)
    pending.publish(1)
    pending.stored([*master.dead_letters, *master.dead_letters])
    assert pending.fullness == 0
    other = PendingDeadLetters(TaskId(1), CODEC, IDS, master)
    other.restore([state], 1)
    assert other.fullness > 2
