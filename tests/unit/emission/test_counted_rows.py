"""Rows of a slice with one key become one row; what could change a result stays as it was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topo.api.streams import StreamDeclaration
from topo.emission.counted_rows import add_up
from topo.emission.emitter import StreamRows


def rows_of(keys: list[Any], per_input: int = 10, short: Collection[int] = ()) -> StreamRows:
    """Rows of keys; of those at the places in `short` the key alone, where it is a str."""
    stream = StreamRows(0, StreamDeclaration("default", ("key", "records")))
    for number, key in enumerate(keys, 1):
        row: Any = key if type(key) is str and number - 1 in short else (key, 1)
        stream.rows.append(row)
        if number % per_input == 0 or number == len(keys):
            stream.ends.append(number)
    return stream


@given(st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=400), st.integers(1, 30), st.sampled_from([1, 2, 400]))
def test_the_sums_of_keys_and_the_number_of_inputs_stay(keys: list[str], per_input: int, every: int) -> None:
    stream = rows_of(keys, per_input, range(0, 400, every))
    inputs = len(stream.ends)
    add_up(stream)
    sums: Counter[str] = Counter()
    for key, records in stream.rows:
        sums[key] += records
    assert sums == Counter(keys)
    assert len(stream.ends) == inputs
    assert stream.ends == sorted(stream.ends)
    assert not inputs or stream.ends[-1] == len(stream.rows)


@pytest.mark.parametrize("short", [(), range(100), range(50)])
def test_rows_of_equal_keys_become_one(short: Collection[int]) -> None:
    stream = rows_of(["a", "b"] * 50, short=short)
    add_up(stream)
    assert stream.rows == [("a", 50), ("b", 50)]
    numbers = rows_of([1, 2] * 50)
    add_up(numbers)
    assert numbers.rows == [(1, 50), (2, 50)]


@pytest.mark.parametrize("keys", [[1, True] * 50, [1, 1.0] * 50, ["a", 1, True] * 50, [f"k{n}" for n in range(100)], ["a"] * 5])
@pytest.mark.parametrize("short", [(), range(100)])
def test_equal_keys_of_several_types_and_slices_that_would_gain_nothing_stay(keys: list[Any], short: Collection[int]) -> None:
    stream = rows_of(keys, short=short)
    add_up(stream)
    assert stream.rows == [(key, 1) for key in keys]
    assert [type(key) for key, _ in stream.rows] == [type(key) for key in keys]


def test_rows_with_timestamps_of_their_own_stay() -> None:
    stream = rows_of(["a"] * 100, short=range(100))
    stream.stamps[3] = 17
    add_up(stream)
    assert stream.rows == [("a", 1)] * 100
