"""Suspects whose verdicts are long in coming: tried in growing numbers, and the guilty one is still found."""

from __future__ import annotations

from tests.unit.tracking.retry_books import Book, emit, ids
from topo.tracking.retries import GivenUpMessage, Trials


def test_suspects_whose_verdicts_do_not_come_are_tried_in_numbers_that_double(book: Book) -> None:
    emit(book, *range(1001))
    book.lost(range(1001))
    book.suspect(range(1000), alone=False)
    now = 50.0
    trials: list[int] = []
    while due := book.due(now, in_flight=sum(trials)):
        trials.append(len(due))
        assert book.due(now + 0.9, in_flight=sum(trials)) == []
        assert book.next_deadline(now, in_flight=sum(trials)) in (now + 1.0, None)
        now += 1.0
    assert trials == [1, 2, 4, 8, 16, 32, 64, 128, 256, 489, 1], "then those that were no suspects"
    assert not book.holds_back


def test_a_trial_that_has_its_verdict_makes_way_at_once_for_another_of_as_many(book: Book) -> None:
    emit(book, *range(6))
    book.lost(range(6))
    book.suspect(range(6), alone=False)
    assert ids(book.due(0.0, in_flight=0)) == [0]
    assert ids(book.due(1.0, in_flight=1)) == [1, 2]
    book.done([1])
    assert book.due(1.5, in_flight=2) == []
    book.done([2])
    assert book.next_deadline(1.5, in_flight=1) == 1.5
    assert book.due(1.5, in_flight=1, limit=0) == []
    assert ids(book.due(1.5, in_flight=1)) == [3, 4]


def test_after_a_death_suspects_are_tried_one_at_a_time_again_and_the_killer_last_and_alone(book: Book) -> None:
    emit(book, *range(8))
    book.lost(range(8))
    book.suspect(range(8), alone=False)
    for now, expected in ((0.0, [0]), (1.0, [1, 2]), (2.0, [3, 4, 5, 6])):
        assert ids(book.due(now, in_flight=0)) == expected
    book.lost(range(7))
    assert book.suspect([5], alone=True) == []
    tried = []
    for now in (3.0, 4.0, 5.0, 6.0):
        tried.append(ids(book.due(now, in_flight=0)))
        book.done(tried[-1])
    assert tried == [[7], [3], [4], [6]], "first 7, which was never on trial"
    assert ids(book.due(7.0, in_flight=0)) == [5]
    assert ids(book.due(8.0, in_flight=1)) == [0, 1, 2]


def test_a_killer_among_others_is_alone_in_the_end_however_long_a_bolt_holds_them(book: Book) -> None:
    """A bolt gathers for ten seconds, then a row that is anchored on all kills: the mark names all."""
    emit(book, *range(20))
    book.lost(range(20))
    book.suspect(range(20), alone=False)
    now, since, deaths = 0.0, 0.0, 0
    held: list[int] = []
    dead: list[GivenUpMessage[int, str]] = []
    while not dead and deaths < 50:
        due = ids(book.due(now, in_flight=len(held)))
        since = since if held else now
        held += due
        if held and now >= since + 10.0:
            if 13 in held:
                deaths += 1
                book.lost(held)
                dead = book.suspect(held, alone=held == [13])
            else:
                book.done(held)
            held = []
        now += 0.5
    assert [one.message_id for one in dead] == [13]
    assert deaths <= 8


def test_where_the_second_death_counts_messages_of_the_first_are_emitted_like_the_rest() -> None:
    book = Book(trials=Trials(patience_s=0.05, second_death=True))
    emit(book, 1, 2, 3)
    book.lost([1, 2, 3])
    book.suspect([1, 2], alone=False)
    assert not book.holds_back
    assert sorted(ids(book.due(0.0, in_flight=0))) == [1, 2, 3]
    book.lost([1, 2, 3])
    book.suspect([1, 2], alone=False)
    assert ids(book.due(0.0, in_flight=0)) == [1]
    book.validate()
