"""The event loop of asynchronous calls: how many of them may block in threads at a time."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import Any

import pytest

from topo.worker.async_runner import MAX_THREADS, MIN_THREADS, AsyncRunner


@pytest.mark.parametrize(("calls", "threads"), [(1, MIN_THREADS), (100, 100), (MAX_THREADS * 2, MAX_THREADS)])
def test_to_thread_has_a_thread_for_each_call_that_may_be_under_way(calls: int, threads: int) -> None:
    runner = AsyncRunner(calls)
    meeting = threading.Barrier(min(threads, 100) + 1)
    ended: list[Any] = []

    async def call() -> int:
        return await asyncio.to_thread(meeting.wait, 20)

    for _ in range(meeting.parties - 1):
        runner.run(call(), lambda result, error: ended.append(error or result), lambda error: None)
    meeting.wait(20)
    runner.close()
    assert len(ended) == meeting.parties - 1 and all(isinstance(one, int) for one in ended)


def test_a_call_that_exits_has_that_as_its_error_and_the_others_run_on() -> None:
    """`sys.exit` in an asynchronous call: else the thread of the loop would end, and the topology would never."""
    runner = AsyncRunner()
    ended: dict[str, Any] = {}
    is_all = threading.Event()

    def keep(name: str, result: Any, error: BaseException | None) -> None:
        ended[name] = result if error is None else error
        if len(ended) == 3:
            is_all.set()

    async def wait() -> str:
        await asyncio.sleep(0.05)
        return "done"

    async def leave() -> None:
        raise SystemExit("enough")

    def leave_in_a_thread() -> None:
        raise SystemExit("enough of that")

    calls = {"other": wait(), "leaving": leave(), "thread": asyncio.to_thread(leave_in_a_thread)}
    for name, call in calls.items():
        runner.run(call, partial(keep, name), lambda error: None)
    assert is_all.wait(20)
    runner.close()
    assert {name: repr(value) for name, value in ended.items()} == {
        "other": "'done'",
        "leaving": "SystemExit('enough')",
        "thread": "SystemExit('enough of that')",
    }
