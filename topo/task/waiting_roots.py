"""Roots that wait on the out-edges of a task: tuples of them are not lost, so their timeouts begin again."""

from __future__ import annotations

from topo.task.outbound import Outbound
from topo.task.state import TaskState

TOUCHES = 4
"""How often, within `message_timeout`, the timeout of a message begins again while one of its tuples waits on an edge."""


class WaitingRoots:
    """Finds the roots whose tuples wait on the out-edges of one task, by an interval.

    Args:
        state: of the task.
        outbound: of the task.
    """

    def __init__(self, state: TaskState, outbound: Outbound) -> None:
        timeout = state.plan.shortest_message_timeout_s if state.plan.ackers else None
        self._interval_s = None if timeout is None else timeout / TOUCHES
        self._outbox = outbound.outbox
        self._look_at = 0.0

    def due(self, now: float) -> dict[int, None] | None:
        """Return the roots of rows that have waited for an interval; None before it is time to look again."""
        if self._interval_s is None or now < self._look_at:
            return None
        self._look_at = now + self._interval_s
        return self._outbox.waiting_roots(now - self._interval_s)

    @property
    def deadline(self) -> float | None:
        """When to look again, in monotonic seconds; None while no edge waits for a confirmation."""
        return None if self._interval_s is None or self._outbox.silent_since is None else self._look_at
