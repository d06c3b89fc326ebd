"""Reports tables that leave a publication while its slot is read: nothing in the stream shows that their rows are not in it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import psycopg

from topo.api.context import TaskContext
from topo.connectors.postgres.session import limited
from topo.errors import TopoEnvironmentError, TopoError

_EVERY_S = 60.0
_TABLES = "select format('%I.%I', schemaname, tablename) from pg_publication_tables where pubname = $1"
_THAT_EXIST = "select name from unnest($1::text[]) as name where to_regclass(name) is not null"


class PublishedTables:
    """The tables of a publication, as of the last look.

    Args:
        dsn: connection string of libpq.
        publication: its name.
        where: the spout and the database, for messages.
        context: of the task.
        report: takes the errors, on the task's thread.
    """

    def __init__(
        self, dsn: str, publication: str, where: str, context: TaskContext, report: Callable[[BaseException], object]
    ) -> None:
        self._dsn, self._publication, self._where, self._context, self._report = dsn, publication, where, context, report
        self._known = set[str]()
        self._look_at = context.clock()
        self._is_looking = False

    def look(self) -> None:
        """Ask the server on the helper thread, once a minute."""
        if not self._is_looking and self._context.clock() >= self._look_at:
            self._is_looking = True
            self._look_at = self._context.clock() + _EVERY_S
            self._context.run_beside(self._look)

    def _look(self) -> None:
        # An outage is reported by the stream; a task that has ended takes no report.
        with suppress(psycopg.Error, TopoError):
            for table in self._gone():
                error = TopoEnvironmentError(
                    f"{self._where}: table {table} has left publication {self._publication!r}: its changes are not read until it "
                    f"is added again, and those in between are lost; alter publication ... add table {table}, and read it again"
                )
                if self._context.executor is None:
                    self._report(error)
                else:
                    self._context.executor.execute(partial(self._report, error), "tables were looked for")
        self._is_looking = False

    def _gone(self) -> list[str]:
        with psycopg.connect(limited(self._dsn), autocommit=True, cursor_factory=psycopg.RawCursor) as connection:
            found = {table for (table,) in connection.execute(_TABLES, (self._publication,))}
            left, self._known = sorted(self._known - found), found
            return [table for (table,) in connection.execute(_THAT_EXIST, (left,))] if left else []
