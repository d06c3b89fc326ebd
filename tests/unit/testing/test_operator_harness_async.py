"""Async bolts through the harness: orders, capacity, time-outs, retries, snapshots; calls under the test's control."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable
from typing import Any

import pytest

from topo import AsyncBolt, AsyncMode, AsyncTimeoutError, FixedDelayRetry, UserError
from topo.api.async_io import AsyncSettings
from topo.errors import EmitError
from topo.operators.async_wait import AsyncFunction, AsyncWaitOperator, ResultHandle
from topo.operators.mailbox.mailbox import MailFailed
from topo.testing import Emitted, OperatorHarness, Watermark

END = 2**63 - 1


class Sleeps(AsyncBolt):
    """Answers a number of milliseconds after that time."""

    outputs = ("ms",)

    async def call(self, tup: Any) -> tuple[int]:
        await asyncio.sleep(tup["ms"] / 1000)
        return (tup["ms"],)


class Asks(AsyncBolt):
    """Waits for an answer that the test gives: `answers[name].set_result(...)`."""

    outputs = ("answer",)

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.answers: dict[str, asyncio.Future[Any]] = {}
        self.calls: list[str] = []

    def call(self, tup: Any) -> Awaitable[Any]:
        self.calls.append(tup["name"])
        return self.answers.setdefault(
            f"{tup['name']}{self.calls.count(tup['name'])}", asyncio.get_running_loop().create_future()
        )


def asks(*arguments: Any, **options: Any) -> tuple[OperatorHarness, Asks]:
    bolt = Asks(*arguments, **options)
    return OperatorHarness(bolt, ("name",)), bolt


def sleeps(mode: AsyncMode = AsyncMode.ORDERED, capacity: int = 10) -> OperatorHarness:
    return OperatorHarness(Sleeps(mode, capacity), ("ms",))


def test_ordered_results_leave_in_the_order_of_the_inputs_with_their_timestamps() -> None:
    with sleeps() as harness:
        for ms, timestamp in ((30, 1), (10, 2), (20, 3)):
            harness.process((ms,), timestamp)
        harness.advance_clock(29)
        assert harness.events == []
        harness.advance_clock(1)
        assert harness.outputs == [((30,), 1), ((10,), 2), ((20,), 3)]


def test_unordered_results_leave_as_they_come_but_never_across_a_watermark() -> None:
    with sleeps(AsyncMode.UNORDERED) as harness:
        for ms in (30, 10):
            harness.process((ms,))
        harness.watermark(5)
        harness.process((1,))
        harness.process((0,))
        harness.advance_clock(10)
        assert harness.events == [Emitted((10,), None)]
        harness.advance_clock("20ms")
        assert harness.events == [
            Emitted((10,), None),
            Emitted((30,), None),
            Watermark(5),
            Emitted((0,), None),
            Emitted((1,), None),
        ]


def test_a_full_queue_waits_for_room_and_watermarks_count() -> None:
    with sleeps(capacity=2) as harness:
        harness.process((50,))
        harness.watermark(1)
        assert (harness.in_flight, harness.now_ms) == (2, 0)
        harness.process((10,))
        # There was no room before the first call and the watermark behind it had left.
        assert harness.now_ms == 50
        assert harness.events == [Emitted((50,), None), Watermark(1)]


def test_a_bolt_that_is_full_and_waits_for_nobody_is_an_error_and_does_not_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topo.testing.operator_time.PATIENCE_S", 0.0)
    harness, _ = asks(capacity=1)
    with harness:
        harness.process(("a",))
        with pytest.raises(UserError, match="nothing is due"):
            harness.process(("b",))


def test_the_test_may_complete_calls_by_hand() -> None:
    harness, bolt = asks()
    with harness:
        harness.process(("a",), 1)
        harness.process(("b",), 2)
        bolt.answers["b1"].set_result([(1,), (2,)])
        harness.run()
        assert harness.outputs == []
        bolt.answers["a1"].set_result(None)
        harness.run()
        assert harness.outputs == [((1,), 2), ((2,), 2)]
        assert harness.in_flight == 0


def test_a_call_that_fails_fails_its_input_and_frees_its_place() -> None:
    harness, bolt = asks()
    with harness:
        harness.process(("a",))
        harness.process(("b",))
        bolt.answers["a1"].set_exception(ValueError("no"))
        bolt.answers["b1"].set_result(("yes",))
        harness.run()
        assert [(values, str(error)) for values, error in harness.failed] == [(("a",), "no")]
        assert harness.values == [("yes",)]


@pytest.mark.parametrize("wrong", [5, object()])
def test_a_result_that_is_no_rows_fails_the_input(wrong: Any) -> None:
    harness, bolt = asks()
    with harness:
        harness.process(("a",))
        bolt.answers["a1"].set_result(wrong)
        harness.run()
        assert isinstance(harness.failed[0][1], TypeError)
        assert harness.in_flight == 0


def test_a_row_of_the_wrong_width_is_refused() -> None:
    harness, bolt = asks()
    with harness:
        harness.process(("a",))
        bolt.answers["a1"].set_result((1, 2))
        with pytest.raises(EmitError, match="2 values"):
            harness.run()


def test_a_call_that_takes_too_long_fails_and_its_late_result_is_ignored() -> None:
    harness, bolt = asks(timeout="100ms")
    with harness:
        harness.process(("a",))
        harness.advance_clock(100)
        assert harness.failed == []
        harness.advance_clock(1)
        assert isinstance(harness.failed[0][1], TimeoutError)
        bolt.answers["a1"].set_result(("late",))
        harness.advance_clock(1000)
        assert harness.values == []


def test_the_user_may_answer_a_timeout() -> None:
    class Guesses(Asks):
        def on_timeout(self, tup: Any) -> tuple[str]:
            return (f"no answer for {tup['name']}",)

    with OperatorHarness(Guesses(timeout="1s"), ("name",)) as harness:
        harness.process(("a",), 3)
        harness.advance_clock(1_001)
        assert harness.outputs == [(("no answer for a",), 3)]
        assert harness.failed == []


def test_the_end_of_the_input_waits_for_attempts_and_their_pauses() -> None:
    class Flaky(AsyncBolt):
        outputs = ("attempts",)
        attempts = 0

        async def call(self, tup: Any) -> Any:
            self.attempts += 1
            return None if self.attempts < 5 else (self.attempts,)

    retry = FixedDelayRetry(9, "1h", if_result=lambda rows: not rows)
    with OperatorHarness(Flaky(retry=retry), ("x",)) as harness:
        harness.process((1,), 1)
        harness.end_of_input()
        assert harness.now_ms == 4 * 3_600_001
        assert (harness.bolt.attempts, harness.values) == (5, [(5,)])  # type: ignore[union-attr]
        assert harness.events[-1] == Watermark(END)


def test_the_end_of_the_input_waits_for_every_call() -> None:
    with sleeps(AsyncMode.UNORDERED) as harness:
        for ms in (500, 20):
            harness.process((ms,))
        harness.end_of_input()
        assert (harness.values, harness.now_ms) == ([(20,), (500,)], 500)
        assert harness.in_flight == 0


def test_a_snapshot_is_the_inputs_in_order_and_a_restored_bolt_calls_again() -> None:
    harness, bolt = asks()
    with harness:
        for name, timestamp in (("a", 1), ("b", 2)):
            harness.process((name,), timestamp)
        harness.watermark(5)
        bolt.answers["b1"].set_result(("done",))
        harness.run()
        snapshot = harness.snapshot()
        assert [one.get("value", one.get("watermark")) for one in snapshot.own] == [("a",), ("b",), 5]
        restored = harness.restore(snapshot)
    with restored:
        again = restored.bolt
        assert isinstance(again, Asks)
        assert again.calls == ["a", "b"]
        again.answers["b1"].set_result(("B",))
        again.answers["a1"].set_result(("A",))
        restored.run()
        assert restored.events == [Emitted(("A",), 1), Emitted(("B",), 2), Watermark(5)]


def test_calls_in_flight_go_to_one_part_of_a_split() -> None:
    with sleeps() as harness:
        for ms in (30, 10, 20):
            harness.process((ms,))
        parts = harness.split(2)
    assert [part.in_flight for part in parts] == [3, 0]
    for part in parts:
        with part:
            part.end_of_input()
    assert [part.values for part in parts] == [[(30,), (10,), (20,)], []]


def test_a_restored_bolt_takes_as_many_inputs_as_it_has_room_for_and_more() -> None:
    with sleeps(capacity=3) as harness:
        for ms in (10, 20, 30):
            harness.process((ms,))
        snapshot = harness.snapshot()
    snapshot.own.append({**snapshot.own[0]})
    with harness.restore(snapshot) as restored:
        restored.end_of_input()
        assert restored.values == [(10,), (20,), (30,), (10,)]


def test_open_and_close_of_the_bolt_are_awaited() -> None:
    seen: list[str] = []

    class Opens(Sleeps):
        async def open(self, context: Any) -> None:
            await asyncio.sleep(0.25)
            seen.append("open")

        async def close(self) -> None:
            await asyncio.sleep(0)
            seen.append("close")

    harness = OperatorHarness(Opens(), ("ms",))
    assert (seen, harness.now_ms) == (["open"], 250)
    harness.process((10,))
    harness.close()
    harness.close()
    assert seen == ["open", "close"]
    assert harness.values == []


def test_calls_that_use_threads_are_waited_for_in_real_time() -> None:
    class Threads(AsyncBolt):
        outputs = ("x",)

        async def call(self, tup: Any) -> tuple[int]:
            return (await asyncio.to_thread(lambda: tup["x"] + 1),)

    with OperatorHarness(Threads(), ("x",)) as harness:
        harness.process((1,))
        harness.settle()
        assert harness.values == [(2,)]
        harness.process((2,))
        harness.end_of_input()
        assert harness.values == [(2,), (3,)]


def test_waiting_for_calls_has_a_limit() -> None:
    harness, _ = asks()
    with harness:
        harness.process(("a",))
        began = time.monotonic()
        with pytest.raises(TimeoutError, match="1 asynchronous call"):
            harness.settle("10ms")
        assert time.monotonic() - began < 5


# -- the bare operator: handles, mails and sections 1 to 3 through it ----------------------------------------------------------


class Handles(AsyncFunction):
    """Keeps the handles, for the test to complete."""

    def __init__(self) -> None:
        self.of: dict[Any, ResultHandle] = {}

    def invoke(self, value: Any, handle: ResultHandle) -> None:
        self.of[value] = handle


def bare(mode: AsyncMode = AsyncMode.ORDERED, capacity: int = 10, **options: Any) -> tuple[OperatorHarness, Handles]:
    function = Handles()
    return OperatorHarness(lambda: AsyncWaitOperator(function, AsyncSettings(mode, capacity)), **options), function


class OnThreads(AsyncFunction):
    """Doubles the value on another thread, after a moment."""

    def invoke(self, value: Any, handle: ResultHandle) -> None:
        threading.Timer(0.02, lambda: handle.complete([value * 2])).start()


def on_threads(mode: AsyncMode = AsyncMode.ORDERED, timeout_ms: int = 0, **options: Any) -> OperatorHarness:
    return OperatorHarness(lambda: AsyncWaitOperator(OnThreads(), AsyncSettings(mode, 1, timeout_ms)), **options)


@pytest.mark.parametrize("runs_mails", [True, False])
@pytest.mark.parametrize("mode", AsyncMode)
def test_a_bare_operator_waits_for_other_threads_when_it_is_full_and_at_the_end(mode: AsyncMode, runs_mails: bool) -> None:
    harness = on_threads(mode, runs_mails=runs_mails)
    harness.process(1, 5)
    harness.process(2, 6)
    assert harness.outputs[0] == (2, 5)
    harness.watermark(7)
    harness.end_of_input()
    assert harness.events == [Emitted(2, 5), Emitted(4, 6), Watermark(7), Watermark(END)]


def test_a_bare_operator_waits_for_other_threads_before_its_clock_goes_on() -> None:
    harness = on_threads(timeout_ms=1000)
    harness.process(1, 5)
    harness.end_of_input()
    assert (harness.values, harness.now_ms) == ([2], 0)


def test_settling_waits_for_the_threads_of_a_bare_operator() -> None:
    harness = on_threads()
    harness.process(1, 5)
    harness.settle()
    assert harness.outputs == [(2, 5)]


def test_settling_has_a_limit_for_a_bare_operator_too() -> None:
    harness, _ = bare()
    harness.process("a")
    with pytest.raises(TimeoutError, match="1 asynchronous call"):
        harness.settle("10ms")


def test_a_bare_operator_without_completions_is_an_error_or_times_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("topo.testing.operator_time.PATIENCE_S", 0.05)
    harness, _ = bare(capacity=1)
    harness.process("a")
    with pytest.raises(UserError, match="nothing is due"):
        harness.process("b")
    harness = OperatorHarness(lambda: AsyncWaitOperator(Handles(), AsyncSettings(timeout_ms=1000)))
    harness.process("a")
    with pytest.raises(MailFailed) as failed:
        harness.end_of_input()
    assert isinstance(failed.value.__cause__, AsyncTimeoutError)
    assert harness.now_ms == 1001


def test_a_completion_after_the_close_is_dropped() -> None:
    harness, function = bare()
    harness.process("a")
    harness.close()
    function.of["a"].complete(["a"])
    harness.run_mails()
    assert harness.events == []


def test_mails_run_in_the_numbers_that_a_test_asks_for() -> None:
    harness, function = bare(runs_mails=False)
    for value in "abc":
        harness.process(value)
    for value in "cba":
        function.of[value].complete([value])
    assert harness.run_mails(2) == 2
    assert harness.values == []
    for expected in (["a"], ["a", "b"], ["a", "b", "c"]):
        assert harness.run_mails(1) == 1
        assert harness.values == expected
    assert harness.run_mails() == 0
