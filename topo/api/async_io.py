"""Declarations of asynchronous calls: the order of results, and when a call is tried again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import timedelta
from enum import Enum
from typing import Any, SupportsIndex

from msgspec import Struct

from topo.api.durations import duration_ms
from topo.deprecation import old_names
from topo.errors import TopoError, UserError

ResultPredicate = Callable[[Sequence[Any]], bool]
ErrorPredicate = Callable[[BaseException], bool]


# Topologies that were pickled name the class by this module.
__getattr__ = old_names(__name__, {"AsyncTimeout": "AsyncTimeoutError"})


class AsyncTimeoutError(TopoError):
    """An asynchronous call, with all its retries, took longer than its timeout."""


class AsyncMode(Enum):
    """In which order results leave."""

    ORDERED = "ordered"
    """In the order of the inputs."""
    UNORDERED = "unordered"
    """As they complete, but never across a watermark."""


class RetryStrategy(ABC):
    """When a call is made again. At least one of the predicates has to be set.

    Attributes:
        result_predicate: of the list of results; whether they ask for another attempt. None: results never do.
        error_predicate: of the exception; whether it asks for another attempt. None: exceptions never do.
    """

    result_predicate: ResultPredicate | None = None
    error_predicate: ErrorPredicate | None = None

    @abstractmethod
    def can_retry(self, attempt: int) -> bool:
        """Whether another attempt may follow attempt number `attempt`, counted from 1."""

    @abstractmethod
    def backoff_ms(self, attempt: int) -> int:
        """Milliseconds to wait after attempt number `attempt`, counted from 1."""


def _check(name: str, value: Any) -> None:
    try:
        is_above_zero = value > 0
    except TypeError:
        is_above_zero = False
    if not is_above_zero:
        raise UserError(f"a retry strategy needs {name} above zero; got {value!r}")


class _CountedRetry(RetryStrategy):
    """At most `max_attempts` repetitions; without any condition each exception asks for one."""

    def __init__(self, max_attempts: int, if_result: ResultPredicate | None, if_error: ErrorPredicate | None) -> None:
        _check("max_attempts", max_attempts)
        self._max_attempts = max_attempts
        self.result_predicate = if_result
        self.error_predicate = (lambda _error: True) if if_result is None and if_error is None else if_error

    def can_retry(self, attempt: int) -> bool:
        """Whether fewer than `max_attempts` repetitions were made."""
        return attempt <= self._max_attempts


class FixedDelayRetry(_CountedRetry):
    """The same pause before each of at most `max_attempts` repetitions.

    Args:
        max_attempts: repetitions after the first attempt; above zero.
        delay: the pause.
        if_result: whether the list of results asks for another attempt.
        if_error: whether the exception asks for another attempt. Without `if_result` and `if_error` every exception does;
            with `if_result` alone none does.

    Raises:
        UserError: `max_attempts` is no number above zero, or `delay` is no duration.
    """

    def __init__(
        self,
        max_attempts: int,
        delay: str | timedelta,
        *,
        if_result: ResultPredicate | None = None,
        if_error: ErrorPredicate | None = None,
    ) -> None:
        super().__init__(max_attempts, if_result, if_error)
        self._delay_ms = duration_ms(delay)

    def backoff_ms(self, attempt: int) -> int:
        """The delay."""
        return self._delay_ms


class ExponentialBackoffRetry(_CountedRetry):
    """A pause that grows by a factor up to a limit, before each of at most `max_attempts` repetitions.

    The other arguments and the errors are those of `FixedDelayRetry`.

    Args:
        initial_delay: the pause after the first attempt.
        max_delay: the longest pause.
        multiplier: the factor.
    """

    def __init__(
        self,
        max_attempts: int,
        initial_delay: str | timedelta,
        max_delay: str | timedelta,
        multiplier: float = 2.0,
        *,
        if_result: ResultPredicate | None = None,
        if_error: ErrorPredicate | None = None,
    ) -> None:
        super().__init__(max_attempts, if_result, if_error)
        self._initial_ms = duration_ms(initial_delay)
        self._max_ms = duration_ms(max_delay)
        _check("multiplier", multiplier)
        self._multiplier = multiplier

    def backoff_ms(self, attempt: int) -> int:
        """The initial delay after attempt 1, then each time the one before multiplied."""
        delay_ms = self._initial_ms
        for _ in range(attempt - 1):
            delay_ms = min(int(delay_ms * self._multiplier), self._max_ms)
        return delay_ms


class AsyncSettings(Struct, frozen=True):
    """Settings of an async operator.

    Attributes:
        mode: the order of the results.
        capacity: elements and watermarks in flight at most; above zero.
        timeout_ms: for one element with all its attempts; 0 for none.
        retry: when to try again; None for never.
    """

    mode: AsyncMode = AsyncMode.ORDERED
    capacity: int = 100
    timeout_ms: int = 0
    retry: RetryStrategy | None = None

    def __post_init__(self) -> None:
        capacity: Any = self.capacity
        if not isinstance(capacity, SupportsIndex) or isinstance(capacity, bool) or int(capacity) <= 0:
            raise UserError(f"an async operator needs a capacity above zero, a whole number; got {capacity!r}")
        if self.timeout_ms < 0:
            raise UserError(f"an async timeout is zero (none) or more; got {self.timeout_ms} ms")
        retry: Any = self.retry
        if retry is not None and (isinstance(retry, type) or not hasattr(retry, "can_retry")):
            raise UserError(f"retry={retry!r}: give a strategy, such as FixedDelayRetry(3, '1s'), or None")
        if retry is not None and retry.result_predicate is None and retry.error_predicate is None:
            raise UserError(
                f"retry={type(retry).__name__}(...) would never retry a call: it sets neither error_predicate nor "
                "result_predicate; set `self.error_predicate = lambda error: True` in it to retry calls that raise"
            )
