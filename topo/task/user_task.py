"""What tasks of spouts and of bolts have in common: they call a user's code, and tell their readers when there is no more."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from topo.task.base import Task
from topo.wire.frames import FrameKind, signal_frame


class UserTask(Task):
    """One task that runs a user's component."""

    _end_told = False
    """The readers know in this epoch that nothing follows."""

    def _guard(self, call: Callable[[], object], now: float) -> None:
        """Call user code to which no tuple belongs."""
        try:
            call()
        except Exception as error:
            self._user_error(error, now)

    def _user_error(self, error: Exception, now: float) -> None:
        """Report what user code has raised; with `on_error="crash"` raise it again, which ends the process."""
        self._record_error(error, now)
        if self.config.on_error == "crash":
            raise error

    def _reject_rows(self, stream: int, roots: Any, error: Exception) -> None:
        """Fail the roots of rows that cannot be carried, and say on which stream of which component."""
        name = self.plan.streams(self.component_id)[stream].name
        wrapped = type(error)(f"component {self.component_id!r}, stream {name!r}: {error}")
        self._fail(roots, wrapped)
        self._record_error(wrapped, self.ports.clock())

    def _report_row(self, _row: int, error: Exception) -> None:
        self._record_error(error, self.ports.clock())

    @abstractmethod
    def _fail(self, roots: Iterable[int], error: Exception) -> None:
        """Have the ackers told that roots have failed, and the master why."""

    def _tell_end(self, now: float) -> None:
        self._end_told = True
        self._flush(now)
        for target in self.consumers:
            self.outbox.signal(target, lambda stamp, to, number: signal_frame(FrameKind.END, stamp, to, number))
