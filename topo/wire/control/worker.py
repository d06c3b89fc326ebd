"""Messages from a worker: on its own behalf, and from its tasks."""

from __future__ import annotations

from typing import Any

import msgspec

from topo.ids import Epoch, Incarnation, TaskId, WorkerId
from topo.wire.control.common import MAX_CONTROL, ControlMessage, decode, encode

Statistics = dict[str, Any]
"""Counters of a task by name; the keys are those of `wire/statistics.py`."""


# From a worker, on its own behalf.


class Register(ControlMessage, frozen=True):
    """A worker has bound its inbox. `digest` is the plan's, as this worker built it; `public_key` is CURVE's, "" without.

    `outline` is that of a plan whose digest is not the master's.
    """

    worker: WorkerId
    incarnation: Incarnation
    pid: int
    host: str
    python: str
    digest: str
    tasks: list[TaskId]
    endpoint: str
    public_key: str = ""
    outline: list[str] = []


class Heartbeat(ControlMessage, frozen=True):
    """A worker's loop turns. `busy_in` names the component whose code it is in, "" when in none.

    `sent_count` counts the messages that the loop has sent before, since a reset connection may lose some; -1: unknown.
    `process` has the figures of the process: see `topo.observability.process_figures`.
    """

    worker: WorkerId
    incarnation: Incarnation
    term: int
    epoch: Epoch
    busy_in: str = ""
    tasks: dict[TaskId, Statistics] = {}
    sent_count: int = -1
    process: dict[str, float] = {}


class Stuck(ControlMessage, frozen=True):
    """A component's code has not returned for `seconds`; `stack` is where it is, `file` and `line` where in the user's code."""

    worker: WorkerId
    task: TaskId
    component: str
    seconds: float
    stack: str
    file: str = ""
    line: int = 0


# From a task, through its worker.


class TaskReady(ControlMessage, frozen=True):
    """All in-edges of the task are open."""

    task: TaskId
    epoch: Epoch


class EdgeLost(ControlMessage, frozen=True):
    """Frames of the edge sender -> task are missing; nothing more on it is processed in this epoch."""

    task: TaskId
    epoch: Epoch
    sender: TaskId
    why: str


class ComponentError(ControlMessage, frozen=True):
    """An exception in user code; `file` and `line` are the user's; `count` equal ones since a report; `at_ms`: wall time."""

    task: TaskId
    component: str
    kind: str
    message: str
    traceback: str
    file: str = ""
    line: int = 0
    count: int = 1
    at_ms: int = 0


