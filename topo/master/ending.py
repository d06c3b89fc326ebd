"""The stages of a topology's end.

| stage    | meaning                                                                  | left when                             |
| -------- | ------------------------------------------------------------------------ | ------------------------------------- |
| SERVING  | workers are started and replaced                                         | nothing moves any more and all inputs |
|          |                                                                          | have ended, or a drain is over or out |
|          |                                                                          | of time: CLOSING; kill, crash: STOPPING |
| CLOSING  | Close is out; tasks close their components, workers exit and stay gone   | all are gone, or time is up: STOPPING |
| STOPPING | workers are killed                                                       | all are gone, or time is up           |
| FINISHED | the master has nothing more to do                                        |                                       |

A drain is SERVING with a deadline: a worker that is lost meanwhile is replaced, so that messages in flight can finish. A drain
for a savepoint that cannot be written is given up, and the topology continues.
"""

from __future__ import annotations

from enum import Enum

from topo.ids import TaskId
from topo.master.outcome import Outcome

STOP_TIMEOUT_S = 5.0
"""Time that killed processes have to be reported gone."""


class EndingStage(Enum):
    """Progress of the end."""

    SERVING = "serving"
    CLOSING = "closing"
    STOPPING = "stopping"
    FINISHED = "finished"


class Ending:
    """The state of the end. It must not know workers or messages.

    Args:
        close_timeout_s: time that components have to close.
    """

    def __init__(self, close_timeout_s: float) -> None:
        self._close_timeout_s = close_timeout_s
        self._deadline: float | None = None
        self._closed: set[TaskId] = set()
        self.unclosed: set[TaskId] = set()
        """Tasks whose process is gone before they had closed."""
        self.stage = EndingStage.SERVING
        self.is_draining = False
        self.may_continue = False
        """Whether the drain is only for savepoints: when none can be written, the topology continues."""
        self.stays_ended = False
        """Whether somebody has asked for the end who does not start the topology again at once."""
        self.outcome: Outcome | None = None
        """Known from the moment that decides it; the end of all input is judged last, by the counts at that moment."""

    def drain(self, timeout_s: float, now: float, *, has_savepoint: bool = False) -> None:
        """The operator stops the topology, and messages in flight may finish. Of two requests the earlier deadline holds."""
        deadline = now + timeout_s
        self.may_continue = has_savepoint and (self.may_continue or not self.is_draining)
        self._deadline = min(deadline, self._deadline) if self.is_draining and self._deadline is not None else deadline
        self.is_draining = True

    def give_up(self) -> None:
        """The drain is given up: the topology continues."""
        self.is_draining = self.may_continue = self.stays_ended = False
        self._deadline = None

    def close(self, outcome: Outcome | None, now: float) -> None:
        self.stage, self.outcome, self._deadline = EndingStage.CLOSING, outcome, now + self._close_timeout_s

    def task_closed(self, task: TaskId) -> None:
        self._closed.add(task)

    def never_closes(self, tasks: tuple[TaskId, ...]) -> None:
        """The process of these tasks is gone: those that have not closed have not written the rows that they held back."""
        self.unclosed.update(task for task in tasks if task not in self._closed)

    def has_closed(self, tasks: tuple[TaskId, ...]) -> bool:
        return self._closed.issuperset(tasks)

    def why_overdue(self, tasks: tuple[TaskId, ...]) -> str:
        """Say what a process that has these tasks, and has not ended in time, waits for."""
        if self.has_closed(tasks):
            return "its components closed, but the process did not end, as when a thread of user code is no daemon"
        return "its components did not close in time"

    def stop(self, outcome: Outcome | None, now: float) -> None:
        """Processes are killed. None leaves the outcome as it is."""
        # With a deadline as well: a process that cannot be killed, such as one in a dead file system, must not keep the master.
        self.stage, self._deadline = EndingStage.STOPPING, now + STOP_TIMEOUT_S
        self.outcome = outcome or self.outcome

    def finish(self, outcome: Outcome) -> None:
        self.stage, self.outcome, self._deadline = EndingStage.FINISHED, outcome, None

    def is_out_of_time(self, now: float) -> bool:
        """Whether the drain, the closing or the stopping has taken longer than it may."""
        return self._deadline is not None and now >= self._deadline

    def next_deadline(self) -> float | None:
        """When `is_out_of_time` will be true."""
        return self._deadline

    def validate(self) -> None:
        assert (self._deadline is not None) == (
            self.stage in (EndingStage.CLOSING, EndingStage.STOPPING) or (self.stage is EndingStage.SERVING and self.is_draining)
        )
        assert self.is_draining or not self.may_continue
        assert self.stage is not EndingStage.FINISHED or self.outcome is not None
