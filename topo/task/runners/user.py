"""What tasks of spouts and of bolts have in common: they call a user's code, and tell their readers when there is no more."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from topo.dead_letters.pending import PendingDeadLetters
from topo.emission.emitter import StreamRows
from topo.emission.router import Reject
from topo.task.environment import TaskEnvironment, TaskSpec
from topo.task.task import Task
from topo.tracking.failure_causes import MAX_TEXT
from topo.user_errors import message_of, place_of
from topo.wire.control import Cause


class UserTask(Task):
    """One task that runs a user's component."""

    _end_sent = False
    """The readers know in this epoch that nothing follows."""

    def __init__(self, setup: TaskSpec, ports: TaskEnvironment) -> None:
        super().__init__(setup, ports)
        self._letters = PendingDeadLetters(self.id, ports.codec, ports.ids, self.reports.to_master)

    def _guard(self, call: Callable[[], object], now: float) -> None:
        """Call user code to which no tuple belongs."""
        try:
            call()
        except Exception as error:
            self._user_error(error, now)

    def _user_error(self, error: Exception, now: float) -> None:
        """Report what user code has raised; with `on_error="crash"`, or out of memory, raise it again: that ends the process."""
        self.reports.record(error, now)
        if self.config.on_error == "crash" or (isinstance(error, MemoryError) and self.ports.is_memory_short()):
            raise error

    def _reject_row(self, stream: int, values: Any, roots: Any, error: Exception) -> None:
        """Fail the roots of a row that cannot be carried, and say on which stream of which component."""
        name = self.plan.streams(self.component_id)[stream].name
        wrapped = type(error)(f"component {self.component_id!r}, stream {name!r}: {error}")
        vars(wrapped).update(vars(error))
        self._fail(roots, wrapped)
        self.reports.record(wrapped, self.ports.clock())
        self._lose_row(values, wrapped, comes_again=bool(roots))

    def _reject_untracked(self, stream: StreamRows) -> Reject:
        """Return what is called with rows of a stream that cannot be routed, where no root fails with them."""

        def reject(row: int, error: Exception) -> None:
            self.reports.record(error, self.ports.clock())
            self._lose_row(stream.rows[row], error)

        return reject

    def _lose_row(self, values: Any, error: Exception, *, comes_again: bool = False) -> None:
        """Keep a row that cannot be sent, where it would be lost otherwise; without checkpoints count it.

        Args:
            values: of the row.
            error: why it cannot be sent.
            comes_again: a message fails with the row, and is repeated or given up as a whole.
        """
        if self.is_checkpointed:
            self._letters.add(values, self._cause(error), 1)
        elif not comes_again:
            self.counters.unsent += 1

    def _cause(self, error: BaseException) -> str:
        return str(Cause(type(error).__name__, message_of(error)[:MAX_TEXT], self.component_id, *place_of(error)))

    @abstractmethod
    def _fail(self, roots: Iterable[int], error: Exception) -> None:
        """Have the ackers told that roots have failed, and the master why."""

    def _send_end(self, now: float) -> None:
        self._end_sent = True
        self._flush(now)
        self.outbound.send_end()
