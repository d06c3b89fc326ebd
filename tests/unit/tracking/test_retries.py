from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.unit.tracking.retry_books import Book, emit, ids
from topo.errors import EmitError, TopoInternalError
from topo.tracking.retries import Backoff, GivenUpMessage


def test_the_back_off_is_1_4_and_16_seconds_and_no_longer() -> None:
    assert [Backoff().delay_s(failures) for failures in (1, 2, 3, 4, 1000)] == [1.0, 4.0, 16.0, 16.0, 16.0]


def test_a_message_that_was_given_up_unsent_and_is_done_may_be_emitted_again(book: Book) -> None:
    emit(book, 1)
    book.give_up(1, "cannot be decoded")
    book.done([1])
    book.validate()
    emit(book, 1)
    book.lost([1])
    assert ids(book.due(0.0, in_flight=0)) == [1]


def test_a_failed_message_comes_back_after_its_back_off(book: Book) -> None:
    emit(book, 1)
    assert book.failed(1, "timeout", now=100.0) is None
    assert book.next_deadline(100.0, in_flight=0) == 101.0
    assert book.due(100.9, in_flight=0) == []
    assert book.due(101.0, in_flight=0) == [(1, "message 1")]
    assert book.next_deadline(101.0, in_flight=1) is None


def test_a_message_has_failed_before_from_its_failure_until_it_is_done(book: Book) -> None:
    emit(book, 1, 2, 3)
    book.failed(2, "boom", now=0.0)
    book.due(1.0, in_flight=2)
    book.lost([1, 2, 3])
    assert book.previously_failed([1, 2, 3]) == [1], "a reset is no failure, and makes none forgotten"
    book.done([2])
    emit(book, 2)
    assert book.previously_failed([1, 2, 3]) == []


def test_the_third_failure_makes_a_dead_letter(book: Book) -> None:
    emit(book, 1)
    assert book.failed(1, "boom", now=0.0) is None
    assert book.next_deadline(0.0, in_flight=0) == 1.0
    book.due(1.0, in_flight=0)
    assert book.failed(1, "boom", now=2.0) is None
    assert book.next_deadline(2.0, in_flight=0) == 6.0
    book.due(6.0, in_flight=0)
    assert book.failed(1, "boom at last", now=7.0) == GivenUpMessage(1, "message 1", "boom at last", 3)
    assert book.next_deadline(7.0, in_flight=0) is None
    assert len(book) == 1
    book.done([1])
    assert len(book) == 0


def test_a_dead_message_is_not_emitted_again_at_a_reset(book: Book) -> None:
    book = Book(attempts=1)
    emit(book, 1)
    assert isinstance(book.failed(1, "boom", now=0.0), GivenUpMessage)
    book.lost([1])
    assert book.suspect([1], alone=True) == []
    assert book.due(1e9, in_flight=0) == []
    book.validate()


def test_a_failing_message_does_not_block_later_ones(book: Book) -> None:
    emit(book, 1)
    book.failed(1, "boom", now=0.0)
    assert not book.holds_back
    assert emit(book, *range(2, 100)) == []
    book.done(range(2, 100))
    assert len(book) == 1
    assert ids(book.due(1.0, in_flight=0)) == [1]


def test_retries_come_by_the_end_of_their_back_off(book: Book) -> None:
    emit(book, 1, 2, 3)
    book.failed(3, "boom", now=0.0)
    book.failed(1, "boom", now=0.5)
    book.failed(2, "boom", now=0.5)
    assert ids(book.due(1.2, in_flight=0)) == [3]
    book.failed(3, "boom", now=1.3)
    assert ids(book.due(9.0, in_flight=0)) == [1, 2, 3]


def test_a_success_clears_the_failures(book: Book) -> None:
    emit(book, 1)
    book.failed(1, "boom", now=0.0)
    book.due(1.0, in_flight=0)
    book.done([1])
    emit(book, 1)
    assert book.failed(1, "boom", now=2.0) is None
    assert book.next_deadline(2.0, in_flight=0) == 3.0


