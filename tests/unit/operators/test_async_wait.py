"""The async operator: order of results, capacity, timeouts, retries, the end, and what a snapshot holds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.unit.operators.rig import Rig, restored
from topo.api.async_io import (
    AsyncMode,
    AsyncSettings,
    AsyncTimeout,
    ExponentialBackoffRetry,
    FixedDelayRetry,
    RetryStrategy,
)
from topo.errors import UserError
from topo.operators.async_wait import AsyncFunction, AsyncWaitOperator, ResultHandle, joined_inputs
from topo.operators.base import OperatorSnapshot
from topo.operators.mailbox.mailbox import MailFailed

ORDERED, UNORDERED = AsyncMode.ORDERED, AsyncMode.UNORDERED


class Manual(AsyncFunction):
    """Keeps the handle of every invocation, by value, for the test to complete."""

    def __init__(self) -> None:
        self.handles: dict[Any, list[ResultHandle]] = {}
        self.invoked: list[Any] = []

    def invoke(self, value: Any, handle: ResultHandle) -> None:
        self.invoked.append(value)
        self.handles.setdefault(value, []).append(handle)

    def done(self, value: Any, *results: Any, attempt: int = -1) -> None:
        self.handles[value][attempt].complete(list(results) or [value])

    def failed(self, value: Any, error: BaseException | None = None, attempt: int = -1) -> None:
        self.handles[value][attempt].complete_exceptionally(error or ValueError(f"no {value}"))


class Substituting(Manual):
    """Answers a timeout with a value."""

    timeouts = 0

    def timeout(self, value: Any, handle: ResultHandle) -> None:
        self.timeouts += 1
        handle.complete([f"timeout {value}"])


def build(function: AsyncFunction, mode: AsyncMode = ORDERED, **settings: Any) -> AsyncWaitOperator:
    return AsyncWaitOperator(function, AsyncSettings(mode, **settings))


def rig(mode: AsyncMode = ORDERED, function: Manual | None = None, **settings: Any) -> tuple[Rig, Manual]:
    function = function or Manual()
    return Rig(build(function, mode, **settings)), function


def in_flight(r: Rig) -> int:
    assert isinstance(r.operator, AsyncWaitOperator)
    return r.operator.in_flight


def feed(r: Rig, *values: Any) -> None:
    """Feed elements "a1" (timestamp 1) and watermarks (int)."""
    for value in values:
        if isinstance(value, int):
            r.operator.process_watermark(value)
        else:
            r.operator.process_element(None, value, int(value[1:]))


# Order


def test_ordered_results_leave_in_the_order_of_the_inputs() -> None:
    r, function = rig()
    feed(r, "a1", "b2", "c3")
    function.done("c3")
    function.done("b2")
    r.run_mails()
    assert r.taken() == []
    function.done("a1")
    r.run_mails()
    assert r.taken() == [("a1", 1), ("b2", 2), ("c3", 3)]


def test_unordered_results_leave_as_they_complete() -> None:
    r, function = rig(UNORDERED)
    feed(r, "a1", "b2", "c3")
    for value in ("c3", "a1", "b2"):
        function.done(value)
        r.run_mails()
    assert r.taken() == [("c3", 3), ("a1", 1), ("b2", 2)]


@pytest.mark.parametrize("mode", [ORDERED, UNORDERED])
def test_watermarks_never_overtake_and_are_never_overtaken(mode: AsyncMode) -> None:
    #  a1 b2 | W | c3 d4
    r, function = rig(mode)
    feed(r, "a1", "b2", 10, "c3", "d4")
    for value in ("d4", "c3", "b2"):
        function.done(value)
    r.run_mails()
    assert ("watermark", 10) not in r.recorder.out
    function.done("a1")
    r.run_mails()
    out = r.taken()
    assert set(out[:2]) == {("a1", 1), ("b2", 2)}
    assert out[2] == ("watermark", 10)
    assert set(out[3:]) == {("c3", 3), ("d4", 4)}


@pytest.mark.parametrize("mode", [ORDERED, UNORDERED])
def test_idleness_waits_for_what_is_in_flight(mode: AsyncMode) -> None:
    r, function = rig(mode)
    feed(r, "a1", 5)
    r.operator.process_idle(True)
    r.run_mails()
    assert r.taken() == []
    function.done("a1")
    r.run_mails()
    assert r.taken() == [("a1", 1), ("watermark", 5), ("idle",)]
    r.operator.process_idle(False)
    assert r.taken() == [("active",)]


def test_idleness_that_nothing_precedes_is_told_at_once() -> None:
    r, _ = rig()
    r.operator.process_idle(True)
    assert r.taken() == [("idle",)]


def test_idleness_that_ends_before_it_was_told_is_not_told() -> None:
    r, function = rig()
    feed(r, "a1")
    r.operator.process_idle(True)
    r.operator.process_idle(False)
    function.done("a1")
    r.run_mails()
    assert r.taken() == [("a1", 1)]


def test_an_element_that_comes_while_idleness_waits_goes_before_it() -> None:
    r, function = rig()
    feed(r, "a1")
    r.operator.process_idle(True)
    function.done("a1")
    r.run_mails(1)
    feed(r, "b2")
    r.run_mails()
    assert r.taken() == [("a1", 1)]
    function.done("b2")
    r.run_mails()
    assert r.taken() == [("b2", 2), ("idle",)]


def test_idleness_is_told_behind_a_failure_too() -> None:
    r, function = rig()
    feed(r, "a1")
    r.operator.process_idle(True)
    function.failed("a1")
    with pytest.raises(ValueError, match="no a1"):
        r.run_mails()
    r.run_mails()
    assert r.taken() == [("idle",)]


def test_idleness_waits_for_what_was_restored() -> None:
    r, _ = rig()
    feed(r, "a1", 5)
    later = Manual()
    again = restored(lambda: build(later), r.snapshot())
    again.operator.process_idle(True)
    later.done("a1")
    again.run_mails()
    assert again.taken() == [("a1", 1), ("watermark", 5), ("idle",)]


def test_unordered_segments_emit_in_their_own_order_of_completion() -> None:
    r, function = rig(UNORDERED)
    feed(r, "a1", 10, "b2", "c3")
    for value in ("c3", "b2", "a1"):
        function.done(value)
    r.run_mails()
    assert r.taken() == [("a1", 1), ("watermark", 10), ("c3", 3), ("b2", 2)]


def test_watermarks_that_follow_each_other_leave_in_order() -> None:
    r, function = rig(UNORDERED)
    feed(r, "a1", 10, 20)
    assert r.taken() == []
    function.done("a1")
    r.run_mails()
    assert r.taken() == [("a1", 1), ("watermark", 10), ("watermark", 20)]


@pytest.mark.parametrize("mode", [ORDERED, UNORDERED])
def test_a_watermark_that_nothing_precedes_leaves_at_once(mode: AsyncMode) -> None:
    r, _ = rig(mode)
    feed(r, 10, 20)
    assert r.taken() == [("watermark", 10), ("watermark", 20)]


def test_all_results_of_an_element_carry_its_timestamp_and_there_may_be_none() -> None:
    r, function = rig()
    feed(r, "a1", "b2")
    function.handles["a1"][0].complete(["x", "y"])
    function.handles["b2"][0].complete(())
    r.run_mails()
    assert r.taken() == [("x", 1), ("y", 1)]
    assert in_flight(r) == 0


def test_an_element_without_timestamp_gives_results_without() -> None:
    r, function = rig()
    r.operator.process_element(None, "a", None)
    function.done("a")
    r.run_mails()
    assert r.taken() == [("a", None)]


def test_one_entry_leaves_in_one_mail() -> None:
    r, function = rig()
    feed(r, "a1", "b2", "c3")
    for value in ("c3", "b2", "a1"):
        function.done(value)
    assert r.run_mails(2) == 2
    assert r.taken() == []
    for expected in ("a1", "b2", "c3"):
        r.run_mails(1)
        assert [value for value, _ in r.taken()] == [expected]


# Capacity


def test_capacity_counts_watermarks_too() -> None:
    r, function = rig(capacity=2)
    feed(r, "a1", 10)
    assert isinstance(r.operator, AsyncWaitOperator)
    assert r.operator.is_full
    function.done("a1")
    r.run_mails()
    assert in_flight(r) == 0


@pytest.mark.parametrize("mode", [ORDERED, UNORDERED])
def test_a_full_queue_yields_to_the_mailbox_until_there_is_room(mode: AsyncMode) -> None:
    r, function = rig(mode, capacity=1)
    feed(r, "a1")
    function.done("a1")
    feed(r, "b2")
    assert r.taken() == [("a1", 1)]
    assert function.invoked == ["a1", "b2"]


def test_a_watermark_yields_for_room_as_an_element_does() -> None:
    r, function = rig(capacity=1)
    feed(r, "a1")
    function.done("a1")
    feed(r, 10)
    assert r.taken() == [("a1", 1), ("watermark", 10)]


def test_an_element_that_waits_for_room_is_not_invoked_yet_and_is_in_the_snapshot() -> None:
    r, function = rig(capacity=1)
    feed(r, "a1")
    seen: list[Any] = []

    def look() -> None:
        seen.append((list(function.invoked), [one["value"] for one in r.operator.snapshot().own]))
        function.done("a1")

    r.operator.context.executor.execute(look)
    feed(r, "b2")
    assert seen == [(["a1"], ["a1", "b2"])]


@pytest.mark.parametrize(("settings", "message"), [({"capacity": 0}, "capacity"), ({"timeout_ms": -1}, "timeout")])
def test_settings_that_cannot_work_are_refused(settings: dict[str, int], message: str) -> None:
    with pytest.raises(UserError, match=message):
        AsyncSettings(**settings)  # type: ignore[arg-type]


# Handles


def test_only_the_first_completion_counts() -> None:
    r, function = rig()
    feed(r, "a1")
    function.done("a1", "first")
    function.done("a1", "second")
    function.failed("a1")
    r.run_mails()
    assert r.taken() == [("first", 1)]


def test_of_many_threads_exactly_one_completes() -> None:
    r, function = rig()
    feed(r, "a1")
    barrier = threading.Barrier(8)

    def complete(number: int) -> None:
        barrier.wait()
        function.done("a1", number)

    threads = [threading.Thread(target=complete, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert r.run_mails() == 1
    assert len(r.taken()) == 1


def test_a_completion_does_nothing_before_its_mail_runs() -> None:
    r, function = rig()
    feed(r, "a1")
    function.done("a1")
    assert r.taken() == []
    assert in_flight(r) == 1


@pytest.mark.parametrize("result", [None, "text", 7])
def test_a_result_that_is_no_list_is_an_error_where_it_is_given_and_fails_the_element(result: Any) -> None:
    r, function = rig()
    feed(r, "a1")
    with pytest.raises(UserError, match="list of results"):
        function.handles["a1"][0].complete(result)
    with pytest.raises(UserError, match="list of results"):
        r.run_mails()
    assert in_flight(r) == 0


# Failures


@pytest.mark.parametrize("mode", [ORDERED, UNORDERED])
def test_an_exceptional_completion_fails_the_task_and_frees_the_place(mode: AsyncMode) -> None:
    r, function = rig(mode)
    feed(r, "a1", "b2")
    function.failed("a1")
    with pytest.raises(ValueError, match="no a1"):
        r.run_mails()
    function.done("b2")
    r.run_mails()
    assert r.taken() == [("b2", 2)]
    assert in_flight(r) == 0


def test_a_failure_during_a_yield_reaches_the_one_who_yields() -> None:
    r, function = rig(capacity=1)
    feed(r, "a1")
    function.failed("a1")
    with pytest.raises(MailFailed) as failure:
        feed(r, "b2")
    assert isinstance(failure.value.__cause__, ValueError)


class Noting:
    """Notes what happens to each element, and lets the task live."""

    def __init__(self) -> None:
        self.log: list[tuple[str, Any]] = []

    def emitting(self, value: Any) -> None:
        self.log.append(("emitting", value))

    def emitted(self, value: Any) -> None:
        self.log.append(("emitted", value))

    def failed(self, value: Any, error: BaseException) -> None:
        self.log.append(("failed", value))


def test_an_observer_hears_of_each_element_once() -> None:
    function, observer = Manual(), Noting()
    r = Rig(AsyncWaitOperator(function, AsyncSettings(), observer))
    feed(r, "a1", "b2")
    function.failed("a1")
    function.done("b2")
    r.run_mails()
    assert observer.log == [("failed", "a1"), ("emitting", "b2"), ("emitted", "b2")]
    assert r.taken() == [("b2", 2)]


def test_what_the_invocation_itself_raises_fails_directly_and_blocks_nothing() -> None:
    class Broken(Manual):
        def invoke(self, value: Any, handle: ResultHandle) -> None:
            if value == "a1":
                raise RuntimeError("cannot call")
            super().invoke(value, handle)

    r, function = rig(function=Broken(), timeout_ms=50)
    with pytest.raises(RuntimeError, match="cannot call"):
        feed(r, "a1")
    feed(r, "b2")
    function.done("b2")
    r.run_mails()
    assert r.taken() == [("b2", 2)]
    assert (in_flight(r), r.clock.pending) == (0, 0)


# Timeouts


def test_a_timeout_completes_exceptionally_by_default() -> None:
    r, _ = rig(timeout_ms=50)
    feed(r, "a1")
    r.time(49)
    assert r.run_mails() == 0
    r.time(50)
    with pytest.raises(AsyncTimeout):
        r.run_mails()
    assert in_flight(r) == 0


def test_a_timeout_handler_may_give_a_value_and_the_late_result_is_ignored() -> None:
    r, function = rig(function=Substituting(), timeout_ms=50)
    feed(r, "a1")
    r.time(50)
    function.done("a1")
    r.run_mails()
    assert r.taken() == [("timeout a1", 1)]


def test_a_completion_cancels_the_timeout() -> None:
    r, function = rig(timeout_ms=50)
    feed(r, "a1")
    function.done("a1")
    r.run_mails()
    assert r.clock.pending == 0


def test_a_completion_whose_mail_has_not_run_yet_keeps_the_timeout_from_counting() -> None:
    function = Substituting()
    r, _ = rig(function=function, timeout_ms=50)
    feed(r, "a1")
    function.done("a1")
    r.time(60)
    r.run_mails()
    assert (r.taken(), function.timeouts) == ([("a1", 1)], 0)


def test_a_timeout_handler_that_raises_blocks_nothing() -> None:
    class Broken(Manual):
        def timeout(self, value: Any, handle: ResultHandle) -> None:
            raise RuntimeError("handler")

    r, _ = rig(function=Broken(), timeout_ms=50)
    feed(r, "a1")
    with pytest.raises(RuntimeError, match="handler"):
        r.time(50)
    r.run_mails()
    assert in_flight(r) == 0


def test_without_timeout_no_timer_is_registered() -> None:
    r, _ = rig()
    feed(r, "a1")
    assert r.clock.pending == 0


# Retries


def on_error(error: BaseException) -> bool:
    return isinstance(error, ValueError)


def on_empty(results: Any) -> bool:
    return not results


def test_max_attempts_is_the_number_of_repetitions() -> None:
    r, function = rig(retry=FixedDelayRetry(2, "10ms", if_error=on_error))
    feed(r, "a1")
    for made in (1, 2):
        function.failed("a1")
        r.run_mails()
        assert len(function.invoked) == made
        r.clock.advance(9)
        assert len(function.invoked) == made
        r.clock.advance(1)
        assert len(function.invoked) == made + 1
    function.failed("a1")
    with pytest.raises(ValueError, match="no a1"):
        r.run_mails()
    assert len(function.invoked) == 3
    assert in_flight(r) == 0


def test_a_retry_that_succeeds_gives_its_result() -> None:
    r, function = rig(retry=FixedDelayRetry(3, "10ms", if_result=on_empty))
    feed(r, "a1")
    function.handles["a1"][0].complete([])
    r.run_mails()
    r.clock.advance(10)
    function.done("a1", "at last")
    r.run_mails()
    assert r.taken() == [("at last", 1)]


def test_results_that_still_ask_for_a_retry_are_taken_when_attempts_run_out() -> None:
    r, function = rig(retry=FixedDelayRetry(1, "10ms", if_result=lambda results: True))
    feed(r, "a1")
    function.done("a1", "first")
    r.run_mails()
    r.clock.advance(10)
    function.done("a1", "second")
    r.run_mails()
    assert r.taken() == [("second", 1)]


@pytest.mark.parametrize("retry", [FixedDelayRetry(2, "10ms"), ExponentialBackoffRetry(2, "10ms", "1s")])
def test_a_strategy_without_conditions_retries_every_exception_and_no_result(retry: RetryStrategy) -> None:
    r, function = rig(retry=retry)
    feed(r, "a1")
    function.failed("a1")
    r.run_mails()
    r.clock.advance(10)
    function.handles["a1"][-1].complete([])
    r.run_mails()
    assert (r.taken(), len(function.invoked)) == ([], 2)


@pytest.mark.parametrize("strategy", [{"if_result": on_empty}, {"if_error": lambda error: isinstance(error, KeyError)}])
def test_a_predicate_that_does_not_hold_lets_the_failure_stand(strategy: dict[str, Any]) -> None:
    r, function = rig(retry=FixedDelayRetry(3, "10ms", **strategy))
    feed(r, "a1")
    function.failed("a1")
    with pytest.raises(ValueError, match="no a1"):
        r.run_mails()


@pytest.mark.parametrize("asked", ["can_retry", "backoff_ms"])
def test_a_strategy_that_raises_fails_the_element_and_blocks_nothing(asked: str) -> None:
    class Broken(FixedDelayRetry):
        def can_retry(self, attempt: int) -> bool:
            return self._raised("can_retry") or super().can_retry(attempt)

        def backoff_ms(self, attempt: int) -> int:
            return self._raised("backoff_ms") or super().backoff_ms(attempt)

        def _raised(self, name: str) -> bool:
            if name == asked:
                raise RuntimeError(f"no {name}")
            return False

    r, function = rig(retry=Broken(3, "10ms", if_result=on_empty))
    feed(r, "a1", "b2")
    function.handles["a1"][0].complete([])
    with pytest.raises(RuntimeError, match=f"no {asked}"):
        r.run_mails()
    function.done("b2")
    r.run_mails()
    assert r.taken() == [("b2", 2)]
    assert in_flight(r) == 0


def test_the_place_stays_taken_during_the_backoff() -> None:
    r, function = rig(capacity=1, retry=FixedDelayRetry(1, "10ms", if_error=on_error))
    feed(r, "a1")
    function.failed("a1")
    r.run_mails()
    assert in_flight(r) == 1
    assert isinstance(r.operator, AsyncWaitOperator)
    assert r.operator.is_full


def test_completions_of_an_earlier_attempt_are_ignored_while_a_retry_waits_and_after() -> None:
    r, function = rig(retry=FixedDelayRetry(1, "10ms", if_error=on_error))
    feed(r, "a1")
    function.failed("a1")
    r.run_mails()
    function.done("a1", "too late", attempt=0)
    r.run_mails()
    r.clock.advance(10)
    function.done("a1", "too late", attempt=0)
    r.run_mails()
    assert r.taken() == []
    function.done("a1", "second attempt")
    r.run_mails()
    assert r.taken() == [("second attempt", 1)]


def test_one_timeout_covers_all_attempts_and_cancels_the_one_that_waits() -> None:
    r, function = rig(function=Substituting(), timeout_ms=15, retry=FixedDelayRetry(5, "10ms", if_error=on_error))
    feed(r, "a1")
    function.failed("a1")
    r.run_mails()
    r.time(10)
    function.failed("a1")
    r.run_mails()
    r.time(15)
    r.run_mails()
    assert r.taken() == [("timeout a1", 1)]
    r.time(100)
    assert len(function.invoked) == 2


def test_a_timeout_is_not_retried() -> None:
    r, function = rig(timeout_ms=15, retry=FixedDelayRetry(5, "10ms", if_error=lambda error: True))
    feed(r, "a1")
    r.time(15)
    with pytest.raises(AsyncTimeout):
        r.run_mails()
    r.time(100)
    assert function.invoked == ["a1"]


def test_fixed_delays_are_all_the_same() -> None:
    retry = FixedDelayRetry(3, "10ms")
    assert [retry.backoff_ms(attempt) for attempt in (1, 2, 3)] == [10, 10, 10]
    assert [retry.can_retry(attempt) for attempt in (1, 2, 3, 4)] == [True, True, True, False]


def test_exponential_delays_grow_up_to_the_limit_and_attempt_one_starts_again() -> None:
    retry = ExponentialBackoffRetry(5, "1s", timedelta(seconds=5), 2.0)
    assert [retry.backoff_ms(attempt) for attempt in (1, 2, 3, 4, 5)] == [1000, 2000, 4000, 5000, 5000]
    assert retry.backoff_ms(1) == 1000
    assert not retry.can_retry(6)


@pytest.mark.parametrize("make", [lambda: FixedDelayRetry(0, "1s"), lambda: ExponentialBackoffRetry(0, "1s", "5s")])
def test_a_strategy_needs_attempts(make: Callable[[], RetryStrategy]) -> None:
    with pytest.raises(UserError, match="max_attempts"):
        make()


# The end


def test_the_end_of_input_waits_until_everything_has_left() -> None:
    r, function = rig()
    feed(r, "a1", "b2", 10)
    r.operator.context.executor.execute(lambda: function.done("b2"))
    r.operator.context.executor.execute(lambda: function.done("a1"))
    r.operator.end_of_input()
    assert r.taken() == [("a1", 1), ("b2", 2), ("watermark", 10)]


def test_closing_drops_results_silently() -> None:
    r, function = rig(timeout_ms=50)
    feed(r, "a1", "b2")
    function.done("a1")
    r.operator.close()
    function.done("b2")
    r.run_mails()
    r.time(60)
    assert r.taken() == []


def test_a_completion_after_the_mailbox_has_closed_is_dropped_silently() -> None:
    r, function = rig()
    feed(r, "a1")
    r.mailbox.close()
    function.done("a1")
    assert r.taken() == []


# Snapshot and restore


def inputs(snapshot: OperatorSnapshot) -> list[Any]:
    return [one["watermark"] if "watermark" in one else one["value"] for one in snapshot.own]


def test_a_snapshot_holds_all_inputs_in_order_completed_ones_and_watermarks_too() -> None:
    r, function = rig()
    feed(r, "a1", 10, "b2")
    function.done("b2")
    r.run_mails()
    assert inputs(r.snapshot()) == ["a1", 10, "b2"]


def test_a_snapshot_leaves_out_a_failed_element_that_keeps_its_place_behind_another() -> None:
    r, function = rig()
    feed(r, "a1", "b2")
    function.failed("b2")
    with pytest.raises(ValueError, match="no b2"):
        r.run_mails()
    assert inputs(r.snapshot()) == ["a1"], "its failure is known already: called again, it would fail again"


def test_an_unordered_snapshot_has_the_completed_of_each_segment_first() -> None:
    r, function = rig(UNORDERED)
    feed(r, "a1", "b2", 10, "c3", "d4")
    function.done("d4")
    r.run_mails()
    assert inputs(r.snapshot()) == ["a1", "b2", 10, "d4", "c3"]


@pytest.mark.parametrize("mode", [ORDERED, UNORDERED])
def test_restored_inputs_are_invoked_again_before_anything_new(mode: AsyncMode) -> None:
    r, function = rig(mode)
    feed(r, "a1", 10, "b2")
    function.done("b2")
    r.run_mails()
    later = Manual()
    again = restored(lambda: build(later, mode), r.snapshot())
    feed(again, "c3")
    assert later.invoked == ["a1", "b2", "c3"]
    for value in ("b2", "a1", "c3"):
        later.done(value)
    again.run_mails()
    assert again.taken()[:2] == [("a1", 1), ("watermark", 10)]


def test_restoring_as_many_as_the_capacity_does_not_block() -> None:
    r, _ = rig(capacity=3)
    feed(r, "a1", "b2", "c3")
    later = Manual()
    again = restored(lambda: build(later, capacity=3), r.snapshot())
    assert in_flight(again) == 3


def test_restoring_more_than_the_capacity_yields_for_room() -> None:
    class Immediate(Manual):
        def invoke(self, value: Any, handle: ResultHandle) -> None:
            handle.complete([value])

    r, _ = rig(capacity=5)
    feed(r, "a1", "b2", 10, "c3")
    again = restored(lambda: build(Immediate(), capacity=1), r.snapshot())
    again.run_mails()
    assert again.taken() == [("a1", 1), ("b2", 2), ("watermark", 10), ("c3", 3)]


def test_what_was_restored_but_not_opened_yet_is_in_the_next_snapshot() -> None:
    r, _ = rig()
    feed(r, "a1", 10)
    again = restored(lambda: build(Manual()), r.snapshot(), open_now=False)
    assert inputs(again.snapshot()) == ["a1", 10]


def test_where_the_queues_of_several_tasks_meet_no_element_gets_behind_the_watermark_of_another() -> None:
    first = [{"key": None, "value": "a", "timestamp": 1}, {"watermark": 5}, {"key": None, "value": "b", "timestamp": 6}]
    second = [{"key": None, "value": "c", "timestamp": 4}, {"watermark": 5}]
    assert [one["value"] for one in joined_inputs([first, second])] == ["a", "b", "c"]
    assert joined_inputs([[], first]) == first
    assert joined_inputs([[], []]) == []
