"""What can happen to a task. The shell turns arrivals into these; `Task.handle` is the only way in."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from topo.ids import Epoch, TaskId
from topo.wire.control import Routes
from topo.wire.frames import Frame


class Inbox(Enum):
    """A task's two inboxes."""

    DATA = "data"
    """Tuples, acks to an acker, watermarks, barriers. Read only while the task `wants_data`."""
    CONTROL = "control"
    """Verdicts and confirmations. Always read."""


@dataclass(frozen=True, slots=True)
class FrameArrived:
    """A frame came in: bytes from another worker, an object from a task of the same worker."""

    frame: bytes | Frame
    inbox: Inbox


@dataclass(frozen=True, slots=True)
class RoutesChanged:
    """The master raised the epoch: forget what is in flight, open the edges anew.

    Attributes:
        local: the tasks of this worker, to which frames are handed over in memory.
        committed: for a spout task that opens now, its stored position as msgpack; None when there is none.
        attempts: for a spout task that opens now, how often each message took its process down.
    """

    routes: Routes
    local: frozenset[TaskId]
    committed: bytes | None = None
    attempts: bytes | None = None


@dataclass(frozen=True, slots=True)
class Go:
    """Every task of the epoch is ready: spouts may emit."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Activate:
    """Call `activate` on the spout and go on emitting."""


@dataclass(frozen=True, slots=True)
class Deactivate:
    """Call `deactivate` on the spout and emit nothing new; what is pending goes on, replays too."""


@dataclass(frozen=True, slots=True)
class Probe:
    """The master asks for the Quiet facts of this moment."""

    number: int


@dataclass(frozen=True, slots=True)
class DeadLettersStored:
    """The master has the named dead letters on disk: the messages are done."""

    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BeginCheckpoint:
    """Spouts emit the barrier of this checkpoint now, also one that is paused or has ended."""

    epoch: Epoch
    checkpoint: int


@dataclass(frozen=True, slots=True)
class CheckpointComplete:
    """The checkpoint is stored as a whole: what waited for it may be published and acked. May be told again."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class Close:
    """The topology is over: close the component."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Run what is due, then one default action: a slice of input, or a burst of `next_tuple`."""


@dataclass(frozen=True, slots=True)
class Idle:
    """There is nothing to read and nothing to do: let out what is buffered before the worker sleeps."""


TaskEvent = (
    FrameArrived
    | RoutesChanged
    | Go
    | Activate
    | Deactivate
    | Probe
    | DeadLettersStored
    | BeginCheckpoint
    | CheckpointComplete
    | Close
    | Turn
    | Idle
)
