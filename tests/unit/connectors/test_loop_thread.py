"""The asyncio loop beside a task: what passes between them, what wakes the task, what becomes of errors and of the thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from topo.connectors.loop_thread import LoopLink, LoopThread, LoopThreadState
from topo.errors import TopoInternalError, UserError
from topo.operators.mailbox.executor import MailboxExecutor
from topo.operators.mailbox.mailbox import TaskMailbox

Link = LoopLink[Any, Any]


class Task:
    """The task of a test: a mailbox, and the errors that were reported to it."""

    def __init__(self) -> None:
        self.mailbox = TaskMailbox()
        self.executor = MailboxExecutor(self.mailbox)
        self.reported: list[BaseException] = []
        self.threads: list[LoopThread[Any, Any]] = []

    def start(self, main: Any, **options: Any) -> LoopThread[Any, Any]:
        thread = LoopThread[Any, Any](main, self.executor, self.reported.append, pause_s=0.0, **options)
        self.threads.append(thread)
        thread.start()
        return thread

    def take(self, thread: LoopThread[Any, Any], count: int) -> list[Any]:
        """Take that many items, one mail after the other."""
        taken: list[Any] = []
        while len(taken) < count:
            found = thread.take()
            taken += found
            if not found:
                self.executor.yield_()
        return taken

    def wait_for_report(self) -> BaseException:
        while not self.reported:
            self.executor.yield_()
        return self.reported.pop(0)


@pytest.fixture
def task() -> Iterator[Task]:
    made = Task()
    yield made
    for thread in made.threads:
        assert thread.close(), "a thread of a test has not ended"
    assert not [one for one in threading.enumerate() if one.name == "topo-loop"]


async def for_ever() -> None:
    await asyncio.Event().wait()


def test_items_reach_the_task_in_order_and_wake_it(task: Task) -> None:
    async def main(link: Link) -> None:
        for number in range(2500):
            await link.put(number)

    thread = task.start(main, most_items=100)
    assert task.take(thread, 2500) == list(range(2500))


def test_items_that_come_before_the_task_looks_are_one_mail(task: Task) -> None:
    handed_over = threading.Event()

    async def main(link: Link) -> None:
        assert all(link.put_nowait(number) for number in range(10))
        handed_over.set()
        await for_ever()

    thread = task.start(main)
    assert handed_over.wait(10)
    assert len(task.mailbox) == 1
    task.executor.yield_()
    assert thread.take(3) == [0, 1, 2] and thread.items == 7
    assert thread.take() == list(range(3, 10)) and thread.take() == []


def test_the_loop_waits_when_the_task_takes_nothing(task: Task) -> None:
    full = threading.Event()

    async def main(link: Link) -> None:
        await link.put("a")
        await link.put("b")
        assert not link.put_nowait("dropped")
        full.set()
        await link.put("c")
        await for_ever()

    thread = task.start(main, most_items=2)
    assert full.wait(10)
    assert thread.items == 2
    assert task.take(thread, 3) == ["a", "b", "c"]


def test_messages_reach_the_loop_in_order_each_one_once(task: Task) -> None:
    async def main(link: Link) -> None:
        async def echo() -> None:
            while True:
                await link.put(await link.get())

        await link.put("ready")
        await asyncio.gather(echo(), echo())

    thread = task.start(main, most_messages=5)
    assert task.take(thread, 1) == ["ready"]
    for round_ in range(20):
        numbers = [5 * round_ + one for one in range(5)]
        assert all(thread.send(number) for number in numbers)
        assert sorted(task.take(thread, 5)) == numbers


def test_a_message_is_refused_where_the_loop_takes_none(task: Task) -> None:
    ready, may_continue = threading.Event(), threading.Event()

    async def main(link: Link) -> None:
        ready.set()
        may_continue.wait(10)
        await link.put([link.get_nowait(), link.get_nowait(), link.get_nowait()])
        await for_ever()

    thread = LoopThread[Any, Any](main, task.executor, task.reported.append, most_messages=2)
    assert not thread.send("before the start")
    task.threads.append(thread)
    thread.start()
    assert ready.wait(10)
    assert [thread.send(number) for number in range(3)] == [True, True, False]
    may_continue.set()
    assert task.take(thread, 1) == [[0, 1, None]]
    thread.close()
    assert not thread.send("after the end") and not thread.call(lambda: None)


@pytest.mark.parametrize("error", [ValueError("broken"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
def test_a_run_that_raises_is_reported_and_followed_by_another(task: Task, error: BaseException) -> None:
    taken = threading.Event()

    async def main(link: Link) -> None:
        if link.run == 1:
            await link.put("of the first run")
            taken.wait(10)
            raise error
        assert link.get_nowait() is None, "messages are about connections of the run before"
        await link.put("of the second run")
        await for_ever()

    thread = task.start(main)
    assert task.take(thread, 1) == ["of the first run"]
    assert thread.send("dropped")
    taken.set()
    assert type(task.wait_for_report()) is type(error)
    assert task.take(thread, 1) == ["of the second run"]
    assert thread.state is LoopThreadState.RUNNING and task.reported == []


def test_items_of_a_run_that_raised_are_not_lost(task: Task) -> None:
    async def main(link: Link) -> None:
        await link.put(link.run)
        if link.run == 1:
            raise ValueError("broken")
        await for_ever()

    thread = task.start(main)
    task.wait_for_report()
    assert task.take(thread, 2) == [1, 2]


def test_a_coroutine_that_exits_ends_the_run_and_not_the_thread(task: Task) -> None:
    async def user_code() -> None:
        raise SystemExit(1)

    async def main(link: Link) -> None:
        beside = asyncio.ensure_future(user_code()) if link.run == 1 else None
        if beside is None:
            await link.put("second")
        await for_ever()

    thread = task.start(main)
    assert isinstance(task.wait_for_report(), SystemExit)
    assert task.take(thread, 1) == ["second"]


def test_errors_beside_the_run_are_reported_while_it_continues(task: Task) -> None:
    async def main(link: Link) -> None:
        link.report(OSError("refused"))
        asyncio.get_running_loop().call_soon(lambda: 1 // 0)
        await for_ever()

    thread = task.start(main)
    assert str(task.wait_for_report()) == "refused"
    assert isinstance(task.wait_for_report(), ZeroDivisionError)
    assert thread.state is LoopThreadState.RUNNING


def test_close_lets_main_clean_up_and_ends_the_thread(task: Task) -> None:
    steps: list[str] = []

    async def main(link: Link) -> None:
        try:
            await link.put("open")
            await for_ever()
        finally:
            await asyncio.sleep(0)
            steps.append("closed")

    thread = task.start(main)
    task.take(thread, 1)
    assert thread.close() and steps == ["closed"]
    assert thread.state is LoopThreadState.CLOSED and task.reported == []
    with pytest.raises(TopoInternalError, match="twice"):
        thread.start()


def test_a_thread_whose_task_has_ended_ends(task: Task) -> None:
    may_continue = threading.Event()
    ended: list[str] = []

    async def main(link: Link) -> None:
        may_continue.wait(10)
        try:
            await link.put("untaken")
            await for_ever()
        finally:
            ended.append("cancelled")

    thread = task.start(main)
    task.mailbox.quiesce()
    may_continue.set()
    assert thread._thread is not None
    thread._thread.join(10)
    assert ended == ["cancelled"] and thread.state is LoopThreadState.CLOSED


def test_a_main_that_returns_ends_the_thread(task: Task) -> None:
    async def main(link: Link) -> None:
        await link.put("last")

    thread = task.start(main)
    assert task.take(thread, 1) == ["last"]
    assert thread._thread is not None
    thread._thread.join(10)
    assert thread.state is LoopThreadState.CLOSED and task.reported == []


def test_queues_without_room_are_refused(task: Task) -> None:
    async def main(link: Link) -> None: ...

    with pytest.raises(UserError, match="0 items"):
        LoopThread[Any, Any](main, None, task.reported.append, most_items=0)
