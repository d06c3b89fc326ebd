"""A sink that writes tuples as Redis hashes, by key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from topo.api.context import TaskContext
from topo.api.durations import duration_ms
from topo.api.tuples import Tuple
from topo.api.two_phase import TwoPhaseSink
from topo.connectors.argument_checks import checks_arguments
from topo.connectors.name_templates import fields_in, filled
from topo.connectors.record_encoder import Serialize, fields_named, serializer_of
from topo.connectors.redis.client import RedisServer, is_unreachable
from topo.connectors.redis.entries import EntryEncoder
from topo.connectors.server_link import ServerLink
from topo.connectors.spilling import Spilling
from topo.errors import ConfigError, RightMissingError, TopoEnvironmentError, UnsupportedValueError


class RedisSink(TwoPhaseSink):
    """Writes each tuple as a hash under the key that it has: the last tuple of a key replaces the fields of the one before.

        builder.set_bolt("users", RedisSink("redis://localhost", key="user:{user}", ttl="7d")).fields_grouping("visits", "user")

    | delivery | promise |
    | --- | --- |
    | `exactly_once` | each key has the fields of its last tuple |
    | `at_least_once` | each tuple is written; an older one of a key that is replayed behind a newer one replaces its fields |
    | `at_most_once` | tuples can be missing |

    Give the bolt a fields grouping by the fields of the key: then the last tuple of a key is the last one emitted, with
    `exactly_once` also after a recovery. Tuples are seen as they are written, also with `exactly_once`: while they are
    replayed, a reader can see an older one of a key.
    """

    @checks_arguments
    def __init__(
        self,
        url: str,
        key: str,
        *,
        fields: Sequence[str] | None = None,
        value_serializer: str | Serialize = "text",
        ttl: str | timedelta | None = None,
        max_batch: int = 1000,
        flush_interval: str | timedelta | float = "100ms",
        timeout: str | timedelta = "5s",
        config: Mapping[str, Any] | None = None,
    ) -> None:
        """Keep where to write; nothing is connected yet.

        Args:
            url: "redis://[[user]:password@]host:port/db", "rediss://..." with TLS, or "unix://[[user]:password@]/path".
            key: the key of a tuple's hash, with the names of fields in braces: "user:{user}". These are texts or integers.
            fields: fields of the tuples that are written; None: all. A value that is None removes its field from the hash.
            value_serializer: how each value is written: "text" (texts and numbers), "bytes", "json", or a function that returns
                bytes.
            ttl: how long a key is kept after it was last written, such as "1h"; None: for ever.
            max_batch: tuples that are written together.
            flush_interval: the longest that a tuple waits for others, but with `exactly_once`: there it is the checkpoint.
            timeout: how long a command waits for its reply before the server counts as lost.
            config: more arguments of `redis.Redis`, such as those of TLS.

        Raises:
            ConfigError: an argument cannot be used, or the client of Redis is missing.
        """
        super().__init__(max_batch=max_batch, flush_interval=flush_interval)
        self._key_of, of_key = filled(key, "RedisSink: key=", _key_text), fields_in(key, "RedisSink: key=")
        if not of_key:
            raise ConfigError(f"RedisSink: key={key!r} must name fields in braces, at least one, such as 'user:{{user}}'")
        self._ttl_ms = None if ttl is None else duration_ms(ttl)
        if self._ttl_ms is not None and self._ttl_ms < 1:
            raise ConfigError(f"RedisSink: ttl={ttl!r} must be at least 1 ms, or None")
        self._fields = None if fields is None else tuple(fields)
        self._encoder = EntryEncoder(fields, serializer_of(value_serializer))
        self.required_fields = fields_named(*of_key, *(fields or ()))
        self._server = RedisServer("RedisSink", url, timeout, config or {})

    def open(self, context: TaskContext) -> None:
        """Connect.

        Raises:
            ConfigError: the server refuses this user.
        """
        self._rows: list[_HashRow] = []
        metrics = context.metrics
        self._written, self._rejected = metrics.counter("rows"), metrics.counter("rejected_rows")
        self._link = ServerLink(
            self._server, context, self._collector.report_error, is_unreachable, explained=self._server.explained
        )
        self._spilling = Spilling(str(self._server), self.max_batch, self._collector.report_error)
        self._client = self._server.connect()

    def begin(self) -> None:
        """Start with no rows."""
        self._rows = []
        self._spilling.done()

    def write(self, tup: Tuple) -> None:
        """Add a row; with `exactly_once` write those that wait when they are a batch.

        Raises:
            UserError: a field of the key is missing, or a value cannot be written, or be part of a key.
            SinkBlockedError: nothing can be written for now, and too many rows wait.
        """
        try:
            row = self._row(tup)
        except Exception:
            self._rejected.add()
            raise
        if self._is_staged and len(self._rows) >= self._spilling.at:
            try:
                self._flush()
            except Exception as error:
                self._spilling.refused(error, len(self._rows))
        self._rows.append(row)

    def _row(self, tup: Tuple) -> _HashRow:
        key, values = self._key_of(tup), tup.as_dict()
        entry = self._encoder.entry(values)
        gone = [name for name in self._fields or values if values[name] is None]
        if not entry and not gone:
            raise UnsupportedValueError("a hash has one field at least, and the tuple has none")
        return key, entry, gone

    def pre_commit(self) -> Any:
        """Write the rows that wait. There is nothing to publish later; in the other modes the token is the batch itself."""
        if not self._is_staged:
            return self._rows or None
        self._flush()
        return None

    def commit(self, token: Any) -> None:
        """Write a batch."""
        self._write_rows(token)

    def abort(self, token: Any) -> None:
        """Drop the rows that wait: their tuples are replayed."""
        if token is None:
            self._rows = []

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _flush(self) -> None:
        if self._rows:
            self._write_rows(self._rows)
            self._rows = []
            self._spilling.done()

    def _write_rows(self, rows: Sequence[_HashRow]) -> None:
        """Write rows in one transaction of the server.

        Raises:
            TopoEnvironmentError: a key holds no hash. The others are written.
        """
        pipeline = self._client.pipeline(transaction=True)
        keys = list[str]()
        for key, entry, gone in rows:
            if entry:
                pipeline.execute_command("HSET", key, *entry)
                keys.append(key)
            if gone:
                pipeline.execute_command("HDEL", key, *gone)
                keys.append(key)
            if self._ttl_ms is not None:
                pipeline.execute_command("PEXPIRE", key, self._ttl_ms)
                keys.append(key)
        replies = self._link.ask(pipeline.execute, False)
        for key, reply in zip(keys, replies, strict=True):
            if isinstance(reply, Exception):
                why = self._link.explained(reply)
                if isinstance(why, RightMissingError):
                    raise why
                raise TopoEnvironmentError(f"key {key!r} at {self._server} cannot be written, and it is tried again: {why}")
        self._written.add(len(rows))


_HashRow = tuple[str, list[bytes], list[str]]
"""Key; field, value, field, value, ...; fields to remove."""


def _key_text(value: Any, name: str) -> str:
    if type(value) not in (str, int):
        raise UnsupportedValueError(f"field {name!r} is part of the key: a {type(value).__name__} is no text or integer")
    return str(value)
