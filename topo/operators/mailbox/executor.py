"""The executor: posts actions to a mailbox, and runs mails while its caller waits."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from topo.operators.mailbox.mailbox import (
    MIN_PRIORITY,
    Mail,
    MailboxClosed,
    MailboxState,
    MailFailed,
    RejectedExecution,
    TaskMailbox,
)
from topo.user_errors import kind_and_message

CALL_PRIORITY: Final = 0
"""Above the least: while a call yields, the task's own mails and the deferrable ones stay in the mailbox."""


class MailboxExecutor:
    """Posts actions to a mailbox and lets its mails run while the caller waits.

    A mail that runs inside a yield is a part of the call that yields: its output belongs to that call's input, its error reaches
    that call. Other mails run by `run`.

    Args:
        priority: of the mails that are posted, and the least one of the mails that a yield runs.
        run: runs an action outside of yields, so that its output and its errors cannot end the task; by default plainly.
    """

    def __init__(
        self,
        mailbox: TaskMailbox,
        priority: int = MIN_PRIORITY,
        run: Callable[[Callable[[], object]], object] = lambda action: action(),
    ) -> None:
        self._mailbox = mailbox
        self._priority = priority
        self._run = run
        self._is_yielding = False

    def execute(self, action: Callable[[], object], description: str = "", *, deferrable: bool = False) -> None:
        """Have `action` run on the mailbox thread. From any thread.

        Args:
            action: its errors go to `run`, or to the operator that yields to it.
            description: for logs and errors.
            deferrable: run it in the main loop only, never inside a yield.

        Raises:
            RejectedExecution: the mailbox takes no more mails.
        """
        priority = MIN_PRIORITY if deferrable else self._priority
        try:
            self._mailbox.put(Mail(partial(self._run_posted, action), description, priority))
        except MailboxClosed as closed:
            raise RejectedExecution(str(closed)) from closed

    def yield_(self) -> None:
        """Run the oldest mail of at least this executor's priority, waiting until there is one. Owner thread only.

        Raises:
            MailFailed: the mail has raised; its error is the cause.
            MailboxClosed: the mailbox is closed.
        """
        self._run_inside(self._mailbox.take)

    def try_yield(self) -> bool:
        """Run the oldest mail of at least this executor's priority, if any; return whether one ran. Raises as `yield_` does."""
        return self._run_inside(self._mailbox.try_take)

    def _run_inside(self, take: Callable[[int], Mail | None]) -> bool:
        outer, self._is_yielding = self._is_yielding, True
        try:
            mail = take(self._priority)
            if mail is None:
                return False
            try:
                mail.run()
            except Exception as error:
                raise MailFailed(f"a mail failed: {mail.description or 'no description'}: {kind_and_message(error)}") from error
            return True
        finally:
            self._is_yielding = outer

    def _run_posted(self, action: Callable[[], object]) -> None:
        if self._is_yielding:
            action()
        elif self._mailbox.state is MailboxState.OPEN:
            self._run(action)
        else:
            self._run(partial(_run_last, action))


def _run_last(action: Callable[[], object]) -> None:
    """Run an action at the end of its task; an action that posts itself repeatedly is refused in the end."""
    with suppress(RejectedExecution):
        action()
