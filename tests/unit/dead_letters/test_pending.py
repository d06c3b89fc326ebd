"""Dead letters that wait for their checkpoint, against a model that keeps every letter and every snapshot."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topo.dead_letters.pending import PendingDeadLetters
from topo.ids import IdSource, TaskId
from topo.wire.codec import MAX_ELEMENTS, Codec
from topo.wire.control import DeadLetter

CODEC = Codec()
IDS = IdSource(b"letters")


class Told:
    """What the master has been told: a letter is stored once for each identity."""

    def __init__(self) -> None:
        self.letters: dict[int, DeadLetter] = {}

    def __call__(self, letter: DeadLetter) -> None:
        known = self.letters.setdefault(letter.identity, letter)
        assert known.values == letter.values, f"{letter.identity} is another letter than before"

    @property
    def values(self) -> list[Any]:
        return [CODEC.unpack_value(letter.values)[0] for letter in self.letters.values()]


@given(
    st.lists(
        st.sampled_from(("add", "add", "snapshot", "complete", "complete again", "stored", "recover")),
        max_size=60,
    )
)
@settings(max_examples=300, deadline=None)
def test_a_letter_is_told_when_a_checkpoint_covers_it_and_stored_once(steps: list[str]) -> None:
    told = Told()
    held = PendingDeadLetters(TaskId(1), CODEC, IDS, told)
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
            held.stored(list(told.letters))
        elif name == "recover":
            states = {complete: states[complete]} if complete else {}
            given_up = list(covered[complete])
            held.restore(states.values(), complete)
            if complete:
                held.publish(complete)
        assert sorted(told.values) == covered[complete]
    held.stored(list(told.letters))
    assert len(held) == len(given_up) - len(covered[complete])


def test_letters_of_two_tasks_that_one_takes_over_keep_apart() -> None:
    old = []
    for task in (1, 2):
        before = PendingDeadLetters(TaskId(task), CODEC, IDS, Told())
        before.add((f"of {task}",), "why", 1)
        old.append(before.snapshot(5))
    told = Told()
    after = PendingDeadLetters(TaskId(1), CODEC, IDS, told)
    after.restore(old, 5)
    after.publish(5)
    assert sorted(told.values) == ["of 1", "of 2"]
    after.add(("new",), "why", 1)
    after.snapshot(6)
    after.publish(6)
    assert sorted(told.values) == ["new", "of 1", "of 2"]


def test_after_a_fall_back_what_is_given_up_then_is_told_beside_what_was_stored_before() -> None:
    told = Told()
    held = PendingDeadLetters(TaskId(1), CODEC, IDS, told)
    first = held.snapshot(1)
    held.add(("A",), "why", 1)
    held.snapshot(2)
    held.publish(2)
    held.stored(list(told.letters))
    held.restore([first], 1)
    held.add(("B",), "why", 1)
    held.snapshot(3)
    held.publish(3)
    assert told.values == ["A", "B"]


def test_a_letter_is_the_same_for_whoever_goes_on_from_its_checkpoint() -> None:
    told = Told()
    held = PendingDeadLetters(TaskId(1), CODEC, IDS, told)
    held.add(("A",), "why", 1)
    state = held.snapshot(2)
    held.publish(2)
    held.stored(list(told.letters))
    later = PendingDeadLetters(TaskId(7), CODEC, IdSource(b"others"), told)
    later.restore([state], 2)
    later.publish(2)
    assert told.values == ["A"] and len(later) == 1
    assert later.stored(list(told.letters)) == 1


def test_letters_of_a_checkpoint_from_before_they_had_identities_are_told_apart() -> None:
    told = Told()
    held = PendingDeadLetters(TaskId(1), CODEC, IDS, told)
    held.restore([{"count": 1, "held": [(1, CODEC.pack_value((one,)), "why", 3)]} for one in "AB"], 2)
    held.publish(2)
    assert told.values == ["A", "B"]


def test_values_that_cannot_be_carried_are_kept_in_words() -> None:
    told = Told()
    held = PendingDeadLetters(TaskId(1), CODEC, IDS, told)
    held.add((object,), "why", 1)
    held.snapshot(1)
    held.publish(1)
    (letter,) = told.letters.values()
    assert "object" in CODEC.unpack_value(letter.values)


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
def test_values_that_are_too_long_for_a_message_or_cannot_be_shown_are_kept_in_other_words(values: Any, words: str) -> None:
    told = Told()
    held = PendingDeadLetters(TaskId(1), CODEC, IDS, told)
    held.add(values, "why", 1)
    held.snapshot(1)
    held.publish(1)
    (letter,) = told.letters.values()
    kept = CODEC.unpack_value(letter.values)
    assert kept.startswith(words) and len(kept) <= 10_000


def test_a_letter_on_disk_that_a_recovery_brings_back_is_neither_told_nor_counted_again() -> None:
    told: list[DeadLetter] = []
    held = PendingDeadLetters(TaskId(1), CODEC, IDS, told.append)
    held.add((1,), "why", 3)
    state = held.snapshot(1)
    held.publish(1)
    assert held.stored([told[0].identity]) == 1
    held.restore([state], 1)
    held.publish(1)
    assert len(told) == 1 and len(held) == 0
    assert held.stored([told[0].identity]) == 0
