"""Aggregates over columns: the rows of a batch into the accumulators of their keys.

The rows of a batch are in groups, one for each key; a group is a number, the place of its accumulator in a list. The result is
that of `AggregateFunction.add` for the same rows in the same order: each sum, minimum and mean is made by the same steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from topo.api.aggregates import AggregateFunction, Count, Max, Mean, Min, Sum, Together
from topo.api.column_batch import ColumnBatch
from topo.hot import ATOMS
from topo.operators.state.deep_copy import independent

Fold = Callable[[list[Any], Sequence[int], ColumnBatch], None]
"""Adds the rows of a batch to accumulators, which it replaces in their list and does not change in place."""


class ColumnAggregate:
    """An aggregate that takes columns.

    Args:
        aggregate: bound to the fields of the input; one of those that `in_columns` is true of.

    Attributes:
        parts: the aggregates in it.
    """

    def __init__(self, aggregate: AggregateFunction) -> None:
        self.create = aggregate.create_accumulator
        self.merge = aggregate.merge
        self.parts: Sequence[AggregateFunction] = aggregate.parts if type(aggregate) is Together else (aggregate,)
        self._is_one = type(aggregate) is not Together
        self._folds = [_fold_of(part) for part in self.parts]

    def fold(self, kept: list[Any], groups: Sequence[int], batch: ColumnBatch) -> list[Any]:
        """Return the accumulators of all groups with the rows of a batch in them. Those in `kept` do not change.

        Args:
            kept: by group, its accumulator before; the list may be changed.
            groups: by row of the batch; each group has one at least.
            batch: with columns that are sequences of values.

        Raises:
            Exception: any exception of the values, or of the user's `add_columns`.
        """
        columns = [kept] if self._is_one else [list(own) for own in zip(*kept, strict=True)]
        for fold, own in zip(self._folds, columns, strict=True):
            fold(own, groups, batch)
        return self.together(columns)

    def together(self, parts: Sequence[Sequence[Any]]) -> list[Any]:
        """Return accumulators, made of those of each part."""
        return list(parts[0]) if self._is_one else list(map(list, zip(*parts, strict=True)))


def _fold_of(part: AggregateFunction) -> Fold:
    known = _FOLDS.get(type(part))
    if known is None:
        return partial(_add_own, part)
    return partial(known, getattr(part, "field", None))


def _add_count(_field: None, kept: list[Any], groups: Sequence[int], _batch: ColumnBatch) -> None:
    for group in groups:
        kept[group] += 1


def _add_sum(field: int, kept: list[Any], groups: Sequence[int], batch: ColumnBatch) -> None:
    for group, value in zip(groups, batch.columns[field], strict=True):
        kept[group] = kept[group] + value


def _add_least(field: int, kept: list[Any], groups: Sequence[int], batch: ColumnBatch) -> None:
    for group, value in zip(groups, batch.columns[field], strict=True):
        least = kept[group]
        kept[group] = value if least is None else min(least, value)


def _add_greatest(field: int, kept: list[Any], groups: Sequence[int], batch: ColumnBatch) -> None:
    for group, value in zip(groups, batch.columns[field], strict=True):
        greatest = kept[group]
        kept[group] = value if greatest is None else max(greatest, value)


def _add_mean(field: int, kept: list[Any], groups: Sequence[int], batch: ColumnBatch) -> None:
    for group, value in zip(groups, batch.columns[field], strict=True):
        total, count = kept[group]
        kept[group] = (total + value, count + 1)


def _add_own(part: AggregateFunction, kept: list[Any], groups: Sequence[int], batch: ColumnBatch) -> None:
    places: list[list[int]] = [[] for _ in kept]
    for place, group in enumerate(groups):
        places[group].append(place)
    batch = batch if part.columns == "lists" else batch.in_form(part.columns)
    for group, own in enumerate(places):
        # Both are copies: user code may change them in place, and other windows and attempts have them, too.
        kept[group] = part.add_columns(_own_columns(batch.take(own)), independent(kept[group]))


def _own_columns(batch: ColumnBatch) -> ColumnBatch:
    if not batch.is_arrow:
        batch.columns = tuple([c if ATOMS.issuperset(map(type, c)) else independent(c) for c in batch.columns])
    return batch


_FOLDS: dict[type, Callable[..., None]] = {
    Count: _add_count,
    Sum: _add_sum,
    Min: _add_least,
    Max: _add_greatest,
    Mean: _add_mean,
}