class Cause(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Why a tuple failed: an exception in user code with the user's file and line, or, with an empty `kind`, words alone."""

    kind: str
    message: str
    component: str
    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        what = f"{self.kind}: {self.message}" if self.kind else self.message
        place = f"{self.file.rpartition('/')[2]}:{self.line}, " if self.file else ""
        return f"{what} ({place}component {self.component!r})"


class TuplesFailed(ControlMessage, frozen=True):
    """Why a task has failed roots: for each cause the roots."""

    task: TaskId
    causes: list[tuple[Cause, list[int]]]


class PositionReport(ControlMessage, frozen=True):
    """Everything a spout task emitted before `position` is done. `attempts` is packed, empty when there is nothing to note."""

    task: TaskId
    epoch: Epoch
    position: bytes
    attempts: bytes = b""


class DeadLetter(ControlMessage, frozen=True):
    """A message that has failed as often as it may. `position` and `values` are packed; `root` is that of the last attempt, 0
    when that is not known. The master adds the `cause`. `earlier` has why each attempt before it failed, and its root.

    `stream` and `stamp` (milliseconds) are those it was emitted with; `fixed` is why it cannot be emitted again.

    `identity` is a random number that a dead letter keeps over recoveries and runs. It is 0 where its message identifies it: then
    `position` is the message's id, and a life of its task numbers its dead letters by `id`.
    """

    task: TaskId
    id: int
    position: bytes
    values: bytes
    errors: list[str]
    attempts: int
    root: int = 0
    cause: Cause | None = None
    identity: int = 0
    earlier: list[tuple[str, int]] = []
    stream: str = ""
    stamp: int | None = None
    fixed: str = ""


class LettersReplayed(ControlMessage, frozen=True):
    """Dead letters that were emitted again: the numbers of those that are processed, and new reports, by `id`, of the failed."""

    task: TaskId
    done: list[int]
    failed: list[DeadLetter]


class Quiet(ControlMessage, frozen=True):
    """A task's answer to a probe. `why` is the reason that it is not quiet, in words; `refused` the right that its sink lacks."""

    task: TaskId
    epoch: Epoch
    probe: int
    ended: bool
    quiet: bool
    sent: int
    received: int
    pending: int = 0
    why: str = ""
    refused: str = ""


class Closed(ControlMessage, frozen=True):
    """A task's component has been closed."""

    task: TaskId


class SnapshotTaken(ControlMessage, frozen=True):
    """A task's part of a checkpoint is durable.

    Attributes:
        file: its name in the folder of checkpoints.
        length: bytes of the file.
        checksum: of the file.
        alignment_ms: from the first barrier to the last.
        pause_ms: for how long the task did nothing else.
        duration_ms: from the last barrier until the part was durable.
        ended: the task had passed the end of its input before the barrier.
    """

    task: TaskId
    epoch: Epoch
    checkpoint: int
    file: str
    length: int
    checksum: str
    alignment_ms: float = 0.0
    pause_ms: float = 0.0
    duration_ms: float = 0.0
    ended: bool = False


class SnapshotFailed(ControlMessage, frozen=True):
    """A task's part of a checkpoint could not be made or written."""

    task: TaskId
    epoch: Epoch
    checkpoint: int
    why: str


class RestoreFailed(ControlMessage, frozen=True):
    """A task cannot read its part of the checkpoint that the Routes name; it waits for other Routes.

    Attributes:
        is_transient: the storage has failed, and may work again; else the part is damaged.
    """

    task: TaskId
    epoch: Epoch
    checkpoint: int
    why: str
    is_transient: bool = False


class BarrierAcked(ControlMessage, frozen=True):
    """The tuple tree of the barrier that a spout task emitted is done."""

    task: TaskId
    epoch: Epoch
    checkpoint: int


class CheckpointWanted(ControlMessage, frozen=True):
    """A spout task can emit little more before a checkpoint is complete."""

    task: TaskId
    epoch: Epoch


class CheckpointPublished(ControlMessage, frozen=True):
    """A task has done what a complete checkpoint allows: its sink has published, its source has been acked.

    Sent after CheckpointComplete, and after Routes that name a checkpoint.
    """

    task: TaskId
    epoch: Epoch
    checkpoint: int


class Observed(ControlMessage, frozen=True):
    """What a task showed to an observation since the last such message.

    Attributes:
        rows: of a tap, a trace or a profile.
        seen: rows, messages or samples that went by.
        looked: of these, how many were looked at.
        matched: of these, how many are asked for.
        dropped: of these, how many were too much to be sent.
        problem: why some could not be judged, or why the observation does not work; "" for none.
    """

    id: int
    task: TaskId
    rows: list[dict[str, Any]] = []
    seen: int = 0
    looked: int = 0
    matched: int = 0
    dropped: int = 0
    problem: str = ""


FromTask = (
    TaskReady
    | EdgeLost
    | ComponentError
    | TuplesFailed
    | PositionReport
    | DeadLetter
    | LettersReplayed
    | Quiet
    | Closed
    | SnapshotTaken
    | SnapshotFailed
    | RestoreFailed
    | BarrierAcked
    | CheckpointWanted
    | CheckpointPublished
)
FromWorker = Register | Heartbeat | Stuck | Observed | FromTask

_from_worker: msgspec.msgpack.Decoder[FromWorker] = msgspec.msgpack.Decoder(FromWorker)


def decode_from_worker(data: bytes, max_size: int = MAX_CONTROL) -> FromWorker:
    """Return a message of a worker or one of its tasks. Raises FrameError on anything else, or on more than `max_size` bytes."""
    return decode(_from_worker, data, max_size)


def shortened(message: FromWorker) -> FromWorker:
    """Return a message that is too long to be sent without the metrics of user code, or without its values."""
    if isinstance(message, Heartbeat):
        tasks = {task: {name: one for name, one in figures.items() if name != "user"} for task, figures in message.tasks.items()}
        return msgspec.structs.replace(message, tasks=tasks)
    if isinstance(message, DeadLetter):
        remark = f"left out: {len(message.values)} bytes are too many to keep"
        return msgspec.structs.replace(message, values=msgspec.msgpack.encode(remark), fixed="its values were too long to keep")
    return message


def without_unencodable_metrics(beat: Heartbeat) -> tuple[Heartbeat, dict[TaskId, Exception]]:
    """Drop user metrics that cannot be encoded; return the error of each task that had one."""
    tasks, errors = dict(beat.tasks), {}
    for task, figures in beat.tasks.items():
        try:
            encode(figures)
        except Exception as error:
            errors[task] = error
            tasks[task] = {**figures, "user": {}}
    return msgspec.structs.replace(beat, tasks=tasks), errors
