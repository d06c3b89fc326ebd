"""Rows and their columns, split among the tasks that they go to."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from topo.hot.plain.values import Row
from topo.hot.plain.words import Column, pack_words, unpack_words

Selection = slice | list[int]
"""Places of rows, ascending. A slice has bounds that are not negative."""

RowShare = tuple[int, Selection, list[Row], Sequence[Column]]
"""A position among the targets, the places of its rows, the rows, and the columns of these."""

EVERY_ROW = slice(None)


def share(
    rows: Sequence[Row],
    fields: Sequence[int],
    routes: Mapping[Any, int],
    targets: int,
    look_up: Callable[[Any], int],
    *columns: Column,
) -> list[RowShare]:
    """Split rows by key, each with its words of the columns.

    Args:
        rows: the batch.
        fields: the places of the key in a row.
        routes: positions by key, as far as they are known.
        targets: number of positions.
        look_up: returns the position of a key that `routes` does not have, or raises.
        columns: a word for each row, or nothing at all.
    """
    keys = list(map(itemgetter(*fields), rows))
    try:
        positions = list(map(routes.__getitem__, keys))
    except Exception:
        positions = [look_up(key) for key in keys]
    shares: list[list[int]] = [[] for _ in range(targets)]
    for place, position in enumerate(positions):
        shares[position].append(place)
    return take([(position, places) for position, places in enumerate(shares) if places], rows, *columns)


def share_ids(ids: Column, values: Column, targets: int) -> list[tuple[int, Column, Column]]:
    """Split ids by their remainder, which is the position of their target, each with its word of `values`, which may be empty.

    Returns:
        The positions that get any, ascending, each with its ids and their values.
    """
    if targets < 1:
        raise ValueError("ids cannot be shared among no targets")
    words, theirs = unpack_words(ids), unpack_words(values)
    if theirs and len(theirs) != len(words):
        raise ValueError("a column has neither a word for each row nor none")
    shares: list[tuple[int, Column, Column]] = []
    for position in range(targets):
        if mine := [place for place, id_ in enumerate(words) if id_ % targets == position]:
            packed = pack_words([theirs[place] for place in mine]) if theirs else b""
            shares.append((position, pack_words([words[place] for place in mine]), packed))
    return shares


def take(shares: Sequence[tuple[int, Selection]], rows: Sequence[Row], *columns: Column) -> list[RowShare]:
    """Return rows, and their words of the columns, for each position with the places of its rows."""
    words = [unpack_words(column) for column in columns] if any(type(places) is list for _, places in shares) else []
    taken: list[RowShare] = []
    for position, places in shares:
        if isinstance(places, slice):
            if places is EVERY_ROW:
                taken.append((position, places, rows if type(rows) is list else list(rows), columns))
            else:
                first, last, _ = places.indices(len(rows))
                cut = slice(8 * first, 8 * last)
                taken.append((position, places, list(rows[places]), [column[cut] for column in columns]))
        elif len(places) == 1:
            (place,) = places
            cut = slice(8 * place, 8 * place + 8)
            taken.append((position, places, [rows[place]], [column[cut] for column in columns]))
        else:
            pick = itemgetter(*places)
            parts = [array("Q", pick(column)).tobytes() if column else b"" for column in words]
            taken.append((position, places, list(pick(rows)), parts))
    return taken
