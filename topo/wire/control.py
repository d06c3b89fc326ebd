"""Control messages: between workers and the topology master, and between clients (the command line) and the master.

Each is one msgpack array that begins with the class name; msgspec builds it typed, or not at all. To add a field, append it with
a default. To add a message, write the class and name it in the union of who sends it. Both ends always run the same version, so
there is nothing to negotiate. Values of tuples and positions stay packed (`Codec.pack_value`).
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from topo.errors import FrameError
from topo.ids import Epoch, Incarnation, TaskId, WorkerId
from topo.nesting import check_depth

MAX_CONTROL = 1024 * 1024
"""Bytes; the default limit of a control message."""

T = TypeVar("T")
Statistics = dict[str, Any]
"""Counters of a task by name; what is in it is the observer's matter."""


class Message(msgspec.Struct, frozen=True, array_like=True, tag=True, forbid_unknown_fields=True):
    """Base of all control messages."""


class TaskRoute(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Where a task is reached in one epoch. `public_key` is CURVE's in Z85, empty without encryption."""

    task: TaskId
    worker: WorkerId
    incarnation: Incarnation
    data_endpoint: str
    control_endpoint: str
    public_key: str = ""


class Endpoints(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Where the inboxes of one task of a worker are bound."""

    task: TaskId
    data: str
    control: str
    public_key: str = ""


class PartToRead(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A part of a checkpoint that a task goes on from.

    Attributes:
        file: its name in the folder of checkpoints.
        length: bytes of the file.
        checksum: of the file, as its writer told it.
        component: whose task wrote it.
        task: that wrote it.
        index: of that task within the component.
        groups: key groups that the reader takes from it, (first, last); first > last: none.
        takes_values: whether the reader takes what belongs to no key, too.
    """

    file: str
    length: int
    checksum: str
    component: str
    task: TaskId
    index: int
    groups: tuple[int, int]
    takes_values: bool


# From a worker, on its own behalf.


class Register(Message, frozen=True):
    """A worker has bound the inboxes of its tasks. `digest` is the plan's, as this worker built it."""

    worker: WorkerId
    incarnation: Incarnation
    pid: int
    host: str
    python: str
    digest: str
    endpoints: list[Endpoints]


class Heartbeat(Message, frozen=True):
    """A worker's loop turns. `busy_in` names the component whose code it is in, "" when in none.

    `said` is how many messages the loop has sent before this one, as a connection that is reset may lose some; -1 says nothing.
    """

    worker: WorkerId
    incarnation: Incarnation
    term: int
    epoch: Epoch
    busy_in: str = ""
    tasks: dict[TaskId, Statistics] = {}
    said: int = -1


class Stuck(Message, frozen=True):
    """A component's code has not returned for `seconds`; `stack` is where it is."""

    worker: WorkerId
    task: TaskId
    component: str
    seconds: float
    stack: str


# From a task, through its worker.


class TaskReady(Message, frozen=True):
    """All in-edges of the task are open."""

    task: TaskId
    epoch: Epoch


class EdgeLost(Message, frozen=True):
    """Frames of the edge sender -> task are missing; nothing more on it is processed in this epoch."""

    task: TaskId
    epoch: Epoch
    sender: TaskId
    why: str


class ComponentError(Message, frozen=True):
    """An exception in user code. `file` and `line` are the user's; `count` like it since the last report; `at_ms` by the wall."""

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


class TuplesFailed(Message, frozen=True):
    """Why a task has failed roots: for each cause the roots."""

    task: TaskId
    causes: list[tuple[Cause, list[int]]]


class PositionReport(Message, frozen=True):
    """Everything a spout task emitted before `position` is done. `attempts` is packed, empty when there is nothing to note."""

    task: TaskId
    epoch: Epoch
    position: bytes
    attempts: bytes = b""


class DeadLetter(Message, frozen=True):
    """A message that has failed as often as it may. `position` and `values` are packed; `root` is that of the last attempt, 0
    when that is not known. The master adds the `cause`. `earlier` has why each attempt before it failed, and its root.

    `identity` is a random number that a letter keeps over recoveries and runs. It is 0 where the letter goes by its message: then
    `position` is the message's id, and a life of its task numbers its letters by `id`.
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


class Quiet(Message, frozen=True):
    """A task's answer to a probe. `why` says, in words, what keeps it from being quiet."""

    task: TaskId
    epoch: Epoch
    probe: int
    ended: bool
    quiet: bool
    sent: int
    received: int
    pending: int = 0
    why: str = ""


class Closed(Message, frozen=True):
    """A task's component has been closed."""

    task: TaskId


class SnapshotTaken(Message, frozen=True):
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


class SnapshotFailed(Message, frozen=True):
    """A task's part of a checkpoint could not be made or written."""

    task: TaskId
    epoch: Epoch
    checkpoint: int
    why: str


class RestoreFailed(Message, frozen=True):
    """A task cannot read its part of the checkpoint that the Routes name; it waits for other Routes.

    Attributes:
        is_transient: the storage has failed, and may work again; else the part is not what was written.
    """

    task: TaskId
    epoch: Epoch
    checkpoint: int
    why: str
    is_transient: bool = False


class BarrierAcked(Message, frozen=True):
    """The tuple tree of the barrier that a spout task emitted is done."""

    task: TaskId
    epoch: Epoch
    checkpoint: int


class CheckpointWanted(Message, frozen=True):
    """A spout task can emit little more before a checkpoint is complete."""

    task: TaskId
    epoch: Epoch


class CheckpointPublished(Message, frozen=True):
    """A task has done what a complete checkpoint allows: its sink has published, its source has been acked.

    Told after CheckpointComplete, and after Routes that name a checkpoint.
    """

    task: TaskId
    epoch: Epoch
    checkpoint: int


# From the master.


class Routes(Message, frozen=True):
    """Adopt this epoch. The maps have an entry for each spout task that has something to resume.

    Attributes:
        suspects: roots that were in hand when a worker was lost; they are emitted again one at a time.
        alone: whether spouts emit nothing else until the suspects are through.
        positions: committed positions, packed.
        attempts: how often messages took their process down, packed.
        checkpoint: the last complete one: tasks go on from it, and do again what its completion allows; 0: from the beginning.
        folder: where its parts are; empty: in the folder of this topology's checkpoints.
        restore: the parts of it that each task of the receiver reads; a task without an entry has nothing to restore.
        ended: the tasks whose part of it was taken behind the end of their input; their readers have what came of that end.
    """

    term: int
    epoch: Epoch
    routes: list[TaskRoute]
    suspects: list[int] = []
    alone: bool = False
    positions: dict[TaskId, bytes] = {}
    attempts: dict[TaskId, bytes] = {}
    checkpoint: int = 0
    folder: str = ""
    restore: dict[TaskId, list[PartToRead]] = {}
    ended: list[TaskId] = []


class Go(Message, frozen=True):
    """Every task of the epoch is ready."""

    epoch: Epoch


class Activate(Message, frozen=True):
    """Spouts emit again."""


class Deactivate(Message, frozen=True):
    """Spouts emit nothing new."""


class Drain(Message, frozen=True):
    """Deactivate, and finish what is in flight."""


class Probe(Message, frozen=True):
    """Tell the Quiet facts of this moment."""

    number: int
    epoch: Epoch


class DeadLettersStored(Message, frozen=True):
    """The named dead letters of the task are on disk."""

    task: TaskId
    ids: list[int]


class BeginCheckpoint(Message, frozen=True):
    """Spout tasks emit the barrier of this checkpoint now. A spout that is paused or has ended does so, too."""

    epoch: Epoch
    checkpoint: int


class CheckpointComplete(Message, frozen=True):
    """The checkpoint is stored: what waited for it may be published and acked. May be told again."""

    checkpoint: int


class CheckpointAborted(Message, frozen=True):
    """The checkpoint will never be complete: nobody waits for its barriers, and its parts are thrown away."""

    checkpoint: int


class Close(Message, frozen=True):
    """The topology is over; `drain` says that inputs have not ended, so nothing is flushed."""

    epoch: Epoch
    drain: bool = False


class Alive(Message, frozen=True):
    """The master lives. Workers that hear nothing from it for `master_timeout` end.

    `said` is how many messages but these it has sent to the worker before; -1 says nothing.
    """

    said: int = -1


class Stop(Message, frozen=True):
    """Exit. `reason` is for the log."""

    reason: str


# Between a client and the master.


class Request(Message, frozen=True):
    """A client asks the master to do or tell something."""

    verb: str
    arguments: dict[str, Any] = {}


class Reply(Message, frozen=True):
    """The master's answer: a result, or an error in words."""

    ok: bool
    result: Any = None
    error: str = ""


FromTask = (
    TaskReady
    | EdgeLost
    | ComponentError
    | TuplesFailed
    | PositionReport
    | DeadLetter
    | Quiet
    | Closed
    | SnapshotTaken
    | SnapshotFailed
    | RestoreFailed
    | BarrierAcked
    | CheckpointWanted
    | CheckpointPublished
)
FromWorker = Register | Heartbeat | Stuck | FromTask
FromMaster = (
    Routes
    | Go
    | Activate
    | Deactivate
    | Drain
    | Probe
    | DeadLettersStored
    | BeginCheckpoint
    | CheckpointComplete
    | CheckpointAborted
    | Close
    | Alive
    | Stop
)


def shortened(message: FromWorker) -> FromWorker:
    """Return what can be said of a message that is too long to be sent: without figures, or without values."""
    if isinstance(message, Heartbeat):
        return msgspec.structs.replace(message, tasks={})
    if isinstance(message, DeadLetter):
        remark = f"left out: {len(message.values)} bytes are too many to keep"
        return msgspec.structs.replace(message, values=msgspec.msgpack.encode(remark))
    return message


_encoder = msgspec.msgpack.Encoder()


def encode(message: Any) -> bytes:
    """Return a control message as bytes. Lone surrogates, which texts of user code can hold and UTF-8 cannot, are escaped."""
    try:
        return _encoder.encode(message)
    except UnicodeEncodeError:
        return _encoder.encode(_without_surrogates(msgspec.to_builtins(message, builtin_types=(bytes,))))


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(one) for key, one in value.items()}
    return [_without_surrogates(one) for one in value] if isinstance(value, list | tuple) else value


def without_unencodable_metrics(beat: Heartbeat) -> tuple[Heartbeat, dict[TaskId, Exception]]:
    """Leave out the metrics of users that cannot be encoded; return whose they are, and why."""
    tasks, errors = dict(beat.tasks), {}
    for task, figures in beat.tasks.items():
        try:
            encode(figures)
        except Exception as error:
            errors[task] = error
            tasks[task] = {**figures, "user": {}}
    return msgspec.structs.replace(beat, tasks=tasks), errors


_from_worker: msgspec.msgpack.Decoder[FromWorker] = msgspec.msgpack.Decoder(FromWorker)
_from_master: msgspec.msgpack.Decoder[FromMaster] = msgspec.msgpack.Decoder(FromMaster)
_request = msgspec.msgpack.Decoder(Request)
_reply = msgspec.msgpack.Decoder(Reply)


def decode_from_worker(data: bytes, max_size: int = MAX_CONTROL) -> FromWorker:
    """Return what a worker or one of its tasks says. Raises FrameError on anything else, or on more than `max_size` bytes."""
    return _decode(_from_worker, data, max_size)


def decode_from_master(data: bytes, max_size: int = MAX_CONTROL) -> FromMaster:
    """Return what the master says to a worker. Raises FrameError on anything else, or on more than `max_size` bytes."""
    return _decode(_from_master, data, max_size)


def decode_request(data: bytes, max_size: int = MAX_CONTROL) -> Request:
    """Return a client's request. Raises FrameError on anything else, or on more than `max_size` bytes."""
    return _decode(_request, data, max_size)


def decode_reply(data: bytes, max_size: int = MAX_CONTROL) -> Reply:
    """Return the master's reply to a request. Raises FrameError on anything else, or on more than `max_size` bytes."""
    return _decode(_reply, data, max_size)


def _decode(decoder: msgspec.msgpack.Decoder[T], data: bytes, max_size: int) -> T:
    if len(data) > max_size:
        raise FrameError(f"a control message of {len(data)} bytes; at most {max_size} are accepted")
    try:
        check_depth(data)
        return decoder.decode(data)
    except Exception as error:
        raise FrameError(f"not a control message: {type(error).__name__}: {error}") from error
