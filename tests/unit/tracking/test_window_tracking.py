"""What a window bolt owes for the inputs that its panes hold: one XOR for each, when the last of them is through."""

from __future__ import annotations

import tracemalloc
from typing import Any

from topo.hot import Ids, unpack_words
from topo.tracking.window_tracking import WindowTracker


class Book:
    """A ledger, its acks so far by root, and its inputs."""

    def __init__(self) -> None:
        self.ledger = WindowTracker(Ids(b"panes"))
        self.ledger.reset(1)
        self.acked: dict[int, int] = {}
        self.failed: set[int] = set()
        self.edges: dict[int, int] = {}

    def put(self, root: int, *panes: Any) -> None:
        """An input of one root goes into panes of key k."""
        self.edges[root] = root << 8
        self.ledger.begin([root], [root << 8], is_single=True)
        for pane in panes:
            self.ledger.held(0, "k", pane)
        self.take()

    def fire(self, pane: Any, *, emits: bool = True, purges: bool = False, evicts: tuple[int, ...] = ()) -> int | None:
        """A pane fires; return the root of the firing if the ackers follow it."""
        self.ledger.firing("k", pane)
        if emits and self.ledger.current is not None:
            self.ledger.current.anchor.out ^= 77
        if evicts:
            self.ledger.evicted("k", pane, evicts)
        if purges:
            self.ledger.released("k", pane)
        started = self.ledger.take_firings(0.0)
        self.take()
        assert [value for _, value in started] == [77] * len(started)
        return started[0][0] if started else None

    def take(self) -> None:
        for root, value in zip(*map(unpack_words, self.ledger.acks.take()), strict=True):
            self.acked[root] = self.acked.get(root, 0) ^ value
        self.failed.update(self.ledger.fails)
        self.ledger.fails.clear()
        self.ledger.validate()

    def release(self, pane: Any) -> None:
        self.ledger.released("k", pane)
        self.take()

    def done(self) -> set[int]:
        """The inputs whose edge was acked to the last share."""
        return {root for root, edge in self.edges.items() if self.acked.get(root, 0) == edge}


def test_an_input_is_acked_when_its_pane_is_released() -> None:
    book = Book()
    book.put(1, "w")
    assert book.done() == set()
    book.release("w")
    assert book.done() == {1}


def test_an_input_of_several_panes_is_acked_when_the_last_is_released() -> None:
    book = Book()
    book.put(1, "w", "x", "y")
    assert book.acked, "two shares are out"
    for pane in "yw":
        book.release(pane)
        assert book.done() == set()
    book.release("x")
    assert book.done() == {1}


def test_inputs_are_counted_as_acked_once_however_many_panes_held_them() -> None:
    book = Book()
    book.put(1, "w", "x")
    book.put(2, "w")
    book.release("x")
    assert book.ledger.acked == 0
    book.release("w")
    assert book.ledger.acked == 2 and book.done() == {1, 2}


def test_an_input_waits_for_the_verdict_on_what_its_pane_has_put_out() -> None:
    book = Book()
    book.put(1, "w")
    root = book.fire("w", purges=True)
    assert root is not None and book.done() == set() and book.ledger.open_firings == 1
    book.ledger.completed([root])
    book.take()
    assert book.done() == {1} and book.ledger.open_firings == 0


def test_a_firing_that_puts_nothing_out_is_complete_at_once() -> None:
    book = Book()
    book.put(1, "w")
    assert book.fire("w", emits=False, purges=True) is None
    assert book.done() == {1}


def test_a_pane_that_fires_and_goes_on_holds_its_inputs() -> None:
    book = Book()
    book.put(1, "w")
    first = book.fire("w")
    book.put(2, "w")
    second = book.fire("w", purges=True)
    assert first is not None and second is not None
    book.ledger.completed([second])
    book.take()
    assert book.done() == set(), "the first firing held input 1 and is open"
    book.ledger.completed([first])
    book.take()
    assert book.done() == {1, 2}


def test_a_firing_that_fails_fails_all_that_the_pane_holds() -> None:
    book = Book()
    book.put(1, "w")
    book.put(2, "w")
    book.put(3, "other")
    root = book.fire("w", purges=True)
    assert root is not None
    book.ledger.failed([root])
    book.take()
    assert book.failed == {1, 2} and book.done() == set()
    book.release("other")
    assert book.done() == {3}


def test_the_replays_of_a_failed_pane_are_inputs_of_their_own() -> None:
    book = Book()
    book.put(1, "w")
    root = book.fire("w")
    assert root is not None
    book.ledger.failed([root])
    book.take()
    book.put(9, "w")
    book.release("w")
    assert book.failed == {1} and book.done() == {9} and 1 not in book.acked


def test_merged_panes_hold_the_inputs_of_both_and_their_firings() -> None:
    book = Book()
    book.put(1, "a")
    root = book.fire("a")
    book.put(2, "b")
    book.ledger.merge("k", "b", ["a"])
    book.release("b")
    assert book.done() == set() and book.ledger.open_panes == 0
    assert root is not None
    book.ledger.completed([root])
    book.take()
    assert book.done() == {1, 2}


def test_an_input_in_both_of_two_merged_panes_keeps_both_its_shares() -> None:
    book = Book()
    book.put(1, "a", "b")
    book.ledger.merge("k", "b", ["a"])
    assert book.done() == set()
    book.release("b")
    assert book.done() == {1}


def test_an_evicted_input_is_done_with_the_firing_that_was_its_last() -> None:
    book = Book()
    book.put(1, "w")
    book.put(2, "w")
    root = book.fire("w", evicts=(0,))
    assert book.done() == set() and root is not None
    book.ledger.completed([root])
    book.take()
    assert book.done() == {1}
    book.release("w")
    assert book.done() == {1, 2}


