"""An async operator that is stored and restored into any number of tasks loses and repeats nothing."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.operators.rig import Rig, encoded
from topo.api.async_io import AsyncMode, AsyncSettings, FixedDelayRetry
from topo.operators.async_wait import AsyncFunction, AsyncWaitOperator, ResultHandle, joined_inputs
from topo.operators.base import OperatorSnapshot


class Calls(AsyncFunction):
    """Calls that the test completes, of one task's life; a call that is to fail fails once."""

    def __init__(self, failed: set[int]) -> None:
        self.open: dict[int, ResultHandle] = {}
        self.failed = failed

    def invoke(self, value: int, handle: ResultHandle) -> None:
        self.open[value] = handle

    def complete(self, number: int) -> None:
        if self.open:
            value = sorted(self.open)[number % len(self.open)]
            handle = self.open.pop(value)
            if value % 7 == 0 and value not in self.failed:
                self.failed.add(value)
                handle.complete_exceptionally(OSError(str(value)))
            else:
                handle.complete([value])


class AsyncTasks:
    """An async operator as a few tasks. Calls in flight in task i go to task i modulo their new number."""

    def __init__(self, mode: AsyncMode) -> None:
        retry = FixedDelayRetry(3, "3ms", if_error=lambda _error: True)
        self.settings = AsyncSettings(mode, capacity=1000, timeout_ms=0, retry=retry)
        self.now_ms = 0
        self.failed: set[int] = set()
        self.left: list[tuple[int, int]] = []
        """Values and timestamps, in the order in which they left."""
        self.start([[]])

    def start(self, queues: list[list[Any]]) -> None:
        self.calls = [Calls(self.failed) for _ in queues]
        self.rigs = [
            Rig(AsyncWaitOperator(calls, self.settings), now_ms=self.now_ms, restore=OperatorSnapshot(own=list(queue)))
            for calls, queue in zip(self.calls, queues, strict=True)
        ]
        self.reported = [-1] * len(queues)

    def restart(self, parallelism: int) -> None:
        own = [encoded(rig.operator.snapshot()).own for rig in self.rigs]
        self.start([joined_inputs(own[index::parallelism]) for index in range(parallelism)])

    def take(self) -> None:
        for index, rig in enumerate(self.rigs):
            for one in rig.taken():
                if one[0] == "watermark":
                    self.reported[index] = max(self.reported[index], one[1])
                else:
                    assert one[1] > self.reported[index], f"{one} has left behind the watermark {self.reported[index]}"
                    self.left.append(one)


async_scripts = st.lists(
    st.tuples(
        st.sampled_from(["element", "element", "element", "watermark", "complete", "mails", "clock"]),
        # 0: nothing happens to the tasks.
        st.sampled_from([0, 0, 1, 2, 3]),
        st.integers(0, 20),
    ),
    min_size=5,
    max_size=30,
)


@settings(max_examples=120, deadline=None)
@example(AsyncMode.ORDERED, [("element", 2, 0), ("element", 0, 1), ("watermark", 1, 0)], False)
@example(AsyncMode.UNORDERED, [("element", 2, 0), ("element", 0, 1), ("watermark", 1, 0)], False)
@given(st.sampled_from(list(AsyncMode)), async_scripts, st.booleans())
def test_async_bolts_lose_and_repeat_nothing_and_nothing_gets_behind_a_watermark(
    mode: AsyncMode, script: list[tuple[str, int, int]], is_always_restarted: bool
) -> None:
    tasks = AsyncTasks(mode)
    watermark = 0
    given_: list[tuple[int, int]] = []
    for number, (kind, parallelism, argument) in enumerate(script):
        at = argument % len(tasks.rigs)
        if kind == "element":
            given_.append((number, watermark + 1 + argument % 3))
            tasks.rigs[at].operator.process_element(None, *given_[-1])
        elif kind == "watermark":
            watermark += 2
            for rig in tasks.rigs:
                rig.operator.process_watermark(watermark)
        elif kind == "complete":
            tasks.calls[at].complete(argument)
        elif kind == "mails":
            tasks.rigs[at].run_mails(argument)
        else:
            tasks.now_ms += argument
            for rig in tasks.rigs:
                rig.clock.advance_to(tasks.now_ms)
        tasks.take()
        if parallelism or is_always_restarted:
            tasks.restart(parallelism or len(tasks.rigs))
            tasks.take()
    while any(calls.open for calls in tasks.calls):
        for rig, calls in zip(tasks.rigs, tasks.calls, strict=True):
            calls.complete(0)
            rig.run_mails()
            rig.clock.advance_to(tasks.now_ms + 10)
        tasks.now_ms += 10
    for rig in tasks.rigs:
        rig.operator.end_of_input()
    tasks.take()
    assert sorted(tasks.left) == sorted(given_)