def test_lost_messages_go_first_in_order_without_back_off_and_without_an_attempt(book: Book) -> None:
    emit(book, 1, 2, 3, 4)
    book.failed(2, "boom", now=0.0)
    for _ in range(10):
        book.lost([1, 3, 4])
        assert book.next_deadline(0.1, in_flight=0) == 0.1
        assert ids(book.due(0.1, in_flight=0)) == [1, 3, 4]
    book.lost([1, 3, 4])
    assert ids(book.due(1.0, in_flight=0)) == [1, 3, 4, 2]
    assert book.failed(1, "boom", now=1.0) is None
    assert book.next_deadline(1.0, in_flight=0) == 2.0


def test_a_second_loss_puts_what_was_emitted_again_before_what_still_waits(book: Book) -> None:
    emit(book, 1, 2, 3, 4)
    book.lost([1, 2, 3, 4])
    assert ids(book.due(0.0, in_flight=0, limit=2)) == [1, 2]
    book.lost([1, 2])
    assert ids(book.due(0.0, in_flight=0)) == [1, 2, 3, 4]


def test_the_limit_leaves_the_rest_due(book: Book) -> None:
    emit(book, 1, 2, 3)
    for message_id in (1, 2, 3):
        book.failed(message_id, "boom", now=0.0)
    assert ids(book.due(5.0, in_flight=0, limit=2)) == [1, 2]
    assert book.due(5.0, in_flight=2, limit=0) == []
    assert ids(book.due(5.0, in_flight=2)) == [3]


def test_suspects_are_tried_one_at_a_time_with_nothing_else_in_flight(book: Book) -> None:
    emit(book, 1, 2, 3, 4)
    book.failed(4, "boom", now=0.0)
    book.lost([1, 2, 3])
    assert book.suspect([1, 2], alone=False) == []
    assert book.holds_back
    assert book.due(50.0, in_flight=1) == []
    assert book.next_deadline(50.0, in_flight=1) == 51.0, "those from before are watched as long as a trial"
    assert book.next_deadline(50.0, in_flight=0) == 50.0
    assert ids(book.due(50.0, in_flight=0)) == [1]
    assert book.due(50.0, in_flight=1) == []
    assert book.due(50.0, in_flight=0) == []
    book.done([1])
    assert ids(book.due(50.0, in_flight=0)) == [2]
    assert book.holds_back
    book.done([2])
    assert not book.holds_back
    assert ids(book.due(50.0, in_flight=0)) == [3, 4]


def test_a_suspect_that_kills_alone_as_often_as_attempts_allow_is_dead(book: Book) -> None:
    emit(book, 1, 2)
    book.lost([1, 2])
    book.suspect([1], alone=False)
    for kills in (1, 2):
        assert ids(book.due(0.0, in_flight=0)) == [1]
        book.lost([1])
        assert book.suspect([1], alone=True) == []
        assert book.kills == {1: kills}
    assert ids(book.due(0.0, in_flight=0)) == [1]
    [dead_letter] = book.suspect([1], alone=True)
    assert (dead_letter.message_id, dead_letter.message, dead_letter.attempts) == (1, "message 1", 3)
    assert "3 times" in dead_letter.why
    book.lost([1])
    assert not book.holds_back
    assert ids(book.due(0.0, in_flight=0)) == [2]
    book.done([1, 2])
    assert book.kills == {}


def test_suspects_never_tried_go_before_those_that_have_killed(book: Book) -> None:
    emit(book, 1, 2, 3)
    book.suspect([1, 2, 3], alone=False)
    assert ids(book.due(0.0, in_flight=0)) == [1]
    book.suspect([1], alone=True)
    assert ids(book.due(0.0, in_flight=0)) == [2]
    book.done([2])
    assert ids(book.due(0.0, in_flight=0)) == [3]
    book.done([3])
    assert ids(book.due(0.0, in_flight=0)) == [1]


