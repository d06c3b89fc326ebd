"""What readers rely on in files of the state folder that hold plain JSON: by hand they can become valid JSON of another shape."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

_Number = int | float


class OutcomeShape(Struct):
    kind: str
    reason: str


class PercentilesShape(Struct):
    p50: _Number
    p99: _Number


class TotalsShape(Struct):
    emitted: int
    acked: int
    failed: int
    timed_out: int
    replayed: int
    dead_lettered: int
    finally_failed: int
    refused: int
    pending: int
    complete_latency_s: PercentilesShape | None


class EventTimeShape(Struct):
    lag_s: _Number | None
    held_back_by: str | None = None


class HistogramShape(PercentilesShape):
    count: int
    max: _Number


class UserMetricsShape(Struct):
    counters: dict[str, _Number]
    gauges: dict[str, _Number]
    histograms: dict[str, HistogramShape | None]


class FiguresShape(Struct):
    """The figures that rows of components and of tasks share."""

    component: str
    counters: dict[str, _Number]
    levels: dict[str, _Number]
    latencies_s: dict[str, PercentilesShape | None]
    event_time: EventTimeShape | None
    user: UserMetricsShape


class ComponentRowShape(FiguresShape):
    kind: str
    parallelism: int
    capacity: _Number
    operators: list[str] = []


class TaskShape(FiguresShape):
    task: int
    index: int
    worker: int


class WorkerShape(Struct):
    worker: int
    state: str
    pid: int | None
    tasks: list[int]
    losses: int
    lost_why: str


class CheckpointShape(Struct):
    """A row of the latest checkpoints."""

    checkpoint: int
    state: str
    why: str
    bytes: int
    duration_s: _Number
    alignment_ms: _Number
    pause_ms: _Number


class SavepointShape(Struct):
    folder: str
    state: str
    why: str = ""


class CheckpointsShape(Struct):
    complete: int
    failed: int
    restores: int
    latest: list[CheckpointShape]
    savepoints: list[SavepointShape] = []


class SummaryShape(Struct):
    """`summary.json`."""

    topology: str
    status: str
    reason: str
    outcome: OutcomeShape
    uptime_s: _Number
    ended_ms: int
    totals: TotalsShape
    restarts: int
    components: list[ComponentRowShape]
    tasks: list[TaskShape]
    workers: list[WorkerShape]
    checkpoints: CheckpointsShape | None = None
    packing: str = ""


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


class ActionShape(Struct):
    """A row of `operator.jsonl`."""

    at_ms: int
    action: str


class AddressShape(Struct):
    """Where a master listens, of `master.json`; "" and None as long as it does not."""

    pid: int | None = None
    client_endpoint: Annotated[str, Meta(pattern="^((ipc|tcp)://.+)?$")] = ""


class EndShape(Struct):
    """How a run ended, of `summary.json`."""

    status: str = ""


def misfit(value: object, shape: type) -> str:
    """Return how a value differs from a shape; "" where it fits."""
    try:
        msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        return str(error)
    return ""
