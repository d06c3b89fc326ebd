"""The SQL of `PostgresSink`."""

from __future__ import annotations

from topo.connectors.postgres.column_types import ColumnInfo
from topo.connectors.postgres.settings import TableName
from topo.connectors.staged_table import TableColumns, TableStatements, quoted

BATCH = "pg_temp.__topo_batch"
"""The rows of a batch that are to replace others by their key."""

COLUMNS_OF = """
select a.attname, format_type(a.atttypid, a.atttypmod), coalesce(e.typname, t.typname), a.atttypmod, e.oid is not null,
    a.attnotnull, a.atthasdef or a.attidentity <> '', a.attgenerated <> '',
    (select array_agg(enumlabel::text) from pg_enum where enumtypid = t.oid)
from pg_attribute a join pg_type t on t.oid = a.atttypid
left join pg_type e on e.oid = t.typelem and t.typcategory = 'A'
where a.attrelid = to_regclass($1) and a.attnum > 0 and not a.attisdropped order by a.attnum"""

LOCK = "select pg_advisory_xact_lock(hashtextextended('topo ' || $1, 0))"
"""Two sessions that make one table at the same moment would disturb each other, whatever `if not exists` promises."""

DURABLE = "select set_config('synchronous_commit', 'on', false) where current_setting('synchronous_commit') = 'off'"

_HEAD = ("__writer", "__task", "__process", "__number", "__row")


class SinkStatements:
    """The statements for one table.

    Args:
        table: its name.
        columns: those that are written.
        types: of these columns, in their order.
    """

    def __init__(self, table: TableName, columns: TableColumns, types: list[ColumnInfo]) -> None:
        names = tuple(table.sql(suffix) for suffix in ("", "__staged", "__committed"))
        common = TableStatements((names[0], names[1], names[2]), columns, lambda place: f"${place}")
        self.common = common
        head = ", ".join(_HEAD)
        typed = ", ".join(f"{quoted(column.name)} {column.sql}" for column in types)
        self.create_staged = (
            f"create table if not exists {common.staged} (__writer text, __task integer, __process text, __number bigint, "
            f"__row bigint, {typed}, primary key (__process, __number, __row))"
        )
        self.stage = f"copy {common.staged} ({head}, {common.names}) from stdin"
        self.unstage = f"{common.drop} and __row >= $3"
        self.drop_left = f"delete from {common.staged} where __writer = $1 and __task % $2 = $3"
        self.create_batch = f"create temp table __topo_batch (__row bigint, {typed}) on commit delete rows"
        self.copy = f"copy {common.target} ({common.names}) from stdin"
        self.copy_batch = f"copy {BATCH} (__row, {common.names}) from stdin"
        self.move = common.move
        self.upsert = ""
        if columns.key:
            # One statement must not replace a row twice, so the last one of each key is taken. Their order is that of the key:
            # two tasks that wait for each other's rows would be a deadlock.
            last = f"select distinct on ({common.key}) {common.names} from"
            order = f"order by {common.key}, __row desc"
            into = f"insert into {common.target} ({common.names})"
            one = "where __process = $1 and __number = $2"
            self.upsert = f"{into} {last} {BATCH} {order}{common.on_conflict}"
            self.move = f"{into} {last} {common.staged} {one} {order}{common.on_conflict}"
        slots = ", ".join(f"null::{column.sql}" for column in types)
        self.check = f"explain insert into {common.target} ({common.names}) select {slots}{common.on_conflict}"
