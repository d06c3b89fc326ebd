"""Reading a table in the order of a key, without I/O: the SQL, and up to which key all rows are there.

A key from a sequence is not in the order of commits: a transaction that has drawn 5 may commit after the one with 6. But an
insert locks its table before it draws the key, and until it commits. So when K is the greatest key that is visible, and all
transactions have ended that were writing to the table after K was seen, no row up to K can be added any more. A comparison of
`xmin` with that of the snapshot would not show an insert that has drawn its key and has no transaction id yet, and would wait
for every transaction of the server.

A standby does not show the locks of the transactions that write on its primary, so nothing can be concluded there.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from topo.connectors.staged_table import quoted

LEAST = -(1 << 63)
"""Below all keys."""

WRITERS = """
select distinct virtualtransaction from pg_locks where locktype = 'relation' and granted and mode = 'RowExclusiveLock'
and database = (select oid from pg_database where datname = current_database()) and relation in
(select to_regclass($1)::oid union select relid::oid from pg_partition_tree(to_regclass($1)))"""

SEQUENCE = """
select s.seqcache, s.seqincrement, s.seqcycle from pg_depend d join pg_sequence s on s.seqrelid = d.objid
join pg_attribute a on a.attrelid = d.refobjid and a.attnum = d.refobjsubid
where d.classid = 'pg_class'::regclass and d.deptype in ('a', 'i') and d.refobjid = to_regclass($1) and a.attname = $2"""
"""The sequence that a column draws its values from, of serial and identity columns."""

LAST_DRAWN = """
select s.seqrelid::regclass::text, coalesce(pg_sequence_last_value(s.seqrelid), 0) from pg_depend d
join pg_sequence s on s.seqrelid = d.objid join pg_attribute a on a.attrelid = d.refobjid and a.attnum = d.refobjsubid
where d.classid = 'pg_class'::regclass and d.deptype in ('a', 'i') and d.refobjid = to_regclass($1) and a.attname = $2
and has_sequence_privilege(s.seqrelid, 'usage, select')"""
"""That sequence, and its last value; 0 before the first one. No row where this user may not see it."""

TABLES = """
select n.nspname, c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'p', 'v', 'm', 'f') and not c.relispartition and c.relname like $1
and case when $2 = '' then pg_table_is_visible(c.oid) else n.nspname = $2 end order by c.relname"""

_PREPARED = "-1/"
"""With this the name of a transaction begins that was prepared for a commit in two phases, whatever it was before."""


class KeysetStatements:
    """The statements for one table or query.

    Args:
        source: a quoted name, or a query in parentheses.
        columns: the values of each row.
        key: an integer column that rises.
        timestamp: the column with the event time; None: none.
        part: which of how many partitions is read.
    """

    def __init__(self, source: str, columns: Sequence[str], key: str, timestamp: str | None, part: tuple[int, int]) -> None:
        number, count = part
        at = f"q.{quoted(key)}"
        stamp = "null" if timestamp is None else f"(extract(epoch from q.{quoted(timestamp)}) * 1000)::bigint"
        names = ", ".join(f"q.{quoted(name)}" for name in columns)
        one = "" if count == 1 else f" and (hashint8({at}::bigint) & 2147483647) % {count} = {number}"
        rows = f"from {source} as q where {at} > $1 and {at} <= $2{one} order by {at} limit $3"
        self.read = f"select {at}, {stamp}, {names} {rows}"
        if timestamp is not None:
            # Event time is worked out behind the limit. In front of that, where rows are sorted, an infinite one would fail the
            # read though its row is not asked for.
            needed = ", ".join(f"q.{quoted(name)}" for name in dict.fromkeys((key, timestamp, *columns)))
            self.read = f"select {at}, {stamp}, {names} from (select {needed} {rows}) as q order by {at}"
        self.read_text = f"select {at}, (q.*)::text {rows}"
        self.greatest = f"select max({at}) from {source} as q"
        # In one statement, which sees the table once: a row that came between two would be younger than both suppose.
        self.greatest_settled = (
            ""
            if timestamp is None
            else (
                f"select case when u.least is null then ({self.greatest}) else ({self.greatest} where {at} < u.least) end from "
                f"(select min({at}) as least from {source} as q "
                # The first condition has an index used. It reads a time without a zone as one of the session, a day off at most.
                f"where q.{quoted(timestamp)} > now() - make_interval(days => 1, secs => $1) "
                f"and extract(epoch from q.{quoted(timestamp)}) > extract(epoch from now()) - $1 "
                # Such a time never gets old; it is no event time, either, so its row is a bad record.
                f"and isfinite(q.{quoted(timestamp)})) as u"
            )
        )


class Horizon:
    """Up to which key all rows of a table are there. The calls alternate with looks at the table.

    Attributes:
        bound: that key.
        greatest: the greatest key that was seen.
    """

    def __init__(self) -> None:
        self.bound = self.greatest = LEAST
        self._candidate: int | None = None
        self._writers: set[str] = set()

    @property
    def is_waiting(self) -> bool:
        """Whether a greatest key was seen, and transactions of that time have not ended."""
        return self._candidate is not None

    def seen(self, greatest: int | None, writers: Collection[str]) -> None:
        """Take the greatest key that is visible, and the transactions that were writing after it was seen."""
        self.greatest = self.greatest if greatest is None else greatest
        if greatest is not None and greatest > self.bound:
            self._candidate, self._writers = greatest, set(writers)
            self.look(writers)

    def look(self, writers: Collection[str]) -> None:
        """Take the transactions that are writing now."""
        if self._candidate is None:
            return
        prepared = {writer for writer in writers if writer.startswith(_PREPARED)}
        self._writers = (self._writers & set(writers)) | prepared
        if not self._writers:
            self.bound, self._candidate = self._candidate, None


class KeysetBatch(NamedTuple):
    """Rows that were read together.

    Attributes:
        keys, stamps, values: of each row.
        read_to: the key up to which the partition was read.
        greatest: the greatest key of the table that was seen.
        bad: key, text and error of a row behind these that the client cannot represent.
    """

    keys: list[int]
    stamps: list[int | None] | None
    values: list[tuple[object, ...]]
    read_to: int
    greatest: int
    bad: tuple[int, str, Exception] | None = None
