"""A sink that appends tuples to a Redis stream."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgpack

from topo.api.context import TaskContext
from topo.api.tuples import Tuple
from topo.api.two_phase import TwoPhaseSink
from topo.connectors.argument_checks import checks_arguments
from topo.connectors.record_encoder import Serialize, serializer_of
from topo.connectors.redis.client import RedisServer, is_unreachable
from topo.connectors.redis.entries import EntryEncoder
from topo.connectors.redis.scripts import PUBLISH, STAGE
from topo.connectors.server_link import ServerLink
from topo.connectors.spilling import Spilling
from topo.errors import ConfigError, SinkBlockedError, StagedRowsLostError, TopoEnvironmentError, UnsupportedValueError

_SPILL_ROWS = 10_000
"""Rows of a transaction that wait in memory before they are staged."""
_STEP_ROWS = 1000
"""Rows that a script stages or publishes in one step: the server does nothing else meanwhile."""
_MOST_FIELDS = 2000
"""Of an entry: a script passes on its fields and values as arguments, of which there may be some 8000."""


class RedisStreamSink(TwoPhaseSink):
    """Appends an entry to a stream for each tuple. Several tasks, and topologies, may write to one stream.

        builder.set_bolt("out", RedisStreamSink("redis://localhost", "totals", maxlen=1_000_000)).shuffle_grouping("count")

    | delivery | promise |
    | --- | --- |
    | `exactly_once` | each row is one entry, when its checkpoint is complete |
    | `at_least_once` | no row is missing; entries repeat after a recovery, and where a reply was lost |
    | `at_most_once` | rows can be missing |

    With `exactly_once` rows are staged in lists beside the stream, `topo:{STREAM}:TOPOLOGY.COMPONENT:...`, and a script moves
    them and sets a marker in one step.
    """

    @checks_arguments
    def __init__(
        self,
        url: str,
        stream: str,
        *,
        fields: Sequence[str] | None = None,
        value_serializer: str | Serialize = "text",
        maxlen: int | None = None,
        max_batch: int = 1000,
        flush_interval: str | timedelta | float = "100ms",
        timeout: str | timedelta = "5s",
        config: Mapping[str, Any] | None = None,
    ) -> None:
        """Keep where to write; nothing is connected yet.

        Args:
            url: "redis://[[user]:password@]host:port/db", "rediss://..." with TLS, or "unix://[[user]:password@]/path".
            stream: key of the stream; it is made by its first entry.
            fields: fields of the tuples that are written; None: all. A value that is None is left out of the entry.
            value_serializer: how each value is written: "text" (texts and numbers), "bytes", "json", or a function that returns
                bytes.
            maxlen: trim the stream to about this many entries. Readers may lose those that they have not read.
            max_batch: tuples that are written together, but with `exactly_once`.
            flush_interval: the longest that a tuple waits for others, but with `exactly_once`.
            timeout: how long a command waits for its reply before the server counts as lost.
            config: more arguments of `redis.Redis`, such as those of TLS.

        Raises:
            ConfigError: an argument cannot be used, or the client of Redis is missing.
        """
        super().__init__(max_batch=max_batch, flush_interval=flush_interval)
        if not isinstance(stream, str) or not stream:
            raise ConfigError(f"RedisStreamSink: stream={stream!r} must be a key")
        if maxlen is not None and maxlen < 1:
            raise ConfigError(f"RedisStreamSink: maxlen={maxlen!r} must be at least 1, or None")
        self._encoder = EntryEncoder(fields, serializer_of(value_serializer))
        self.required_fields = fields or ()
        self._stream, self._maxlen = stream, maxlen
        self._server = RedisServer("RedisStreamSink", url, timeout, config or {})

    # -- connection ----------------------------------------------------------------------------------------------------------

    def open(self, context: TaskContext) -> None:
        """Connect.

        Raises:
            ConfigError: the server refuses this user.
        """
        self._task, self._tasks = context.task_index, context.parallelism
        # Keys with a common tag are in one part of a cluster.
        self._base = f"topo:{{{hash_tag(self._stream)}}}:{context.topology}.{context.component}"
        self._markers, self._index = f"{self._base}:published", f"{self._base}:staged"
        # A replacement must never name a list as its predecessor did, which may be alive still.
        self._process = os.urandom(6).hex()
        self._number = 0
        self._rows: list[Any] = []
        self._staged, self._has_list = 0, False
        self._has_reported_other = False
        self._under_way = 0
        """Rows of a step whose reply has not come: it may be done."""
        self._clock = context.clock
        metrics = context.metrics
        self._written, self._rejected = metrics.counter("rows"), metrics.counter("rejected_rows")
        self._staged_gauge, self._commit_ms = metrics.gauge("staged_rows"), metrics.histogram("commit_ms")
        report = self._collector.report_error
        self._link = ServerLink(self._server, context, report, is_unreachable, explained=self._server.explained)
        self._spilling = Spilling(f"{self._server}, stream {self._stream!r}", _SPILL_ROWS, report)
        self._client = self._server.connect()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    # -- a transaction -------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start with no rows, under another number."""
        self._rows = []
        self._staged, self._has_list, self._under_way = 0, False, 0
        self._number += 1
        self._spilling.done()

    def write(self, tup: Tuple) -> None:
        """Add a row.

        Raises:
            UnsupportedValueError: a value cannot be written, or there is none.
            SinkBlockedError: nothing can be staged for now, and too many rows wait.
        """
        try:
            entry = self._encoder.entry(tup.as_dict())
            if not 0 < len(entry) <= 2 * _MOST_FIELDS:
                raise UnsupportedValueError(f"an entry has 1 to {_MOST_FIELDS} fields, and this one {len(entry) // 2}")
        except Exception:
            self._rejected.add()
            raise
        if not self._is_staged:
            self._rows.append(entry)
            return
        if len(self._rows) >= self._spilling.at:
            try:
                self._spill()
            except SinkBlockedError:
                raise
            except Exception as error:
                self._spilling.refused(error, len(self._rows))
        self._rows.append(msgpack.packb(entry, use_bin_type=False))

    def pre_commit(self) -> Any:
        """Have all rows in the list of the transaction. The token: task, process, number, and how many rows it has.

        In the other modes the token is the batch itself.
        """
        if not self._is_staged:
            return self._rows or None
        self._spill()
        self._staged_gauge.set(self._staged)
        if not self._staged:
            return None
        return [self._task, self._process, self._number, self._staged]

    def commit(self, token: Any) -> None:
        """Publish a transaction, step by step; the marker is set with the last one."""
        begun = self._clock()
        if not self._is_staged:
            self._append(token)
        else:
            self._publish(*token)
        self._commit_ms.record(1000 * (self._clock() - begun))

    def _append(self, rows: Sequence[Any]) -> None:
        """Append a batch, all of it or, unless the reply is lost, nothing."""
        trim = () if self._maxlen is None else ("MAXLEN", "~", self._maxlen)
        pipeline = self._client.pipeline(transaction=True)
        for entry in rows:
            pipeline.execute_command("XADD", self._stream, *trim, "*", *entry)
        self._link.ask(pipeline.execute)
        self._written.add(len(rows))

    def _publish(self, task: int, process: str, number: int, count: int) -> None:
        keys = (self._stream, self._key(task, process, number), self._markers, self._index)
        maxlen = "" if self._maxlen is None else self._maxlen
        left = 1
        while left > 0:
            given = (task, number, count, _STEP_ROWS, maxlen)
            left, is_other = self._link.ask(self._client.eval, PUBLISH, len(keys), *keys, *given)
            if is_other and not self._has_reported_other:
                self._has_reported_other = True
                self._collector.report_error(self._conflict(task))
        if left == 0:
            self._written.add(count)
            return
        self._collector.report_error(
            StagedRowsLostError(
                f"{count} rows were staged for stream {self._stream!r}, and {-1 - left} of them are at {self._server}. Either "
                "somebody has removed them, or it has lost data, or it is not the server that an earlier worker has written to."
            )
        )

    def _conflict(self, task: int) -> TopoEnvironmentError:
        writer = self._base.rpartition(":")[2]
        return TopoEnvironmentError(
            f"another process has published to stream {self._stream!r} at {self._server} as task {task} of {writer!r}, too: when "
            "one of both starts, staged rows of the other are removed. Two topologies must not both be called "
            f"{writer.partition('.')[0]!r}: submit one under another name"
        )

    def abort(self, token: Any) -> None:
        """Remove staged rows."""
        if token is None:
            if self._has_list:
                self._remove([self._key(self._task, self._process, self._number)])
        else:
            self._remove([self._key(*token[:3])])

    def recover(self, tokens: Sequence[Any]) -> None:
        """Publish what counts; remove the other lists of this task, and of tasks that no longer exist."""
        if not self._is_staged:
            return
        for token in tokens:
            self.commit(token)
        left = []
        for key in self._link.ask(self._client.smembers, self._index):
            task = int(key.decode().removeprefix(f"{self._base}:").partition(":")[0])
            if task % self._tasks == self._task:
                left.append(key)
        self._remove(left)
        marker = self._link.ask(self._client.hget, self._markers, self._task)
        self._number = max(self._number, int(marker or 0))

    # -- requests ------------------------------------------------------------------------------------------------------------

    def _key(self, task: int, process: str, number: int) -> str:
        return f"{self._base}:{task}:{process}:{number}"

    def _spill(self) -> None:
        """Move the rows from memory to the list. If it fails they stay.

        Raises:
            SinkBlockedError: rows that were staged are gone.
        """
        key = self._key(self._task, self._process, self._number)
        while self._rows:
            # A repetition has the same rows, so that their number shows whether the first one was done.
            rows = self._rows[: self._under_way or _STEP_ROWS]
            self._under_way = len(rows)
            # Also where the reply is lost.
            self._has_list = True
            has = self._link.ask(self._client.eval, STAGE, 2, key, self._index, self._staged, *rows)
            if has != self._staged + len(rows):
                raise SinkBlockedError(
                    f"of the {self._staged} rows staged for stream {self._stream!r} {has} are at {self._server}: somebody has "
                    "removed them, or it has lost data"
                )
            self._staged, self._under_way = has, 0
            del self._rows[: len(rows)]
        self._spilling.done()

    def _remove(self, keys: Sequence[Any]) -> None:
        if keys:
            pipeline = self._client.pipeline(transaction=True)
            pipeline.delete(*keys)
            pipeline.srem(self._index, *keys)
            self._link.ask(pipeline.execute)


def hash_tag(key: str) -> str:
    """Return the part of a key by which a cluster places it: that in the first braces, or all of it."""
    _, brace, rest = key.partition("{")
    tag, closing, _ = rest.partition("}")
    return tag if brace and closing and tag else key
