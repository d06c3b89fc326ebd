"""Fields grouping of column batches: each target gets the rows of its keys as one batch, under a separate edge.

A batch is split by its distinct keys, so that each is hashed at most once a batch, as `FieldsGrouper` hashes the key of a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from topo.api.column_batch import ColumnBatch, compute, int64, pyarrow
from topo.emission.groupers import FieldsGrouper
from topo.emission.router import Reject
from topo.errors import EmitError, UnsupportedValueError
from topo.hot import Column, Row, RowShare, take
from topo.ids import TaskId


class BatchSplitter:
    """Splits batches among the tasks that own their keys.

    Args:
        fields: of the key.
        grouper: knows the task of each key.
    """

    def __init__(self, fields: Sequence[str], grouper: FieldsGrouper) -> None:
        self._fields = fields
        self._grouper = grouper

    def split(self, batch: ColumnBatch) -> list[tuple[int, ColumnBatch]]:
        """Return the part of each target that gets any row. Raises EmitError for keys, or columns, that cannot be split."""
        keys = [batch[field] for field in self._fields]
        if not batch.is_arrow:
            return self._split_lists(batch, keys)
        try:
            return self._split_arrow(batch, keys)
        except pyarrow().ArrowException as error:
            # Arrow cannot pick rows of some types, such as string_view.
            raise EmitError(f"a batch cannot be split among tasks: {error}; cast the column") from error

    def _split_lists(self, batch: ColumnBatch, columns: list[Sequence[Any]]) -> list[tuple[int, ColumnBatch]]:
        keys: Sequence[Any] = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
        places: dict[int, list[int]] = {}
        for place, position in enumerate(self._grouper.routes_of(keys)):
            places.setdefault(position, []).append(place)
        if len(places) == 1:
            return [(position, batch) for position in places]
        return [(position, batch.take(places[position])) for position in sorted(places)]

    def _split_arrow(self, batch: ColumnBatch, columns: list[Any]) -> list[tuple[int, ColumnBatch]]:
        pc, pa = compute(), pyarrow()
        codes, keys = self._distinct_keys(0, columns[0])
        if len(columns) > 1:
            keys = [(key,) for key in keys]
        for place, column in enumerate(columns[1:], 1):
            more, values = self._distinct_keys(place, column)
            # A pair of codes is one number; the pairs that occur get codes in turn.
            pairs = pc.add(pc.multiply(codes.cast(pa.int64()), int64(len(values))), more.cast(pa.int64()))
            codes, found = _distinct(pairs)
            keys = [(*keys[pair // len(values)], values[pair % len(values)]) for pair in found]
        positions = self._grouper.routes_of(keys)
        if len(targets := sorted(set(positions))) == 1:
            return [(targets[0], batch)]
        by_row = pa.array(positions, pa.int32()).take(codes)
        # A scalar of another type would have the whole column cast.
        masks = [(target, pc.equal(by_row, pa.scalar(target, pa.int32()))) for target in targets]
        return [(target, batch.take(pc.indices_nonzero(mask))) for target, mask in masks]

    def _distinct_keys(self, place: int, column: Any) -> tuple[Any, list[Any]]:
        try:
            return _distinct(column)
        except (pyarrow().ArrowException, UnsupportedValueError, ValueError, TypeError) as error:
            raise EmitError(f"column {self._fields[place]!r} of type {column.type} cannot be used as a key: {error}") from error


def _distinct(column: Any) -> tuple[Any, list[Any]]:
    """Return for each row the number of its value, and the values."""
    from topo.api.arrow_values import values_of

    if pyarrow().types.is_dictionary(column.type):
        column = column.dictionary_decode()
    encoded = column.dictionary_encode(null_encoding="encode")
    return encoded.indices, values_of(encoded.dictionary)


class SplitSubscription:
    """A subscription whose batches are split: a batch may be in the share of several targets, each time with other rows."""

    partitions = False

    def __init__(self, splitter: BatchSplitter, targets: Sequence[TaskId]) -> None:
        self.targets = targets
        self._splitter = splitter

    def share(self, rows: list[Row], reject: Reject, *columns: Column) -> list[RowShare]:
        """Split each batch; a batch that cannot be split is rejected."""
        places: dict[int, list[int]] = {}
        parts: dict[int, list[Row]] = {}
        for place, (batch,) in enumerate(rows):
            try:
                shares = self._splitter.split(batch)
            except EmitError as error:
                reject(place, error)
                continue
            for position, part in shares:
                places.setdefault(position, []).append(place)
                parts.setdefault(position, []).append((part,))
        taken = take(list(places.items()), rows, *columns)
        return [(position, chosen, parts[position], words) for position, chosen, _, words in taken]
