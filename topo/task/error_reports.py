"""Reports of a task to the master: messages, errors, and the causes of failed roots. Hooks of the user see errors, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from topo.api.context import TaskContext
from topo.api.hooks import Hooks
from topo.errors import ResultsLostError, StagedRowsLostError
from topo.ids import TaskId
from topo.task.commands import TellMaster
from topo.task.state import TaskState
from topo.tracking.failure_causes import FailureCauses
from topo.user_errors import CaughtError, ErrorBook
from topo.wire.control import ComponentError, EdgeLost


class Reports:
    """Everything that one task reports.

    Attributes:
        causes: why roots have failed; they are reported before their FAIL leaves.
    """

    def __init__(
        self, state: TaskState, context: TaskContext, hooks: Hooks, most_causes: int, is_memory_short: Callable[[], bool],
        declared: tuple[str, int] | None = None,
    ) -> None:  # fmt: skip
        self._state = state
        self._context = context
        self._hooks = hooks
        self._is_memory_short = is_memory_short
        self._book = ErrorBook(self._report_caught, declared)
        self.causes = FailureCauses(state.id, state.component_id, most_causes, declared)

    def to_master(self, message: Any) -> None:
        """Send a message to the master."""
        self._state.commands.append(TellMaster(message))

    def edge_lost(self, peer: TaskId, why: str) -> None:
        """Report an edge to or from a peer that cannot be used any more in this epoch."""
        self.to_master(EdgeLost(task=self._state.id, epoch=self._state.epoch, sender=peer, why=why))

    def record(self, error: BaseException, now: float) -> None:
        """Count an error and report it: at once when it is new, else together with those like it."""
        self._state.counters.errors += 1
        self._book.record(error, now)
        self.call_hooks("error", error)

    def user_error(self, error: Exception, now: float) -> None:
        """Report an error of user code; with `on_error="crash"`, or out of memory, raise it again: that ends the process."""
        self.record(error, now)
        self.end_if_fatal(error)

    def end_if_fatal(self, error: Exception) -> None:
        """Raise an error of user code again where it ends the process."""
        if self._state.config.on_error == "crash" or (isinstance(error, MemoryError) and self._is_memory_short()):
            raise error

    def guard(self, call: Callable[..., object], now: float, *arguments: object) -> None:
        """Call user code to which no tuple belongs."""
        try:
            call(*arguments)
        except Exception as error:
            self.user_error(error, now)

    def record_misuse(self, error: BaseException) -> None:
        """Record an error that a collector has found, at the time of the clock."""
        self._state.counters.lost_results += isinstance(error, (StagedRowsLostError, ResultsLostError))
        self.record(error, self._state.clock())

    def call_hooks(self, what: str, *about: object) -> None:
        """Call one callback of the user's hooks; what a hook raises is reported, too."""
        for raised in self._hooks.call(what, self._context, *about):
            self._book.record(raised, self._state.clock())

    def flush_causes(self) -> None:
        """Report why roots have failed; to be called before their FAIL leaves."""
        if (message := self.causes.take()) is not None:
            self.to_master(message)

    def on_time(self, now: float) -> None:
        """Report the errors that were counted for their interval."""
        self._book.flush(now)

    def flush(self, now: float) -> None:
        """Report all errors that were counted and not reported."""
        self._book.flush(now, all_of_them=True)

    def deadlines(self) -> list[float | None]:
        """Return the time of the next `on_time`; None while nothing is counted."""
        return [self._book.next_deadline]

    def _report_caught(self, caught: CaughtError) -> None:
        state = self._state
        self.to_master(
            ComponentError(
                task=state.id,
                component=state.component_id,
                kind=caught.kind,
                message=caught.message,
                traceback=caught.trace,
                file=caught.file,
                line=caught.line,
                count=caught.count,
                at_ms=state.wall_ms(),
            )
        )
