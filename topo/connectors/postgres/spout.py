"""A spout that reads the rows of tables in PostgreSQL in the order of a key."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Literal

from topo.api.context import TaskContext
from topo.api.durations import duration_ms
from topo.api.partition_values import Partition
from topo.api.partitions import PartitionedSpout
from topo.api.spout import SpoutCollector
from topo.connectors.argument_checks import checks_arguments
from topo.connectors.postgres.keyset_reader import KeysetReader
from topo.connectors.postgres.settings import KeysetSettings, check_dsn, table_name
from topo.errors import ConfigError


class PostgresSpout(PartitionedSpout):
    """Emits the rows of a table as they are inserted, in the order of a key.

        builder.set_spout("orders", PostgresSpout("host=db dbname=shop", "orders", ["item", "cents"], key="id", partitions=4), 2)

    | delivery | promise |
    | --- | --- |
    | `at_least_once` | every row at least once |
    | `exactly_once` | each row counts once: after a recovery each partition is read behind the key of the checkpoint |
    | `at_most_once` | rows can be missing |

    No row is passed over because its transaction commits late: rows are read up to a key when all transactions have ended that
    were writing to the table when the key was seen. For that the key is drawn from a sequence by the insert itself (serial,
    identity), with the sequence's default cache of 1. Other tables, views and queries need `timestamp` and `settle`.

    Updates and deletions of rows that were read are not seen.
    """

    @checks_arguments
    def __init__(
        self,
        dsn: str,
        table: str,
        columns: Sequence[str],
        *,
        key: str,
        partitions: int = 1,
        start: int | Literal["latest"] | None = None,
        timestamp: str | None = None,
        settle: str | timedelta | None = None,
        poll_interval: str | timedelta = "1s",
        batch: int = 5000,
        discovery_interval: str | timedelta | None = "10s",
        max_drift: str | timedelta | None = None,
        on_bad_record: Literal["dead_letter", "fail", "drop"] = "dead_letter",
    ) -> None:
        """Keep what to read.

        Args:
            dsn: connection string of libpq: "host=db dbname=shop user=topo" or "postgresql://topo@db/shop".
            table: its name, "shop.orders"; a pattern of names, "orders_*", of which new ones are found while the spout reads; or
                a query that begins with "select" or "with".
            columns: the fields of the tuples.
            key: a column of integers that rise; better with an index. Not repeated.
            partitions: how many tasks can share one table. When it changes, every row is read again.
            start: where a table begins that the first start of the topology finds: None at its first row; "latest"
                behind its last one; or behind a key.
            timestamp: a column with the event time.
            settle: read a row when its timestamp is this old, and those of all rows with lesser keys, too.
            poll_interval: how long a table without new rows is left alone.
            batch: the most rows that are read together.
            discovery_interval: how often new tables are looked for; see `PartitionedSpout`, as the others.

        Raises:
            ConfigError: an argument cannot be used, or psycopg is missing.
        """
        check_dsn("PostgresSpout", dsn)
        settle_s = None if settle is None else duration_ms(settle) / 1000
        self._settings = KeysetSettings(dsn, table, tuple(columns), key, timestamp, settle_s, partitions)
        if not columns or len(set(columns)) < len(columns):
            raise ConfigError(f"PostgresSpout: columns={columns!r} must be different names, one at least")
        if not self._settings.is_query:
            table_name("PostgresSpout", table)
        for name, value in {"partitions": partitions, "batch": batch}.items():
            if value < 1:
                raise ConfigError(f"PostgresSpout: {name}={value!r} must be at least 1")
        for name, column in {"key": key, "timestamp": timestamp}.items():
            if column == "":
                raise ConfigError(f"PostgresSpout: {name}={column!r} must be the name of a column")
        for name, given in {"settle": settle, "poll_interval": poll_interval}.items():
            if given is not None and duration_ms(given) < 1:
                raise ConfigError(f"PostgresSpout: {name}={given!r} must be at least 1ms")
        if settle_s is not None and timestamp is None:
            raise ConfigError("PostgresSpout: settle= needs timestamp=, a column with the time of the insert")
        self.outputs = tuple(columns)
        self._start, self._batch = start, batch
        self._poll_interval_s = duration_ms(poll_interval) / 1000
        self.discovery_interval = discovery_interval
        self.max_drift = max_drift
        self.on_bad_record = on_bad_record

    def __repr__(self) -> str:
        return f"PostgresSpout({self._settings.source!r}, {self._settings.columns!r})"

    def open(self, context: TaskContext, collector: SpoutCollector) -> None:
        """Connect, and look at the table.

        Raises:
            ConfigError: the server refuses the user, or the table cannot be read by its key.
            TopoEnvironmentError: the server cannot be reached.
        """
        from topo.connectors.postgres.keyset_source import KeysetSource

        # For `partitions`, which another thread calls.
        self._lister = KeysetSource(self._settings, context)
        if not self._settings.is_pattern:
            self._lister.check(self._sources()[0])
        super().open(context, collector)

    def reader(self, context: TaskContext) -> KeysetReader:
        """Return the reader of a task."""
        from topo.connectors.postgres.keyset_source import KeysetSource

        source = KeysetSource(self._settings, context)
        return KeysetReader(source, context, self._poll_interval_s, self._batch, self._start, self._settings.partitions)

    def _sources(self) -> list[str]:
        if self._settings.is_query:
            return ["the query"]
        return [table_name("PostgresSpout", self._settings.source).sql()]

    def partitions(self) -> list[Partition]:
        """Return the partitions of all tables that there are."""
        count = self._settings.partitions
        sources = self._lister.tables() if self._settings.is_pattern else self._sources()
        return [
            Partition(source if count == 1 else f"{source} {number}/{count}", source, number)
            for source in sources
            for number in range(count)
        ]

    def close(self) -> None:
        """Close the connections."""
        super().close()
        self._lister.close()
