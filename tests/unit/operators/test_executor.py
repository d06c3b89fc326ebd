"""The executor of a mailbox: posting, yielding, and how mails outside of a yield are run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from topo.operators.mailbox.executor import MailboxExecutor
from topo.operators.mailbox.mailbox import IllegalCall, MailboxClosed, MailFailed, RejectedExecution, TaskMailbox


def elsewhere(action: Callable[[], Any]) -> None:
    """Run `action` on another thread and wait for it; its error is raised here."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            action()
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(10)
    if errors:
        raise errors[0]


class Posted:
    """A mailbox with an executor, and a log of the actions that ran."""

    def __init__(self, run: Callable[[Callable[[], object]], object] = lambda action: action()) -> None:
        self.log: list[str] = []
        self.mailbox = TaskMailbox()
        self.executor = MailboxExecutor(self.mailbox, run=run)

    def note(self, text: str) -> Callable[[], None]:
        return lambda: self.log.append(text)


def test_an_action_posted_from_another_thread_runs_on_the_mailbox_thread() -> None:
    posted, threads = Posted(), []
    elsewhere(lambda: posted.executor.execute(lambda: threads.append(threading.get_ident())))
    posted.mailbox.run_batch()
    assert threads == [threading.get_ident()]


def test_execute_is_rejected_when_the_mailbox_is_quiesced_or_closed() -> None:
    posted = Posted()
    posted.mailbox.quiesce()
    with pytest.raises(RejectedExecution):
        posted.executor.execute(posted.note("a"))
    posted.mailbox.close()
    with pytest.raises(RejectedExecution):
        posted.executor.execute(posted.note("a"))


def test_yield_runs_the_oldest_mail_of_its_own_priority_or_above() -> None:
    posted = Posted()
    upstream, downstream = MailboxExecutor(posted.mailbox, 1), MailboxExecutor(posted.mailbox, 2)
    upstream.execute(posted.note("upstream"))
    downstream.execute(posted.note("downstream"))
    downstream.yield_()
    assert posted.log == ["downstream"]
    assert not downstream.try_yield(), "an upstream mail stays hidden"
    assert upstream.try_yield()
    assert posted.log == ["downstream", "upstream"]


def test_a_deferrable_mail_is_run_by_the_main_loop_and_never_by_a_yield() -> None:
    posted = Posted()
    executor = MailboxExecutor(posted.mailbox, 0)
    executor.execute(posted.note("deferred"), deferrable=True)
    assert not executor.try_yield()
    posted.mailbox.run_batch()
    assert posted.log == ["deferred"]


def test_an_error_of_a_mail_reaches_the_caller_that_yields_wrapped() -> None:
    posted = Posted()
    posted.executor.execute(lambda: 1 // 0, "divide")
    with pytest.raises(MailFailed, match="divide") as caught:
        posted.executor.yield_()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    posted.executor.execute(lambda: 1 // 0)
    with pytest.raises(MailFailed):
        posted.executor.try_yield()


def test_only_mails_outside_of_a_yield_run_by_the_given_function() -> None:
    posted = Posted(run=lambda action: (posted.log.append("guarded"), action()))
    posted.executor.execute(posted.note("in a yield"))
    posted.executor.yield_()
    posted.executor.execute(posted.note("main loop"))
    posted.mailbox.run_batch()
    assert posted.log == ["in a yield", "guarded", "main loop"]


def test_yielding_is_for_the_owner_thread() -> None:
    posted = Posted()
    posted.executor.execute(posted.note("a"))
    for call in (posted.executor.yield_, posted.executor.try_yield):
        with pytest.raises(IllegalCall):
            elsewhere(call)


def test_after_close_yielding_raises_the_error_of_the_mailbox() -> None:
    posted = Posted()
    posted.mailbox.close()
    for call in (posted.executor.yield_, posted.executor.try_yield):
        with pytest.raises(MailboxClosed):
            call()


def test_a_mail_that_posts_itself_ends_quietly_when_the_mailbox_is_quiesced() -> None:
    posted = Posted()

    def again() -> None:
        posted.log.append("ran")
        posted.executor.execute(again)

    posted.executor.execute(again)
    posted.mailbox.quiesce()
    for mail in posted.mailbox.drain():
        mail.run()
    assert posted.log == ["ran"]
