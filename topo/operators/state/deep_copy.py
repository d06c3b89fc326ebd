"""Copies that do not change when what they were made of is changed in place."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from topo.errors import UnsupportedStateError
from topo.hot import ATOMS, stays
from topo.user_errors import message_of


def all_stay(values: Sequence[Any]) -> bool:
    """Whether none of the values can ever change; quick for rows of atoms."""
    if set(map(type, values)) == {tuple} and ATOMS.issuperset(map(type, chain.from_iterable(values))):
        return True
    return all(map(stays, values))


def independent(value: Any) -> Any:
    """Return a value that does not change when this one is changed in place; itself, if it cannot be."""
    kind = type(value)
    if kind in ATOMS:
        return value
    if kind is tuple:
        return value if ATOMS.issuperset(map(type, value)) else tuple([independent(one) for one in value])
    if kind is list:
        return [independent(one) for one in value]
    if kind is dict:
        return {key: independent(one) for key, one in value.items()}
    try:
        return copy.deepcopy(value)
    except Exception as error:
        raise UnsupportedStateError(f"{kind.__name__} cannot be copied: {message_of(error)}") from error


def independent_rows(rows: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return the rows as a dict whose values do not change in place, quickly where they are flat."""
    kinds = set(map(type, rows.values()))
    if kinds <= ATOMS:
        return dict(rows)
    if kinds <= ATOMS | {tuple, list, dict}:
        flat = [value.values() if type(value) is dict else value for value in rows.values() if type(value) not in ATOMS]
        if set(map(type, chain.from_iterable(flat))) <= ATOMS:
            if kinds.isdisjoint((list, dict)):
                return dict(rows)
            return {key: value.copy() if type(value) in (list, dict) else value for key, value in rows.items()}
    copied = {}
    for key, value in rows.items():
        try:
            copied[key] = independent(value)
        except UnsupportedStateError as error:
            raise UnsupportedStateError(f"the value of key {key!r:.60}: {error}") from error
    return copied
