"""Events of a task. The shell turns arrivals into these; `Task.handle` is the only way in."""

from __future__ import annotations

from msgspec import Struct

from topo.hot import Column
from topo.ids import TaskId
from topo.wire.control import (
    Activate,
    BeginCheckpoint,
    CheckpointComplete,
    Close,
    Deactivate,
    DeadLettersStored,
    Drain,
    Go,
    Probe,
    ReplayLetters,
    Routes,
)
from topo.wire.frames import Frame


class FrameArrived(Struct, frozen=True):
    """A frame came in: bytes from another worker, an object from a task of the same worker."""

    frame: Column | Frame


class RoutesChanged(Struct, frozen=True):
    """The master raised the epoch: drop everything in flight, and open the edges again.

    Attributes:
        local: the tasks of this worker, to which frames are handed over in memory.
        committed: for a spout task that opens now, its stored position as msgpack; None when there is none.
        attempts: for a spout task that opens now, how often each message took its process down.
    """

    routes: Routes
    local: frozenset[TaskId]
    committed: bytes | None = None
    attempts: bytes | None = None


class Turn(Struct, frozen=True):
    """Do everything that is due, then one default action: a slice of input, or a burst of `next_tuple`."""


class Idle(Struct, frozen=True):
    """Nothing is left to read or do: send buffered rows and ids before the worker sleeps.

    Attributes:
        ids_may_wait: whether ids for ackers, and rows for busy workers, may wait for others, for `flush_interval` in each task.
    """

    ids_may_wait: bool = False


ToTasks = (
    Go | Activate | Deactivate | Drain | Probe | DeadLettersStored | ReplayLetters | BeginCheckpoint | CheckpointComplete | Close
)
"""The master's messages that a worker passes on to its tasks as they are."""
TaskEvent = FrameArrived | RoutesChanged | ToTasks | Turn | Idle
