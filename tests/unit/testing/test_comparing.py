from __future__ import annotations

from topo.testing.comparing import difference


def test_equal_tuples_do_not_differ_in_any_order_but_in_order_they_do() -> None:
    expected, found = [("a",), ("b",), ("b",)], [("b",), ("a",), ("b",)]

    assert difference(expected, found, ordered=False) == []
    assert difference(expected, expected, ordered=True) == []
    assert difference(expected, found, ordered=True) == ["first difference at 0:", "- ('a',)", "+ ('b',)"]


def test_without_order_each_tuple_counts_as_often_as_it_is_there() -> None:
    lines = difference([("a",), ("b",)], [("b",), ("b",), ("c",)], ordered=False)

    assert lines == ["missing, 1:", "- ('a',)", "unexpected, 2:", "+ ('b',)", "+ ('c',)"]


def test_values_without_a_hash_are_compared_too() -> None:
    lines = difference([({"k": 1},), ({"k": 2},)], [({"k": 2},), ({"k": 3},)], ordered=False)

    assert lines == ["missing, 1:", "- ({'k': 1},)", "unexpected, 1:", "+ ({'k': 3},)"]


def test_in_order_what_is_missing_or_too_much_at_the_end_is_said() -> None:
    rows = [(number,) for number in range(3)]

    assert difference(rows, rows[:1], ordered=True) == ["from 1 on missing:", "- (1,)", "- (2,)"]
    assert difference(rows[:2], rows, ordered=True) == ["from 2 on unexpected:", "+ (2,)"]


def test_in_order_the_tuples_before_the_difference_are_shown() -> None:
    rows = [(number,) for number in range(4)]

    assert difference(rows, [*rows[:3], (9,)], ordered=True) == ["first difference at 3:", "  (1,)", "  (2,)", "- (3,)", "+ (9,)"]


def test_a_long_difference_is_cut() -> None:
    lines = difference([(number,) for number in range(25)], [], ordered=False)

    assert len(lines) == 12
    assert lines[0] == "missing, 25:"
    assert lines[-1] == "  ... and 15 more"
