"""The loop over a slice of inputs, against calls one after the other."""

from __future__ import annotations

import gc
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topo.api.tuples import Origin, Tuple

WHOLE = 10**9


class Bolt:
    """Emits the number of rows on each stream that its input names; raises or returns a value where the input wants it."""

    def __init__(self, streams: int) -> None:
        self.emitted: Any = [([], []) for _ in range(streams)]
        self.seen: list[Any] = []

    def execute(self, tup: Any, collector: Any) -> object:
        count, end = tup.values
        self.seen.append((tup.values, tup.origin, tup.timestamp, collector))
        for rows, _ in self.emitted:
            rows += [(count,)] * count
        if end == "raise":
            raise ValueError(count)
        return "a value" if end == "return" else None


inputs = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["", "", "", "raise", "return"])), max_size=12)


@given(rows=inputs, streams=st.integers(0, 2), limit=st.integers(0, 12), has_stamps=st.booleans())
def test_it_stops_at_the_first_call_that_needs_a_look(
    hot: ModuleType, rows: list, streams: int, limit: int, has_stamps: bool
) -> None:
    bolt, stamps = Bolt(streams), list(range(len(rows))) if has_stamps else None
    ran = hot.run_inputs(bolt.execute, "collector", Tuple, "origin", list(rows), stamps, bolt.emitted, limit)
    total, ends, expected = 0, [], (len(rows), False, None, None)
    for place, (count, end) in enumerate(rows):
        total += count
        if end or (streams and total * streams > limit):
            error = ValueError if end == "raise" else None
            expected = (place + 1, True, error, "a value" if end == "return" else None)
            break
        ends.append(total)
    assert (ran.done, ran.tup is not None, ran.error and type(ran.error), ran.value) == expected
    assert [found for _, found in bolt.emitted] == [ends] * streams
    times = range(len(rows)) if has_stamps else [None] * len(rows)
    assert bolt.seen == [(row, "origin", at, "collector") for row, at in zip(rows, times, strict=True)][: ran.done]
    if ran.tup is not None:
        assert ran.tup.values == rows[ran.done - 1]


@given(rows=inputs, streams=st.integers(0, 2), limit=st.integers(0, 12))
def test_a_loop_of_the_component_s_own_stops_at_the_same_calls(hot: ModuleType, rows: list, streams: int, limit: int) -> None:
    rows = [(count, "" if end == "return" else end) for count, end in rows]
    bolt, own = Bolt(streams), Bolt(streams)

    def loop(rows: Any, collector: Any, emitted: Any, limit: int) -> None:
        for values in rows:
            own.execute(Tuple(values, Origin("a", 1)), collector)
            if sum(len(found) for found, _ in emitted) > limit:
                break
            for found, ends in emitted:
                ends.append(len(found))

    stamps = list(range(len(rows)))
    ran = hot.run_inputs(bolt.execute, None, Tuple, "origin", list(rows), stamps, bolt.emitted, limit)
    again = hot.run_loop(loop, None, Tuple, "origin", list(rows), stamps, own.emitted, limit)
    assert (again.done, type(again.error), own.emitted) == (ran.done, type(ran.error), bolt.emitted)
    assert (again.tup is None) == (ran.tup is None)
    if ran.tup is not None:
        for name in ("values", "origin", "timestamp"):
            assert getattr(again.tup, name) == getattr(ran.tup, name)


def test_a_tuple_that_is_kept_is_not_filled_again(hot: ModuleType) -> None:
    kept = []

    def execute(tup: Any, collector: Any) -> None:
        if tup.values[0] % 2:
            kept.append(tup)

    rows = [(number,) for number in range(100)]
    assert hot.run_inputs(execute, None, Tuple, "origin", rows, None, [], WHOLE) == hot.Ran(100)
    assert [tup.values for tup in kept] == [(number,) for number in range(100) if number % 2]


def test_the_loop_ends_with_the_call_at_hand_when_the_rows_are_taken_away(hot: ModuleType) -> None:
    rows = [(number,) for number in range(100)]
    seen = []

    def execute(tup: Any, collector: Any) -> None:
        seen.append(tup.values)
        if len(seen) == 3:
            rows.clear()

    assert hot.run_inputs(execute, None, Tuple, "origin", rows, None, [], WHOLE) == hot.Ran(3)
    assert seen == [(0,), (1,), (2,)]


def test_the_loop_ends_when_the_rows_are_taken_away_while_a_tuple_is_made(hot: ModuleType) -> None:
    """On Python 3.11 making a tuple may run the garbage collector, and so finalizers of the user, which let other threads run."""
    rows = [(number,) for number in range(100)]
    seen, kept, thresholds = [], [], gc.get_threshold()

    class Garbage:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            rows.clear()

    def execute(tup: Any, collector: Any) -> None:
        kept.append(tup)
        seen.append(tup.values)
        if len(seen) == 1:
            Garbage()
            gc.enable()

    gc.collect()
    gc.disable()
    gc.set_threshold(1)
    try:
        ran = hot.run_inputs(execute, None, Tuple, "origin", rows, None, [], WHOLE)
    finally:
        gc.set_threshold(*thresholds)
        gc.enable()
    assert rows == [] and ran == hot.Ran(len(seen))
    assert seen == [(number,) for number in range(len(seen))] and len(seen) < 3


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_exceptions_that_end_the_process_pass_through(hot: ModuleType, error: type[BaseException]) -> None:
    def execute(tup: Any, collector: Any) -> None:
        raise error

    with pytest.raises(error):
        hot.run_inputs(execute, None, Tuple, "origin", [()], None, [], WHOLE)
