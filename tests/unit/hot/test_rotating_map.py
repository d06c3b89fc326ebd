from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topo.hot import RotatingMap, Rotation


def test_fewer_than_two_buckets_is_an_argument_error() -> None:
    with pytest.raises(ValueError, match="at least 2"):
        RotatingMap[str, int](1)


def test_a_key_dies_on_the_nth_rotation_after_its_put() -> None:
    held = RotatingMap[str, int](3)
    held.put("a", 1)
    assert held.rotate() == {}
    held.put("b", 2)
    assert held.rotate() == {}
    assert held.rotate() == {"a": 1}
    assert list(dict(held.items())) == ["b"]
    assert held.rotate() == {"b": 2}
    assert len(held) == 0


def test_a_put_moves_a_key_to_the_newest_bucket() -> None:
    held = RotatingMap[str, int](2)
    held.put("a", 1)
    held.rotate()
    held.put("a", 2)
    assert held.rotate() == {}
    assert held.rotate() == {"a": 2}


def test_a_touch_moves_a_key_to_the_newest_bucket_and_keeps_its_value() -> None:
    held = RotatingMap[str, int | None](2)
    held.put("a", None)
    held.rotate()
    assert held.touch("a")
    assert held.rotate() == {}
    assert "a" in held
    assert not held.touch("b")
    assert "b" not in held


def test_an_update_in_place_keeps_the_age() -> None:
    held = RotatingMap[str, int](2)
    held.put("a", 1)
    held.rotate()
    held.entries["a"] = 2
    assert held.rotate() == {"a": 2}


def test_get_and_pop_find_a_key_in_any_bucket() -> None:
    held = RotatingMap[str, int](3)
    held.put("a", 1)
    held.rotate()
    held.put("b", 2)
    assert (held.get("a"), held.get("b"), held.get("c")) == (1, 2, None)
    assert (held.entries.pop("a", None), held.entries.pop("a", None)) == (1, None)
    assert len(held) == 1


def test_iteration_and_drain_go_from_oldest_to_newest() -> None:
    held = RotatingMap[str, int](3)
    for value, key in enumerate("abc"):
        held.put(key, value)
        held.rotate()
    held.put("d", 3)
    held.put("b", 4)
    assert list(dict(held.items())) == ["c", "d", "b"]
    assert list(held.items()) == [("c", 2), ("d", 3), ("b", 4)]
    assert held.drain() == {"c": 2, "d": 3, "b": 4}
    assert len(held) == 0
    held.validate()
    held.put("e", 5)
    assert [held.rotate() for _ in range(3)] == [{}, {}, {"e": 5}]


def test_what_is_put_oldest_comes_first_and_dies_at_the_next_rotation() -> None:
    held = RotatingMap[str, int](3)
    held.put("a", 1)
    held.rotate()
    held.put_oldest({"x": 8, "y": 9})
    held.validate()
    assert list(dict(held.items())) == ["x", "y", "a"]
    assert held.rotate() == {"x": 8, "y": 9}
    assert held.rotate() == {"a": 1}


class BucketList:
    """The map as the arithmetic describes it: a list of dicts, newest first."""

    def __init__(self, buckets: int) -> None:
        self.buckets: list[dict[int, int]] = [{} for _ in range(buckets)]

    def put(self, key: int, value: int) -> None:
        self.pop(key)
        self.buckets[0][key] = value

    def pop(self, key: int) -> int | None:
        return next((bucket.pop(key) for bucket in self.buckets if key in bucket), None)

    def touch(self, key: int) -> None:
        if (value := self.pop(key)) is not None:
            self.buckets[0][key] = value

    def rotate(self) -> dict[int, int]:
        self.buckets.insert(0, {})
        return self.buckets.pop()

    def items(self) -> list[tuple[int, int]]:
        return [item for bucket in reversed(self.buckets) for item in bucket.items()]


steps = st.lists(st.tuples(st.sampled_from(["put", "pop", "touch", "rotate"]), st.integers(1, 6)), max_size=60)


@given(st.integers(2, 5), steps)
def test_the_map_agrees_with_a_list_of_buckets(buckets: int, moves: list[tuple[str, int]]) -> None:
    held, model = RotatingMap[int, int](buckets), BucketList(buckets)
    for value, (move, key) in enumerate(moves):
        match move:
            case "put":
                held.put(key, value)
                model.put(key, value)
            case "pop":
                assert held.entries.pop(key, None) == model.pop(key)
            case "touch":
                held.touch(key)
                model.touch(key)
            case "rotate":
                assert list(held.rotate().items()) == list(model.rotate().items())
        held.validate()
        assert list(held.items()) == model.items()
        assert len(held) == len(model.items())


@given(st.integers(2, 12), st.integers(1, 1000), st.integers(0, 5000))
def test_an_entry_of_a_punctual_map_lives_between_n_minus_1_and_n_periods(n: int, period: int, put_at: int) -> None:
    held, rotation = RotatingMap[str, int](n), Rotation(period, n, now=0)
    while rotation.next_deadline is not None and rotation.next_deadline <= put_at:
        assert rotation.due(rotation.next_deadline) == 1
        held.rotate()
    held.put("entry", put_at)
    now = float(put_at)
    while "entry" in held:
        assert rotation.next_deadline is not None
        now = rotation.next_deadline
        for _ in range(rotation.due(now)):
            held.rotate()
    assert (n - 1) * period < now - put_at <= n * period


def test_no_rotation_is_due_before_the_deadline() -> None:
    rotation = Rotation(3.0, 11, now=100.0)
    assert rotation.due(102.9) == 0
    assert rotation.next_deadline == 103.0
    assert rotation.due(103.0) == 1
    assert rotation.due(103.0) == 0
    assert rotation.next_deadline == 106.0


def test_a_late_call_rotates_once_for_each_period_that_elapsed() -> None:
    rotation = Rotation(3.0, 11, now=0.0)
    assert rotation.due(10.0) == 3
    assert rotation.next_deadline == 12.0


def test_a_very_late_call_rotates_no_more_than_empties_the_map() -> None:
    rotation = Rotation(3.0, 11, now=0.0)
    assert rotation.due(3600.0) == 11
    assert rotation.next_deadline == 3603.0


def test_without_a_period_nothing_is_ever_due() -> None:
    rotation = Rotation(None, 3, now=0.0)
    assert rotation.next_deadline is None
    assert rotation.due(1e9) == 0


@pytest.mark.parametrize("period_s", [0.0, -1.0, float("nan")])
def test_a_period_must_be_positive(period_s: float) -> None:
    with pytest.raises(ValueError, match="positive"):
        Rotation(period_s, 3, now=0.0)
