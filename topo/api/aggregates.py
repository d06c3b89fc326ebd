"""Aggregates: what a window keeps of its elements instead of the elements themselves.

`field` names the aggregated value: a field of the tuple, a position, a function of the element, or None for the element itself.
An accumulator is a value that a tuple could carry (numbers, text, lists), because it is part of every snapshot. As in tuples,
a list comes back from a snapshot as a tuple.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from topo.api.column_batch import LISTS, ColumnBatch
from topo.errors import UserError

Field = str | int | Callable[[Any], Any] | None


class AggregateFunction(ABC):
    """An aggregate of your own. One instance serves all keys and windows: everything it knows is in the accumulator.

    Attributes:
        fields: names of the result. With one name `get_result` returns the value, with several a tuple of as many.
        is_atomic: True if an `add` that raises leaves the accumulator unchanged. Otherwise a mutable accumulator
            is copied before each `add`, where calls that raise are tried again (`exactly_once`).
        columns: "lists" or "arrow": the form of the columns that `add_columns` is given. "arrow" needs pyarrow.
    """

    fields: tuple[str, ...] = ("result",)
    is_atomic = False
    columns = LISTS

    @abstractmethod
    def create_accumulator(self) -> Any:
        """Return the accumulator of a window without elements."""

    @abstractmethod
    def add(self, value: Any, accumulator: Any) -> Any:
        """Return the accumulator with `value` in it; may change and return either argument."""

    def add_columns(self, batch: ColumnBatch, accumulator: Any) -> Any:
        """Return the accumulator with all rows of a batch in it; may change and return it.

        A class that has it takes column batches whole: a window calls it once for the rows of a key, in place of `add` for each.
        It has to give what `add` gives.
        """
        for row in batch.rows():
            accumulator = self.add(row, accumulator)
        return accumulator

    @abstractmethod
    def get_result(self, accumulator: Any) -> Any:
        """Return the result of the window; must not change the accumulator, for a window may fire more than once."""

    def merge(self, first: Any, second: Any) -> Any:
        """Return the accumulator of both; needed by session windows only. May change and return `first`."""
        raise UserError(f"{type(self).__name__} has no merge, which windows that merge need")

    def bind(self, fields: tuple[str, ...]) -> AggregateFunction:
        """Return this aggregate for elements that are plain rows of `fields`: names become positions."""
        return self


def over_fields(aggregate: AggregateFunction) -> AggregateFunction:
    """Return the aggregate of fields that makes the same accumulators; itself where it knows of no other."""
    return getattr(aggregate, "over_fields", aggregate)


def leaves_elements(aggregate: AggregateFunction) -> bool:
    """Whether `add` is known not to change elements in place: an aggregate without user code."""
    aggregate = over_fields(aggregate)
    if isinstance(aggregate, Together):
        return all(map(leaves_elements, aggregate.parts))
    return type(aggregate).__module__ == __name__ and not callable(getattr(aggregate, "field", None))


def in_columns(aggregate: AggregateFunction) -> bool:
    """Whether it takes whole columns: the aggregates of a named field, and those of users that have `add_columns`."""
    if type(aggregate) is Together:
        return all(map(in_columns, aggregate.parts))
    if type(aggregate) in (Sum, Min, Max, Mean):
        return isinstance(getattr(aggregate, "field", None), str | int)
    # The argument may be no aggregate at all; `build` reports that.
    return type(aggregate) is Count or getattr(type(aggregate), "add_columns", None) not in (None, AggregateFunction.add_columns)


def _getter(field: Field) -> Callable[[Any], Any]:
    if field is None:
        return lambda value: value
    return field if callable(field) else itemgetter(field)


class _OverField(AggregateFunction):
    """Shared by the aggregates of one field."""

    def __init__(self, field: Field = None) -> None:
        self.field = field
        self._get = _getter(field)

    def bind(self, fields: tuple[str, ...]) -> AggregateFunction:
        """Turn the field's name into its position.

        Raises:
            UserError: there is no such field.
        """
        if isinstance(self.field, int) and not -len(fields) <= self.field < len(fields):
            raise UserError(f"{type(self).__name__} of position {self.field}: the input has the fields {', '.join(fields)}")
        if not isinstance(self.field, str):
            return self
        if self.field not in fields:
            raise UserError(f"{type(self).__name__} of {self.field!r}: the input has the fields {', '.join(fields)}")
        return type(self)(fields.index(self.field))


class Count(AggregateFunction):
    """The number of elements."""

    fields = ("count",)

    def create_accumulator(self) -> int:
        """Nothing counted."""
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        """One more."""
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        """The count."""
        return accumulator

    def merge(self, first: int, second: int) -> int:
        """Both together."""
        return first + second


class Sum(_OverField):
    """The sum of a field; 0 to begin with, so integers stay integers."""

    fields = ("sum",)

    def create_accumulator(self) -> Any:
        """Zero."""
        return 0

    def add(self, value: Any, accumulator: Any) -> Any:
        """Add the field."""
        return accumulator + self._get(value)

    def get_result(self, accumulator: Any) -> Any:
        """The sum."""
        return accumulator

    def merge(self, first: Any, second: Any) -> Any:
        """Both together."""
        return first + second


class _Extreme:
    """Keeps one of two values; the first of equal ones. Mixed into an aggregate of a field."""

    _get: Callable[[Any], Any]

    def create_accumulator(self) -> Any:
        """Nothing seen."""
        return None

    def _choose(self, first: Any, second: Any) -> Any:
        raise NotImplementedError

    def add(self, value: Any, accumulator: Any) -> Any:
        """Compare with the field."""
        got = self._get(value)
        return got if accumulator is None else self._choose(accumulator, got)

    def get_result(self, accumulator: Any) -> Any:
        """The value kept."""
        return accumulator

    def merge(self, first: Any, second: Any) -> Any:
        """The one of both."""
        if first is None or second is None:
            return second if first is None else first
        return self._choose(first, second)


class Min(_Extreme, _OverField):
    """The smallest value of a field."""

    fields = ("min",)

    def _choose(self, first: Any, second: Any) -> Any:
        return min(first, second)


class Max(_Extreme, _OverField):
    """The greatest value of a field."""

    fields = ("max",)

    def _choose(self, first: Any, second: Any) -> Any:
        return max(first, second)


class Mean(_OverField):
    """The arithmetic mean of a field."""

    fields = ("mean",)

    def create_accumulator(self) -> Any:
        """Sum and count."""
        return (0, 0)

    def add(self, value: Any, accumulator: Any) -> Any:
        """Add the field to the sum."""
        return (accumulator[0] + self._get(value), accumulator[1] + 1)

    def get_result(self, accumulator: Any) -> Any:
        """Sum by count; None when an evictor left no element."""
        return accumulator[0] / accumulator[1] if accumulator[1] else None

    def merge(self, first: Any, second: Any) -> Any:
        """Both together."""
        return (first[0] + second[0], first[1] + second[1])


class Collect(_OverField):
    """All values of a field as a tuple, in order of arrival."""

    fields = ("values",)
    is_atomic = True

    def create_accumulator(self) -> list[Any]:
        """An empty list."""
        return []

    def add(self, value: Any, accumulator: Sequence[Any]) -> list[Any]:
        """Append the field."""
        added = self._get(value)
        values = accumulator if isinstance(accumulator, list) else list(accumulator)
        values.append(added)
        return values

    def get_result(self, accumulator: Sequence[Any]) -> tuple[Any, ...]:
        """The values."""
        return tuple(accumulator)

    def merge(self, first: Sequence[Any], second: Sequence[Any]) -> list[Any]:
        """One after the other."""
        return [*first, *second]


class Together(AggregateFunction):
    """Several aggregates at once, each with one result, named: `Together(trips=Count(), distance=Sum("miles"))`."""

    def __init__(self, **named: AggregateFunction) -> None:
        if not named:
            raise UserError("Together needs at least one aggregate: Together(count=Count())")
        for part in named.values():
            if isinstance(part, type):
                raise UserError(f"Together takes instances; got {part!r}: give {part.__name__}()")
        self._named = named
        self.parts = tuple(named.values())
        self.fields = tuple(named)
        self.is_atomic = len(named) == 1 and self.parts[0].is_atomic

    def bind(self, fields: tuple[str, ...]) -> AggregateFunction:
        """Bind every part."""
        return Together(**{name: part.bind(fields) for name, part in self._named.items()})

    def create_accumulator(self) -> list[Any]:
        """One accumulator for each part."""
        return [part.create_accumulator() for part in self.parts]

    def add(self, value: Any, accumulator: Sequence[Any]) -> list[Any]:
        """Add to every part."""
        return [part.add(value, one) for part, one in zip(self.parts, accumulator, strict=True)]

    def get_result(self, accumulator: Sequence[Any]) -> Any:
        """The results of the parts, in the order of their names."""
        results = tuple([part.get_result(one) for part, one in zip(self.parts, accumulator, strict=True)])
        return results if len(results) > 1 else results[0]

    def merge(self, first: Sequence[Any], second: Sequence[Any]) -> list[Any]:
        """Merge every part."""
        return [part.merge(one, other) for part, one, other in zip(self.parts, first, second, strict=True)]
