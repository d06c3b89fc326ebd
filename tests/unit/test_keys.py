from __future__ import annotations

import enum
import math
import os
import subprocess
import sys
from collections import Counter
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Context, Decimal, Inexact, localcontext
from fractions import Fraction
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topo.keys import (
    KeyGroupRange,
    default_max_parallelism,
    key_group,
    murmur,
    owner_of,
    range_of,
    route_of,
    second_hash,
    stable_hash,
)

BERLIN = ZoneInfo("Europe/Berlin")
ATOMS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
    st.decimals(allow_nan=False, places=3),
    st.uuids(),
    st.datetimes(),
    st.datetimes(timezones=st.just(UTC)),
    st.dates(),
    st.times(),
    st.timedeltas(),
)
KEYS = st.one_of(ATOMS, st.tuples(ATOMS, ATOMS), st.tuples(st.tuples(ATOMS)))


def test_the_check_values_of_flink_hold() -> None:
    assert key_group("A", 128) == 104
    assert key_group("B", 128) == 17


def test_strings_hash_as_in_java() -> None:
    assert stable_hash("hello") == 99162322
    assert stable_hash("") == 0
    assert stable_hash("polygenelubricants") == 1 << 31  # Java's smallest int


def test_characters_beyond_the_first_plane_count_as_two_units() -> None:
    assert stable_hash("\U0001f600") == 31 * 0xD83D + 0xDE00


def test_a_lone_surrogate_can_be_a_key() -> None:
    assert stable_hash("\ud83d") == 0xD83D
    assert stable_hash(("\ud83d",)) == stable_hash(("\ud83d",))


def test_ints_hash_as_in_java() -> None:
    assert stable_hash(7) == 7
    assert stable_hash(-1) == 0xFFFFFFFF
    assert stable_hash(-(1 << 31)) == 1 << 31
    assert stable_hash(1 << 32) == 1
    assert stable_hash((5 << 32) | 3) == 6
    assert stable_hash(-(1 << 40)) == 0xFFFFFF00


def test_ints_beyond_64_bits_are_told_apart_by_all_their_bits() -> None:
    assert stable_hash(1 << 70) != stable_hash(1 << 71)
    assert stable_hash(10**5000) != stable_hash(10**5000 + 1)


def test_the_smallest_int_has_group_zero_and_no_group_is_negative() -> None:
    assert all(0 <= murmur(code) < 1 << 31 for code in range(0, 1 << 32, 99_999_989))


@pytest.mark.parametrize(
    "equal",
    [
        (1, 1.0, True, Decimal(1), Decimal("1.00")),
        (0, 0.0, -0.0, False, Decimal("-0")),
        (0.5, Decimal("0.5"), Decimal("0.50")),
        (2**63, float(2**63), Decimal(2**63)),
        (10**300, Decimal(10) ** 300),
        (math.inf, Decimal("Infinity")),
        (("a", 1), ("a", 1.0), ("a", True)),
        (Decimal("0.1"), Decimal("0.10")),
        (datetime(2020, 1, 1, 12, tzinfo=UTC), datetime(2020, 1, 1, 13, tzinfo=timezone(timedelta(hours=1)))),
        (datetime(2025, 10, 26, 2, 30, tzinfo=BERLIN), datetime(2025, 10, 26, 2, 30, fold=1, tzinfo=BERLIN)),
        (time(12, tzinfo=UTC), time(13, tzinfo=timezone(timedelta(hours=1)))),
    ],
)
def test_equal_keys_have_equal_hashes(equal: tuple[object, ...]) -> None:
    assert len(set(equal)) == 1
    assert len({stable_hash(key) for key in equal}) == 1
    assert len({second_hash(key) for key in equal}) == 1


@pytest.mark.parametrize("context", [Context(prec=6), Context(prec=100), Context(prec=28, traps=[Inexact])])
@pytest.mark.parametrize("key", [Decimal("1234567.891"), Decimal("0.1234567890123456789012345678901"), Decimal("-1.1E-70")])
def test_the_decimal_context_of_user_code_does_not_move_keys(key: Decimal, context: Context) -> None:
    expected = stable_hash(key), second_hash(key)
    with localcontext(context):
        assert (stable_hash(key), second_hash(key)) == expected


