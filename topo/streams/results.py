"""Values that operators give and take: results of windows, tags of side outputs, and when running results are emitted."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar
from uuid import UUID

from topo.api.durations import duration_ms
from topo.errors import UserError

StreamKey: TypeAlias = str | int | float | bytes | date | time | timedelta | Decimal | UUID | tuple["StreamKey", ...] | None
"""Types of keys: values whose hash is equal in all processes."""
Sortable: TypeAlias = int | float | str | bytes | date | time | timedelta | Decimal | tuple["Sortable", ...]
"""Types of values that `top_n` compares."""

R = TypeVar("R")
V = TypeVar("V")


class Windowed(NamedTuple, Generic[R]):
    """The result of one window: from `start` to `end` (milliseconds; the end is exclusive) it was `value`."""

    start: int
    end: int
    value: R


class Change(NamedTuple, Generic[R]):
    """A change of one row of a table: `old` is None for a new key, `new` for a deleted one."""

    old: R | None
    new: R | None


@dataclass(frozen=True)
class SideOutput(Generic[V]):
    """A tag for records that an operator emits beside its results.

    Attributes:
        name: unique among the side outputs of the operator.
        of: the type of its records.
    """

    name: str
    of: type[V]


@dataclass(frozen=True)
class EmitWhen:
    """When a running result is emitted; made by `EACH`, `AT_END` and `every`."""

    kind: str
    period_ms: int = 0


EACH: Final = EmitWhen("each")
"""At each record: the new result of its key."""
AT_END: Final = EmitWhen("at_end")
"""Once, when the input has ended: the last result of each key."""


def every(period: str | timedelta) -> EmitWhen:
    """Emit the result of each key that has changed, every `period` of the clock.

    Raises:
        UserError: the period is not above zero.
    """
    period_ms = duration_ms(period)
    if period_ms <= 0:
        raise UserError(f"every({period!r}): give a period above zero, such as every('1s')")
    return EmitWhen("every", period_ms)
