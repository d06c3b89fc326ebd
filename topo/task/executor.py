"""Ways to post to a task's mailbox whose mails cannot end the task."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from topo.operators.mailbox.mailbox import MailboxExecutor, MailboxState, RejectedExecution, TaskMailbox

_PRIORITY = 0
"""Above the least, so that mails of the task itself and deferrable ones wait for the main loop when a call yields."""


class TaskExecutor(MailboxExecutor):
    """Posts mails that the task runs in its own way, so that what they raise and emit is taken care of.

    A mail that a call yields to is a part of that call: what it emits belongs to the call's input, what it raises reaches the
    call.

    Args:
        mailbox: the task's.
        run: runs an action on the task's thread.
    """

    def __init__(self, mailbox: TaskMailbox, run: Callable[[Callable[[], object]], None]) -> None:
        super().__init__(mailbox, _PRIORITY)
        self._run_action = run
        self._is_yielding = False

    def execute(self, action: Callable[[], object], description: str = "", *, deferrable: bool = False) -> None:
        """Have `action` run on the task's thread. Raises as `MailboxExecutor.execute` does."""
        super().execute(partial(self._run_posted, action), description, deferrable=deferrable)

    def yield_(self) -> None:
        """Run the oldest mail, waiting until there is one; see `MailboxExecutor.yield_`."""
        outer, self._is_yielding = self._is_yielding, True
        try:
            super().yield_()
        finally:
            self._is_yielding = outer

    def try_yield(self) -> bool:
        """Run the oldest mail, if any; see `MailboxExecutor.try_yield`."""
        outer, self._is_yielding = self._is_yielding, True
        try:
            return super().try_yield()
        finally:
            self._is_yielding = outer

    def _run_posted(self, action: Callable[[], object]) -> None:
        if self._is_yielding:
            action()
        elif self._mailbox.state is MailboxState.OPEN:
            self._run_action(action)
        else:
            self._run_action(partial(_run_last, action))


def _run_last(action: Callable[[], object]) -> None:
    """Run an action at the end of its task; one that posts itself again and again ends by being refused."""
    with suppress(RejectedExecution):
        action()