def test_the_order_of_lost_and_suspect_does_not_matter() -> None:
    outcomes = []
    for lost_first in (True, False):
        book = Book()
        emit(book, 1, 2, 3)
        if lost_first:
            book.lost([1, 2, 3])
        book.suspect([2], alone=False)
        if not lost_first:
            book.lost([1, 2, 3])
        book.validate()
        on_trial = ids(book.due(0.0, in_flight=0))
        book.done(on_trial)
        outcomes.append((on_trial, ids(book.due(0.0, in_flight=0))))
    assert outcomes == [([2], [1, 3]), ([2], [1, 3])]


def test_a_suspect_on_trial_that_another_fault_ends_is_tried_again_uncounted(book: Book) -> None:
    emit(book, 1)
    book.suspect([1], alone=False)
    for _ in range(5):
        assert ids(book.due(0.0, in_flight=0)) == [1]
        book.lost([1])
        assert book.holds_back
    assert book.kills == {1: 0}


def test_a_trial_that_fails_is_an_ordinary_failure(book: Book) -> None:
    emit(book, 1)
    book.suspect([1], alone=False)
    book.due(0.0, in_flight=0)
    assert book.failed(1, "boom", now=0.0) is None
    assert book.next_deadline(0.0, in_flight=0) == 1.0
    assert not book.holds_back
    assert ids(book.due(1.0, in_flight=0)) == [1]


def test_a_delayed_message_in_flight_no_longer_waits_out_its_back_off(book: Book) -> None:
    emit(book, 1)
    book.failed(1, "boom", now=0.0)
    book.suspect([1], alone=False)
    assert ids(book.due(0.0, in_flight=0)) == [1]
    book.done([1])
    assert book.next_deadline(5.0, in_flight=0) is None
    assert book.due(5.0, in_flight=0) == []


def test_several_messages_cannot_each_have_been_alone(book: Book) -> None:
    emit(book, 1, 2)
    with pytest.raises(TopoInternalError):
        book.suspect([1, 2], alone=True)


def test_one_message_with_several_roots_in_flight_is_one_kill(book: Book) -> None:
    emit(book, 1)
    book.suspect([1, 1], alone=True)
    assert book.kills == {1: 1}


def test_suspects_of_an_earlier_life_are_held_when_they_are_emitted() -> None:
    first = Book()
    emit(first, 1, 2, 3)
    first.suspect([2, 3], alone=False)
    first.due(0.0, in_flight=0)
    first.suspect([2], alone=True)

    second = Book()
    second.restore(first.kills)
    assert emit(second, 1, 2) == [2]
    assert second.due(0.0, in_flight=1) == []
    second.done([1])
    assert emit(second, 3, 4) == [3]
    second.done([4])
    assert ids(second.due(0.0, in_flight=0)) == [3]
    second.done([3])
    assert ids(second.due(0.0, in_flight=0)) == [2]
    assert second.suspect([2], alone=True) == []
    second.due(0.0, in_flight=0)
    [dead_letter] = second.suspect([2], alone=True)
    assert dead_letter.attempts == 3
    second.validate()


def test_a_message_whose_kills_a_restart_has_counted_is_given_up_when_emitted() -> None:
    book = Book()
    book.restore({1: 3, 2: 2})
    held = emit(book, 1, 2, 3)
    assert held == [1, 2]
    [dead_letter] = book.condemned(held)
    assert (dead_letter.message_id, dead_letter.attempts) == (1, 3)
    assert ids(book.due(0.0, in_flight=0)) == [2]
    book.validate()


def test_a_message_id_that_is_still_processed_cannot_be_emitted_again(book: Book) -> None:
    emit(book, 1, 2)
    with pytest.raises(EmitError, match="message id 2 "):
        emit(book, 3, 2)
    with pytest.raises(EmitError, match="message id 4 "):
        emit(book, 4, 4)
    assert len(book) == 2


