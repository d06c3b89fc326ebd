"""A spout that reads Redis streams by entry id: each stream is a partition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal

from topo.api.context import TaskContext
from topo.api.durations import duration_ms
from topo.api.partition_values import Partition, PartitionReader
from topo.api.partitions import PartitionedSpout
from topo.api.spout import SpoutCollector
from topo.connectors.argument_checks import checks_arguments
from topo.connectors.record_decoder import Deserialize, deserializer_of
from topo.connectors.redis.client import RedisServer, is_unreachable
from topo.connectors.redis.entries import EntryDecoder, StreamInfo
from topo.connectors.redis.stream_reader import StreamReader, stream_infos
from topo.connectors.server_link import ServerLink
from topo.errors import ConfigError


class RedisStreamSpout(PartitionedSpout):
    """Emits the entries of Redis streams, in the order of each stream. A stream is a partition.

        builder.set_spout("orders", RedisStreamSpout("redis://localhost", "orders", fields=("id", "cents?")))
        builder.set_spout("clicks", RedisStreamSpout("redis://localhost", pattern="clicks:*"), 4)

    | delivery | promise |
    | --- | --- |
    | `at_least_once` | no entry is missing; some repeat after a recovery |
    | `exactly_once` | reads again from the checkpoint's entry of each stream |
    | `at_most_once` | an entry counts as soon as it was emitted |

    It reads without a consumer group: topo keeps the positions, and tasks share streams, not the entries of one stream.
    An entry that was trimmed before it was read is lost, and reported (`on_lost`).
    """

    @checks_arguments
    def __init__(
        self,
        url: str,
        streams: str | Sequence[str] = (),
        *,
        pattern: str | None = None,
        start: Literal["earliest", "latest"] = "earliest",
        fields: Sequence[str] | None = None,
        metadata: Sequence[str] = (),
        value_deserializer: str | Deserialize = "text",
        timestamp: Literal["record"] | None = "record",
        batch: int = 1000,
        wait: str | timedelta = "200ms",
        timeout: str | timedelta = "5s",
        discovery_interval: str | timedelta | None = "10s",
        max_drift: str | timedelta | None = None,
        on_bad_record: Literal["dead_letter", "fail", "drop"] = "dead_letter",
        on_lost: Literal["fail", "skip"] = "fail",
        config: Mapping[str, Any] | None = None,
    ) -> None:
        """Keep what to read; nothing is connected yet.

        Args:
            url: "redis://[[user]:password@]host:port/db", "rediss://..." with TLS, or "unix://[[user]:password@]/path".
            streams: keys of the streams, or one; a stream may be made later.
            pattern: instead of `streams`: all streams whose key matches it, as SCAN does, also those that are made later.
            start: where to begin when the topology first starts: with the first entry, or behind the last one. Streams that a
                pattern finds later are read from their first entry.
            fields: fields of the entries that become those of the tuple; with a "?" at the end one may be missing, and is None.
                Without, the one field is `value`: a dict of the entry.
            metadata: more fields: "stream", "id", "timestamp" (milliseconds).
            value_deserializer: how each value of an entry is decoded: "text" (UTF-8), "bytes", "json", or a function of bytes.
            timestamp: "record": the milliseconds of the entry's id are the tuple's event time; None: it has none.
            batch: the most entries of one reply, shared by the streams of a task.
            wait: how long the server holds a request while there are no entries.
            timeout: how long a command waits for its reply before the server counts as lost.
            discovery_interval: see `PartitionedSpout`, as the next three.
            max_drift: of event time between streams.
            on_bad_record: an entry that cannot be decoded.
            on_lost: entries that were removed before they were read, or a stream that was deleted.
            config: more arguments of `redis.Redis`, such as those of TLS.

        Raises:
            ConfigError: an argument cannot be used, or the client of Redis is missing.
        """
        names = (streams,) if isinstance(streams, str) else tuple(streams)
        if bool(names) == (pattern is not None):
            raise ConfigError("RedisStreamSpout: give either streams or pattern")
        if not all(isinstance(name, str) and name for name in names) or len(set(names)) < len(names):
            raise ConfigError(f"RedisStreamSpout: streams={streams!r} must be different keys")
        if batch < 1:
            raise ConfigError(f"RedisStreamSpout: batch={batch!r} must be at least 1")
        wait_ms, timeout_ms = duration_ms(wait), duration_ms(timeout)
        if not 0 <= wait_ms < timeout_ms:
            raise ConfigError(f"RedisStreamSpout: wait={wait!r} must be shorter than timeout={timeout!r}")
        self._server = RedisServer("RedisStreamSpout", url, timeout, config or {})
        self._decoder = EntryDecoder(fields, metadata, deserializer_of(value_deserializer))
        self.outputs = self._decoder.outputs
        self.discovery_interval, self.max_drift = discovery_interval, max_drift
        self.on_bad_record, self.on_lost = on_bad_record, on_lost
        self.batch_size = batch
        self._names, self._pattern, self._start = names, pattern, start
        self._has_time = timestamp == "record"
        self._wait_ms = wait_ms
        self._infos: Mapping[str, StreamInfo | Exception] = {}
        """The streams as the last discovery has found them; replaced as a whole, since its thread is another one."""

    def open(self, context: TaskContext, collector: SpoutCollector) -> None:
        """Connect.

        Raises:
            ConfigError: the server refuses this user.
        """
        self._client = self._server.connect()
        self._link = ServerLink(self._server, context, collector.report_error, is_unreachable, explained=self._server.explained)
        super().open(context, collector)

    def partitions(self) -> Iterator[Partition | str]:
        """Yield the streams: those named, or those that match the pattern now."""
        try:
            names, unreadable = list(self._names), list[str]()
            if self._pattern is not None:
                # A scan may give a key twice.
                keys = {
                    key.decode(errors="surrogateescape")
                    for key in self._client.scan_iter(self._pattern, count=1000, _type="stream")
                }
                names = sorted(key for key in keys if Partition(key).can_be_stored)
                unreadable = sorted(keys.difference(names))
            self._infos = dict(zip(names, stream_infos(self._client, names, self._link), strict=True))
        except Exception as error:
            # The reader reports that the server is not reached.
            if not self._infos or not is_unreachable(error):
                raise (self._server.explained(error) or error) from error
            unreadable = []
        yield from self._infos
        # These are reported, and passed over.
        yield from unreadable

    def begin(self, partition: Partition, found_later: bool) -> Any:
        """Return the position in front of a stream's first entry, or that of its last one.

        Raises:
            TopoEnvironmentError: the key holds no stream.
            ConfigError: the server is too old.
        """
        info = self._infos[partition.name]
        if isinstance(info, Exception):
            raise info
        return info.end if self._start == "latest" and not found_later else info.beginning

    def reader(self, context: TaskContext) -> PartitionReader:
        """Return the reader of a task."""
        return StreamReader(
            self._client, self._link, context, self._decoder, self.begin, self.batch_size, self._wait_ms, self._has_time
        )
