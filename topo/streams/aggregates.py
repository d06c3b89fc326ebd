"""Aggregates over the records of a window: `window(...).aggregate(agg.count(), agg.mean_of(lambda flight: flight.delay))`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from topo.api.aggregates import AggregateFunction, Count, Mean, Sum
from topo.streams.chain import open_function, row_place
from topo.streams.records import Layout
from topo.streams.type_names import C, N

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)


class Aggregate(ABC, Generic[T_contra, R_co]):
    """A value that a window keeps instead of its records. Derive from it to write your own aggregate.

    The accumulator is a value that a tuple could carry (numbers, text, tuples of these), because it is part of every snapshot;
    a list comes back from a snapshot as a tuple. `add` and `merge` return a new one, and leave their arguments as they are.
    """

    def open(self, context: Any) -> None:
        """Called once in each task before everything else; `context` is None."""

    @abstractmethod
    def create(self) -> Any:
        """Return the accumulator of no records."""

    @abstractmethod
    def add(self, accumulator: Any, record: T_contra) -> Any:
        """Return the accumulator with one more record."""

    @abstractmethod
    def result(self, accumulator: Any) -> R_co:
        """Return the result of the window."""

    @abstractmethod
    def merge(self, first: Any, second: Any) -> Any:
        """Return the accumulator of both; session windows merge."""


class ValueFold(Aggregate[T, R_co]):
    """An aggregate of what a function returns for each record.

    Args:
        same: the aggregate of a field of rows that does the same; None where there is none.
    """

    def __init__(
        self,
        of: Callable[[T], Any],
        first: Any,
        add: Callable[[Any, Any], Any],
        merge: Callable[[Any, Any], Any],
        result: Callable[[Any], R_co] = lambda accumulator: accumulator,
        same: Callable[[int], AggregateFunction] | None = None,
    ) -> None:
        self.of, self._first, self._add, self._merge, self._result, self._same = of, first, add, merge, result, same

    def open(self, context: Any) -> None:
        open_function(self.of, context)

    def create(self) -> Any:
        return self._first

    def add(self, accumulator: Any, record: T) -> Any:
        return self._add(accumulator, self.of(record))

    def result(self, accumulator: Any) -> R_co:
        return self._result(accumulator)

    def merge(self, first: Any, second: Any) -> Any:
        return self._merge(first, second)

    def over_field(self, layout: Layout) -> AggregateFunction | None:
        """Return the aggregate that does the same with rows of a key and a record; None where it needs the record itself."""
        place = row_place(self.of, layout)
        return None if place is None or self._same is None else self._same(place + 1)


class RecordCount(ValueFold[object, int]):
    """The number of records, which nothing of a record matters to."""

    def __init__(self) -> None:
        super().__init__(lambda _record: 1, 0, _plus, _plus)

    def over_field(self, layout: Layout) -> AggregateFunction | None:
        return Count()


def count() -> Aggregate[object, int]:
    """Return the number of records."""
    return RecordCount()


def sum_of(of: Callable[[T], N]) -> Aggregate[T, N]:
    """Return the sum of a value of each record; 0 to begin with, so integers stay integers."""
    return ValueFold(of, 0, _plus, _plus, same=Sum)


def mean_of(of: Callable[[T], float]) -> Aggregate[T, float]:
    """Return the arithmetic mean of a value of each record."""
    return ValueFold(
        of,
        (0, 0),
        lambda both, value: (both[0] + value, both[1] + 1),
        lambda first, second: (first[0] + second[0], first[1] + second[1]),
        lambda both: both[0] / both[1],
        same=Mean,
    )


def min_of(of: Callable[[T], C]) -> Aggregate[T, C]:
    """Return the smallest value, ignoring None."""
    return _extreme(of, min)


def max_of(of: Callable[[T], C]) -> Aggregate[T, C]:
    """Return the largest value, ignoring None."""
    return _extreme(of, max)


def _plus(first: Any, second: Any) -> Any:
    return first + second


def _extreme(of: Callable[[T], C], choose: Callable[[Any, Any], Any]) -> Aggregate[T, C]:
    def merge(first: Any, second: Any) -> Any:
        if first is None or second is None:
            return second if first is None else first
        return choose(first, second)

    return ValueFold(of, None, merge, merge)