def test_a_failure_of_a_message_that_is_not_in_flight_is_a_bug(book: Book) -> None:
    emit(book, 1)
    book.failed(1, "boom", now=0.0)
    for message_id in (1, 2):
        with pytest.raises(TopoInternalError):
            book.failed(message_id, "boom", now=0.0)


def test_a_message_needs_at_least_one_attempt() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Book(attempts=0)


def test_the_suspect_on_trial_counts_as_a_suspect(book: Book) -> None:
    emit(book, 1, 2)
    book.suspect([1, 2], alone=False)
    assert book.suspect_count == 2
    book.due(0.0, in_flight=0)
    assert book.suspect_count == 2
    book.done([1])
    assert book.suspect_count == 1


def test_messages_that_are_done_are_returned_in_order(book: Book) -> None:
    emit(book, 1, 2)
    assert book.done([2, 7, 1]) == ["message 2", None, "message 1"]


class AnySpout(RuleBasedStateMachine):
    """A spout whose messages end in any way: none is forgotten, none is given up before it failed or killed often enough."""

    @initialize()
    def start(self) -> None:
        self.book = Book(attempts=2)
        self.now = 0.0
        self.tried_at = 0.0
        self.next_id = 0
        self.in_flight: list[int] = []
        self.unfinished: set[int] = set()
        self.deserved: dict[int, int] = {}

    @precondition(lambda self: not self.book.holds_back)
    @rule(count=st.integers(1, 4))
    def next_tuple(self, count: int) -> None:
        new = list(range(self.next_id, self.next_id + count))
        self.next_id += count
        assert emit(self.book, *new) == []
        self.in_flight += new
        self.unfinished.update(new)

    @rule(seconds=st.sampled_from([0.0, 0.5, 20.0]))
    def turn(self, seconds: float) -> None:
        self.now += seconds
        held_back = self.book.holds_back
        due = ids(self.book.due(self.now, len(self.in_flight)))
        if held_back and due:
            assert not self.in_flight or self.now >= self.tried_at + 1.0, "something in flight was not outlived"
        self.tried_at = self.now if self.book.holds_back and due else self.tried_at
        assert not set(due) & set(self.in_flight)
        self.in_flight += due

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        message_id = data.draw(st.sampled_from(self.in_flight))
        self.in_flight.remove(message_id)
        self.book.done([message_id])
        self.unfinished.remove(message_id)

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        message_id = data.draw(st.sampled_from(self.in_flight))
        self.in_flight.remove(message_id)
        self.deserved[message_id] = self.deserved.get(message_id, 0) + 1
        outcome = self.book.failed(message_id, "boom", self.now)
        if isinstance(outcome, GivenUpMessage):
            self.bury(outcome)

    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        in_flight = data.draw(st.lists(st.sampled_from(self.in_flight), unique=True)) if self.in_flight else []
        alone = len(in_flight) == 1
        self.book.lost(self.in_flight)
        self.in_flight = []
        for message_id in in_flight if alone else []:
            self.deserved[message_id] = self.deserved.get(message_id, 0) + 1
        for dead_letter in self.book.suspect(in_flight, alone):
            self.bury(dead_letter)

    def bury(self, dead_letter: GivenUpMessage[int, str]) -> None:
        assert self.deserved[dead_letter.message_id] >= 2
        self.book.done([dead_letter.message_id])
        self.unfinished.remove(dead_letter.message_id)

    @invariant()
    def nothing_is_forgotten(self) -> None:
        self.book.validate()
        assert len(self.book) == len(self.unfinished)

    def teardown(self) -> None:
        for _ in range(3 * len(self.unfinished) + 3):
            for message_id in self.in_flight:
                self.book.done([message_id])
                self.unfinished.remove(message_id)
            self.now += 20.0
            self.in_flight = ids(self.book.due(self.now, in_flight=0))
        assert not self.unfinished


TestAnySpout = AnySpout.TestCase
TestAnySpout.settings = settings(max_examples=60, stateful_step_count=30)
