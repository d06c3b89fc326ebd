"""The end of a task's input: when it has come in this epoch, and whether a checkpoint is behind it."""

from __future__ import annotations

from topo.task.parts import TaskParts


class InputEnd:
    """The end of the input of one task.

    Attributes:
        reached_at: when it was reached in this epoch, in monotonic seconds; None before.
    """

    def __init__(self, parts: TaskParts) -> None:
        self._state = parts.state
        self._inbound = parts.inbound
        self.reached_at: float | None = None

    @property
    def has_come(self) -> bool:
        """Whether all input has ended, replays aside."""
        # A bolt that reads nothing but ticks keeps no topology from ending.
        return self._inbound.has_ended or (self._state.is_working and not self._inbound.edges)

    @property
    def is_reached(self) -> bool:
        """Whether the end has come in this epoch, and user code was called for it if it had to be."""
        return self.reached_at is not None

    @property
    def has_passed(self) -> bool:
        """Whether readers have the results of the end of the input, so that a snapshot taken now is behind it.

        Without input there is none to wait for.
        """
        return self.is_reached or self._state.restored_ended or not self._inbound.sender_count
