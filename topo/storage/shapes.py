"""What readers rely on in files of the state folder that hold plain JSON: by hand they can become valid JSON of another shape."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

Objects = list[dict[str, Any]]
_Number = int | float


class OutcomeShape(Struct):
    kind: str
    reason: str


class TotalsShape(Struct):
    emitted: int
    acked: int
    failed: int
    pending: int


class SummaryShape(Struct):
    """`summary.json`."""

    topology: str
    status: str
    reason: str
    outcome: OutcomeShape
    uptime_s: _Number
    ended_ms: int
    totals: TotalsShape
    components: Objects
    tasks: Objects
    workers: Objects


class ErrorShape(Struct):
    """A row of `errors.jsonl`."""

    at_ms: int
    kind: str
    message: str
    component: str
    task: int | None
    worker: int | None
    file: str
    line: int | None
    count: int
    traceback: str


class LetterShape(Struct):
    """A row of `dead_letters.jsonl`."""

    at_ms: int
    component: str
    message: Any
    values: str | list[Any] | dict[str, Any] | None
    attempts: int
    errors: list[str]


class ReplayShape(Struct):
    """A row of `replays.jsonl`."""

    at_ms: int
    dead_letter: int
    state: str
    why: str


class AddressShape(Struct):
    """Where a master listens, of `master.json`; "" and None as long as it does not."""

    pid: int | None = None
    client_endpoint: Annotated[str, Meta(pattern="^((ipc|tcp)://.+)?$")] = ""


def misfit(value: object, shape: type) -> str:
    """Return how a value differs from a shape; "" where it fits."""
    try:
        msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        return str(error)
    return ""
