"""Aggregates over a field of the records: added without the record, into the accumulators that all aggregates have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import pytest

from topo.api.aggregates import over_fields
from topo.hot import AddField
from topo.operators.windows.contents import Aggregated
from topo.streams import aggregates as agg
from topo.streams.records import layout_of
from topo.streams.windows import RecordAggregate


class Trip(msgspec.Struct):
    city: str
    miles: float
    stops: list[int] = []


class Doubled(msgspec.Struct):
    miles: float

    def __post_init__(self) -> None:
        self.miles *= 2


@dataclass
class Weighed:
    city: str
    miles: float = 1.0


@dataclass
class Checked:
    miles: float

    def __init__(self, miles: float) -> None:
        self.miles = abs(miles)


class Measured(NamedTuple):
    city: str
    miles: float


class Rounded(Measured):
    @property
    def miles(self) -> float:  # type: ignore[override]
        return float(round(self[1]))


def bound(record: Any, *parts: Any) -> RecordAggregate:
    aggregate = RecordAggregate(parts, None, layout_of(record))
    aggregate.bind(("key", *layout_of(record).fields))
    return aggregate


def place(record: Any, *parts: Any) -> Any:
    more = Aggregated(bound(record, *parts)).more
    return more.place if isinstance(more, AddField) else "called"


@pytest.mark.parametrize(
    ("record", "parts", "expected"),
    [
        (Trip, [agg.count()], (None,)),
        (Doubled, [agg.count()], (None,)),
        (Trip, [agg.sum_of(lambda trip: trip.miles)], (2,)),
        (Trip, [agg.count(), agg.mean_of(lambda trip: trip.miles)], (None, (2, None))),
        (Weighed, [agg.sum_of(lambda trip: trip.miles)], (2,)),
        (Measured, [agg.sum_of(lambda trip: trip.miles)], (2,)),
        (int, [agg.sum_of(lambda number: number)], (1,)),
        (None, [agg.sum_of(lambda number: number)], (1,)),
        (Trip, [agg.sum_of(lambda trip: trip.miles + 1)], "called"),
        (Trip, [agg.sum_of(lambda trip: trip.stops)], "called"),
        (Trip, [agg.count(), agg.max_of(lambda trip: trip.miles)], "called"),
        (Doubled, [agg.sum_of(lambda trip: trip.miles)], "called"),
        (Checked, [agg.sum_of(lambda trip: trip.miles)], "called"),
        (Rounded, [agg.sum_of(lambda trip: trip.miles)], "called"),
    ],
)
def test_a_field_is_added_where_nothing_stands_between_it_and_the_row(record: Any, parts: Sequence[Any], expected: Any) -> None:
    assert place(record, *parts) == expected


@pytest.mark.parametrize("kept", [None, (3, (4.5, 2))], ids=["first", "of a savepoint"])
def test_accumulators_are_those_that_the_aggregates_make(kept: Any) -> None:
    def parts(of: Callable[[Trip], float]) -> list[Any]:
        return [agg.count(), agg.mean_of(of)]

    rows = [("k", "Bern", 1.5, ()), ("k", "Rome", 2, ())]
    added, called = (Aggregated(bound(Trip, *parts(of))) for of in (lambda trip: trip.miles, lambda trip: trip.miles + 0))
    assert isinstance(added.more, AddField) and not isinstance(called.more, AddField)
    found = []
    for contents in (added, called):
        accumulator = kept
        for row in rows:
            accumulator = contents.first(row) if accumulator is None else contents.more(row, accumulator)
        found.append((accumulator, contents.result(accumulator)))
    assert repr(found[0]) == repr(found[1])


def test_an_aggregate_of_tuples_is_its_own() -> None:
    from topo import aggregates

    given = aggregates.Mean(1)
    assert over_fields(given) is given
