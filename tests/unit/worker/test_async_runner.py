"""The event loop of asynchronous calls: how many of them may block in threads at a time."""

from __future__ import annotations

import asyncio
import threading
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
