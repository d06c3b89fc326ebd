"""Columns as a spout emits them: of types that travel, in pieces that a frame can carry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, groupby, pairwise
from typing import NamedTuple

import pyarrow as pa

from topo.api.arrow_values import milliseconds_of, named_values
from topo.errors import ConfigError

DEFAULT_ROWS = 16_384
"""Rows in a batch: some columns of numbers and short strings take a megabyte."""
_MOST_BYTES = 4 << 20
"""A frame takes 16 MB; a single longer row is a piece for itself."""


class Piece(NamedTuple):
    """Some consecutive rows.

    Attributes:
        columns: by field.
        last: the number of the last row.
        stamps: event times in milliseconds; None when the rows have none.
    """

    columns: dict[str, pa.Array]
    last: int
    stamps: pa.Array | None


def batch_rows_of(*, batches: bool, batch_rows: int | None) -> int:
    """Return how many rows a batch has at most; 0: the spout emits rows.

    Raises:
        ConfigError: a number below 1, or one without `batches`.
    """
    if batch_rows is not None and not batches:
        raise ConfigError(f"batch_rows={batch_rows!r} is for batches: give batches=True, or leave it out")
    if batch_rows is not None and batch_rows < 1:
        raise ConfigError(f"batch_rows={batch_rows!r} must be a whole number, at least 1")
    return batch_rows or DEFAULT_ROWS if batches else 0


def pieces_of(
    columns: Mapping[str, pa.Array], fields: Sequence[str], timestamp: str | None, most_rows: int, skip: int = 0
) -> Iterator[Piece]:
    """Cut rows into pieces, none of them too large for a frame. Rows with and without event time are in different pieces.

    Args:
        columns: with the fields and the column of event time.
        fields: the columns to emit.
        timestamp: the column of event time, or None.
        most_rows: of a piece.
        skip: how many rows are left out at the beginning; the others are in the same pieces as without it.

    Raises:
        NotRepresentable: the column of event time holds something else.
    """
    arrays = {name: _plain(columns[name]) for name in fields}
    stamps = None if timestamp is None else named_values(columns[timestamp], timestamp, milliseconds_of)
    everything = list(arrays.values())
    for start, end in pairwise(_changes(stamps, len(everything[0]))):
        for at in range(start, end, most_rows):
            for first, last in _small(everything, at, min(at + most_rows, end)):
                if last > skip:
                    place = slice(max(first, skip), last)
                    own = None if stamps is None or not stamps[first].is_valid else stamps[place]
                    yield Piece({name: array[place] for name, array in arrays.items()}, last - 1, own)


def _changes(stamps: pa.Array | None, count: int) -> Sequence[int]:
    """Return where rows with event time change to rows without or back, the beginning and the end included."""
    if stamps is None or not stamps.null_count:
        return (0, count)
    return list(accumulate((len(list(run)) for _, run in groupby(stamps.is_valid().to_pylist())), initial=0))


def _small(arrays: Sequence[pa.Array], first: int, last: int) -> Iterator[tuple[int, int]]:
    if last - first <= 1 or sum([array[first:last].nbytes for array in arrays]) <= _MOST_BYTES:
        yield first, last
        return
    middle = (first + last) // 2
    yield from _small(arrays, first, middle)
    yield from _small(arrays, middle, last)


def _plain(array: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(array.type):
        # A slice of it would carry the whole dictionary.
        return array.dictionary_decode()
    return array.storage if isinstance(array.type, pa.BaseExtensionType) else array
