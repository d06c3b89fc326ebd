"""Inputs of one bolt in a test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from topo.api.column_batch import ColumnBatch
from topo.api.streams import DEFAULT_STREAM
from topo.errors import UserError
from topo.hot import Row

SOURCE_TASK = 1001
"""Id of the task that inputs come from."""


class _Tick:
    """Among the tuples of `run_bolt`: a tick tuple."""

    def __repr__(self) -> str:
        return "TICK"


TICK: Final = _Tick()


@dataclass(frozen=True, slots=True)
class GivenTuple:
    """An input for `run_bolt`; made by `tuple_of`."""

    values: Row
    fields: tuple[str, ...]
    component: str
    stream: str
    task: int
    timestamp: int | None


def tuple_of(
    values: Mapping[str, Any] | None = None,
    /,
    *,
    component: str = "source",
    stream: str = DEFAULT_STREAM,
    task: int = SOURCE_TASK,
    timestamp: int | None = None,
    **named: Any,
) -> GivenTuple:
    """Return an input by field names: `tuple_of(word="a", count=1)`.

    Args:
        values: fields whose names are no Python names, or are among the names below.
        component: where it comes from.
        stream: the stream it comes on.
        task: id of the task that emitted it.
        timestamp: event time in milliseconds.
        named: the values by field name.
    """
    fields = {**(values or {}), **named}
    return GivenTuple(tuple(fields.values()), tuple(fields), component, stream, task, timestamp)


def given_tuple(item: Any, fields: Sequence[str] | None) -> GivenTuple:
    """Return an item of a test as an input. Raises UserError for anything that is none."""
    if isinstance(item, GivenTuple):
        return item
    if isinstance(item, ColumnBatch):
        return GivenTuple((item,), item.fields, "source", DEFAULT_STREAM, SOURCE_TASK, None)
    if isinstance(item, Mapping):
        return tuple_of(item)
    if not isinstance(item, tuple | list):
        raise UserError(f"{item!r} is no tuple; give ({item!r},), a mapping of fields to values, or tuple_of(...)")
    if fields is None:
        raise UserError(f"{item!r} has no field names; give run_bolt(..., fields=(...)), or tuple_of(...)")
    if len(fields) != len(item):
        raise UserError(f"{item!r} has {len(item)} values for the {len(fields)} fields {tuple(fields)!r}")
    return tuple_of(dict(zip(fields, item, strict=True)))
