"""Dead letters of a task in a topology with checkpoints: given up for good only when a checkpoint covers it.

A tuple that user code has refused as often as it may is put aside here. Were its letter stored at once, it would be stored again
when the tuple comes again after a recovery. So letters are part of the snapshot, and told to the master when its checkpoint is
complete: by the task that took it, or by the one that goes on from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from topo.ids import TaskId
from topo.task.letter_values import pack_or_say
from topo.wire.codec import Codec
from topo.wire.control import DeadLetter

State = dict[str, Any]


class HeldLetters:
    """The dead letters of one task.

    Args:
        tell: sends a letter to the master.
    """

    def __init__(self, task: TaskId, codec: Codec, tell: Callable[[DeadLetter], None]) -> None:
        self._task = task
        self._codec = codec
        self._tell = tell
        self._count = 0
        self._held: dict[int, tuple[int, bytes, str, int]] = {}
        """By number: the last checkpoint without it, values, why, attempts."""
        self._snapshotted = 0

    def __len__(self) -> int:
        """How many have not been stored yet."""
        return len(self._held)

    def add(self, values: Any, why: str, attempts: int) -> None:
        """Give a tuple up."""
        self._count += 1
        self._held[self._count] = (self._snapshotted, pack_or_say(self._codec, values), why, attempts)

    def snapshot(self, checkpoint: int) -> State:
        """Return what has to be remembered."""
        self._snapshotted = checkpoint
        return {"count": self._count, "held": [(number, *letter[1:]) for number, letter in self._held.items()]}

    def restore(self, states: Iterable[State], checkpoint: int) -> None:
        """Go on from snapshots of a checkpoint; of several, numbers begin after the greatest.

        The checkpoint's completion may be told again, and covers no letter that is added from here on.
        """
        states = list(states)
        self._held.clear()
        self._count = max((state["count"] for state in states), default=0)
        self._snapshotted = checkpoint
        for state in states:
            for number, values, why, attempts in state["held"]:
                if number in self._held:
                    self._count += 1
                    number = self._count
                self._held[number] = (-1, values, why, attempts)

    def publish(self, checkpoint: int) -> None:
        """A checkpoint is complete: have the letters stored that it covers."""
        for number, (before, values, why, attempts) in self._held.items():
            if before < checkpoint:
                self._tell(
                    DeadLetter(
                        task=self._task,
                        id=number,
                        position=self._codec.pack_value(number),
                        values=values,
                        errors=[why],
                        attempts=attempts,
                    )
                )

    def stored(self, numbers: Iterable[int]) -> int:
        """The letters are on disk; return how many of them were waited for."""
        return sum(self._held.pop(number, None) is not None for number in numbers)
