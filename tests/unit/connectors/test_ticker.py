"""A ticker posts to the task, and ends with it."""

from __future__ import annotations

import threading

from topo.connectors.ticker import Ticker
from topo.operators.mailbox.executor import MailboxExecutor
from topo.operators.mailbox.mailbox import TaskMailbox

PATIENCE_S = 20.0


def test_the_action_runs_on_the_task_s_thread_again_and_again_until_it_is_stopped() -> None:
    mailbox = TaskMailbox()
    executor, threads = MailboxExecutor(mailbox), list[threading.Thread]()
    ticker = Ticker(executor, lambda: threads.append(threading.current_thread()), 0.001, "tick")
    ticker.start()
    for _ in range(3):
        executor.yield_()
    assert threads == [threading.current_thread()] * 3
    executor.execute(ticker.stop)
    while not ticker._is_stopped.is_set():
        executor.yield_()
    count = len(threads)
    while executor.try_yield():
        pass
    assert len(threads) == count


def test_its_thread_ends_with_the_task() -> None:
    mailbox = TaskMailbox()
    mailbox.quiesce()
    mailbox.close()
    Ticker(MailboxExecutor(mailbox), lambda: None, 0.001, "ends").start()
    for thread in threading.enumerate():
        if thread.name == "topo-ends":
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
