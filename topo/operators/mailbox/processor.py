"""The loop of a task: batches of mails, and between them steps of the default action, which takes input.

What is in force changes on the mailbox thread only. Requests from elsewhere (stop the loop, resume, raise an error) are *control
mails*, put before all others, so that they take effect before the mails that were already waiting.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from topo.operators.mailbox.mailbox import (
    MAX_PRIORITY,
    MIN_PRIORITY,
    IllegalCall,
    Mail,
    MailboxClosed,
    MailboxExecutor,
    MailboxState,
    TaskMailbox,
)


class Stopwatch:
    """Adds up the time of something that starts and stops, for metrics.

    Args:
        clock: gives seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._total_s = 0.0
        self._since: float | None = None

    @property
    def total_s(self) -> float:
        """Seconds so far, the running stretch included."""
        return self._total_s + (0.0 if self._since is None else self._clock() - self._since)

    def start(self) -> None:
        """Begin a stretch. Harmless when one is running."""
        if self._since is None:
            self._since = self._clock()

    def stop(self) -> None:
        """End the stretch. Harmless when none is running."""
        self._total_s, self._since = self.total_s, None


class Suspension:
    """One suspension of the default action; `resume` ends it. Made by `MailboxProcessor.suspend_default_action`."""

    __slots__ = ("_processor", "stopwatch")

    def __init__(self, processor: MailboxProcessor, stopwatch: Stopwatch | None) -> None:
        self._processor = processor
        self.stopwatch = stopwatch

    def resume(self) -> None:
        """Let the default action run again. From any thread; does nothing when this suspension is over or the mailbox closed."""
        self._processor._resume(self)


class MailboxProcessor:
    """Runs mails and, between batches of them, the default action of a task.

    The default action takes a step of input and returns. When it finds that there is nothing to do, or nowhere to put results, it
    calls `suspend_default_action`; until `resume` only mails run. Owner thread only, except where said.

    Args:
        default_action: called with the processor.
        mailbox: where mails come from.
    """

    def __init__(self, default_action: Callable[[MailboxProcessor], object], mailbox: TaskMailbox) -> None:
        self.mailbox = mailbox
        self._default_action = default_action
        self._loop_may_run = True
        self._loop_suspended = False
        self._suspension: Suspension | None = None

    @property
    def is_default_action_available(self) -> bool:
        """Whether the default action is not suspended."""
        return self._suspension is None

    @property
    def is_finished(self) -> bool:
        """Whether `all_actions_completed` has taken effect."""
        return not self._loop_may_run

    def executor(self, priority: int = MIN_PRIORITY) -> MailboxExecutor:
        """Return a way to post to and to yield to this mailbox at `priority`."""
        return MailboxExecutor(self.mailbox, priority, lambda: not self.is_default_action_available)

    def run_mailbox_loop(self) -> None:
        """Run until `suspend` or `all_actions_completed`; blocks in the mailbox while the default action is suspended.

        What a mail or the default action raises leaves the loop.
        """
        self._loop_suspended = not self._loop_may_run
        while not self._loop_suspended:
            self._run_batch()
            while self._suspension is not None and not self._loop_suspended:
                self._run_mail(self.mailbox.take(MIN_PRIORITY))
            if not self._loop_suspended:
                self._default_action(self)

    def run_step(self) -> bool:
        """Run one round of the loop without ever blocking: a batch of mails, then the default action unless it is suspended.

        Returns:
            Whether anything ran.
        """
        self._loop_suspended = not self._loop_may_run
        if self._loop_suspended:
            return False
        ran = self._run_batch()
        if not self._loop_suspended and self._suspension is None:
            self._default_action(self)
            ran = True
        return ran

    def suspend_default_action(self, stopwatch: Stopwatch | None = None) -> Suspension:
        """Keep the default action from running until the suspension is resumed. For the default action itself.

        Args:
            stopwatch: measures the suspension, less the mails that run meanwhile.

        Raises:
            IllegalCall: another thread calls, or the default action is suspended already.
        """
        if not self.mailbox.is_owner:
            raise IllegalCall("only the mailbox thread can suspend the default action")
        if self._suspension is not None:
            raise IllegalCall("the default action is suspended already")
        self._suspension = Suspension(self, stopwatch)
        if stopwatch is not None:
            stopwatch.start()
        return self._suspension

    def suspend(self) -> None:
        """Have `run_mailbox_loop` return before the next mail; it can be called again. From any thread; nothing once not OPEN."""
        self._post_control_if_open(self._suspend_loop, "suspend the loop")

    def all_actions_completed(self) -> None:
        """Have `run_mailbox_loop` return before the next mail, for good. From any thread; nothing once not OPEN."""
        self._post_control_if_open(self._end_loop, "all actions completed")

    def report_error(self, error: BaseException) -> None:
        """Have the loop raise `error` before the next mail. From any thread.

        Raises:
            MailboxClosed: the mailbox takes no more mails.
        """

        def raise_it() -> None:
            raise error

        self._post_control(raise_it, f"report {error!r}")

    def prepare_close(self) -> None:
        """Refuse further mails; those that are there still run in `drain`."""
        self.mailbox.quiesce()

    def drain(self) -> None:
        """Run all mails that are there."""
        for mail in self.mailbox.drain():
            mail.run()

    def close(self) -> None:
        """Close the mailbox and cancel the futures of the mails that did not run; raise the first error of these cancels."""
        errors = []
        for mail in self.mailbox.close():
            if mail.future is not None:
                try:
                    mail.future.cancel()
                except Exception as error:
                    errors.append(error)
        if errors:
            raise errors[0]

    def _run_batch(self) -> bool:
        if not self.mailbox.create_batch():
            return False
        while not self._loop_suspended and (mail := self.mailbox.try_take_from_batch()) is not None:
            self._run_mail(mail)
        return True

    def _run_mail(self, mail: Mail) -> None:
        suspension = self._suspension
        if suspension is None or suspension.stopwatch is None:
            mail.run()
            return
        suspension.stopwatch.stop()
        mail.run()
        if self._suspension is suspension:
            suspension.stopwatch.start()

    def _resume(self, suspension: Suspension) -> None:
        if self.mailbox.is_owner:
            self._resume_now(suspension)
            return
        with suppress(MailboxClosed):
            self._post_control(lambda: self._resume_now(suspension), "resume the default action")

    def _resume_now(self, suspension: Suspension) -> None:
        if self._suspension is suspension:
            self._suspension = None
            if suspension.stopwatch is not None:
                suspension.stopwatch.stop()

    def _suspend_loop(self) -> None:
        self._loop_suspended = True

    def _end_loop(self) -> None:
        self._loop_may_run = False
        self._loop_suspended = True

    def _post_control(self, action: Callable[[], None], description: str) -> None:
        self.mailbox.put_first(Mail(action, description, MAX_PRIORITY))

    def _post_control_if_open(self, action: Callable[[], None], description: str) -> None:
        def post() -> None:
            if self.mailbox.state is MailboxState.OPEN:
                self._post_control(action, description)

        self.mailbox.run_exclusively(post)
