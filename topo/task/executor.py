"""Ways to post to a task's mailbox whose mails cannot end the task."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from topo.operators.mailbox import MailboxExecutor, TaskMailbox


class TaskExecutor(MailboxExecutor):
    """Posts mails that the task runs in its own way, so that what they raise and emit is taken care of.

    Args:
        mailbox: the task's.
        run: runs an action on the task's thread.
    """

    def __init__(self, mailbox: TaskMailbox, run: Callable[[Callable[[], object]], None]) -> None:
        super().__init__(mailbox)
        self._run_action = run

    def execute(self, action: Callable[[], object], description: str = "", *, deferrable: bool = False) -> None:
        """Have `action` run on the task's thread. Raises as `MailboxExecutor.execute` does."""
        super().execute(partial(self._run_action, action), description, deferrable=deferrable)
