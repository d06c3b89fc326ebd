"""Decides what to do when a task reports a dead edge between two living workers.

A dead edge is often the first sign of a dead worker, so the report waits EXPLANATION_S for one: a loss of either worker raises
the epoch anyway. Unexplained, it raises the epoch and nothing else: both processes are well, only frames between them were lost,
and the new epoch reopens the edge. An epoch counts once, however many tasks report and however often. When the peer that the
reports name was to blame ESCALATE_AT times within WINDOW_S, new epochs do not help, and its worker is replaced.
"""

from __future__ import annotations

from topo.ids import WorkerId

EXPLANATION_S = 0.1
WINDOW_S = 60.0
ESCALATE_AT = 3


class EdgeLosses:
    """Dead edges of the running epoch, and whom they were blamed on lately."""

    def __init__(self) -> None:
        self._blamed: dict[WorkerId, list[float]] = {}
        self._peer: WorkerId | None = None
        self._due_at: float | None = None

    def reported(self, peer: WorkerId, now: float) -> bool:
        """Note a report of the running epoch; True for the epoch's first."""
        if self._due_at is not None:
            return False
        self._peer, self._due_at = peer, now + EXPLANATION_S
        return True

    def explained(self) -> None:
        """The epoch was broken by something else."""
        self._peer = self._due_at = None

    def is_due(self, now: float) -> bool:
        """Whether a report has waited long enough."""
        return self._due_at is not None and now >= self._due_at

    def judge(self, now: float) -> WorkerId | None:
        """Settle the due report: return the worker to replace, or None when a new epoch is enough."""
        peer = self._peer
        assert peer is not None
        self.explained()
        recent = [at for at in self._blamed.get(peer, []) if now - at < WINDOW_S]
        recent.append(now)
        escalates = len(recent) >= ESCALATE_AT
        self._blamed[peer] = [] if escalates else recent
        return peer if escalates else None

    def next_deadline(self) -> float | None:
        """When `is_due` will be true."""
        return self._due_at
