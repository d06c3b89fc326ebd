"""The clock, the mailbox and the event loop of an operator under test, and how a test waits for them."""

from __future__ import annotations

import threading
from collections.abc import Coroutine
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from topo.errors import UserError
from topo.operators.mailbox.mailbox import TaskMailbox
from topo.operators.time.clock import ManualProcessingTime

if TYPE_CHECKING:
    from topo.testing.manual_loop import ManualLoop

PATIENCE_S: Final = 5.0
"""Real seconds to wait for other threads and sockets before the clock advances without them."""

_POLL_S: Final = 0.05
"""Real seconds between two checks whether there is anything left to wait for."""


class OperatorTime:
    """The time of one operator under test.

    Args:
        now_ms: initial time, in milliseconds.

    Attributes:
        clock: the processing time.
        mailbox: the operator's mailbox.
        loop: runs coroutines of an async bolt; None for other operators.
    """

    def __init__(self, now_ms: int) -> None:
        self.clock = ManualProcessingTime(now_ms)
        self._mail_arrived = threading.Event()
        self.mailbox = TaskMailbox(self._mail_arrived.set, self._wait)
        self.loop: ManualLoop | None = None

    @property
    def next_due_ms(self) -> int | None:
        """The next moment at which the clock or the event loop has something due; None for never."""
        due = [self.clock.next_due_ms, None if self.loop is None else self.loop.next_due_ms]
        return min((one for one in due if one is not None), default=None)

    def turn(self) -> None:
        """Run the event loop once, if there is one."""
        if self.loop is not None:
            self.loop.turn()

    def poll(self) -> None:
        """Wait a moment, in real time, for the event loop or for a mail of another thread."""
        if self.loop is not None:
            self.loop.wait(_POLL_S)
        else:
            self._await_mail(_POLL_S)

    def run_to_end(self, call: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine of the bolt itself; raises its error."""
        assert self.loop is not None
        ended: list[BaseException | None] = []
        self.loop.run(call, lambda _result, error: ended.append(error))
        self.loop.turn()
        while not ended:
            if not self._advance():
                raise UserError("`open` or `close` of the bolt waits for something that does not happen")
        if ended[0] is not None:
            raise ended[0]

    def _wait(self) -> None:
        """Have a mail arrive, for an operator that waits for one."""
        self.turn()
        if not self.mailbox.has_mail and not self._advance():
            raise UserError("the operator waits for a call to complete, and nothing is due that could complete one")

    def _advance(self) -> bool:
        """Let time pass until something happens; return whether anything did."""
        loop = self.loop
        until = monotonic() + PATIENCE_S
        if loop is None and self._mail_arrives(until):
            return True
        while loop is not None and loop.waits_outside and monotonic() < until:
            before = loop.under_way
            loop.wait(_POLL_S)
            if self.mailbox.has_mail or loop.under_way != before:
                return True
        due = self.next_due_ms
        if due is None:
            return False
        self.clock.advance_to(max(due, self.clock.now_ms()))
        self.turn()
        return True

    def _mail_arrives(self, until: float) -> bool:
        """Wait for a mail of another thread, if there is a thread that could send it; return whether a mail has arrived."""
        while not self.mailbox.has_mail and threading.active_count() > 1 and (left := until - monotonic()) > 0:
            # Not for all that is left: a thread that ends without a mail sets no event.
            self._await_mail(min(left, _POLL_S))
        return self.mailbox.has_mail

    def _await_mail(self, longest_s: float) -> None:
        self._mail_arrived.wait(longest_s)
        self._mail_arrived.clear()
