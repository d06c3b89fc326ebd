"""Elements into the accumulators of open windows, against one element after the other."""

from __future__ import annotations

from array import array
from types import ModuleType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

STEP, OFFSET, SPAN = 10, 3, 4
FAR = 2**63 - 1
stamps = st.one_of(st.integers(-40, 60), st.sampled_from([-FAR - 1, -FAR, FAR, 2**61, -(2**61)]))
elements = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9), stamps), max_size=30)


def start_of(stamp: int) -> int:
    return stamp - (stamp - OFFSET) % STEP


class Work:
    """Accumulators that are lists of values; some values raise, some drop the accumulator, and one cuts the batch short."""

    def __init__(self, opened: list[int], width: int) -> None:
        self.cells: dict[int, dict[Any, Any]] = {
            start: {} for at in opened for start in range(at - STEP * (width - 1), at + 1, STEP)
        }
        self.slots: dict[int, Any] = {at: (tuple([self.cells[at - STEP * back] for back in range(width)]), []) for at in opened}
        self.calls: list[Any] = []
        self.values: list[int] = []

    def first(self, value: int) -> Any:
        self.calls.append(value)
        return self.checked(value, [value])

    def more(self, value: int, kept: list[int]) -> Any:
        self.calls.append((value, list(kept)))
        return self.checked(value, [*kept, value])

    def checked(self, value: int, accumulator: list[int]) -> Any:
        if value == 9:
            raise ValueError("nine")
        if value == 8:
            self.values.clear()
        return None if value == 7 else accumulator

    def state(self) -> Any:
        return self.cells, {at: taken for at, (_, taken) in self.slots.items()}, self.calls


def naive(work: Work, keys: list[Any], values: list[int], times: list[int], at: int, *, takes_first: bool) -> tuple[int, str]:
    cut = False
    while at < len(values) and not cut:
        slot = work.slots.get(start_of(times[at]))
        if slot is None or not (takes_first or all(keys[at] in cells for cells in slot[0])):
            return at, ""
        try:
            added = [work.more(values[at], cells[keys[at]]) if keys[at] in cells else work.first(values[at]) for cells in slot[0]]
        except ValueError as error:
            return at, str(error)
        for cells, accumulator in zip(slot[0], added, strict=True):
            cells.pop(keys[at], None)
            if accumulator is not None:
                cells[keys[at]] = accumulator
        slot[1].append(at)
        cut = values[at] == 8
        at += 1
    return at, ""


@given(
    batches=st.lists(st.tuples(elements, st.booleans()), max_size=3),
    opened=st.sets(st.integers(-3, 5), max_size=5),
    width=st.integers(1, 3),
)
@example(batches=[([("a", 1, 5)], True), ([("a", 2, 6), ("b", 3, 6)], False)], opened={0}, width=2)
def test_each_element_goes_to_all_its_windows_or_the_call_ends_there(
    hot: ModuleType, batches: Any, opened: set[int], width: int
) -> None:
    starts = [OFFSET + STEP * number for number in sorted(opened)]
    work, model = Work(starts, width), Work(starts, width)
    for rows, takes in batches:
        keys, values, times = ([row[place] for row in rows] for place in range(3))
        at = 0
        while True:
            work.values = list(values)
            first = work.first if takes else None
            at_hand = at
            at, error = hot.accumulate(
                keys, work.values, array("q", times), at_hand, work.slots, OFFSET, STEP, work.more, first, list
            )
            assert (at, str(error or "")) == naive(model, keys, values, times, at_hand, takes_first=takes)
            assert work.state() == model.state()
            if at >= len(values):
                break
            at += not (at > at_hand and values[at - 1] == 8)


def test_an_accumulator_that_can_change_is_copied_where_the_call_may_be_undone(hot: ModuleType) -> None:
    def more(value: int, kept: list[int]) -> list[int]:
        kept.append(value)
        raise ValueError

    for protect, left in ((list, [1]), (None, [1, 2])):
        cells = {"k": [1]}
        at, error = hot.accumulate(["k"], [2], array("q", [5]), 0, {0: ((cells,), [])}, 0, 10, more, None, protect)
        assert (at, type(error), cells) == (0, ValueError, {"k": left})


