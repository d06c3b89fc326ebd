"""Whether a task reaches its server, and its requests on the helper thread, one at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from topo.api.context import TaskContext
from topo.errors import TopoEnvironmentError

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.1, 5.0

Answer = TypeVar("Answer")


class ServerLink:
    """Whether a task reaches its server: reported when that changes, and shown as a gauge.

    Args:
        server: shown in messages, without secrets.
        context: of the task.
        report: takes the errors.
        is_unreachable: whether a request has failed since the server was not reached, or is not ready: it may be repeated later.
            As it stands a TopoEnvironmentError shows that.
        gauge: its name, for a server beside another one.
        explained: returns an error with the way to mend it; None for others.
    """

    def __init__(
        self,
        server: object,
        context: TaskContext,
        report: Callable[[BaseException], object],
        is_unreachable: Callable[[BaseException], bool] = lambda error: isinstance(error, TopoEnvironmentError),
        gauge: str = "connected",
        explained: Callable[[BaseException], BaseException | None] = lambda _: None,
    ) -> None:
        self._server = server
        self._explained = explained
        self._report = report
        self.is_unreachable = is_unreachable
        self._gauge = context.metrics.gauge(gauge)
        self._gauge.set(1)
        self.is_up = True

    def lost(self, error: BaseException) -> None:
        """A request was not answered."""
        if self.is_up:
            self.is_up = False
            self._gauge.set(0)
            error = self._explained(error) or error
            lost, why = f"{self._server} is not reached, and it is tried again", str(error) or repr(error)
            self._report(TopoEnvironmentError(why if lost in why else f"{lost}: {why}"))

    def restored(self) -> None:
        """A request was answered."""
        if not self.is_up:
            self.is_up = True
            self._gauge.set(1)
            self._report(TopoEnvironmentError(f"{self._server} is reached again"))

    def explained(self, error: Exception) -> Exception:
        """Return an error with the way to mend it."""
        found = self._explained(error)
        return found if isinstance(found, Exception) else error

    def ask(self, request: Callable[..., Any], *arguments: Any) -> Any:
        """Make a request, and take down whether it was answered. Its exceptions are raised."""
        try:
            reply = request(*arguments)
        except Exception as error:
            if self.is_unreachable(error):
                self.lost(error)
            elif (explained := self._explained(error)) is not None:
                raise explained from error
            raise
        self.restored()
        return reply


class RequestLine(Generic[Answer]):
    """At most one request is under way. A server that is not reached is asked again after a wait, which grows."""

    def __init__(self, context: TaskContext, link: ServerLink) -> None:
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
            if self._link.is_unreachable(answer):
                self._link.lost(answer)
                return None
            return self._link.explained(answer)
        self._link.restored()
        self._wait_s = _FIRST_WAIT_S
        return answer


def _nothing() -> None:
    """Have the task call its spout."""
