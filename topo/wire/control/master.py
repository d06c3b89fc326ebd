"""Messages from the master to a worker."""

from __future__ import annotations

from typing import Any

import msgspec

from topo.ids import Epoch, Incarnation, TaskId, WorkerId
from topo.wire.control.common import MAX_CONTROL, ControlMessage, decode


class TaskRoute(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The address of a task in one epoch: the inbox of its worker. `public_key` is CURVE's in Z85, empty without encryption."""

    task: TaskId
    worker: WorkerId
    incarnation: Incarnation
    endpoint: str
    public_key: str = ""


class PartToRead(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A part of a checkpoint that a task restores.

    Attributes:
        file: its name in the folder of checkpoints.
        length: bytes of the file.
        checksum: of the file, as its writer computed it.
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


class Routes(ControlMessage, frozen=True):
    """Adopt this epoch. The maps have an entry for each spout task that has something to resume.

    Attributes:
        suspects: roots in flight when a worker was lost; they are tried before all others.
        alone: whether spouts emit nothing else until the suspects are through.
        positions: committed positions, packed.
        attempts: how often messages took their process down, packed.
        checkpoint: the last complete one: tasks restore it, and repeat the actions of its completion; 0: from the beginning.
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


class Go(ControlMessage, frozen=True):
    """Every task of the epoch is ready."""

    epoch: Epoch


class Activate(ControlMessage, frozen=True):
    """Spouts emit again."""


class Deactivate(ControlMessage, frozen=True):
    """Spouts emit nothing new."""


class Drain(ControlMessage, frozen=True):
    """Deactivate, and finish the tuples in flight."""


class Probe(ControlMessage, frozen=True):
    """Report the Quiet facts of this moment."""

    number: int
    epoch: Epoch


class DeadLettersStored(ControlMessage, frozen=True):
    """The named dead letters of the task are on disk."""

    task: TaskId
    ids: list[int]


class LetterToReplay(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A dead letter to emit again: its number in the file, stream, timestamp in milliseconds, packed values, and how often it was
    asked for."""

    number: int
    stream: str
    stamp: int | None
    values: bytes
    asked: int = 1


class ReplayLetters(ControlMessage, frozen=True):
    """The spout task emits these dead letters again, each as a new message. Those that it has already are ignored."""

    task: TaskId
    dead_letters: list[LetterToReplay]


class BeginCheckpoint(ControlMessage, frozen=True):
    """Spout tasks emit the barrier of this checkpoint now. A spout that is paused or has ended does so, too."""

    epoch: Epoch
    checkpoint: int


class CheckpointComplete(ControlMessage, frozen=True):
    """The checkpoint is stored: what waited for it may be published and acked. May be sent again."""

    checkpoint: int


class CheckpointAborted(ControlMessage, frozen=True):
    """The checkpoint will never be complete: tasks no longer wait for its barriers, and its parts are removed."""

    checkpoint: int


class Observe(ControlMessage, frozen=True):
    """Watch tasks of the worker until `for_s` seconds have passed, or Unobserve comes; sent once to each life.

    `kind` is "tap", "trace", "profile" or "log-level"; `spec` is what that one takes.
    """

    id: int
    kind: str
    tasks: list[TaskId]
    spec: dict[str, Any]
    for_s: float


class Unobserve(ControlMessage, frozen=True):
    """This observation is over."""

    id: int


class Close(ControlMessage, frozen=True):
    """The topology is over; `drain`: inputs have not ended, so nothing is flushed."""

    epoch: Epoch
    drain: bool = False


class Alive(ControlMessage, frozen=True):
    """The master lives. A worker that receives nothing from it for `master_timeout` ends.

    `sent_count` counts the messages that it has sent to the worker before, but for these; -1: unknown.
    """

    sent_count: int = -1


class Stop(ControlMessage, frozen=True):
    """Exit. `reason` is for the log."""

    reason: str


FromMaster = (
    Routes
    | Go
    | Activate
    | Deactivate
    | Drain
    | Probe
    | DeadLettersStored
    | ReplayLetters
    | BeginCheckpoint
    | CheckpointComplete
    | CheckpointAborted
    | Observe
    | Unobserve
    | Close
    | Alive
    | Stop
)

_from_master: msgspec.msgpack.Decoder[FromMaster] = msgspec.msgpack.Decoder(FromMaster)


def decode_from_master(data: bytes, max_size: int = MAX_CONTROL) -> FromMaster:
    """Return a message of the master. Raises FrameError on anything else, or on more than `max_size` bytes."""
    return decode(_from_master, data, max_size)
