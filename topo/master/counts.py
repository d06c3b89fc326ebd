"""Counts of a master, for users: of lost workers, of epochs, and of messages that it did not take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class MasterCounts:
    """Counts since the master started.

    Attributes:
        losses: lives of workers that ended before their time.
        unreported: processes that were lost after the topology had been running; what they had counted since their last
            heartbeat is missing.
        epochs: how often the epoch was raised.
        edges_lost: epochs in which a dead edge was reported.
        stuck: reports of user code that does not return.
        fenced: messages of workers that are not, or no longer, current.
        misdirected: messages about tasks that the sender does not host.
    """

    losses: int = 0
    unreported: int = 0
    epochs: int = 0
    edges_lost: int = 0
    stuck: int = 0
    fenced: int = 0
    misdirected: int = 0
