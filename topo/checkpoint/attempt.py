"""The checkpoint under way."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from topo.ids import Epoch, TaskId
from topo.wire import control


class Phase(Enum):
    """State of the current checkpoint."""

    IDLE = "idle"
    UNDER_WAY = "under way"
    COMMITTING = "committing"
    SEARCHING = "searching"


@dataclass(slots=True)
class CheckpointAttempt:
    """A checkpoint from its beginning until it is complete or given up.

    Attributes:
        is_final: nothing moved any more when it began.
        was_wanted: a spout had asked for it.
        savepoints: the folders that it is to be copied to.
        acked: spouts whose barriers have gone through.
        taken: parts that are durable.
    """

    number: int
    epoch: Epoch
    began_at: float
    deadline: float
    is_final: bool
    was_wanted: bool
    savepoints: list[str]
    acked: set[TaskId] = field(default_factory=set)
    taken: dict[TaskId, control.SnapshotTaken] = field(default_factory=dict)
