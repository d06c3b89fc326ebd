"""Hooks: code of the user's that runs beside the components, in every worker process."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from topo.api.context import TaskContext

_LOG = logging.getLogger("topo.hooks")


class Hook:
    """Called when worker processes and tasks begin and end, and for each error: for tracing, alarms, shared connections.

        builder.add_hook(Alarm("https://alarms.example"))

    Each worker process has one object for all its tasks; all methods are called by the thread that runs them. A killed process
    calls nothing. What a hook raises is logged, and shown in `topo errors` for a task; it fails nothing.
    """

    def worker_starts(self, topology: str, worker: int) -> None:
        """Called once in each process, before components are made. Not in the test kit."""

    def task_opens(self, context: TaskContext) -> None:
        """Called before `open` or `prepare` of a task's component."""

    def error(self, context: TaskContext, error: BaseException) -> None:
        """Called for each error that the task shows in `topo errors`, as soon as it is recorded. Calls can be frequent."""

    def task_closes(self, context: TaskContext) -> None:
        """Called after `close` or `cleanup` of a task's component, at an orderly end."""

    def worker_ends(self) -> None:
        """Called once in each process, at an orderly end, when all tasks are closed. Not in the test kit."""


class Hooks:
    """The hooks of one worker process."""

    def __init__(self, hooks: Iterable[Hook] = ()) -> None:
        self._hooks = tuple(hooks)

    def call(self, method: str, *arguments: object) -> list[Exception]:
        """Call a method of every hook, log what they raise, and return it."""
        raised: list[Exception] = []
        for hook in self._hooks:
            try:
                getattr(hook, method)(*arguments)
            except Exception as error:
                _LOG.exception("%s of hook %s has raised", method, type(hook).__name__)
                raised.append(error)
        return raised
