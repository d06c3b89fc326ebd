"""The ready-made aggregates: what they give, how they merge, and what a stored accumulator still does."""

from __future__ import annotations

from typing import Any

import pytest

from topo.api.aggregates import AggregateFunction, Collect, Count, Max, Mean, Min, Sum, Together
from topo.api.durations import duration_ms
from topo.errors import ConfigError, UserError

ALL: list[tuple[AggregateFunction, Any]] = [
    (Count(), 3),
    (Sum(), 6),
    (Min(), 1),
    (Max(), 3),
    (Mean(), 2.0),
    (Collect(), (3, 1, 2)),
    (Together(total=Sum(), least=Min()), (6, 1)),
    (Together(total=Sum()), 6),
]


def accumulated(aggregate: AggregateFunction, values: list[Any]) -> Any:
    accumulator = aggregate.create_accumulator()
    for value in values:
        accumulator = aggregate.add(value, accumulator)
    return accumulator


@pytest.mark.parametrize(("aggregate", "result"), ALL)
def test_an_aggregate_gives_its_result(aggregate: AggregateFunction, result: Any) -> None:
    assert aggregate.get_result(accumulated(aggregate, [3, 1, 2])) == result


@pytest.mark.parametrize(("aggregate", "result"), ALL)
def test_merging_two_parts_gives_the_result_of_the_whole(aggregate: AggregateFunction, result: Any) -> None:
    for cut in range(4):
        first, second = accumulated(aggregate, [3, 1, 2][:cut]), accumulated(aggregate, [3, 1, 2][cut:])
        assert aggregate.get_result(aggregate.merge(first, second)) == result


@pytest.mark.parametrize(("aggregate", "result"), ALL)
def test_an_accumulator_that_was_stored_goes_on_though_its_lists_became_tuples(aggregate: AggregateFunction, result: Any) -> None:
    def stored(accumulator: Any) -> Any:
        return tuple(map(stored, accumulator)) if isinstance(accumulator, list | tuple) else accumulator

    accumulator = aggregate.create_accumulator()
    for value in (3, 1, 2):
        accumulator = aggregate.add(value, stored(accumulator))
    assert aggregate.get_result(aggregate.merge(stored(accumulator), stored(aggregate.create_accumulator()))) == result


def test_a_field_is_a_name_a_position_or_a_function() -> None:
    assert Sum("miles").add({"miles": 4}, 1) == 5
    assert Sum(1).add(("a", 4), 1) == 5
    assert Sum(len).add("four", 1) == 5


def test_binding_turns_names_into_positions_and_refuses_unknown_ones() -> None:
    fields = ("key", "miles")
    assert Sum("miles").bind(fields).add(("a", 4), 1) == 5
    assert Together(far=Max("miles"), trips=Count()).bind(fields).fields == ("far", "trips")
    with pytest.raises(UserError, match="'kilometres'"):
        Together(far=Max("kilometres")).bind(fields)


def test_the_names_of_results_are_declared() -> None:
    assert [aggregate.fields for aggregate in (Count(), Sum(), Min(), Max(), Mean(), Collect())] == [
        ("count",), ("sum",), ("min",), ("max",), ("mean",), ("values",)
    ]  # fmt: skip


def test_a_mean_of_nothing_is_none() -> None:
    assert Mean().get_result(Mean().create_accumulator()) is None


def test_an_aggregate_without_merge_says_so() -> None:
    class Last(AggregateFunction):
        def create_accumulator(self) -> Any:
            return None

        def add(self, value: Any, accumulator: Any) -> Any:
            return value

        def get_result(self, accumulator: Any) -> Any:
            return accumulator

    with pytest.raises(UserError, match="Last has no merge"):
        Last().merge(1, 2)


def test_together_needs_a_part() -> None:
    with pytest.raises(UserError, match="at least one"):
        Together()


def test_durations_become_whole_milliseconds_negative_ones_too() -> None:
    assert duration_ms("1.5s") == 1500
    assert duration_ms("-90s") == -90_000
    with pytest.raises(ConfigError):
        duration_ms("soon")
