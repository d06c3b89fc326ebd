"""Two thousand asynchronous calls of 20 ms, at most 100 at once: the async operator beside bare asyncio.

    python benchmarks/async_calls.py [--calls 2000] [--ms 20] [--capacity 100] [--json]

The operator runs as in a task: its calls on the event loop of a worker, their results as mails. 0.4 s is the least there can be.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from typing import Any

from topo import AsyncBolt, AsyncMode
from topo.operators.async_wait import AsyncWaitOperator
from topo.operators.base import OperatorContext
from topo.operators.bolt_operators import BoltCalls
from topo.operators.mailbox.executor import MailboxExecutor
from topo.operators.mailbox.mailbox import TaskMailbox
from topo.operators.time.clock import ManualProcessingTime
from topo.worker.async_runner import AsyncRunner


class Sleep(AsyncBolt):
    outputs = ("number",)

    def __init__(self, mode: AsyncMode, capacity: int, seconds: float) -> None:
        super().__init__(mode, capacity)
        self.seconds = seconds

    async def call(self, tup: Any) -> tuple[int]:
        await asyncio.sleep(self.seconds)
        return tup


class Results:
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def emit(self, value: Any, timestamp: int | None) -> None:
        self.seen.append(value)


def operator(mode: AsyncMode, calls: int, seconds: float, capacity: int) -> float:
    bolt, results, runner = Sleep(mode, capacity, seconds), Results(), AsyncRunner()
    wait = AsyncWaitOperator(BoltCalls(bolt, lambda call, done: runner.run(call, done, lambda *_: None)), bolt.settings)
    wait.setup(OperatorContext(results, ManualProcessingTime(), MailboxExecutor(TaskMailbox())))  # type: ignore[arg-type]
    wait.open()
    began = time.perf_counter()
    for number in range(calls):
        wait.process_element(None, (number,), number)
    wait.end_of_input()
    took = time.perf_counter() - began
    runner.close()
    assert len(results.seen) == calls
    assert mode is AsyncMode.UNORDERED or results.seen == [(number,) for number in range(calls)]
    return took


def bare(calls: int, seconds: float, capacity: int) -> float:
    async def run() -> float:
        room = asyncio.Semaphore(capacity)

        async def one() -> None:
            async with room:
                await asyncio.sleep(seconds)

        began = time.perf_counter()
        await asyncio.gather(*(one() for _ in range(calls)))
        return time.perf_counter() - began

    return asyncio.run(run())


def main() -> None:
    """Measure all three, alternately, and print the best of five."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--calls", type=int, default=2000)
    options.add_argument("--ms", type=float, default=20.0)
    options.add_argument("--capacity", type=int, default=100)
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    seconds: dict[str, list[float]] = {"ordered": [], "unordered": [], "bare asyncio": []}
    for _ in range(5):
        for mode in AsyncMode:
            seconds[mode.value].append(operator(mode, given.calls, given.ms / 1000, given.capacity))
        seconds["bare asyncio"].append(bare(given.calls, given.ms / 1000, given.capacity))
    best = {name: round(min(took), 3) for name, took in seconds.items()}
    print(json.dumps(best) if given.json else "\n".join(f"{name:<13} {took:.3f} s" for name, took in best.items()))


if __name__ == "__main__":
    main()
