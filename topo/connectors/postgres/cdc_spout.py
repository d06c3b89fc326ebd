"""A spout of the changes of tables in PostgreSQL: change data capture by a replication slot."""

from __future__ import annotations

import re
from typing import Literal

from topo.api.context import TaskContext
from topo.api.partition_values import Partition, PartitionReader
from topo.api.partitions import PartitionedSpout
from topo.api.spout import SpoutCollector
from topo.connectors.argument_checks import checks_arguments
from topo.connectors.postgres.settings import check_dsn
from topo.errors import ConfigError

_SLOT_NAME = re.compile(r"[a-z0-9_]{1,63}")


class PostgresCdcSpout(PartitionedSpout):
    """Emits each inserted, updated and deleted row of a publication, in the order of the commits.

        builder.set_spout("changes", PostgresCdcSpout("host=db dbname=shop", "shop_changes", slot="topo_shop"))

    | delivery | promise |
    | --- | --- |
    | `at_least_once` | every change at least once |
    | `exactly_once` | each change counts once: after a recovery changes are read behind those of the checkpoint |
    | `at_most_once` | changes can be missing |

    The fields are `op` ("insert", "update", "delete" or "truncate"), `table` ("public.orders"), and `new` and `old`: the row
    after and before the change, a dict by column, or None. Which columns `old` has is a setting of the table, its replica
    identity: by default those of the primary key, of a deleted row and of one whose key has changed. The timestamp is that
    of the commit.

    The slot is made at the first start, and keeps the server's log until changes are done: drop it when the topology is given up.
    Rows that were in the tables before are not emitted.
    """

    outputs = ("op", "table", "new", "old")
    discovery_interval = None
    is_endless = True

    @checks_arguments
    def __init__(
        self,
        dsn: str,
        publication: str,
        *,
        slot: str,
        on_lost: Literal["fail", "skip"] = "fail",
        on_bad_record: Literal["dead_letter", "fail", "drop"] = "dead_letter",
    ) -> None:
        """Keep what to read.

        Args:
            dsn: connection string of libpq, of a user who may replicate: "host=db dbname=shop user=topo".
            publication: the name of a publication, which names the tables: `create publication ... for table ...`.
            slot: the name of the replication slot, for this spout alone: a-z, digits and underscores.
            on_lost: when the slot was dropped, its publication was dropped and made again, or the server has dropped its log:
                "fail": report it again and again; "skip": report it once, make a new slot, and continue with later changes.
            on_bad_record: see `PartitionedSpout`.

        Raises:
            ConfigError: an argument cannot be used, or psycopg is missing.
        """
        check_dsn("PostgresCdcSpout", dsn)
        if not _SLOT_NAME.fullmatch(slot):
            raise ConfigError(f"PostgresCdcSpout: slot={slot!r} must have up to 63 small characters a-z, digits or underscores")
        if not publication:
            raise ConfigError("PostgresCdcSpout: publication= must be a name")
        self._dsn, self._publication, self._slot = dsn, publication, slot
        self.on_lost = on_lost
        self.on_bad_record = on_bad_record

    def __repr__(self) -> str:
        return f"PostgresCdcSpout({self._publication!r}, slot={self._slot!r})"

    def open(self, context: TaskContext, collector: SpoutCollector) -> None:
        """Connect soon."""
        self._report = collector.report_error
        super().open(context, collector)

    def reader(self, context: TaskContext) -> PartitionReader:
        """Connect.

        Raises:
            ConfigError: the server refuses the user, or is not set up for replication.
            TopoEnvironmentError: it cannot be reached.
        """
        from topo.connectors.postgres.cdc_reader import CdcReader, ReplicatedChanges

        return CdcReader(
            ReplicatedChanges(self._dsn, self._publication, self._slot, self.on_lost == "skip"), context, self._report
        )

    def partitions(self) -> list[Partition]:
        """Return the slot: it is read by one task."""
        return [Partition(self._slot, self._slot, 0)]
