"""The master's part in storing dead letters: has each stored once, and confirms it to its task."""

from __future__ import annotations

from topo.dead_letters.registry import DeadLetters, Waiting
from topo.master.commands import MasterCommand, SendTo, StoreDeadLetters
from topo.master.events import DeadLettersWritten
from topo.master.membership import Membership, Slot
from topo.wire import control


class StoringDeadLetters:
    """The dead letters that the tasks of one topology report.

    Args:
        dead_letters: knows those on disk and on their way there.
        membership: knows which lives are over.
        commands: where commands go.
    """

    def __init__(self, dead_letters: DeadLetters, membership: Membership, commands: list[MasterCommand]) -> None:
        self._dead_letters = dead_letters
        self._membership = membership
        self._commands = commands

    def reported(self, slot: Slot, message: control.DeadLetter, now: float) -> None:
        """A task has given up a message."""
        assert slot.incarnation is not None
        waiting = Waiting(slot.worker, slot.incarnation, message.task, message.id)
        message = self._dead_letters.explained(message)
        if self._dead_letters.is_stored(waiting, message):
            self._confirm(waiting)
        elif self._dead_letters.is_new(waiting, message, now):
            self._commands.append(StoreDeadLetters(slot.worker, slot.incarnation, (message,)))

    def written(self, event: DeadLettersWritten) -> None:
        """Dead letters are on disk."""
        for waiting in self._dead_letters.written(event.dead_letters):
            self._confirm(waiting)

    def store_overdue(self, now: float) -> None:
        """Have those stored again that were not written in time."""
        for waiting, dead_letter in self._dead_letters.overdue(now):
            self._commands.append(StoreDeadLetters(waiting.worker, waiting.incarnation, (dead_letter,)))

    def _confirm(self, waiting: Waiting) -> None:
        # A later life of the task numbers its dead letters from the start.
        if self._membership.is_current(waiting.worker, waiting.incarnation):
            message = control.DeadLettersStored(waiting.task, [waiting.id])
            self._commands.append(SendTo(waiting.worker, waiting.incarnation, message))
