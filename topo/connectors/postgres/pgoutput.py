"""The messages of PostgreSQL's logical replication, as its plugin pgoutput writes them (protocol version 1).

Pure: bytes in, changes out. https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from topo.errors import PeerError

EPOCH_MS = 946_684_800_000
"""The times of the protocol begin in the year 2000; this is that moment in milliseconds since 1970."""

LoadValue = Callable[[int, bytes], Any]
"""Returns the value that a text of a type, by its oid, stands for."""

LogPosition = tuple[int, int]
"""Where a transaction's commit is in the log (LSN), and the number of a row in it from 1; 0: in front of its first row."""


class ReplicatedTable(NamedTuple):
    """A table as a message describes it: its name with its schema, and name and type of each column."""

    name: str
    columns: tuple[tuple[str, int], ...]


class RowChange(NamedTuple):
    """One changed row.

    Attributes:
        position: of the row.
        stamp: when its transaction was committed, in milliseconds.
        values: operation, table, new row, old row: "insert", "update", "delete" or "truncate"; a dict by column, or None.
        error: why the row cannot be read, with `raw` and no values; else None.
        raw: the message.
    """

    position: LogPosition
    stamp: int
    values: tuple[Any, ...] = ()
    error: Exception | None = None
    raw: bytes = b""


class _Cursor:
    """Reads the fields of one message."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at

    def take(self, format: str) -> Any:
        (found,) = struct.unpack_from(format, self.data, self.at)
        self.at += struct.calcsize(format)
        return found

    def text(self) -> str:
        end = self.data.index(b"\0", self.at)
        found = self.data[self.at : end].decode()
        self.at = end + 1
        return found

    def bytes(self) -> bytes:
        size = self.take("!i")
        found = self.data[self.at : self.at + size]
        self.at += size
        return found


class ChangeDecoder:
    """Turns the messages of one connection, in their order, into changes.

    Args:
        load: returns the value of a text.

    Attributes:
        open_at: LSN of the commit of the transaction whose messages come; None between transactions.
        ends: the LSN behind the last transaction that was complete, by the position of its last row.
    """

    def __init__(self, load: LoadValue) -> None:
        self._load = load
        self._tables: dict[int, ReplicatedTable] = {}
        self.open_at: int | None = None
        self._stamp = self._row = 0
        self.ends: tuple[LogPosition, int] = ((0, 0), 0)

    def decode(self, message: bytes) -> Iterator[RowChange]:
        """Yield the changes of a message.

        Raises:
            PeerError: it breaks the protocol.
        """
        kind = message[:1]
        try:
            if kind == b"B":
                self.open_at, at, _transaction = struct.unpack_from("!QQI", message, 1)
                self._stamp, self._row = at // 1000 + EPOCH_MS, 0
            elif kind == b"C":
                commit, end = struct.unpack_from("!QQ", message, 2)
                self.ends, self.open_at = ((commit, self._row), end), None
            elif kind == b"R":
                self._relation(_Cursor(message, 1))
            elif kind in (b"I", b"U", b"D"):
                yield self._change(kind, message)
            elif kind == b"T":
                yield from self._truncations(_Cursor(message, 1))
            # Origins, types and messages of programs have no rows.
        except (struct.error, ValueError, KeyError, IndexError) as error:
            raise PeerError(f"a message of kind {kind!r} of the replication cannot be read: {error!r}") from error

    def _relation(self, cursor: _Cursor) -> None:
        number = cursor.take("!I")
        schema, name = cursor.text(), cursor.text()
        cursor.take("!c")
        columns = []
        for _ in range(cursor.take("!H")):
            cursor.take("!b")
            column = cursor.text()
            columns.append((column, cursor.take("!I")))
            cursor.take("!i")
        self._tables[number] = ReplicatedTable(f"{schema or 'pg_catalog'}.{name}", tuple(columns))

    def _next(self) -> LogPosition:
        if self.open_at is None:
            raise ValueError("a row outside of a transaction")
        self._row += 1
        return self.open_at, self._row

    def _change(self, kind: bytes, message: bytes) -> RowChange:
        position = self._next()
        cursor = _Cursor(message, 1)
        table = self._tables[cursor.take("!I")]
        parts: dict[bytes, dict[str, tuple[int, bytes | None]]] = {}
        while cursor.at < len(message):
            part = cursor.take("!c")
            parts[part] = dict(self._columns(cursor, table))
        try:
            new = self._row_of(parts.get(b"N"))
            old = self._row_of(parts.get(b"O", parts.get(b"K")))
        except Exception as error:
            return RowChange(position, self._stamp, error=error, raw=message)
        if new is not None and b"O" in parts and old is not None:
            # Values that are stored aside and have not changed are in the old row alone.
            new = {name: new[name] if name in new else old[name] for name, _ in table.columns if name in new or name in old}
        if old is not None and b"K" in parts:
            keys = {name for name, (_, data) in parts[b"K"].items() if data is not None}
            old = {name: value for name, value in old.items() if name in keys}
        operation = {b"I": "insert", b"U": "update", b"D": "delete"}[kind]
        return RowChange(position, self._stamp, (operation, table.name, new, old))

    def _columns(self, cursor: _Cursor, table: ReplicatedTable) -> Iterator[tuple[str, tuple[int, bytes | None]]]:
        """Yield name, type and text of the columns of a row; those of values that are not sent are left out."""
        count = cursor.take("!H")
        for name, type_ in table.columns[:count]:
            kind = cursor.take("!c")
            if kind == b"n":
                yield name, (type_, None)
            elif kind == b"t":
                yield name, (type_, cursor.bytes())
            elif kind != b"u":
                raise ValueError(f"a value of kind {kind!r}")

    def _row_of(self, texts: dict[str, tuple[int, bytes | None]] | None) -> dict[str, Any] | None:
        if texts is None:
            return None
        return {name: None if data is None else self._load(type_, data) for name, (type_, data) in texts.items()}

    def _truncations(self, cursor: _Cursor) -> Iterator[RowChange]:
        count = cursor.take("!I")
        cursor.take("!b")
        for _ in range(count):
            yield RowChange(self._next(), self._stamp, ("truncate", self._tables[cursor.take("!I")].name, None, None))


def lsn_of(text: str) -> int:
    """Return the number of a place in the log that is written as "16/B374D848"."""
    high, low = text.split("/")
    return (int(high, 16) << 32) + int(low, 16)


def lsn_text(lsn: int) -> str:
    """Return a place in the log as SQL has it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def feedback(confirmed: int) -> bytes:
    """Return the message that the server may drop its log up to a place. Its time, which only statistics show, is 0."""
    return struct.pack("!cQQQqb", b"r", confirmed, confirmed, confirmed, 0, 0)


