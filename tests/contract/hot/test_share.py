"""Rows and columns by target, against one row after the other."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topo.hot import EVERY_ROW, pack_words, unpack_words

rows = st.lists(st.tuples(st.integers(0, 6), st.sampled_from("abc"), st.floats(0, 1)), max_size=30)
widths = st.lists(st.booleans(), max_size=3)


def columns_of(rows: list, which: list[bool]) -> list[bytes]:
    """Return columns whose words name their row; where `which` has False, empty ones."""
    return [pack_words([1000 * at + place + 1 for place in range(len(rows))]) if full else b"" for at, full in enumerate(which)]


def check(shares: Any, expected: dict[int, list[int]], rows: list, which: list[bool]) -> None:
    assert [position for position, *_ in shares] == sorted(expected)
    for position, places, picked, columns in shares:
        chosen = list(range(*places.indices(len(rows)))) if isinstance(places, slice) else places
        assert chosen == expected[position] and picked == [rows[place] for place in chosen] and type(picked) is list
        assert len(columns) == len(which)
        for at, (column, full) in enumerate(zip(columns, which, strict=True)):
            assert unpack_words(column) == ([1000 * at + place + 1 for place in chosen] if full else [])


@pytest.mark.parametrize("fields", [(0,), (1,), (0, 1), (1, 0, 2)])
@given(rows=rows, which=widths, known=st.integers(0, 10))
def test_rows_of_one_key_go_to_one_target(hot: ModuleType, fields: tuple, rows: list, which: list[bool], known: int) -> None:
    keys = [row[fields[0]] if len(fields) == 1 else tuple(row[field] for field in fields) for row in rows]
    owners = {key: hash(key) % 3 for key in keys}
    routes = dict(list(owners.items())[:known])
    looked_up = []

    def look_up(key: Any) -> int:
        looked_up.append(key)
        routes[key] = owners[key]
        return owners[key]

    expected = defaultdict(list)
    for place, key in enumerate(keys):
        expected[owners[key]].append(place)
    check(hot.share(rows, fields, routes, 3, look_up, *columns_of(rows, which)), expected, rows, which)
    assert len(owners) <= known or set(looked_up) >= owners.keys() - dict(list(owners.items())[:known]).keys()


def test_a_key_that_cannot_be_looked_up_raises(hot: ModuleType) -> None:
    def look_up(key: Any) -> int:
        raise ValueError(key)

    with pytest.raises(ValueError):
        hot.share([(1,), (2,)], (0,), {1: 0}, 2, look_up)
    with pytest.raises(ValueError):
        hot.share([([],)], (0,), {}, 2, look_up)


@given(rows=st.lists(st.tuples(st.integers()), min_size=1, max_size=20), which=widths, data=st.data())
def test_places_are_taken_as_slices_and_as_lists(hot: ModuleType, rows: list, which: list[bool], data: st.DataObject) -> None:
    count = len(rows)
    listed = sorted(data.draw(st.sets(st.integers(0, count - 1), min_size=1)))
    first = data.draw(st.integers(0, count - 1))
    last = data.draw(st.integers(first, count))
    places = {0: EVERY_ROW, 2: listed, 3: slice(first, last), 4: [first]}
    expected = {0: list(range(count)), 2: listed, 3: list(range(first, last)), 4: [first]}
    check(hot.take(list(places.items()), rows, *columns_of(rows, which)), expected, rows, which)


@pytest.mark.parametrize("fields", [(400,), (0, 400), (0, -400)])
def test_a_field_that_a_row_does_not_have_raises(hot: ModuleType, fields: tuple[int, ...]) -> None:
    with pytest.raises(IndexError):
        hot.share([(1, 5)], fields, {}, 2, hash)


@pytest.mark.parametrize("fields", [(-1,), (0, -1)])
def test_a_field_may_be_counted_from_the_end(hot: ModuleType, fields: tuple[int, ...]) -> None:
    keys: list[Any] = []
    hot.share([(1, 5), (1, 6)], fields, {}, 2, lambda key: keys.append(key) or 0)
    assert keys == ([5, 6] if len(fields) == 1 else [(1, 5), (1, 6)])


def test_rows_that_are_taken_away_while_keys_are_looked_up_are_shared_or_refused(hot: ModuleType) -> None:
    rows = [(number,) for number in range(100)]

    def look_up(key: Any) -> int:
        rows.clear()
        return 0

    with suppress(IndexError):
        assert hot.share(rows, (0,), {}, 1, look_up) == [(0, list(range(100)), [(number,) for number in range(100)], [])]
    assert rows == []


def test_places_beyond_the_small_ints_are_kept(hot: ModuleType) -> None:
    """Python keeps an int below 257 for ever: a reference too few shows only beyond it."""
    rows = [(number % 7,) for number in range(1000)]
    shares = hot.share(rows, (0,), {}, 4, lambda key: key % 4)
    check(shares, {to: [at for at, (key,) in enumerate(rows) if key % 4 == to] for to in range(4)}, rows, [])


def test_a_column_that_is_too_short_is_refused(hot: ModuleType) -> None:
    with pytest.raises((IndexError, ValueError)):
        hot.share([(0,), (1,), (2,), (3,)], (0,), {0: 0, 1: 1, 2: 0, 3: 1}, 2, hash, bytes(16))


ids = st.lists(st.integers(0, 2**64 - 1), max_size=40)


@given(ids=ids, targets=st.integers(1, 6), has_values=st.booleans())
def test_ids_go_to_the_target_of_their_remainder_with_their_values(
    hot: ModuleType, ids: list[int], targets: int, has_values: bool
) -> None:
    values = [id_ ^ 1 for id_ in ids] if has_values else []
    shares = hot.share_ids(pack_words(ids), pack_words(values), targets)
    expected = [(to, [id_ for id_ in ids if id_ % targets == to]) for to in range(targets)]
    assert [(to, unpack_words(mine)) for to, mine, _ in shares] == [(to, mine) for to, mine in expected if mine]
    for _, mine, theirs in shares:
        assert unpack_words(theirs) == ([id_ ^ 1 for id_ in unpack_words(mine)] if has_values else [])


@pytest.mark.parametrize(("ids", "values", "targets"), [(4, 2, 2), (2, 4, 2), (0, 1, 2), (1, 1, 0), (0, 0, 0)])
def test_ids_need_targets_and_each_a_value_or_none_has_one(hot: ModuleType, ids: int, values: int, targets: int) -> None:
    with pytest.raises(ValueError):
        hot.share_ids(pack_words(range(ids)), pack_words(range(values)), targets)


def test_no_ids_have_no_shares_and_parts_of_one_are_refused(hot: ModuleType) -> None:
    assert hot.share_ids(b"", b"", 3) == []
    with pytest.raises(TypeError):
        hot.share_ids(bytes(7), b"", 2)
