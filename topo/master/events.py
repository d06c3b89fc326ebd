"""Events of a topology master. The shell turns arrivals into these; `TopologyMaster.handle` is the only way in."""

from __future__ import annotations

from dataclasses import dataclass

from topo.checkpoint.store_messages import StoreAnswer
from topo.ids import Incarnation, WorkerId
from topo.tracking.suspects import InFlightTuples
from topo.wire import control


@dataclass(frozen=True, slots=True)
class Started:
    """The shell holds the topology's lock and is ready to perform commands. Comes first, once."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Nothing but time has passed: the deadline that `next_deadline` named is here."""


@dataclass(frozen=True, slots=True)
class WorkerLaunched:
    """The launcher has made the process (or handed the start on); it has not registered yet."""

    worker: WorkerId
    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class LaunchFailed:
    """The launcher could not make the process."""

    worker: WorkerId
    incarnation: Incarnation
    why: str


@dataclass(frozen=True, slots=True)
class WorkerExited:
    """A worker's process has ended, asked or not.

    Attributes:
        description: how, in words, such as "killed by SIGKILL" or "exited with 3".
        in_flight: its crash marker; None when it was in no user code.
    """

    worker: WorkerId
    incarnation: Incarnation
    description: str
    in_flight: InFlightTuples | None = None


@dataclass(frozen=True, slots=True)
class WorkerMessage:
    """A control message came in. Worker and incarnation are those of the connection, not those that the message claims."""

    worker: WorkerId
    incarnation: Incarnation
    message: control.FromWorker


@dataclass(frozen=True, slots=True)
class DeadLettersWritten:
    """Dead letters are on disk: the answer to a StoreDeadLetters, whose fields it repeats."""

    worker: WorkerId
    incarnation: Incarnation
    dead_letters: tuple[control.DeadLetter, ...]


@dataclass(frozen=True, slots=True)
class SavepointAsked:
    """The operator wants a savepoint in a folder."""

    folder: str


@dataclass(frozen=True, slots=True)
class ActivateAsked:
    """The operator wants the spouts to emit again."""


@dataclass(frozen=True, slots=True)
class DeactivateAsked:
    """The operator wants the spouts to pause."""


@dataclass(frozen=True, slots=True)
class DrainAsked:
    """The operator wants the topology to finish messages in flight and to end.

    Attributes:
        timeout_s: its longest duration; messages still pending then are left to the next run.
        savepoint: folder of a savepoint to be taken before the end; "" for none.
    """

    timeout_s: float
    savepoint: str = ""


@dataclass(frozen=True, slots=True)
class KillAsked:
    """The operator wants the topology to end now."""


@dataclass(frozen=True, slots=True)
class MessagesLost:
    """Messages of a worker have been lost.

    Attributes:
        is_unreadable: one has arrived and cannot be read. While the topology is served the next heartbeat shows the loss.
    """

    worker: WorkerId
    incarnation: Incarnation
    why: str
    is_unreadable: bool = False


@dataclass(frozen=True, slots=True)
class RestartAsked:
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
    | StoreAnswer
    | SavepointAsked
    | ActivateAsked
    | DeactivateAsked
    | DrainAsked
    | KillAsked
    | RestartAsked
    | MessagesLost
)
