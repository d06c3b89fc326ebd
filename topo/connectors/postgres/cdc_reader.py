"""Reads the changes of a replication slot for the one task of a `PostgresCdcSpout`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import psycopg

from topo.api.context import TaskContext
from topo.api.partition_values import Partition, PartitionOutput
from topo.connectors.postgres.loaders import loader
from topo.connectors.postgres.pgoutput import ChangeDecoder, Confirmation, LogPosition, RowChange, lsn_of
from topo.connectors.postgres.published_tables import PublishedTables
from topo.connectors.postgres.replication import LogMessage, ReplicationStream
from topo.connectors.postgres.session import ErrorT, Session, named
from topo.errors import ConfigError, TopoEnvironmentError

_CONFIRM_S = 1.0
"""The server is not asked to drop its log more often than that."""
_SLOT = """
select plugin, database = current_database(), confirmed_flush_lsn::text, wal_status from pg_replication_slots
where slot_name = $1"""
_MAY_REPLICATE = r"""
select bool_or(case when rolname = current_user then rolreplication or rolsuper else rolname like '%\_replication' end)
from pg_roles where pg_has_role(oid, 'member')"""
"""Managed servers let members of a role replicate instead, such as rds_replication."""
_PUBLICATION = "select 1 from pg_publication where pubname = $1"
_NO_PUBLICATION = re.compile(r'publication ".*" does not exist')
_CREATE = "select lsn::text from pg_create_logical_replication_slot($1, 'pgoutput')"


class ReplicatedChanges(NamedTuple):
    """What a `PostgresCdcSpout` reads: the connection string, the publication, the slot; and whether to skip lost changes."""

    dsn: str
    publication: str
    slot: str
    skips_lost: bool


class CdcReader:
    """A `PartitionReader` of one slot, its only partition. `report` takes errors that hold up nothing.

    Raises:
        ConfigError: the server refuses the user, or is not set up for it.
        TopoEnvironmentError: it cannot be reached.
    """

    def __init__(self, settings: ReplicatedChanges, context: TaskContext, report: Callable[[BaseException], object]) -> None:
        self._settings, self._context = settings, context
        self._session = Session("PostgresCdcSpout", settings.dsn, context)
        self._session.open()
        self._slot_bytes = context.metrics.gauge("slot_bytes")
        self._stream: ReplicationStream | None = None
        self._partition: Partition | None = None
        self._lost: Exception | None = None
        self._is_paused = False
        self._check()
        where = f"PostgresCdcSpout: {self._session.where}"
        self._tables = PublishedTables(settings.dsn, settings.publication, where, context, report)

    def _check(self) -> None:
        where = f"PostgresCdcSpout: {self._session.where}"
        connection = self._session.connection()
        ((level,),) = connection.execute("select current_setting('wal_level')").fetchall()
        if level != "logical":
            raise ConfigError(f"{where} has wal_level = {level}; set wal_level = logical, and start the server again")
        ((can,),) = connection.execute(_MAY_REPLICATE).fetchall()
        if not can:
            raise ConfigError(f"{where}: the user may not replicate; alter role ... replication, or grant rds_replication on RDS")
        if not self._has_publication():
            name = self._settings.publication
            raise ConfigError(f"{where} has no publication {name!r}; create publication ... for table ...")
        found = self._found()
        if found is not None and (found[0] != "pgoutput" or not found[1]):
            raise ConfigError(f"{where}: slot {self._settings.slot!r} has the plugin {found[0]}, or is of another database")

    def _has_publication(self) -> bool:
        found = self._session.connection().execute(_PUBLICATION, (self._settings.publication,))
        return found.fetchone() is not None

    def _found(self) -> Any:
        """Return plugin, whether it is of this database, confirmed place and state of the slot; None: there is none."""
        return self._session.connection().execute(_SLOT, (self._settings.slot,)).fetchone()

    def _create(self) -> LogPosition:
        ((lsn,),) = self._session.connection().execute(_CREATE, (self._settings.slot,)).fetchall()
        return lsn_of(lsn), 0

    def assign(self, partition: Partition, position: Any, found_later: bool) -> Any:
        try:
            return self._assigned(partition, position)
        except psycopg.Error as error:
            raise self._named(error) from error

    def _named(self, error: ErrorT) -> ErrorT:
        return named(error, f"PostgresCdcSpout: {self._session.where}: slot {self._settings.slot!r}")

    def _assigned(self, partition: Partition, position: Any) -> Any:
        found = self._found()
        self._partition, self._lost = partition, None
        if found is None or found[3] == "lost":
            if position is not None or found is not None:
                self._lost = TopoEnvironmentError(
                    f"{self._session.where} has {'no' if found is None else 'lost the log of'} slot {self._settings.slot!r}: its "
                    "changes since the last position are gone; read the tables again, or set on_lost='skip'"
                )
                return position
            position = self._create()
        elif position is None:
            position = lsn_of(found[2]), 0
        self._begin(tuple(position))
        return position

    def _begin(self, position: Any) -> None:
        """Stream behind a position."""
        self._behind: LogPosition = position
        self._decoder = ChangeDecoder(loader())
        self._confirmation = Confirmation(position)
        self._confirmed, self._confirm_at = position[0], self._context.clock()
        self._stream = ReplicationStream(self._settings.dsn, self._settings.slot, self._settings.publication, position[0])
        self._read = self._changes(self._stream)

    def release(self, partition: Partition) -> None:
        self._partition = None
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def pause(self, partition: Partition, paused: bool) -> None:
        self._is_paused = paused

    def poll(self, output: PartitionOutput) -> None:
        partition = self._partition
        if partition is None or self._is_paused:
            return
        if self._lost is not None:
            lost = self._lost
            if self._settings.skips_lost:
                try:
                    self._skip_lost()
                except psycopg.Error as error:
                    # The server may not have noticed yet that the stream was closed.
                    output.failed(partition, self._named(error))
                    return
            output.lost(partition, None, lost)
            return
        if self._stream is None:
            return
        self._tables.look()
        try:
            changes = self._take(self._stream, output.room)
            self._report(self._stream)
        except (psycopg.Error, TopoEnvironmentError) as error:
            if _NO_PUBLICATION.search(str(error)) and self._has_publication():
                # The server reads its log with the publications of that time.
                self._stream.close()
                self._lost = TopoEnvironmentError(
                    f"{self._session.where}: publication {self._settings.publication!r} was dropped and made again, and slot "
                    f"{self._settings.slot!r} cannot pass that time: its changes since then are gone; drop the slot and read the "
                    "tables again, or set on_lost='skip'"
                )
                return
            output.failed(partition, self._named(error))
            return
        self._give(partition, changes, output)

    def _skip_lost(self) -> None:
        if self._found() is not None:
            self._session.connection().execute("select pg_drop_replication_slot($1)", (self._settings.slot,))
        self._lost = None
        self._begin(self._create())

    def _changes(self, stream: ReplicationStream) -> Iterator[RowChange | None]:
        """Yield the changes behind the position; None when there is nothing for now."""
        while True:
            message: LogMessage
            for message in stream.messages():
                if message.data is not None:
                    for change in self._decoder.decode(message.data):
                        if change.position > self._behind:
                            yield change
                elif self._decoder.open_at is None:
                    self._confirmation.sent(message.log_end)
                self._confirmation.seen(message.log_end)
                if message.wants_reply:
                    # As if nothing had been confirmed yet.
                    self._confirmed, self._confirm_at = -1, self._context.clock()
            yield None

    def _take(self, stream: ReplicationStream, room: int) -> list[RowChange]:
        taken: list[RowChange] = []
        while len(taken) < room and (change := next(self._read)) is not None:
            # From here on it is in flight: the end of the log behind it is not confirmed.
            self._confirmation.given(change.position)
            taken.append(change)
        return taken

    def _give(self, partition: Partition, changes: list[RowChange], output: PartitionOutput) -> None:
        rows: list[RowChange] = []

        def give() -> None:
            if rows:
                output.rows(partition, [c.values for c in rows], [c.position for c in rows], [c.stamp for c in rows])
                rows.clear()

        for change in changes:
            if change.error is None:
                rows.append(change)
            else:
                give()
                output.bad(partition, change.position, change.raw, change.error)
        give()

    def committed(self, positions: Mapping[str, Any]) -> None:
        position = positions.get(self._settings.slot)
        if position is not None and self._stream is not None:
            self._confirmation.done(tuple(position), self._decoder.ends)

    def _report(self, stream: ReplicationStream) -> None:
        """Confirm the changes that are done, now and then."""
        now, confirmed = self._context.clock(), self._confirmation.confirmed
        self._slot_bytes.set(max(0, self._confirmation.log_end - confirmed))
        if confirmed != self._confirmed and now >= self._confirm_at:
            stream.confirm(confirmed)
            self._confirmed, self._confirm_at = confirmed, now + _CONFIRM_S

    def lag(self) -> int | None:
        return None

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
        self._session.close()