def test_a_key_that_cannot_be_looked_up_is_an_error_of_its_element(hot: ModuleType) -> None:
    for first in (None, id):
        at, error = hot.accumulate(
            ["k", []], [1, 2], array("q", [5, 5]), 0, {0: (({"k": 1},), [])}, 0, 10, lambda value, kept: kept, first, None
        )
        assert at == 1 and isinstance(error, TypeError)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_leaves_the_call(hot: ModuleType, error: type[BaseException]) -> None:
    def more(value: int, kept: int) -> int:
        raise error

    with pytest.raises(error):
        hot.accumulate(["k"], [2], array("q", [5]), 0, {0: (({"k": 1},), [])}, 0, 10, more, None, None)


numbers = [st.integers(-(2**70), 2**70), st.floats(allow_nan=False), st.booleans(), st.decimals(allow_nan=False, places=2)]
fields = st.one_of(*numbers, st.text(max_size=2), st.none())
spots = st.sampled_from([None, 0, 1, 2])
places = st.recursive(spots, lambda one: st.lists(one, min_size=1, max_size=3).map(tuple), max_leaves=4)


def added(place: Any, value: Any, kept: Any) -> Any:
    """The accumulator by the rule: a number, or a tuple of accumulators."""
    if isinstance(place, tuple):
        parts = [None] * len(place) if kept is None else kept
        return tuple([added(one, value, part) for one, part in zip(place, parts, strict=True)])
    return (0 if kept is None else kept) + (1 if place is None else value[place])


@given(
    rows=st.lists(st.tuples(st.sampled_from("abc"), st.lists(fields, max_size=3).map(tuple), st.integers(0, 30)), max_size=12),
    place=places,
    width=st.integers(1, 2),
    takes_first=st.booleans(),
    protects=st.booleans(),
    restored=st.sampled_from([5, (5,), (5, 1.5), ((5, 1),), [5], (5, (1, 2)), ()]),
)
@example([("a", (1,), 3), ("a", (2.5,), 3), ("a", ("x",), 3)], 0, 1, True, False, 5)
@example([("a", (), 3), ("a", (), 3)], None, 2, True, True, 5)
@example([("b", (1, 2), 3), ("a", (1, 2), 3)], (None,), 1, True, False, (5,))
@example([("b", (1, 2), 3), ("a", (1, "x"), 3)], (None, (1, None)), 1, True, False, (5, (1, 2)))
def test_an_added_field_is_the_same_as_a_call_that_adds_it(
    hot: ModuleType, rows: Any, place: Any, width: int, takes_first: bool, protects: bool, restored: Any
) -> None:
    def called(value: Any, kept: Any = None) -> Any:
        return added(place, value, kept)

    def run(add: Any) -> Any:
        cells: list[dict[str, Any]] = [{} for _ in range(width)]
        slots: Any = {start: (tuple(cells), []) for start in (0, 10, 20)}
        cells[0]["b"] = cells[-1]["b"] = restored
        keys, values, times = ([row[at] for row in rows] for at in range(3))
        first, protect = add if takes_first else None, (lambda kept: kept) if protects else None
        at, error = hot.accumulate(keys, values, array("q", times), 0, slots, 0, 10, add, first, protect)
        return at, type(error), str(error), repr(cells), [taken for _, taken in slots.values()]

    assert run(hot.AddField(place)) == run(called)


def test_an_added_field_of_anything_but_a_tuple_is_read_as_a_call_would(hot: ModuleType) -> None:
    cells = {"k": 1}
    values = [[2], {0: 3}, (4,)]
    at, error = hot.accumulate(["k"] * 3, values, array("q", [5] * 3), 0, {0: ((cells,), [])}, 0, 10, hot.AddField(0), None, None)
    assert (at, error, cells) == (3, None, {"k": 10})
