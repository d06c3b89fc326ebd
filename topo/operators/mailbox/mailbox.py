"""The mailbox: everything that is not input reaches a task's one thread through it.

`TaskMailbox` holds the mails. `MailboxExecutor` (executor.py) belongs to operators and users: it posts an action, and runs mails
while its caller waits. The task runs one batch of mails before each step of input.

Many threads post, one thread (the owner) reads. The owner reads in batches: it moves the shared queue, under the lock, to its own
list, and a mail posted while that batch runs waits for the next. A mail that posts itself again cannot starve the input.

A priority hides, it never orders: reading with priority p gives the oldest mail whose priority is at least p and leaves the
others where they are. An operator that yields does not run the mails of operators before it.

    OPEN      posting and reading
    QUIESCED  reading only: the task is about to end and runs the mails that are left
    CLOSED    neither
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any, Final, Protocol, cast

from topo.errors import TopoError, UserError

MIN_PRIORITY: Final = -1
"""Sees every mail when reading; when posting, seen by the main loop alone."""


class MailboxClosed(TopoError):
    """The mailbox takes no more mails (quiesced or closed), or gives none (closed)."""


class RejectedExecution(TopoError):
    """An action was offered to an executor whose mailbox takes no more mails."""


class MailFailed(TopoError):
    """A mail that ran while an operator yielded has raised; the cause is the error."""


class IllegalCall(UserError):
    """A call from another thread than the mailbox's owner, or at a moment when it makes no sense."""


class OwnerLock(Protocol):
    """A lock that one thread holds forever."""

    def _is_owned(self) -> bool: ...


def owner_lock() -> OwnerLock:
    """Return a lock that the calling thread holds forever: its `_is_owned()` distinguishes that thread from all others.

    It takes a third of the time of a comparison of `get_ident()`, which makes an int; so each emit can afford it.
    """
    lock: Any = threading.RLock()
    lock.acquire()
    return cast(OwnerLock, lock)


class MailboxState(Enum):
    """The life of a mailbox; only ever moves downwards."""

    OPEN = "open"
    QUIESCED = "quiesced"
    CLOSED = "closed"


class Mail:
    """An action to be run on the mailbox thread.

    Attributes:
        priority: readers with a higher one do not see the mail.
        description: for people: logs and errors.
    """

    __slots__ = ("action", "description", "priority")

    def __init__(self, action: Callable[[], object], description: str = "", priority: int = MIN_PRIORITY) -> None:
        self.action = action
        self.description = description
        self.priority = priority

    def run(self) -> None:
        """Run the action; its exception reaches the caller."""
        self.action()

    def __repr__(self) -> str:
        return f"Mail({self.description!r}, priority={self.priority})"


class TaskMailbox:
    """Mails for one owner thread from many.

    `put`, `len`, `state` and `is_owner` may be called from any thread; everything else raises IllegalCall there.

    Args:
        wake: called after another thread has put a mail, on that thread; has to get the owner out of its wait for other things.
        wait: what `take` does while there is no mail for it: has to return when there may be one. By default it waits for a put.
    """

    def __init__(self, wake: Callable[[], None] | None = None, wait: Callable[[], None] | None = None) -> None:
        self._lock = threading.RLock()
        self._not_empty = threading.Condition(self._lock)
        self._queue: deque[Mail] = deque()
        self._batch: deque[Mail] = deque()
        self._state = MailboxState.OPEN
        self._wake = wake
        self._wait = wait
        self._owner = threading.get_ident()

    @property
    def state(self) -> MailboxState:
        """Whether mails can be put and taken."""
        return self._state

    @property
    def is_owner(self) -> bool:
        return threading.get_ident() == self._owner

    def __len__(self) -> int:
        with self._lock:
            return len(self._batch) + len(self._queue)

    @property
    def has_mail(self) -> bool:
        """Whether there is any mail, of whatever priority."""
        self._check_owner()
        return bool(self._batch) or bool(self._queue)

    @property
    def may_have_mail(self) -> bool:
        """The same without a look at who asks: cheap, and from another thread good for a guess only."""
        return bool(self._batch) or bool(self._queue)

    def put(self, mail: Mail) -> None:
        """Put a mail behind all others.

        Raises:
            MailboxClosed: the mailbox is quiesced or closed.
        """
        with self._lock:
            self._check_open(mail)
            self._queue.append(mail)
            self._not_empty.notify()
        self._wake_owner()

    def take(self, priority: int) -> Mail:
        """Take out the oldest mail of at least `priority`, waiting until there is one.

        Raises:
            MailboxClosed: the mailbox is closed.
        """
        while (mail := self.try_take(priority)) is None:
            if self._wait is not None:
                self._wait()
                continue
            with self._lock:
                # A mail may have come since the look without the lock; its notification would be lost.
                if all(queued.priority < priority for queued in self._queue):
                    self._not_empty.wait()
        return mail

    def try_take(self, priority: int) -> Mail | None:
        """Take out the oldest mail of at least `priority`, from the batch first and then from the queue; None if there is none.

        Raises:
            MailboxClosed: the mailbox is closed.
        """
        self._check_readable()
        mail = _take_out(self._batch, priority)
        if mail is None and self._queue:
            with self._lock:
                mail = _take_out(self._queue, priority)
        return mail

    def create_batch(self) -> bool:
        """Move all queued mails behind the rest of the batch; return whether the batch now has mails."""
        self._check_owner()
        if self._queue:
            with self._lock:
                self._batch.extend(self._queue)
                self._queue.clear()
        return bool(self._batch)

    def try_take_from_batch(self) -> Mail | None:
        """Take the next mail of the batch, of whatever priority; None when the batch is used up.

        Raises:
            MailboxClosed: the mailbox is closed.
        """
        self._check_readable()
        return self._batch.popleft() if self._batch else None

    def run_batch(self) -> None:
        """Run the mails that are there, not those posted meanwhile. An error of a mail leaves the rest for the next batch."""
        self.create_batch()
        while (mail := self.try_take_from_batch()) is not None:
            mail.run()

    def drain(self) -> list[Mail]:
        """Take out everything, batch first."""
        self._check_owner()
        with self._lock:
            mails = [*self._batch, *self._queue]
            self._batch.clear()
            self._queue.clear()
        return mails

    def quiesce(self) -> None:
        """Refuse further mails. Harmless unless open."""
        self._check_owner()
        with self._lock:
            if self._state is MailboxState.OPEN:
                self._state = MailboxState.QUIESCED

    def close(self) -> list[Mail]:
        """Refuse everything from now on; return the mails that will not run (none the second time)."""
        self._check_owner()
        with self._lock:
            if self._state is MailboxState.CLOSED:
                return []
            self._state = MailboxState.CLOSED
            return self.drain()

    def _wake_owner(self) -> None:
        if self._wake is not None and not self.is_owner:
            self._wake()

    def _check_owner(self) -> None:
        if threading.get_ident() != self._owner:
            raise IllegalCall("only the thread that owns the mailbox may do this; post a mail to it instead")

    def _check_readable(self) -> None:
        self._check_owner()
        if self._state is MailboxState.CLOSED:
            raise MailboxClosed("the mailbox is closed")

    def _check_open(self, mail: Mail) -> None:
        if self._state is not MailboxState.OPEN:
            raise MailboxClosed(f"the mailbox is {self._state.value}; refused: {mail.description or 'a mail'}")


def _take_out(mails: deque[Mail], priority: int) -> Mail | None:
    if mails and mails[0].priority >= priority:
        return mails.popleft()
    for index, mail in enumerate(mails):
        if mail.priority >= priority:
            del mails[index]
            return mail
    return None
