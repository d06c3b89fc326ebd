"""What users do in async bolts, and the answer that they get."""

from __future__ import annotations

from typing import Any

import pytest

from topo import AsyncBolt, ExponentialBackoffRetry, FixedDelayRetry, UserError
from topo.api.async_io import RetryStrategy
from topo.testing import OperatorHarness


class Flaky(AsyncBolt):
    outputs = ("answer",)
    tries = 0

    async def call(self, tup: Any) -> Any:
        self.tries += 1
        if self.tries < 4:
            raise ConnectionResetError
        return (tup["id"],)


def test_the_last_input_of_a_file_is_retried_as_every_other_one() -> None:
    """The user sets retries, and the service hangs up on the last row of a bounded input."""
    retry = FixedDelayRetry(3, "1s", if_error=lambda error: isinstance(error, OSError))
    with OperatorHarness(Flaky(retry=retry), fields=("id",)) as harness:
        harness.process((1,))
        harness.end_of_input()
        assert harness.outputs == [((1,), None)]


@pytest.mark.parametrize("retry", [FixedDelayRetry(3, "1s"), ExponentialBackoffRetry(3, "1s", "5s")])
def test_a_strategy_without_a_condition_retries_a_call_that_raises(retry: RetryStrategy) -> None:
    """The user writes `retry=FixedDelayRetry(3, "1s")`, without `if_error=`, and the service hangs up three times."""
    with OperatorHarness(Flaky(retry=retry), fields=("id",)) as harness:
        harness.process((1,))
        harness.advance_clock("1m")
        assert harness.outputs == [((1,), None)]


def test_a_strategy_of_ones_own_that_never_retries_is_refused() -> None:
    """The user derives from RetryStrategy, counts attempts there, and sets no predicate."""

    class Thrice(RetryStrategy):
        def can_retry(self, attempt: int) -> bool:
            return attempt <= 3

        def backoff_ms(self, attempt: int) -> int:
            return 100

    class Calls(AsyncBolt):
        async def call(self, tup: Any) -> Any:
            return None

    with pytest.raises(UserError, match=r"retry=Thrice\(\.\.\.\) would never retry a call.*self\.error_predicate = lambda"):
        Calls(retry=Thrice())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"capacity": "5"}, "an async operator needs a capacity above zero, a whole number; got '5'"),
        ({"capacity": 2.5}, "needs a capacity above zero, a whole number; got 2.5"),
        ({"capacity": True}, "needs a capacity above zero, a whole number; got True"),
        ({"retry": 3}, r"retry=3: give a strategy, such as FixedDelayRetry\(3, '1s'\), or None"),
        ({"retry": FixedDelayRetry}, r"retry=<class .*FixedDelayRetry'>: give a strategy, such as"),
    ],
)
def test_settings_of_another_type_are_refused_with_what_to_give(settings: dict[str, Any], message: str) -> None:
    """The user takes a setting from the environment, and gives retries as their number, as in other libraries."""

    class Calls(AsyncBolt):
        async def call(self, tup: Any) -> Any:
            return None

    with pytest.raises(UserError, match=message):
        Calls(**settings)


def test_numbers_of_a_strategy_that_are_text_are_refused() -> None:
    """The user takes them from the environment: a text by which a number is multiplied is repeated, a delay of days."""
    text: Any = "3"
    with pytest.raises(UserError, match="a retry strategy needs max_attempts above zero; got '3'"):
        FixedDelayRetry(text, "1s")
    with pytest.raises(UserError, match="a retry strategy needs multiplier above zero; got '3'"):
        ExponentialBackoffRetry(3, "1s", "5s", text)
