"""Requests of one task on its helper thread, one at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from topo.api.context import TaskContext
from topo.connectors.redis.client import RedisLink, is_unreachable

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.1, 5.0

Answer = TypeVar("Answer")


class RequestLine(Generic[Answer]):
    """At most one request is under way. A server that is not reached is asked again after a wait, which grows."""

    def __init__(self, context: TaskContext, link: RedisLink) -> None:
        self._context = context
        self._clock = context.clock
        self._link = link
        self._is_asking = False
        self._answers: deque[Answer | Exception] = deque()
        self._ask_at = float("-inf")
        self._wait_s = _FIRST_WAIT_S

    @property
    def is_free(self) -> bool:
        """Whether a request may be made now."""
        return not self._is_asking and self._clock() >= self._ask_at

    def ask(self, request: Callable[[], Answer], *, always_wakes: bool) -> None:
        """Make a request, on the helper thread. The task is woken by an answer: `always_wakes` also by an empty one."""
        self._is_asking = True
        executor = self._context.executor

        def ask() -> None:
            answer: Answer | Exception
            try:
                answer = request()
            except Exception as error:
                answer = error
            self._answers.append(answer)
            # In the test kit the call that asks takes the answer.
            if self._context.has_helper_thread and executor is not None and (answer or always_wakes):
                executor.execute(_nothing, "entries have come")

        self._context.run_beside(ask)

    def take(self) -> Answer | Exception | None:
        """Return the answer, or the error by which the server has refused; None while there is none."""
        if not self._answers:
            return None
        answer = self._answers.popleft()
        self._is_asking = False
        if isinstance(answer, Exception):
            self._ask_at = self._clock() + self._wait_s
            self._wait_s = min(2 * self._wait_s, _LONGEST_WAIT_S)
            if is_unreachable(answer):
                self._link.lost(answer)
                return None
            return answer
        self._link.restored()
        self._wait_s = _FIRST_WAIT_S
        return answer


def _nothing() -> None:
    """Have the task call its spout."""
