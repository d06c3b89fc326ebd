"""The master's part in emitting dead letters again: sends them to tasks, and has results stored."""

from __future__ import annotations

from topo.dead_letters.registry import DeadLetters
from topo.dead_letters.replays import LetterReplays
from topo.master.commands import MasterCommand, StoreReplays
from topo.master.epochs import EpochState
from topo.master.events import ReplayAsked
from topo.master.recovery import Recovery
from topo.plan.physical import PhysicalPlan
from topo.wire import control


class Replaying:
    """The dead letters of one topology that are emitted again.

    Args:
        recovery: knows the workers of this moment.
        dead_letters: knows why attempts have failed.
        commands: where commands go.
    """

    def __init__(self, plan: PhysicalPlan, recovery: Recovery, dead_letters: DeadLetters, commands: list[MasterCommand]) -> None:
        self._recovery = recovery
        self._dead_letters = dead_letters
        self._commands = commands
        self._letters = LetterReplays({component.id: plan.tasks_of(component.id) for component in plan.components})

    @property
    def count(self) -> int:
        """How many dead letters are under way."""
        return len(self._letters)

    def asked(self, event: ReplayAsked) -> None:
        """Have dead letters emitted again."""
        self._letters.ask(event.component, event.dead_letters)

    def replayed(self, message: control.LettersReplayed) -> None:
        """A task reports results."""
        failed = {one.id: "; ".join(self._dead_letters.explained(one).errors) for one in message.failed}
        if known := self._letters.finished([*message.done, *failed]):
            self._commands.append(StoreReplays({number: failed.get(number) for number in known}))

    def serve(self, now: float, *, is_paused: bool) -> None:
        """Send tasks their dead letters, while all of them work and may emit."""
        if not is_paused and self._recovery.epochs.state is EpochState.RUNNING:
            for message in self._letters.due(now):
                for slot in self._recovery.membership.live():
                    if message.task in slot.tasks:
                        self._recovery.send(slot, message)

    def next_deadline(self, *, is_paused: bool) -> float | None:
        """When `serve` has something to say."""
        return None if is_paused or self._recovery.epochs.state is not EpochState.RUNNING else self._letters.next_deadline()