def test_an_evicted_input_waits_for_earlier_firings_too() -> None:
    book = Book()
    book.put(1, "w")
    first = book.fire("w")
    second = book.fire("w", evicts=(0,))
    assert first is not None and second is not None
    book.ledger.completed([second])
    book.take()
    assert book.done() == set()
    book.ledger.failed([first])
    book.take()
    assert book.failed == {1}


def test_evicted_places_are_those_of_inputs_with_several_roots_or_none() -> None:
    book = Book()
    ledger = book.ledger
    ledger.begin([(1, 2), (), (3,)], [(100, 200), (), (300,)], is_single=False)
    for position in range(3):
        ledger.held(position, "k", "w")
    ledger.firing("k", "w")
    ledger.evicted("k", "w", [0, 1])
    ledger.take_firings(0.0)
    book.take()
    assert book.acked == {1: 100, 2: 200}
    book.release("w")
    assert book.acked == {1: 100, 2: 200, 3: 300}


def test_places_stay_right_after_a_pane_has_failed() -> None:
    book = Book()
    book.put(1, "w")
    root = book.fire("w")
    assert root is not None
    book.ledger.failed([root])
    book.take()
    book.put(2, "w")
    book.put(3, "w")
    book.fire("w", emits=False, evicts=(0, 1))
    assert book.done() == {2}, "place 0 is that of the input that failed"


def test_a_pane_without_tracked_inputs_is_anchored_on_nothing() -> None:
    ledger = WindowTracker(Ids(b"x"))
    ledger.begin([()], [()], is_single=False)
    ledger.held(0, "k", "w")
    ledger.firing("k", "w")
    assert ledger.current is None and ledger.take_firings(0.0) == []


def test_inputs_without_roots_that_were_put_together_are_lost_with_their_pane() -> None:
    ledger = WindowTracker(Ids(b"x"))
    ledger.begin([()] * 4, [()] * 4, is_single=False)
    ledger.held_run([0, 1, 3], ["k", "k", "j", "k"], "w")
    assert ledger.unheld() == [2]
    ledger.evicted("k", "w", [1])
    ledger.firing("k", "w")
    ledger.raised(ValueError())
    assert ledger.take_lost() == 2
    ledger.released("k", "w")
    assert ledger.acked == 0


def test_what_no_pane_has_taken_is_named() -> None:
    ledger = WindowTracker(Ids(b"x"))
    ledger.begin([1, 2, 3], [10, 20, 30], is_single=True)
    ledger.held(1, "k", "w")
    assert ledger.unheld() == [0, 2]


def test_a_firing_without_a_verdict_expires_and_fails() -> None:
    book = Book()
    book.put(1, "w")
    root = book.fire("w", purges=True)
    assert root is not None and book.ledger.oldest_firing() == 0.0
    assert book.ledger.expire(29.9, 30.0) == 0
    assert book.ledger.expire(30.0, 30.0) == 1
    book.take()
    assert book.failed == {1} and book.ledger.oldest_firing() is None


def test_a_touch_reaches_the_inputs_of_the_firing() -> None:
    book = Book()
    book.put(1, "w")
    book.put(2, "w")
    root = book.fire("w", evicts=(0,))
    assert root is not None
    assert set(book.ledger.touched([root, 999], 1.0)) == {1, 2}


def test_a_function_that_raises_fails_what_its_pane_holds() -> None:
    book = Book()
    book.put(1, "w")
    book.ledger.firing("k", "w")
    book.ledger.released("k", "w")
    book.ledger.fail_current()
    book.ledger.take_firings(0.0)
    book.take()
    assert book.failed == {1} and book.done() == set()


def test_a_new_epoch_forgets_everything() -> None:
    book = Book()
    book.put(1, "w", "x")
    root = book.fire("w")
    book.ledger.reset(2)
    assert root is not None
    book.ledger.completed([root])
    book.ledger.release_all()
    assert not book.ledger.acks and not book.ledger.fails and book.ledger.open_firings == 0


def test_what_will_never_fire_is_released_at_the_end() -> None:
    book = Book()
    book.put(1, "w")
    book.ledger.release_all()
    book.take()
    assert book.done() == {1}


def sliding(firings: int) -> tuple[WindowTracker, int]:
    """A window of ten inputs that fires and moves on with each; return its ledger, and the bytes that that takes."""
    ledger = WindowTracker(Ids(b"x"))
    ledger.reset(1)
    tracemalloc.start()
    for root in range(1, firings + 1):
        ledger.begin([root], [root << 8], is_single=True)
        ledger.held(0, "k", "w")
        ledger.firing("k", "w")
        assert ledger.current is not None
        ledger.current.anchor.out = 77
        if root > 10:
            ledger.evicted("k", "w", [0])
        ledger.fired()
        ledger.take_firings(0.0)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return ledger, taken


def test_the_memory_of_a_sliding_window_grows_no_faster_than_its_open_firings() -> None:
    assert sliding(1000)[1] < 6 * sliding(250)[1]


def test_parts_that_have_left_a_pane_fail_with_their_own_firings_alone() -> None:
    ledger, _ = sliding(30)
    firings = list(ledger._open)
    ledger.failed([firings[15]])
    assert sorted(ledger.fails) == list(range(6, 31)), "inputs 1 to 5 had left before"
    assert not ledger.acks
    ledger.completed(firings[:15])
    roots, _ = ledger.acks.take()
    assert sorted(unpack_words(roots)) == list(range(1, 6)) and ledger.acked == 5
    ledger.completed(firings[:-16:-1])
    assert not ledger.acks and ledger.open_firings == 0
    ledger.validate()
