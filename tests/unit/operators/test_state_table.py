"""Cells that a snapshot shares with the table: copied when they are read to be changed, and only then."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from topo.operators.state.deep_copy import independent_rows
from topo.operators.state.keyed_state import KeyContext, KeyedState
from topo.operators.state.table import StateTable
from topo.operators.state.undo_log import UndoableTable, UndoLog

KEYS = ("a", "b", "c")


def table_of(**cells: Any) -> StateTable:
    table = StateTable()
    for key, cell in cells.items():
        table.put(None, key, cell)
    return table


def test_what_is_frozen_shares_its_cells_until_they_are_read() -> None:
    table = table_of(read=[1], left=[2])
    left = table.get(None, "left")
    frozen = table.frozen()
    table.get(None, "read").append(3)
    assert frozen.cells == {None: {"read": [1], "left": [2]}}
    assert table.get(None, "read") == [1, 3]
    assert frozen.cells[None]["left"] is left


def test_a_cell_is_copied_once_and_only_while_somebody_holds_what_was_frozen() -> None:
    table = table_of(one=[1], other=[2])
    frozen = table.frozen()
    own = table.get(None, "one")
    assert table.get(None, "one") is own
    shared = frozen.cells[None]["other"]
    del frozen
    assert table.get(None, "other") is shared


def test_frozen_twice_both_stay_as_they_were_whichever_is_dropped_first() -> None:
    table = table_of(one=[1])
    first = table.frozen()
    table.get(None, "one").append(2)
    second = table.frozen()
    table.get(None, "one").append(3)
    assert (first.cells, second.cells) == ({None: {"one": [1]}}, {None: {"one": [1, 2]}})
    del second
    table.get(None, "one").append(4)
    assert first.cells == {None: {"one": [1]}}


def test_rows_are_changed_past_the_table_so_nothing_of_it_is_shared() -> None:
    table = table_of(one=[1])
    rows = table.rows(None)
    frozen = table.frozen()
    rows["one"].append(2)
    assert frozen.cells == {None: {"one": [1]}}


def test_rows_given_away_stay_the_tables_when_they_are_empty_meanwhile() -> None:
    table = table_of(one=[1])
    rows = table.rows(None)
    table.delete(None, "one")
    table.put(None, "two", [2])
    assert table.rows(None) is rows and rows == {"two": [2]}
    table.delete(None, "two")
    assert table.namespaces() == []
    table.give_back(None)
    table.put(None, "three", [3])
    assert rows == {} and table.namespaces() == [None]


def test_discarded_cells_are_gone_for_good() -> None:
    log = UndoLog()
    table = UndoableTable(log)
    for key in ("one", "two", "three"):
        table.load("window", key, [1])
    log.begin()
    table.discard("window", ["one", "three", "none"])
    table.discard("elsewhere", ["one"])
    log.undo()
    assert list(table.items()) == [("window", "two", [1])] and table.keys("window") == ["two"] and table.keys("elsewhere") == []
    table.discard("window", ["two"])
    assert table.namespaces() == []


def test_rows_given_away_during_a_snapshot_are_not_shared_with_it() -> None:
    table = table_of(one=[1])
    frozen = table.frozen()
    table.rows(None)["one"].append(2)
    assert frozen.cells == {None: {"one": [1]}}


def test_what_is_deleted_or_replaced_stays_in_what_was_frozen() -> None:
    table = table_of(gone=[1], replaced=[2])
    frozen = table.frozen()
    table.delete(None, "gone")
    table.put(None, "replaced", [3])
    table.get(None, "replaced").append(4)
    assert frozen.cells == {None: {"gone": [1], "replaced": [2]}}


def change(state: KeyedState, keys: KeyContext, kind: str, key: str, number: int) -> None:
    """Change a cell in place, as operators and users do."""
    keys.key = key
    if kind == "value":
        handle = state.value("value")
        cell = handle.get() or {"deep": []}
        cell["deep"].append(number)
        handle.set(cell)
    elif kind == "list":
        state.list("list").add([number])
    elif kind == "map":
        entries = state.map("map")
        inner = entries.get(number % 2, [])
        inner.append(number)
        entries.put(number % 2, inner)
    elif kind == "rows":
        rows = state.value("value").table.rows(None)
        if key in rows:
            rows[key]["deep"].append(number)
    else:
        state.list("list").clear()


STEPS = st.tuples(st.sampled_from(["value", "list", "map", "rows", "clear", "freeze", "drop"]), st.sampled_from(KEYS))


@given(st.lists(STEPS, max_size=60))
def test_snapshots_under_way_are_those_of_their_moment(steps: list[tuple[str, str]]) -> None:
    keys = KeyContext()
    state = KeyedState(keys, lambda: 0)
    held: list[tuple[Any, Any, Any]] = []
    for number, (step, key) in enumerate(steps):
        if step == "freeze":
            keyed = state.freeze()
            made = keyed()
            held.append((keyed, made, copy.deepcopy(made)))
        elif step == "drop":
            del held[: len(held) // 2 + 1]
        else:
            change(state, keys, step, key, number)
        for _, made, expected in held:
            assert made == expected


def test_a_snapshot_is_independent_of_the_state_with_nobody_holding_on() -> None:
    keys = KeyContext()
    state = KeyedState(keys, lambda: 0)
    change(state, keys, "value", "a", 1)
    taken = state.snapshot()
    expected = copy.deepcopy(taken)
    change(state, keys, "value", "a", 2)
    assert taken == expected


scalars = st.one_of(st.integers(), st.text(max_size=2), st.none())
nested = st.recursive(scalars, lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(scalars, inner, max_size=2)))


@given(st.dictionaries(st.integers(), st.one_of(scalars, st.lists(scalars), st.tuples(scalars), nested), max_size=4))
def test_independent_rows_are_equal_and_share_nothing_that_can_change(rows: dict[int, Any]) -> None:
    made = independent_rows(rows)
    assert made == rows and list(made) == list(rows)
    assert made is not rows
    expected = copy.deepcopy(rows)
    for value in rows.values():
        spoil(value)
    assert made == expected


def spoil(value: Any) -> None:
    """Change all in place that can be."""
    if isinstance(value, dict):
        for inner in value.values():
            spoil(inner)
        value["spoilt"] = True
    elif isinstance(value, list):
        for inner in value:
            spoil(inner)
        value.append("spoilt")


def test_a_spliced_list_leaves_what_was_frozen_as_it_was() -> None:
    table = table_of(one=[1, 2, 3])
    frozen = table.frozen()
    table.splice(None, "one", 1, 2, [7, 8])
    assert table.peek(None, "one") == [1, 7, 8, 3]
    assert frozen.cells == {None: {"one": [1, 2, 3]}}
    own = table.peek(None, "one")
    table.splice(None, "one", 0, 1, ())
    assert table.peek(None, "one") is own
    table.splice(None, "one", 0, 3, ())
    assert len(table) == 0
