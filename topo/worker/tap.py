"""A tap: rows that pass a task, chosen, and made short for an operator. Pure.

It looks at no more than 200 rows a batch and 5 ms a second, over all tasks of the worker. Rows beyond the rate are counted only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from reprlib import Repr
from typing import Any

from topo.api.column_batch import ColumnBatch
from topo.expressions import Expression
from topo.hot import Row
from topo.ids import TaskId
from topo.task.taps import Tap
from topo.wire.control import Observed

MOST_ROWS = 200
LOOK_SHARE = 0.005
"""The share of time that may be spent on looking."""
LONGEST_VALUE = 200
SECRET = "•••"
_LARGEST = 1 << 63

_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = LONGEST_VALUE
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxdict = _SHORT.maxset = 20


class TapReader:
    """One tap in one worker.

    Args:
        number: of the observation.
        spec: `where`, an expression or ""; `stream`, one to look at, or ""; `rate`, rows a second of this worker.
        secret: names of fields whose values are not shown.
        indexes: of each observed task within its component.
    """

    def __init__(
        self,
        number: int,
        spec: Mapping[str, Any],
        secret: Collection[str],
        indexes: Mapping[TaskId, int],
        clock: Callable[[], float],
        wall_ms: Callable[[], int],
    ) -> None:
        self._id = number
        self._where = Expression(spec["where"]) if spec.get("where") else None
        self._stream: str = spec.get("stream") or ""
        self._rate = float(spec["rate"])
        self._secret = secret
        self._indexes = indexes
        self._clock = clock
        self._wall_ms = wall_ms
        self._room = 1.0
        """Rows that may be shown now; grows with time."""
        self._look_s = LOOK_SHARE
        """Seconds that may be spent now; grows with time."""
        self._at = self._idle_until = clock()
        self._counts: dict[TaskId, dict[str, Any]] = {task: _nothing() for task in indexes}

    def of(self, task: TaskId) -> Tap:
        """Return the tap for one task."""

        def look(stream: str, fields: Sequence[str], rows: Sequence[Row]) -> None:
            counts = self._counts[task]
            try:
                if self._stream in ("", stream, stream.rpartition(":")[2]):
                    self._look(task, counts, stream, fields, rows)
            except Exception as error:
                # A tap must not disturb the task.
                counts["problem"] = f"{type(error).__name__}: {error}"

        return look

    def reports(self) -> list[Observed]:
        """Return what there was since the last call, by task."""
        taken = [Observed(self._id, task, **counts) for task, counts in self._counts.items() if counts != _nothing()]
        self._counts = {task: _nothing() for task in self._counts}
        return taken

    def _look(self, task: TaskId, counts: dict[str, Any], stream: str, fields: Sequence[str], rows: Sequence[Row]) -> None:
        columnar = bool(rows) and len(rows[0]) == 1 and isinstance(rows[0][0], ColumnBatch)
        total = sum(len(row[0]) for row in rows) if columnar else len(rows)
        counts["seen"] += total
        began = self._clock()
        if began < self._idle_until:
            return
        passed = max(0.0, began - self._at)
        self._at = began
        self._room = min(max(1.0, self._rate), self._room + passed * self._rate)
        self._look_s = min(LOOK_SHARE, self._look_s + passed * LOOK_SHARE)
        # Without a condition every row matches, so no more are looked at than can be shown.
        most = MOST_ROWS if self._where is not None else math.floor(self._room)
        if most < 1 or self._look_s <= 0:
            until_room = (1 - self._room) / self._rate if self._where is None else 0.0
            self._idle_until = began + max(until_room, -self._look_s / LOOK_SHARE)
            return
        step = max(1, -(-total // most))
        # Another place in each batch: the first rows of batches may be alike.
        for place in range(counts["looked"] % step, total, step):
            values = _of_batches(rows, place) if columnar else rows[place]
            counts["looked"] += 1
            if self._matches(counts, fields, values):
                counts["matched"] += 1
                if self._room >= 1:
                    self._room -= 1
                    counts["rows"].append(self._shown(task, stream, fields, values))
            if self._clock() - began > self._look_s:
                break
        self._look_s -= self._clock() - began

    def _matches(self, counts: dict[str, Any], fields: Sequence[str], values: Row) -> bool:
        if self._where is None:
            return True
        try:
            return bool(self._where(dict(zip(fields, values, strict=True))))
        except KeyError as error:
            # A stream without the field; another one has it.
            counts["problem"] = counts["problem"] or f"some tuples have no {error}"
        except Exception as error:
            counts["problem"] = f"{self._where.text}: {type(error).__name__}: {error}"
        return False

    def _shown(self, task: TaskId, stream: str, fields: Sequence[str], values: Row) -> dict[str, Any]:
        named = {field: SECRET if field in self._secret else short(value) for field, value in zip(fields, values, strict=True)}
        return {"at_ms": self._wall_ms(), "task": task, "index": self._indexes[task], "stream": stream, "fields": named}


def _nothing() -> dict[str, Any]:
    return {"rows": [], "seen": 0, "looked": 0, "matched": 0, "problem": ""}


def _of_batches(rows: Sequence[Row], place: int) -> Row:
    """Return the row at a place of batches that follow each other."""
    for (batch,) in rows:
        if place < len(batch):
            return tuple([_of_arrow(column, place) if batch.is_arrow else column[place] for column in batch.columns])
        place -= len(batch)
    raise IndexError(place)


def _of_arrow(column: Any, place: int) -> Any:
    """Return a value of an Arrow array as a bolt is given it, or the text of Arrow where no bolt could be given it."""
    from topo.api.arrow_values import values_of

    try:
        return values_of(column.slice(place, 1))[0]
    except Exception:
        # One column must not hide the others.
        return str(column.slice(place, 1)).strip("[] \n")


def short(value: Any) -> Any:
    """Return a value that every encoding takes: a number, a text of at most 200 characters, or None."""
    if value is None or isinstance(value, bool):
        return value
    if type(value) is int and -_LARGEST < value < _LARGEST:
        return value
    if type(value) is float and math.isfinite(value):
        return value
    if type(value) is str:
        return value if len(value) <= LONGEST_VALUE else value[: LONGEST_VALUE - 1] + "…"
    if type(value) is bytes:
        value = value[: LONGEST_VALUE + 1]
    try:
        text = _SHORT.repr(value)
    except ValueError as error:
        # An integer of more than 4300 digits. A message id may be one, and a trace must not disturb its spout either.
        text = f"({error})"
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"
