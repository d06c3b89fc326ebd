"""The state of a task's output in checkpoints: its watermark, and the dead letters that no checkpoint covers."""

from __future__ import annotations

from typing import Any

from topo.dead_letters.pending import STATE_KEY, PendingDeadLetters
from topo.emission.output_watermarks import OutputWatermarks
from topo.task.parts import TaskParts
from topo.task.runners.base import MessageHandlers
from topo.wire.control import DeadLettersStored
from topo.wire.frames import MAX_WATERMARK


class OutputState:
    """The output of one task in a topology with checkpoints.

    Args:
        parts: of the task.
        watermarks: event time of its output.

    Attributes:
        dead_letters: those that no complete checkpoint covers.
        messages: handlers of the master's messages.
    """

    def __init__(self, parts: TaskParts, watermarks: OutputWatermarks) -> None:
        state = self._state = parts.state
        self._watermarks = watermarks
        self._causes = parts.reports.causes
        self.dead_letters = PendingDeadLetters(state.id, parts.env.codec, parts.env.ids, parts.reports.to_master)
        self.messages: MessageHandlers = {DeadLettersStored: self._on_stored}

    def give_up(self, values: Any, error: BaseException | str, attempts: int = 1, position: Any = None) -> None:
        """Make a dead letter of a row, an input, or the values that a call was made for. `position`: of a source's record."""
        why = error if isinstance(error, str) else str(self._causes.of(error))
        self.dead_letters.add(values, why, attempts, position)

    def snapshot(self, checkpoint: int) -> dict[str, Any]:
        """Return the watermark, and the dead letters that no checkpoint covers."""
        return {"watermark": self._watermarks.latest, STATE_KEY: self.dead_letters.snapshot(checkpoint)}

    def restore(self, *, restores_end: bool) -> None:
        """Restore the checkpoint that the epoch begins with.

        Args:
            restores_end: whether the watermark behind all rows is restored as well.
        """
        parts = [part.values for part in self._state.restored]
        self.dead_letters.restore([part[STATE_KEY] for part in parts if STATE_KEY in part], self._state.restore_point)
        marks = [part["watermark"] for part in parts if "watermark" in part]
        if marks and (restores_end or min(marks) < MAX_WATERMARK):
            self._watermarks.restore(min(marks))

    def _on_stored(self, event: DeadLettersStored, now: float) -> None:
        self._state.counters.dead_lettered += self.dead_letters.stored(event.ids)
