"""The ids of inputs into the panes of their keys, against one input after the other."""

from __future__ import annotations

from array import array
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topo.tracking.firings import Pane

words = st.integers(0, 2**64 - 1)
batches = st.lists(st.tuples(st.sampled_from("abc"), words, words, st.booleans()), max_size=40)


def columns(panes: dict[Any, Pane]) -> dict[Any, Any]:
    counts = {key: None if pane.counts is None else list(pane.counts) for key, pane in panes.items()}
    return {key: (list(pane.roots), list(pane.edges), counts[key]) for key, pane in panes.items()}


@given(batches=st.lists(batches, max_size=4), counted=st.sets(st.sampled_from("abc")), as_arrays=st.booleans())
def test_each_input_is_behind_those_before_it_in_the_pane_of_its_key(
    hot: ModuleType, batches: Any, counted: set[str], as_arrays: bool
) -> None:
    panes: dict[str, Pane] = {}
    for key in counted:
        panes[key] = Pane()
        panes[key].count_inputs()
    expected: dict[str, tuple[list[int], list[int], list[int] | None]] = {key: ([], [], []) for key in counted}
    for batch in batches:
        keys, roots, edges, chosen = ([row[place] for row in batch] for place in range(4))
        held, positions = bytearray(len(batch)), [place for place, is_in in enumerate(chosen) if is_in]
        for place in positions:
            into = expected.setdefault(keys[place], ([], [], None))
            into[0].append(roots[place])
            into[1].append(edges[place])
            if into[2] is not None:
                into[2].append(1)
        ids = (array("Q", roots), array("Q", edges)) if as_arrays else (roots, edges)

        hot.hold_run(positions, keys, *ids, panes, Pane, held)

        assert list(held) == [int(is_in) for is_in in chosen]
        assert columns(panes) == expected
        assert list(panes) == list(expected)


def test_a_pane_grows_by_as_much_as_an_array_does(hot: ModuleType) -> None:
    pane, grown = Pane(), array("Q")
    for number in range(1_000):
        grown.append(number)
    ids = array("Q", range(1_000))
    hot.hold_run(list(range(1_000)), ["k"] * 1_000, ids, ids, {"k": pane}, Pane, bytearray(1_000))
    assert pane.roots.__sizeof__() == grown.__sizeof__() and pane.edges == ids


def test_a_column_that_is_being_read_is_not_changed(hot: ModuleType) -> None:
    pane = Pane()
    pane.roots.extend([1, 2, 3])
    pane.roots.pop()
    ids = array("Q", [7])
    with memoryview(pane.roots), pytest.raises(BufferError):
        hot.hold_run([0], ["k"], ids, ids, {"k": pane}, Pane, bytearray(1))
    assert list(pane.roots) == [1, 2]


def test_a_position_outside_of_the_batch_is_refused(hot: ModuleType) -> None:
    ids = array("Q", [7])
    for position in (1, 2**40):
        with pytest.raises(IndexError):
            hot.hold_run([position], ["k"], ids, ids, {}, Pane, bytearray(1))


def test_an_error_of_a_key_is_passed_on(hot: ModuleType) -> None:
    class Unequal:
        def __hash__(self) -> int:
            raise ValueError("no hash")

    ids = array("Q", [7])
    with pytest.raises(ValueError, match="no hash"):
        hot.hold_run([0], [Unequal()], ids, ids, {}, Pane, bytearray(1))
