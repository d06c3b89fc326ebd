"""Rows of a key and a number of records: those of a slice with one key become one row, before they are sent."""

from __future__ import annotations

from collections import Counter
from itertools import repeat
from operator import itemgetter
from typing import Any

from topo.emission.emitter import StreamRows

_FEWER = 2
"""A slice is added up where that leaves one row of as many, or fewer: the rows have to pay for the search for equal ones."""
_SAMPLE = 64
_key = itemgetter(0)


def add_up(stream: StreamRows) -> None:
    """Put one row in the place of those with equal keys, as of the last input. Rows with timestamps of their own stay.

    A str stands for the row of this key and 1. Only keys of the type str are equal to no key of another type, so a slice with
    others is looked at row by row: 1 and True are equal, and may belong to different tasks.
    """
    rows: list[Any] = stream.rows
    if len(rows) < _SAMPLE or stream.stamps or len(set(rows[:_SAMPLE])) > _SAMPLE // _FEWER:
        spell_out(stream)
        return
    totals = Counter(rows)
    if set(map(type, totals)) == {str}:
        added: list[Any] = list(totals.items())
    else:
        spell_out(stream)
        totals = Counter(rows)
        kinds = set(map(type, map(_key, totals)))
        if kinds != {str} and set(map(type, map(_key, rows))) != {int}:
            return
        added = [(key, one * times) for (key, one), times in totals.items()]
    if len(added) > len(rows) // _FEWER:
        spell_out(stream)
        return
    rows[:] = added
    stream.ends[:] = [*repeat(0, len(stream.ends) - 1), len(rows)]


def spell_out(stream: StreamRows) -> None:
    """Put the row of a key and 1 in the place of each str."""
    rows: list[Any] = stream.rows
    rows[:] = [(row, 1) if type(row) is str else row for row in rows]
