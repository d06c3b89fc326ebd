"""A sink that adds tuples to an Iceberg table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from topo.api.batch_limits import check_batch_age
from topo.api.context import TaskContext
from topo.connectors.argument_checks import checks_arguments
from topo.connectors.clients import check_installed
from topo.connectors.secrets import masked_settings
from topo.connectors.table_sink import TableSink
from topo.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa


class IcebergSink(TableSink):
    """Adds tuples to an Iceberg table, as rows of parquet files. Other tasks, topologies and writers may add to it, too.

        catalog = {"type": "sql", "uri": "sqlite:////data/catalog.db", "warehouse": "file:///data/warehouse"}
        builder.set_bolt("orders", IcebergSink(catalog, "shop.orders", schema={"user": "string", "cents": "bigint"}))

    | delivery | promise |
    | --- | --- |
    | `exactly_once` | each row once, in a snapshot of the table, when its checkpoint is complete |
    | `at_least_once` | no row is missing; some repeat after a recovery |
    | `at_most_once` | rows can be missing |

    With `exactly_once` each task adds one snapshot for each checkpoint in which it had rows, together with a marker: a property
    of the table with the number of its last transaction. A commit that is repeated, by any process, finds the marker and adds
    nothing. With the other modes a batch is a snapshot, when it has `roll_rows` or `roll_size`, or after `roll_interval`.
    """

    @checks_arguments
    def __init__(
        self,
        catalog: str | Mapping[str, str],
        table: str,
        *,
        partition_by: str | Sequence[str] = (),
        schema: pa.Schema | Mapping[str, Any] | None = None,
        compression: Literal["gzip", "snappy", "zstd", "none"] | None = None,
        roll_rows: int = 1_000_000,
        roll_size: str | int = "128MiB",
        roll_interval: str | timedelta | float = "5s",
    ) -> None:
        """Keep where to write; nothing is opened yet.

        Args:
            catalog: its properties as pyiceberg takes them, such as {"type": "rest", "uri": "https://..."}; or the name of a
                catalog in the file .pyiceberg.yaml, which each worker's host must have.
            table: its name, with its namespace: "shop.orders".
            partition_by: columns whose values the table that is made is partitioned by. It takes a schema.
            schema: types by column, such as {"user": "string", "cents": "bigint", "price": "decimal(10,2)"}, with the names that
                Spark's SQL has; or a pyarrow.Schema. A missing table is made with it, and an existing table must have it.
                None: the table exists, and its schema and partitions are taken.
            compression: of the files; None: snappy.
            roll_rows: the most rows of a file.
            roll_size: about the most bytes of a file.
            roll_interval: the longest that a tuple waits for others, but with `exactly_once`. At most half of `message_timeout`.

        Raises:
            ConfigError: an argument cannot be used, or pyiceberg is not installed.
        """
        by = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
        super().__init__(
            partition_by=by,
            schema=schema,
            compression=compression,
            roll_rows=roll_rows,
            roll_size=roll_size,
            roll_interval=roll_interval,
        )
        check_installed("IcebergSink", "iceberg", "pyiceberg and pyarrow", "pyiceberg", "pyarrow")
        from topo.connectors.iceberg.target import declared_columns

        if not isinstance(catalog, str):
            catalog = dict(catalog)
            if any(not isinstance(value, str) for value in catalog.values()):
                raise ConfigError("catalog= must have texts as values, as pyiceberg takes them: 'true' and not True")
        if not all(table.split(".")) or "." not in table:
            raise ConfigError(f"table={table!r} must have a namespace and a name, such as 'shop.orders'")
        self._catalog, self._table = catalog, table
        self._by = by
        self._declared = None if schema is None else declared_columns(schema, self._by)
        self.required_fields = () if self._declared is None else tuple(self._declared.names)

    def __repr__(self) -> str:
        catalog = self._catalog if isinstance(self._catalog, str) else masked_settings(self._catalog)
        return f"IcebergSink({catalog!r}, {self._table!r})"

    def open(self, context: TaskContext) -> None:
        """Open the table, or make it.

        Raises:
            ConfigError: the table is missing, or does not fit the schema; or `roll_interval` is too long for `message_timeout`.
            TopoEnvironmentError: the catalog or the store of the table is not reached.
        """
        from topo.connectors.iceberg.table import IcebergTable

        check_batch_age(context, "IcebergSink", "roll_interval")
        self._log = IcebergTable(self._catalog, self._table)
        columns, partitions = self._log.open(self._declared, self._by)
        self.start(context, self._log, self._log.location, self._log.place(), columns, partitions)

    def close(self) -> None:
        """Close the connections to the catalog."""
        self._log.close()
