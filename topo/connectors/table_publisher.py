"""Publishes the staged files of a task in a table, each transaction once: the log of the table takes them with a marker."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NamedTuple, Protocol

from topo.api.context import TaskContext
from topo.connectors.server_link import ServerLink
from topo.connectors.staged_count import StagedCount
from topo.connectors.staged_files import SealedFile, StagedFiles
from topo.errors import ConfigError, StagedRowsLostError, TopoEnvironmentError

NO_NUMBER = 0
"""The marker of a writer that has added nothing."""
_WAIT_S = 0.2
"""The longest wait before a commit that met another one is repeated; each next wait may be as much longer."""


class AddedFile(NamedTuple):
    """A file for the table: its name, the values of its partition, its size and rows."""

    name: str
    partition: tuple[Any, ...]
    bytes: int
    rows: int


class CommitRefusedError(TopoEnvironmentError):
    """Nothing was added, since another process has changed the table."""


class TableLog(Protocol):
    """The log of one table, as of the last look. All of it blocks, and raises TopoEnvironmentError.

    Attributes:
        attempts: how often a commit is tried that others are in the way of.
    """

    attempts: int

    def refresh(self) -> None:
        """Look at the table again. Raises ConfigError when its schema has changed."""

    def marker(self, writer: str) -> int:
        """Return the number of the last transaction of a writer."""

    def has(self, names: Sequence[str]) -> bool:
        """Whether one of these files was added."""

    def check(self, files: Sequence[AddedFile]) -> None:
        """Check files of an earlier process. Raises ConfigError when they have columns that the table cannot take."""

    def add(self, files: Sequence[AddedFile], writer: str | None, number: int) -> None:
        """Add files with the marker of a writer. Raises CommitRefusedError when its marker has changed since the last look."""

    def sync(self) -> None:
        """Make the added files durable."""


class TablePublisher:
    """The transactions of one task.

    Args:
        context: of the task.
        log: of the table.
        files: of the open transaction.
        report: takes errors that are not raised.
        is_staged: the delivery is `exactly_once`, so transactions have markers.
    """

    def __init__(
        self,
        context: TaskContext,
        log: TableLog,
        files: StagedFiles[Any],
        report: Callable[[BaseException], None],
        *,
        is_staged: bool,
    ) -> None:
        self._log, self._files, self._report, self._is_staged = log, files, report, is_staged
        self._link = ServerLink(log, context, report, _is_unreachable)
        self._writer = f"topo.{context.topology}.{context.component}.{context.task_index}"
        self._number, self._chance = NO_NUMBER, Random()
        self._is_recovered = False
        """Further transactions are of this process."""
        self._unsure: set[str] = set()
        """First files of commits that ended with an error: the table may have them."""
        self._is_refused = False
        """The table has another schema than staged files; each further transaction would only add to them."""
        self._clock, self._progress = context.clock, context.progress
        self._staged_count = StagedCount(context.metrics)
        self._commit_ms = context.metrics.histogram("commit_ms")

    def token(self, files: Sequence[SealedFile[Any]]) -> Any:
        """Return the token of a transaction: writer, number, and of each file all that the log needs; None without files."""
        if not files:
            return None
        # Not before: the number is that of a transaction which has a token.
        self._number += 1
        self._staged_count.set(self._number, sum(file.rows for file in files))
        return [self._writer, self._number, [[file.name, list(file.group), file.bytes, file.rows] for file in files]]

    def check(self) -> None:
        """Look at a table again that has refused staged files. Raises ConfigError."""
        if self._is_refused and self._is_staged:
            self._link.ask(self._log.refresh)
            self._is_refused = False

    def commit(self, token: Any) -> None:
        """Give the files their own names, and add them to the table at once, with the marker."""
        writer, number, listed = token
        files = [AddedFile(name, tuple(partition), size, count) for name, partition, size, count in listed]
        began = self._clock()
        try:
            self._link.ask(self._commit, writer, number, files)
        except Exception as error:
            self._unsure.add(files[0].name)
            self._is_refused = isinstance(error, ConfigError)
            raise
        self._unsure.discard(files[0].name)
        self._commit_ms.record((self._clock() - began) * 1000)
        if writer == self._writer:
            self._staged_count.set(number, 0)

    def _commit(self, writer: str, number: int, files: Sequence[AddedFile]) -> None:
        self._log.refresh()
        if not self._is_done(writer, number, files, is_unsure=files[0].name in self._unsure):
            found = [file for file in files if self._published(file)]
            if len(found) < len(files):
                self._lost([file for file in files if file not in found])
            if found:
                if not self._is_recovered:
                    self._log.check(found)
                self._add(found, writer, number, files)
        self._log.sync()

    def _add(self, found: Sequence[AddedFile], writer: str, number: int, files: Sequence[AddedFile]) -> None:
        for attempt in range(1, self._log.attempts + 1):
            self._progress()
            try:
                self._log.add(found, writer if self._is_staged else None, number)
            except CommitRefusedError:
                if attempt == self._log.attempts:
                    raise
                time.sleep(self._chance.uniform(0, attempt * _WAIT_S))
                self._log.refresh()
                # A former process may have finished this transaction at the same time.
                if self._is_done(writer, number, files, is_unsure=True):
                    return
            else:
                return

    def _published(self, file: AddedFile) -> bool:
        # Each request to a store may take its time, and there may be many.
        self._progress()
        return self._files.publish(file.name)

    def _is_done(self, writer: str, number: int, files: Sequence[AddedFile], *, is_unsure: bool) -> bool:
        """Whether the table has a transaction already."""
        names = [file.name for file in files]
        if not self._is_staged:
            return is_unsure and self._log.has(names)
        if self._log.marker(writer) < number:
            return False
        # Files leave the staging folder before the log has them; but a power cut can bring their hidden names back.
        if (is_unsure or any(map(self._files.is_staged, names))) and not self._log.has(names):
            topology = writer.split(".")[1]
            raise TopoEnvironmentError(
                f"another process has added versions to {self._log} as writer {writer!r}, which is the name of this task: its "
                f"staged rows would be taken for published. Two topologies must not both be called {topology!r}: submit one "
                "under another name"
            )
        return True

    def _lost(self, files: Sequence[AddedFile]) -> None:
        error = StagedRowsLostError(
            f"{', '.join(file.name for file in files)} with {sum(file.rows for file in files)} rows is neither staged nor "
            f"published in {self._log}. Either somebody has removed it, or an earlier worker has written to another place."
        )
        if not self._is_staged:
            raise error
        self._report(error)

    def abort(self, token: Any) -> None:
        """Remove the files of a transaction; None: of the open one."""
        if token is None:
            self._files.discard()
            return
        for name, *_ in token[2]:
            self._files.remove(name)
        self._staged_count.set(token[1], 0)

    def recovered(self) -> None:
        """Remove the staged files of this task, and of tasks that no longer exist: what counts is published."""
        if self._is_staged:
            self._log.refresh()
            self._number = max(self._number, self._log.marker(self._writer))
        self._files.clean()
        self._is_recovered = True


def _is_unreachable(error: BaseException) -> bool:
    return isinstance(error, TopoEnvironmentError) and not isinstance(error, StagedRowsLostError)
