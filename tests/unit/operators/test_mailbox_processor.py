"""Sections 2 and 3, the mailbox loop and the executor."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from topo.operators.mailbox.mailbox import (
    IllegalCall,
    Mail,
    MailboxClosed,
    MailFailed,
    RejectedExecution,
    TaskMailbox,
)
from topo.operators.mailbox.processor import MailboxProcessor, Stopwatch, Suspension


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


class Task:
    """A processor whose default action follows a script: one callable for each step, then the end."""

    def __init__(self, *script: Callable[[Task], Any]) -> None:
        self.log: list[str] = []
        self._script = list(script)
        self.processor = MailboxProcessor(self._step, TaskMailbox())
        self.executor = self.processor.executor()

    def _step(self, processor: MailboxProcessor) -> None:
        self.log.append("step")
        if self._script:
            self._script.pop(0)(self)
        else:
            processor.all_actions_completed()

    def note(self, text: str) -> Callable[[], None]:
        return lambda: self.log.append(text)

    def post(self, text: str) -> None:
        self.executor.execute(self.note(text), text)


def nothing(task: Task) -> None:
    pass


def test_mails_run_before_the_default_action_of_the_same_round() -> None:
    task = Task(nothing)
    task.post("a")
    task.post("b")
    task.processor.run_mailbox_loop()
    assert task.log == ["a", "b", "step", "step"]


def test_a_mail_that_posts_itself_again_cannot_starve_the_default_action() -> None:
    task = Task(nothing, nothing)

    def again() -> None:
        task.log.append("mail")
        task.executor.execute(again)

    task.executor.execute(again)
    task.processor.run_mailbox_loop()
    assert task.log == ["mail", "step", "mail", "step", "mail", "step"]


def test_an_error_of_a_mail_leaves_the_loop_and_reaches_its_caller() -> None:
    task = Task()

    def fail() -> None:
        raise ValueError("mail")

    task.executor.execute(fail)
    with pytest.raises(ValueError, match="mail"):
        task.processor.run_mailbox_loop()


def test_an_error_of_the_default_action_leaves_the_loop_and_reaches_its_caller() -> None:
    def fail(task: Task) -> None:
        raise ValueError("step")

    with pytest.raises(ValueError, match="step"):
        Task(fail).processor.run_mailbox_loop()


def test_after_suspend_the_loop_returns_before_mails_already_queued_and_goes_on_with_them_when_called_again() -> None:
    task = Task()
    task.post("queued")
    elsewhere(task.processor.suspend)
    task.processor.run_mailbox_loop()
    assert task.log == []
    task.processor.run_mailbox_loop()
    assert task.log == ["queued", "step"]


def test_suspend_within_a_batch_stops_before_its_next_mail() -> None:
    task = Task()
    task.executor.execute(lambda: (task.log.append("a"), task.processor.suspend()))
    task.post("b")
    task.processor.run_mailbox_loop()
    assert task.log == ["a"]
    task.processor.run_mailbox_loop()
    assert task.log == ["a", "b", "step"]


def test_all_actions_completed_overtakes_queued_mails_and_is_final() -> None:
    task = Task()
    task.post("queued")
    elsewhere(task.processor.all_actions_completed)
    task.processor.run_mailbox_loop()
    task.processor.run_mailbox_loop()
    assert task.log == []
    assert task.processor.is_finished


def test_suspend_and_all_actions_completed_do_nothing_once_the_mailbox_is_not_open() -> None:
    task = Task()
    task.processor.prepare_close()
    task.processor.suspend()
    task.processor.all_actions_completed()
    assert len(task.processor.mailbox) == 0
    task.processor.close()
    task.processor.suspend()
    task.processor.all_actions_completed()


def test_an_error_reported_from_another_thread_is_raised_by_the_loop_before_queued_mails() -> None:
    task = Task()
    task.post("queued")
    elsewhere(lambda: task.processor.report_error(RuntimeError("reported")))
    with pytest.raises(RuntimeError, match="reported"):
        task.processor.run_mailbox_loop()
    assert task.log == []


def test_while_the_default_action_is_suspended_only_mails_run_until_it_is_resumed() -> None:
    suspensions: list[Suspension] = []
    task = Task(lambda task: suspensions.append(task.processor.suspend_default_action()))
    task.processor.run_step()
    task.post("a")
    task.processor.run_step()
    task.post("b")
    task.executor.execute(lambda: suspensions[0].resume())
    task.processor.run_mailbox_loop()
    assert task.log == ["step", "a", "b", "step"]


def test_the_loop_waits_in_the_mailbox_while_the_default_action_is_suspended_and_another_thread_resumes_it() -> None:
    threads: list[threading.Thread] = []

    def suspend(task: Task) -> None:
        suspension = task.processor.suspend_default_action()
        threads.append(threading.Thread(target=suspension.resume))
        threads[0].start()

    task = Task(suspend)
    task.processor.run_mailbox_loop()
    threads[0].join(10)
    assert task.log == ["step", "step"]


def test_a_suspension_resumed_on_the_owner_thread_is_over_at_once() -> None:
    task = Task()
    suspension = task.processor.suspend_default_action()
    assert not task.processor.is_default_action_available
    suspension.resume()
    assert task.processor.is_default_action_available


def test_the_default_action_can_be_suspended_only_once_at_a_time() -> None:
    task = Task()
    task.processor.suspend_default_action()
    with pytest.raises(IllegalCall):
        task.processor.suspend_default_action()


def test_the_default_action_can_be_suspended_only_on_the_owner_thread() -> None:
    task = Task()
    with pytest.raises(IllegalCall):
        elsewhere(task.processor.suspend_default_action)


def test_an_old_suspension_cannot_resume_a_newer_one() -> None:
    task = Task()
    old = task.processor.suspend_default_action()
    old.resume()
    task.processor.suspend_default_action()
    old.resume()
    assert not task.processor.is_default_action_available


@pytest.mark.parametrize("end", [MailboxProcessor.prepare_close, MailboxProcessor.close])
def test_resuming_from_another_thread_after_the_end_is_ignored(end: Callable[[MailboxProcessor], None]) -> None:
    task = Task()
    suspension = task.processor.suspend_default_action()
    end(task.processor)
    elsewhere(suspension.resume)
    assert not task.processor.is_default_action_available


def test_a_stopwatch_measures_a_suspension_less_the_mails_that_run_meanwhile() -> None:
    now = [100.0]
    watch = Stopwatch(lambda: now[0])
    task = Task()
    suspension = task.processor.suspend_default_action(watch)
    now[0] += 2

    def take_long() -> None:
        now[0] += 50

    task.executor.execute(take_long)
    task.processor.run_step()
    now[0] += 3
    assert watch.total_s == 5
    suspension.resume()
    now[0] += 7
    assert watch.total_s == 5


def test_a_step_never_blocks_and_says_whether_anything_ran() -> None:
    task = Task(lambda task: task.processor.suspend_default_action())
    assert task.processor.run_step()
    assert not task.processor.run_step()
    task.post("a")
    assert task.processor.run_step()
    task.processor.all_actions_completed()
    task.processor.run_step()
    assert not task.processor.run_step()


def test_prepare_close_refuses_mails_and_drain_runs_those_that_are_there() -> None:
    task = Task()
    task.post("a")
    task.processor.mailbox.create_batch()
    task.post("b")
    task.processor.prepare_close()
    with pytest.raises(RejectedExecution):
        task.post("c")
    task.processor.drain()
    assert task.log == ["a", "b"]


def test_close_cancels_the_futures_of_mails_that_did_not_run() -> None:
    task = Task()
    future = task.executor.submit(lambda: 1)
    task.post("plain")
    task.processor.close()
    assert future.cancelled()
    assert task.log == []


def test_close_cancels_all_futures_and_raises_the_first_error_of_a_cancel() -> None:
    class Stubborn(Future[Any]):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def cancel(self) -> bool:
            raise ValueError(self.name)

    task = Task()
    for name in ("first", "second"):
        task.processor.mailbox.put(Mail(lambda: None, name, future=Stubborn(name)))
    last = task.executor.submit(lambda: 1)
    with pytest.raises(ValueError, match="first"):
        task.processor.close()
    assert last.cancelled()


def test_execute_on_a_quiesced_or_closed_mailbox_is_a_rejected_execution() -> None:
    task = Task()
    task.processor.prepare_close()
    with pytest.raises(RejectedExecution):
        task.executor.execute(lambda: None)
    task.processor.close()
    with pytest.raises(RejectedExecution):
        task.executor.submit(lambda: None)


def test_an_action_submitted_from_another_thread_runs_on_the_mailbox_thread_and_gives_its_result_back() -> None:
    task = Task()
    futures: list[Future[int]] = []
    elsewhere(lambda: futures.append(task.executor.submit(threading.get_ident)))
    elsewhere(lambda: futures.append(task.executor.submit(lambda: 1 // 0)))
    task.processor.run_step()
    assert futures[0].result(0) == threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        futures[1].result(0)


def test_a_future_cancelled_before_its_mail_runs_keeps_the_action_from_running() -> None:
    task = Task()
    future = task.executor.submit(task.note("ran"))
    assert future.cancel()
    task.processor.run_step()
    assert task.log == ["step"]


def test_yield_runs_the_oldest_mail_of_its_own_priority_or_above() -> None:
    task = Task()
    upstream, downstream = task.processor.executor(1), task.processor.executor(2)
    upstream.execute(task.note("upstream"))
    downstream.execute(task.note("downstream"))
    downstream.yield_()
    assert task.log == ["downstream"]
    assert not downstream.try_yield(), "an upstream mail stays hidden"
    assert upstream.try_yield()
    assert task.log == ["downstream", "upstream"]


def test_a_deferrable_mail_is_run_by_the_main_loop_and_never_by_a_yield() -> None:
    task = Task()
    executor = task.processor.executor(0)
    executor.execute(task.note("deferred"), deferrable=True)
    assert not executor.try_yield()
    task.processor.run_step()
    assert task.log == ["deferred", "step"]


def test_an_error_of_a_mail_reaches_the_one_who_yields_wrapped() -> None:
    task = Task()
    task.executor.execute(lambda: 1 // 0, "divide")
    with pytest.raises(MailFailed, match="divide") as caught:
        task.executor.yield_()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    task.executor.execute(lambda: 1 // 0)
    with pytest.raises(MailFailed):
        task.executor.try_yield()


def test_yielding_is_for_the_owner_thread() -> None:
    task = Task()
    task.post("a")
    for call in (task.executor.yield_, task.executor.try_yield):
        with pytest.raises(IllegalCall):
            elsewhere(call)


def test_after_close_yielding_raises_the_error_of_the_mailbox() -> None:
    task = Task()
    task.processor.close()
    for call in (task.executor.yield_, task.executor.try_yield):
        with pytest.raises(MailboxClosed):
            call()


def test_the_executor_is_idle_when_the_default_action_is_suspended_no_mail_waits_and_mails_are_accepted() -> None:
    task = Task()
    assert not task.executor.is_idle
    task.processor.suspend_default_action()
    assert task.executor.is_idle
    task.post("a")
    assert not task.executor.is_idle
    task.processor.run_step()
    assert task.executor.is_idle
    task.processor.prepare_close()
    assert not task.executor.is_idle
