"""Events of a topology master. The shell turns arrivals into these; `TopologyMaster.handle` is the only way in."""

from __future__ import annotations

from msgspec import Struct

from topo.checkpoint.store_messages import StoreAnswer
from topo.ids import Incarnation, WorkerId
from topo.tracking.suspects import InFlightTuples
from topo.wire import control


class Started(Struct, frozen=True):
    """The shell holds the topology's lock and is ready to perform commands. Comes first, once."""


class Tick(Struct, frozen=True):
    """Nothing but time has passed: the deadline that `next_deadline` named is here."""


class WorkerLaunched(Struct, frozen=True):
    """The launcher has made the process (or handed the start on); it has not registered yet."""

    worker: WorkerId
    incarnation: Incarnation


class LaunchFailed(Struct, frozen=True):
    """The launcher could not make the process."""

    worker: WorkerId
    incarnation: Incarnation
    why: str


class WorkerExited(Struct, frozen=True):
    """A worker's process has ended, asked or not.

    Attributes:
        description: how, in words, such as "killed by SIGKILL" or "exited with 3".
        in_flight: its crash marker; None when it was in no user code.
    """

    worker: WorkerId
    incarnation: Incarnation
    description: str
    in_flight: InFlightTuples | None = None


class WorkerMessage(Struct, frozen=True):
    """A control message came in. Worker and incarnation are those of the connection, not those that the message claims."""

    worker: WorkerId
    incarnation: Incarnation
    message: control.FromWorker


class ReplayAsked(Struct, frozen=True):
    """Dead letters of a spout are to be emitted again; that they are is on disk."""

    component: str
    dead_letters: tuple[control.LetterToReplay, ...]


class DeadLettersWritten(Struct, frozen=True):
    """Dead letters are on disk: the answer to a StoreDeadLetters, whose fields it repeats."""

    worker: WorkerId
    incarnation: Incarnation
    dead_letters: tuple[control.DeadLetter, ...]


class SavepointAsked(Struct, frozen=True):
    """The operator wants a savepoint in a folder."""

    folder: str


class ActivateAsked(Struct, frozen=True):
    """The operator wants the spouts to emit again."""


class DeactivateAsked(Struct, frozen=True):
    """The operator wants the spouts to pause."""


class DrainAsked(Struct, frozen=True):
    """The operator wants the topology to finish messages in flight and to end.

    Attributes:
        timeout_s: its longest duration; messages still pending then are left to the next run.
        savepoint: folder of a savepoint to be taken before the end; "" for none. When it cannot be written, and no other
            request is for an end without one, the topology continues.
        restarts: who asks starts the topology again, unless somebody else asks for its end.
    """

    timeout_s: float
    savepoint: str = ""
    restarts: bool = False


class KillAsked(Struct, frozen=True):
    """The operator wants the topology to end now."""


class MessagesLost(Struct, frozen=True):
    """Messages of a worker have been lost.

    Attributes:
        is_unreadable: one has arrived and cannot be read. While the topology is served the next heartbeat shows the loss.
    """

    worker: WorkerId
    incarnation: Incarnation
    why: str
    is_unreadable: bool = False


class RestartAsked(Struct, frozen=True):
    """The operator wants one worker replaced."""

    worker: WorkerId


MasterEvent = (
    Started
    | Tick
    | WorkerLaunched
    | LaunchFailed
    | WorkerExited
    | WorkerMessage
    | DeadLettersWritten
    | ReplayAsked
    | StoreAnswer
    | SavepointAsked
    | ActivateAsked
    | DeactivateAsked
    | DrainAsked
    | KillAsked
    | RestartAsked
    | MessagesLost
)
