"""The difference between expected and actual tuples, in readable lines."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from topo.hot import Row

SHOWN = 10
"""Lines of a kind; more are counted."""
_NOTHING = object()


def difference(expected: Sequence[Row], found: Sequence[Row], *, ordered: bool) -> list[str]:
    """Return what differs, as lines; empty when nothing does. Without order, equal tuples are counted."""
    return _in_order(expected, found) if ordered else _in_any_order(expected, found)


def _in_order(expected: Sequence[Row], found: Sequence[Row]) -> list[str]:
    for place, (wanted, got) in enumerate(zip_longest(expected, found, fillvalue=_NOTHING)):
        if wanted is _NOTHING:
            return [f"from {place} on unexpected:", *_shown("+", found[place:])]
        if got is _NOTHING:
            return [f"from {place} on missing:", *_shown("-", expected[place:])]
        if wanted != got:
            around = [f"  {row!r}" for row in found[max(0, place - 2) : place]]
            return [f"first difference at {place}:", *around, f"- {wanted!r}", f"+ {got!r}"]
    return []


def _in_any_order(expected: Sequence[Row], found: Sequence[Row]) -> list[str]:
    missing, unexpected = _without(expected, found), _without(found, expected)
    lines = []
    if missing:
        lines += [f"missing, {len(missing)}:", *_shown("-", missing)]
    if unexpected:
        lines += [f"unexpected, {len(unexpected)}:", *_shown("+", unexpected)]
    return lines


def _without(rows: Sequence[Row], others: Sequence[Row]) -> list[Row]:
    """Return `rows` less one for each equal one of `others`."""
    try:
        counts: dict[Row, int] = {}
        for row in others:
            counts[row] = counts.get(row, 0) + 1
        left = []
        for row in rows:
            if counts.get(row, 0):
                counts[row] -= 1
            else:
                left.append(row)
        return left
    except TypeError:
        # Values such as dicts have no hash, but can be compared.
        left, rest = [], list(others)
        for row in rows:
            if row in rest:
                rest.remove(row)
            else:
                left.append(row)
        return left


def _shown(sign: str, rows: Sequence[Row]) -> list[str]:
    lines = [f"{sign} {row!r}" for row in rows[:SHOWN]]
    return lines if len(rows) <= SHOWN else [*lines, f"  ... and {len(rows) - SHOWN} more"]
