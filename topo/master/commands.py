"""Commands of a topology master. The shell performs the commands of a list in order.

A Persist is durable before anything after it in the list, or in any later list, is performed, since others rely on its content.
A Stop alone, which rests on no record, goes ahead.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from topo.checkpoint.store_messages import StoreCommand
from topo.ids import Epoch, Incarnation, TaskId, WorkerId
from topo.master.outcome import Outcome
from topo.master.positions import SpoutProgress
from topo.wire import control


class MasterRecord(Struct, frozen=True):
    """The facts that outlive a master. The next one takes a higher term and a higher epoch.

    Attributes:
        term: number of this master among all that ever ran the topology, from 1.
        epoch: the highest epoch that may be in use; 0 before the first.
        incarnations: the latest life of each worker slot that ever had one.
        active: whether the operator wants the spouts to emit.
        checkpoint: the highest number that a checkpoint may have; 0 before the first.
        completed: the last checkpoint that is known to be complete; 0 when none is.
        has_run: all tasks were ready once, under this master or an earlier one of the run.
    """

    term: int
    epoch: Epoch
    incarnations: Mapping[WorkerId, Incarnation]
    active: bool = True
    checkpoint: int = 0
    completed: int = 0
    has_run: bool = False


class Persist(Struct, frozen=True):
    """Write the record to the state folder, atomically and durably."""

    record: MasterRecord


class StartWorker(Struct, frozen=True):
    """Launch a worker. Answered by WorkerLaunched or LaunchFailed, and one day by WorkerExited."""

    worker: WorkerId
    incarnation: Incarnation


class StopWorker(Struct, frozen=True):
    """End the process of that life, if there is one: by SIGKILL with `kill`, else by SIGTERM. Answered by WorkerExited."""

    worker: WorkerId
    incarnation: Incarnation
    kill: bool


class SendTo(Struct, frozen=True):
    """Send a control message to that life of a worker; dropped when it is over."""

    worker: WorkerId
    incarnation: Incarnation
    message: control.FromMaster


class StorePositions(Struct, frozen=True):
    """Write what spout tasks resume from, durably; other tasks' entries stay as they are."""

    progress: Mapping[TaskId, SpoutProgress]


class StoreDeadLetters(Struct, frozen=True):
    """Append to the dead letters, durably. Answered by DeadLettersWritten with the same fields."""

    worker: WorkerId
    incarnation: Incarnation
    dead_letters: tuple[control.DeadLetter, ...]


class StoreReplays(Struct, frozen=True):
    """Append the results of dead letters that were emitted again, by number: why it has failed, None where it is done."""

    results: Mapping[int, str | None]


class RecordError(Struct, frozen=True):
    """Keep and show a row of `topo errors`: an exception of user code, or something the master saw happen.

    Attributes:
        kind: class name of the exception; for the master's own findings one of WorkerLost, TaskStuck, EdgeLost, TasksNotReady,
            CloseTimeout, CheckpointFailed, CheckpointDamaged, SavepointFailed.
        component: at fault or affected; "" when it is no single one.
        worker: where, None when nowhere in particular.
        count: how many alike since the last such row.
        at_ms: by the wall clock of who saw it; 0: the shell's own.
    """

    kind: str
    message: str
    component: str = ""
    task: TaskId | None = None
    worker: WorkerId | None = None
    traceback: str = ""
    file: str = ""
    line: int = 0
    count: int = 1
    at_ms: int = 0

    @classmethod
    def of(cls, error: control.ComponentError, worker: WorkerId) -> RecordError:
        """Return the row of an exception of user code."""
        return cls(
            kind=error.kind,
            message=error.message,
            component=error.component,
            task=error.task,
            worker=worker,
            traceback=error.traceback,
            file=error.file,
            line=error.line,
            count=error.count,
            at_ms=error.at_ms,
        )


class Finished(Struct, frozen=True):
    """The topology is over and all its workers are gone. The last command of a master."""

    outcome: Outcome


MasterCommand = (
    Persist
    | StartWorker
    | StopWorker
    | SendTo
    | StorePositions
    | StoreDeadLetters
    | StoreReplays
    | StoreCommand
    | RecordError
    | Finished
)
