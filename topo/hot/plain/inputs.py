"""The loop of user code over a slice of inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from operator import length_hint
from sys import getrefcount
from typing import Any, NamedTuple

from topo.hot.plain.values import Row

_UNKEPT = 2
"""Result of `getrefcount` for an object that one variable refers to, and nothing else."""


class Ran(NamedTuple):
    """How far a slice has run.

    Attributes:
        done: inputs that have run, from the first of the slice; the input that has stopped the loop is among them.
        tup: the tuple of the input that has stopped the loop; None at the end of the slice. How far the streams have come with
            this input is not noted.
        error: what its call has raised.
        value: what its call has returned; None as a rule.
    """

    done: int
    tup: Any = None
    error: Exception | None = None
    value: object = None


def run_loop(
    loop: Callable[[list[Row], object, Sequence[tuple[list[Row], list[int]]], int], object],
    collector: object,
    kind: Any,
    origin: object,
    rows: list[Row],
    stamps: Sequence[int | None] | None,
    emitted: Sequence[tuple[list[Row], list[int]]],
    limit: int,
) -> Ran:
    """As `run_inputs`, for a component that goes over the rows itself, in one call.

    Args:
        loop: called with `rows`, `collector`, `emitted` and `limit`. Behind each row it adds to the ends of all streams, and it
            returns behind a row that exceeds the limit, whose end it does not add.
    """
    given, emitted = rows[:], emitted or [([], [])]
    ends = emitted[0][1]
    before, error = len(ends), None
    try:
        loop(rows, collector, emitted, limit)
    except Exception as raised:
        error = raised
    done = len(ends) - before
    if error is None and sum([len(more) for more, _ in emitted]) <= limit:
        return Ran(done)
    tup = kind.__new__(kind)
    tup.values, tup.origin, tup.timestamp = given[done], origin, None if stamps is None else stamps[done]
    return Ran(done + 1, tup, error)


def run_inputs(
    execute: Callable[[Any, Any], object],
    collector: object,
    kind: Any,
    origin: object,
    rows: list[Row],
    stamps: Sequence[int | None] | None,
    emitted: Sequence[tuple[list[Row], list[int]]],
    limit: int,
) -> Ran:
    """Call `execute` with a tuple of each row and the collector, until a call raises or returns a value.

    Args:
        execute: user code.
        collector: its second argument.
        kind: class of the tuples; they are made without `__init__` and get `values`, `origin` and `timestamp`.
        origin: of all rows.
        rows: of the slice. Another thread may empty the list: the loop ends with the call at hand.
        stamps: timestamps by row, or None.
        emitted: for each stream its rows, to which `execute` adds, and its ends: after each input the number of rows is added.
        limit: rows on all streams; the input that exceeds it stops the loop.
    """
    new, references, unkept = kind.__new__, getrefcount, _UNKEPT
    only, ends = emitted[0] if len(emitted) == 1 else (None, [])
    times: Iterator[int | None] = repeat(None, len(rows)) if stamps is None else iter(stamps)
    # Inputs that have run are counted by the iterator of their timestamps, at less cost than in the loop.
    count = length_hint(times)
    # Making a tuple takes several times as long as filling one: what user code has not kept is filled again.
    tup = new(kind)
    tup.origin = origin
    for values, stamp in zip(rows, times):  # noqa: B905
        if references(tup) != unkept:
            tup = new(kind)
            tup.origin = origin
        tup.values = values
        tup.timestamp = stamp
        try:
            if (value := execute(tup, collector)) is not None:
                return Ran(count - length_hint(times), tup, None, value)
        except Exception as error:
            return Ran(count - length_hint(times), tup, error)
        if only is not None:
            end = len(only)
            if end > limit:
                return Ran(count - length_hint(times), tup)
            ends.append(end)
        elif emitted:
            if sum([len(more) for more, _ in emitted]) > limit:
                return Ran(count - length_hint(times), tup)
            for more, its_ends in emitted:
                its_ends.append(len(more))
    return Ran(count - length_hint(times))