@given(KEYS, KEYS)
def test_keys_that_are_one_dict_key_are_in_one_group(one: object, other: object) -> None:
    if one == other:
        assert stable_hash(one) == stable_hash(other)
    assert stable_hash(one) == stable_hash(one)


@given(st.integers() | st.floats(allow_nan=False))
def test_a_number_is_one_key_in_whatever_type_it_comes(number: float) -> None:
    assert stable_hash(Decimal(number)) == stable_hash(number)


def test_types_that_look_alike_are_told_apart() -> None:
    keys = ["1", b"1", None, ("1",), (), 0.1, Decimal("0.1"), date(2020, 1, 1), datetime(2020, 1, 1), time(0), timedelta(0)]
    assert len({stable_hash(key) for key in keys}) == len(keys)
    assert stable_hash(UUID(int=1)) != stable_hash(UUID(int=2))


def test_enums_of_a_plain_type_are_the_plain_value() -> None:
    class Level(enum.IntEnum):
        HIGH = 3

    class Colour(str, enum.Enum):  # noqa: UP042
        RED = "red"

    assert stable_hash(Level.HIGH) == stable_hash(3)
    assert stable_hash(Colour.RED) == stable_hash("red")


@pytest.mark.parametrize("key", [math.nan, ("a", math.nan), Decimal("NaN"), Decimal("sNaN")])
def test_nan_is_refused(key: object) -> None:
    with pytest.raises(ValueError, match="NaN"):
        stable_hash(key)


@pytest.mark.parametrize("key", [["a"], {"a": 1}, {1}, bytearray(b"x"), ("a", ["b"])])
def test_unhashable_keys_are_refused_with_the_fix(key: object) -> None:
    with pytest.raises(TypeError, match="use a tuple"):
        stable_hash(key)


@pytest.mark.parametrize("key", [object(), Fraction(1, 3), frozenset({1})])
def test_keys_of_types_that_are_not_carried_are_refused(key: object) -> None:
    with pytest.raises(TypeError, match="not carried"):
        second_hash(key)


def test_a_decimal_of_a_million_digits_is_refused_and_not_written_out() -> None:
    with pytest.raises(ValueError, match="digits"):
        stable_hash(Decimal("1E+999999"))


def test_all_processes_agree() -> None:
    keys = "('a', 'ß', 1, 2**40, -5, 0.25, None, b'x', ('a', 1), ('b', (None, 2.5)))"
    program = f"from topo.keys import *; print([(stable_hash(k), second_hash(k)) for k in {keys}])"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "77")
    }
    assert len(outputs) == 1


@given(st.integers(1, 32768).flatmap(lambda most: st.tuples(st.just(most), st.integers(1, min(most, 300)))))
def test_ranges_cover_all_groups_once_and_agree_with_the_owner(sizes: tuple[int, int]) -> None:
    most, parallelism = sizes
    next_group = 0
    for index in range(parallelism):
        groups = range_of(index, most, parallelism)
        assert groups.start == next_group
        assert owner_of(groups.start, most, parallelism) == owner_of(groups.end, most, parallelism) == index
        next_group = groups.end + 1
    assert next_group == most


def test_a_range_knows_its_groups() -> None:
    groups = KeyGroupRange(3, 5)
    assert list(groups.groups) == [3, 4, 5]
    assert 3 in groups and 5 in groups and 6 not in groups
    assert list(KeyGroupRange(0, -1).groups) == []


@pytest.mark.parametrize(
    ("parallelism", "most"), [(1, 128), (85, 128), (86, 256), (128, 256), (170, 256), (171, 256), (172, 512), (32768, 32768)]
)
def test_the_default_max_parallelism_leaves_room_to_grow(parallelism: int, most: int) -> None:
    assert default_max_parallelism(parallelism) == most


def test_many_keys_spread_evenly_over_the_tasks() -> None:
    load = Counter(route_of(f"user-{number}", 128, 4) for number in range(4000))
    assert set(load) == {0, 1, 2, 3}
    assert min(load.values()) > 700


def test_the_second_hash_says_nothing_about_the_first() -> None:
    words = [f"word-{number}" for number in range(4000)]
    pairs = Counter((route_of(word, 128, 4), second_hash(word) % 4) for word in words)
    assert len(pairs) == 16
    assert min(pairs.values()) > 150