class Confirmation:
    """Up to which place the server may drop its log.

    Nothing behind a row that is not done is confirmed. While no row is in flight the end of the log is, too: otherwise a quiet
    table in a busy database would keep the whole log on disk.

    Attributes:
        confirmed: that place.
        log_end: the end of the log, as the server has reported it last.
    """

    def __init__(self, position: LogPosition) -> None:
        """Begin behind a position: everything in front of it is done."""
        self.confirmed = self.log_end = position[0]
        self._done = self._given = position

    def given(self, position: LogPosition) -> None:
        """A row was emitted."""
        self._given = position

    def done(self, position: LogPosition, ends: tuple[LogPosition, int]) -> None:
        """Everything up to a row is done. `ends`: the last row of the last complete transaction, and the place behind it."""
        self._done = max(self._done, position)
        last, end = ends
        # Of a transaction that is done in part all is needed again.
        self._confirm(end if self._done == last else self._done[0])

    def seen(self, log_end: int) -> None:
        """The server has reported the end of its log."""
        self.log_end = max(self.log_end, log_end)

    def sent(self, lsn: int) -> None:
        """The server has sent everything up to a place, and no transaction is open."""
        if self._done == self._given:
            self._confirm(lsn)

    def _confirm(self, lsn: int) -> None:
        self.confirmed = max(self.confirmed, lsn)
        self.log_end = max(self.log_end, self.confirmed)
