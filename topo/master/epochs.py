"""The epoch of a running topology and the handshake that opens it.

| state   | meaning                                                                | left when                              |
| ------- | ---------------------------------------------------------------------- | -------------------------------------- |
| FORMING | a worker of the epoch is gone, or an edge is dead: it cannot resume     | every slot has registered: `begin`     |
| OPENING | Routes are out; each task reports ready when all its in-edges are open | the last task is ready, or `broken`    |
| RUNNING | Go is out                                                              | `broken`                               |

Whatever breaks an epoch, in either state, is mended by the next one alone: the number rises once for all that was broken since it
last rose. A handshake that is not through in time is begun again, under a further epoch, with twice the time.
"""

from __future__ import annotations

from enum import Enum

from topo.ids import Epoch, TaskId


class EpochState(Enum):
    """State of the handshake."""

    FORMING = "forming"
    OPENING = "opening"
    RUNNING = "running"


class Epochs:
    """Counts epochs and gathers their tasks.

    Args:
        last: the highest epoch that an earlier master may have used; 0 when there was none.
        handshake_s: how long a handshake may take at first, in seconds.
    """

    def __init__(self, tasks: frozenset[TaskId], last: Epoch, handshake_s: float) -> None:
        self._tasks = tasks
        self._handshake_s = handshake_s
        self._patience_s = handshake_s
        self._ready: set[TaskId] = set()
        self._deadline: float | None = None
        self.epoch = last
        self.state = EpochState.FORMING
        self.has_run = False
        """Whether any epoch of this master came as far as its Go."""
        self.breaks = 0
        """Number of times that an epoch was broken."""

    def begin(self, now: float) -> Epoch:
        """Raise the epoch: its Routes go out now."""
        self.epoch = Epoch(self.epoch + 1)
        self.state = EpochState.OPENING
        self._ready.clear()
        self._deadline = now + self._patience_s
        return self.epoch

    def broken(self) -> None:
        """A worker or an edge of the epoch was lost."""
        self.state = EpochState.FORMING
        self.breaks += 1
        self._deadline = None

    def task_ready(self, task: TaskId, epoch: Epoch) -> bool:
        """Note that a task has all its in-edges open; True once, when it was the last: Go is due."""
        if self.state is not EpochState.OPENING or epoch != self.epoch:
            return False
        self._ready.add(task)
        if self._ready != self._tasks:
            return False
        self.state = EpochState.RUNNING
        self.has_run = True
        self._deadline = None
        self._patience_s = self._handshake_s
        return True

    def waiting_for(self) -> list[TaskId]:
        """Return the tasks that have not reported ready in this epoch."""
        return sorted(self._tasks - self._ready)

    def is_overdue(self, now: float) -> bool:
        """Whether the handshake takes too long; True breaks the epoch."""
        if self._deadline is None or now < self._deadline:
            return False
        self._patience_s *= 2
        self.broken()
        return True

    def next_deadline(self) -> float | None:
        """When `is_overdue` will be true, unless tasks report."""
        return self._deadline

    def validate(self) -> None:
        assert (self._deadline is not None) == (self.state is EpochState.OPENING)
        assert self._ready <= self._tasks
        assert self.state is not EpochState.RUNNING or (self._ready == self._tasks and self.epoch > 0)
