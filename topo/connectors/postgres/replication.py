"""A connection that streams the changes of a replication slot, by psycopg's layer of libpq. It never waits for data."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict

from topo.connectors.postgres.pgoutput import feedback, lsn_text
from topo.connectors.postgres.session import TEXT_FORMS, limited
from topo.connectors.staged_table import quoted
from topo.errors import TopoEnvironmentError

_TIMEOUT = "-c wal_sender_timeout=300000"
"""In milliseconds. A task that waits for others sends nothing meanwhile."""
_TEXTS = " ".join(f"-c {name}={value}" for name, value in TEXT_FORMS.items())


class LogMessage(NamedTuple):
    """A message of the stream: that of the plugin, or none; the end of the log; whether an answer is wanted."""

    data: bytes | None
    log_end: int
    wants_reply: bool = False


class ReplicationStream:
    """The stream of a slot, from the place that the server has kept or a later one.

    Raises:
        psycopg.Error, TopoEnvironmentError: it cannot begin.
    """

    def __init__(self, dsn: str, slot: str, publication: str, position: int) -> None:
        options = f"{conninfo_to_dict(dsn).get('options') or ''} {_TIMEOUT} {_TEXTS}".strip()
        # The decoder knows no other encoding, whatever that of the database is.
        address = limited(dsn, replication="database", options=options, client_encoding="utf8")
        self._connection: psycopg.Connection[Any] = psycopg.connect(address, autocommit=True)
        try:
            pgconn = self._pgconn = self._connection.pgconn
            names = quoted(publication).replace("'", "''")
            command = (
                f"START_REPLICATION SLOT {quoted(slot)} LOGICAL {lsn_text(position)} "
                f"(proto_version '1', publication_names '{names}')"
            )
            result = pgconn.exec_(command.encode())
            if result.status != pq.ExecStatus.COPY_BOTH:
                raise psycopg.OperationalError(result.error_message.decode(errors="replace").strip())
            pgconn.nonblocking = 1
        except BaseException:
            self._connection.close()
            raise

    def messages(self) -> Iterator[LogMessage]:
        """Yield the messages that have come.

        Raises:
            psycopg.Error, TopoEnvironmentError: the connection is lost.
        """
        self._pgconn.consume_input()
        while True:
            size, data = self._pgconn.get_copy_data(1)
            if size == 0:
                return
            if size < 0:
                result = self._pgconn.get_result()
                why = b"" if result is None else result.error_message
                raise TopoEnvironmentError(f"the server has ended the replication: {why.decode(errors='replace').strip()}")
            found = bytes(data)
            if found[:1] == b"w":
                _start, end = struct.unpack_from("!QQ", found, 1)
                yield LogMessage(found[25:], end)
            elif found[:1] == b"k":
                end, _sent_at, wants_reply = struct.unpack_from("!QQ?", found, 1)
                yield LogMessage(None, end, wants_reply)

    def confirm(self, lsn: int) -> None:
        """Let the server drop its log up to a place."""
        self._pgconn.put_copy_data(feedback(lsn))
        self._pgconn.flush()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
