"""The async operator when calls fail, take too long, or are repeated."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.unit.operators.async_rig import ORDERED, UNORDERED, Manual, Substituting, feed, in_flight, rig
from tests.unit.operators.rig import Rig
from topo.api.async_io import (
    AsyncMode,
    AsyncSettings,
    AsyncTimeoutError,
    ExponentialBackoffRetry,
    FixedDelayRetry,
    RetryStrategy,
)
from topo.errors import UserError
from topo.operators.async_wait import AsyncWaitOperator, ResultHandle
from topo.operators.mailbox.mailbox import MailFailed


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


def test_a_timeout_handler_may_give_a_value_and_the_late_result_is_ignored() -> None:
    r, function = rig(function=Substituting(), timeout_ms=50)
    feed(r, "a1")
    r.time(51)
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
        r.time(51)
    r.run_mails()
    assert in_flight(r) == 0


def test_without_timeout_no_timer_is_registered() -> None:
    r, _ = rig()
    feed(r, "a1")
    assert r.clock.pending == 0


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
        r.clock.advance(10)
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
    r.clock.advance(11)
    function.done("a1", "at last")
    r.run_mails()
    assert r.taken() == [("at last", 1)]


def test_results_that_still_ask_for_a_retry_are_taken_when_attempts_run_out() -> None:
    r, function = rig(retry=FixedDelayRetry(1, "10ms", if_result=lambda results: True))
    feed(r, "a1")
    function.done("a1", "first")
    r.run_mails()
    r.clock.advance(11)
    function.done("a1", "second")
    r.run_mails()
    assert r.taken() == [("second", 1)]


@pytest.mark.parametrize("retry", [FixedDelayRetry(2, "10ms"), ExponentialBackoffRetry(2, "10ms", "1s")])
def test_a_strategy_without_conditions_retries_every_exception_and_no_result(retry: RetryStrategy) -> None:
    r, function = rig(retry=retry)
    feed(r, "a1")
    function.failed("a1")
    r.run_mails()
    r.clock.advance(11)
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


@pytest.mark.parametrize("pause", [None, "1s", timedelta(seconds=1)])
def test_a_pause_that_is_no_number_fails_the_call_and_frees_the_place(pause: Any) -> None:
    class Broken(FixedDelayRetry):
        def backoff_ms(self, attempt: int) -> int:
            return pause  # type: ignore[no-any-return]

    r, function = rig(retry=Broken(2, "10ms"))
    feed(r, "a1")
    function.failed("a1")
    with pytest.raises(UserError, match=r"backoff_ms returned .*; return the milliseconds to wait"):
        r.run_mails()
    assert in_flight(r) == 0


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
    r.clock.advance(11)
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
    r.time(11)
    function.failed("a1")
    r.run_mails()
    r.time(16)
    r.run_mails()
    assert r.taken() == [("timeout a1", 1)]
    r.time(101)
    assert len(function.invoked) == 2


def test_a_timeout_is_not_retried() -> None:
    r, function = rig(timeout_ms=15, retry=FixedDelayRetry(5, "10ms", if_error=lambda error: True))
    feed(r, "a1")
    r.time(16)
    with pytest.raises(AsyncTimeoutError):
        r.run_mails()
    r.time(101)
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
