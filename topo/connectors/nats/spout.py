"""A spout that reads a JetStream stream by sequence numbers: each subject is a partition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from itertools import combinations
from typing import Any, Literal

from topo.api.context import TaskContext
from topo.api.durations import duration_ms
from topo.api.generator_reader import GeneratorReader, Yielded
from topo.api.partition_values import BadRecord, Partition, PartitionReader, SourceRows
from topo.api.partitions import PartitionedSpout
from topo.api.spout import SpoutCollector
from topo.connectors.argument_checks import checks_arguments
from topo.connectors.nats.connection import NatsConnection, NatsServers, is_unreachable
from topo.connectors.nats.durable_consumer import DurableConsumer
from topo.connectors.nats.durable_reader import DurableReader
from topo.connectors.nats.subject_feed import METADATA, Fetched, NatsMessage, StreamState, SubjectFeed, overlap, state_of
from topo.connectors.record_decoder import Deserialize, decoder_of, record_fields
from topo.connectors.server_link import RequestLine, ServerLink
from topo.errors import ConfigError, TopoEnvironmentError


class NatsSpout(PartitionedSpout):
    """Emits the messages of a JetStream stream in their order. Each subject filter, or each subject of a pattern, is a partition.

        builder.set_spout("orders", NatsSpout("nats://localhost", "ORDERS", value_deserializer="json", fields=("id", "cents")))
        builder.set_spout("clicks", NatsSpout("nats://localhost", "CLICKS", pattern="clicks.*"), 4)

    | delivery | promise |
    | --- | --- |
    | `at_least_once` | no message is missing; some repeat after a recovery |
    | `exactly_once` | reads again from the checkpoint's sequence number of each partition; refused with `durable` |
    | `at_most_once` | a message counts as soon as it was emitted |

    It reads without acknowledgements, by consumers that last as long as its connection: topo keeps the positions. So it reads
    streams with limits retention, and refuses work queues and interest retention, which remove messages as they are delivered.

    With `durable` tasks, and other programs, share a consumer that the server keeps: each message goes to one of them, in no
    order, and is acknowledged when it is done. Any stream can be read so.
    """

    is_endless = True

    @checks_arguments
    def __init__(
        self,
        servers: str | Sequence[str],
        stream: str,
        *,
        subjects: str | Sequence[str] = ">",
        pattern: str | None = None,
        durable: str | None = None,
        ack_wait: str | timedelta = "30s",
        start: Literal["earliest", "latest"] = "earliest",
        value_deserializer: str | Deserialize = "bytes",
        fields: Sequence[str] | None = None,
        metadata: Sequence[str] = (),
        timestamp: Literal["record"] | None = "record",
        batch: int = 500,
        timeout: str | timedelta = "5s",
        discovery_interval: str | timedelta | None = "10s",
        max_drift: str | timedelta | None = None,
        on_bad_record: Literal["dead_letter", "fail", "drop"] = "dead_letter",
        on_lost: Literal["fail", "skip"] = "fail",
        config: Mapping[str, Any] | None = None,
    ) -> None:
        """Keep what to read; nothing is connected yet.

        Args:
            servers: a URL, "nats://[user:password@]host:port", or several of one cluster.
            stream: name of the stream.
            subjects: filters such as "orders.north" and "orders.south.*", each of which is a partition. They must not overlap.
            pattern: instead of `subjects`: each subject of the stream that matches it is a partition, also those that come later.
            durable: name of a durable consumer that is shared; it is made where there is none. With one filter, and no pattern.
            ack_wait: of a durable consumer that is made: how long messages of a dead process are held for it.
            start: where to begin when the topology first starts: with the first message, or behind the last one. Subjects that a
                pattern finds later are read from their first message.
            value_deserializer: how the data of a message is decoded: "bytes", "text" (UTF-8), "json", or a function of bytes.
            fields: keys of the decoded message that become the fields of the tuple; with a "?" at the end one may be missing,
                and is None. Without, the one field is `value`.
            metadata: more fields: "stream", "subject", "sequence", "timestamp" (milliseconds), "headers" (a dict).
            timestamp: "record": the time at which the server has stored the message is the tuple's event time; None: it has none.
            batch: the most messages of one request.
            timeout: how long a request waits for its reply before the server counts as lost.
            discovery_interval: see `PartitionedSpout`, as the next three.
            max_drift: of event time between partitions.
            on_bad_record: a message that cannot be decoded.
            on_lost: messages that were removed before they were read, or a stream that was made again.
            config: more arguments of `nats.connect`, such as `user_credentials`, `token` or `tls`.

        Raises:
            ConfigError: an argument cannot be used, or the client of NATS is missing.
        """
        filters = (subjects,) if isinstance(subjects, str) else tuple(subjects)
        if not isinstance(stream, str) or not stream or set(stream) & set(" .*>\t"):
            raise ConfigError(f"NatsSpout: stream={stream!r} must be the name of a stream")
        if pattern is not None and filters != (">",):
            raise ConfigError("NatsSpout: give either subjects or pattern")
        if not filters or not all(isinstance(one, str) and one for one in filters) or len(set(filters)) < len(filters):
            raise ConfigError(f"NatsSpout: subjects={subjects!r} must be different filters")
        for one, other in combinations(filters, 2):
            if overlap(one, other):
                raise ConfigError(f"NatsSpout: subjects {one!r} and {other!r} overlap: messages of both would be emitted twice")
        if durable is not None:
            if not isinstance(durable, str) or not durable or set(durable) & set(" .*>\t"):
                raise ConfigError(f"NatsSpout: durable={durable!r} must be the name of a consumer")
            if pattern is not None or len(filters) > 1:
                raise ConfigError("NatsSpout: durable= takes one filter as subjects=, and no pattern")
        self._durable, self._ack_wait_s = durable, duration_ms(ack_wait) / 1000
        if self._ack_wait_s < 1:
            raise ConfigError(f"NatsSpout: ack_wait={ack_wait!r} must be at least 1s")
        if batch < 1:
            raise ConfigError(f"NatsSpout: batch={batch!r} must be at least 1")
        self._decode = decoder_of(value_deserializer, fields)
        self.outputs = record_fields(fields, metadata, METADATA)
        self._metadata = tuple(metadata)
        self.discovery_interval = discovery_interval if durable is None else None
        self.max_drift = max_drift
        self.on_bad_record, self.on_lost = on_bad_record, on_lost
        self._stream, self._filters, self._pattern, self._start = stream, filters, pattern, start
        self._has_time = timestamp == "record"
        self._batch = batch
        self._servers = NatsServers("NatsSpout", servers, timeout, config or {})
        self._state: StreamState | None = None
        """As the last discovery has found it."""
        self._subjects: frozenset[str] = frozenset()
        """Those that were found; one without messages is left out by the server, and is none the less a partition."""

    def open(self, context: TaskContext, collector: SpoutCollector) -> None:
        """Connect.

        Raises:
            ConfigError: the server refuses this user, or has no such stream.
        """
        self._context, self._collector = context, collector
        if self._durable is not None and context.config.delivery == "exactly_once":
            raise ConfigError(
                "NatsSpout: a durable consumer gives an open message again to any of its readers, so a repeat could not be "
                "recognised: delivery='exactly_once' is refused; leave durable= out, or take 'at_least_once'"
            )
        self._connection = NatsConnection(self._servers)
        self._link = ServerLink(self._servers, context, collector.report_error, is_unreachable)
        self._lost_counter = context.metrics.counter("lost_records")
        self._bytes = context.metrics.counter("bytes")
        self._lags: dict[str, int] = {}
        self._doubtful: set[str] = set()
        """Partitions of which it was reported that messages may have been removed."""
        try:
            self._look()
        except ConfigError:
            self._connection.close()
            raise
        except Exception as error:
            if not is_unreachable(error):
                raise
        super().open(context, collector)

    def _look(self) -> None:
        from nats.js.errors import NotFoundError

        try:
            asked = partial(state_of, stream=self._stream, pattern=self._pattern, acknowledges=self._durable is not None)
            found, subjects = self._connection.run(asked)
        except NotFoundError:
            raise ConfigError(
                f"NatsSpout: {self._servers} has no stream {self._stream!r}; make it, as by `nats stream add {self._stream}`"
            ) from None
        self._subjects |= subjects
        self._state = found

    def partitions(self) -> Iterator[Partition | str]:
        """Yield the filters, or the subjects that match the pattern; of a durable consumer a partition for each task."""
        if self._durable is not None:
            yield from (Partition(f"{self._durable}-{task}", self._durable, task) for task in range(self._context.parallelism))
            return
        try:
            self._look()
        except Exception as error:
            if not is_unreachable(error):
                raise
            if self._state is None:
                raise TopoEnvironmentError(f"NatsSpout: {self._servers} is not reached: {self._servers.shown(error)}") from None
            # The reader reports that the server is not reached.
        yield from self._filters if self._pattern is None else sorted(self._subjects)

    def begin(self, partition: Partition, found_later: bool) -> Any:
        """Return the position in front of the first message, or that of the last one."""
        assert self._state is not None, "partitions() has found it"
        return self._state.end if self._start == "latest" and not found_later else self._state.beginning

    def reader(self, context: TaskContext) -> PartitionReader:
        """Return the reader of a task."""
        if self._durable is None:
            return _NatsReader(self)
        (subject,) = self._filters
        consumer = DurableConsumer(
            self._connection,
            self._stream,
            self._durable,
            subject,
            is_latest=self._start == "latest",
            ack_wait_s=self._ack_wait_s,
            clock=context.clock,
        )
        if self._state is not None:
            consumer.open()
        return DurableReader(
            consumer,
            self._link,
            context,
            self._collector.report_error,
            self._row_of,
            has_time=self._has_time,
            batch=self._batch,
            ack_wait_s=self._ack_wait_s,
            close=self._connection.close,
        )

    def read(self, partition: Partition, position: Any) -> Iterator[Yielded]:
        """Yield the messages of a partition, a request at a time; the next one is under way while they are emitted."""
        name = partition.name
        feed = SubjectFeed(self._connection, self._stream, name, tuple(position), self._batch)
        line: RequestLine[Fetched] = RequestLine(self._context, self._link)
        try:
            while True:
                if line.is_free:
                    line.ask(feed.fetch, always_wakes=False)
                answer = line.take()
                if isinstance(answer, Exception):
                    raise answer
                if answer is not None:
                    self._lags[name] = answer.lag
                    if answer.loss is not None:
                        self._lose(name, *answer.loss)
                    if answer.messages:
                        if line.is_free:
                            line.ask(feed.fetch, always_wakes=False)
                        yield from self._rows(answer)
                        continue
                yield None
        finally:
            self._lags.pop(name, None)

    def _lose(self, name: str, count: int | None, error: TopoEnvironmentError) -> None:
        if count == 0:
            # Each new connection finds it again.
            if name not in self._doubtful:
                self._doubtful.add(name)
                self._collector.report_error(error)
            return
        self._lost_counter.add(count or 1)
        if self.on_lost == "fail":
            raise error
        self._collector.report_error(error)

    def _rows(self, answer: Fetched) -> Iterator[Yielded]:
        values, good = list[tuple[Any, ...]](), list[NatsMessage]()
        for message in answer.messages:
            self._bytes.add(len(message.data))
            try:
                values.append(self._row_of(message))
            except Exception as error:
                if good:
                    yield self._given(values, good)
                yield BadRecord(message.data, message.position, error)
                values, good = [], []
            else:
                good.append(message)
        if good:
            yield self._given(values, good)

    def _row_of(self, message: NatsMessage) -> tuple[Any, ...]:
        return (*self._decode(message.data), *[getattr(message, name) for name in self._metadata])

    def _given(self, values: list[tuple[Any, ...]], messages: Sequence[NatsMessage]) -> SourceRows:
        stamps = [message.timestamp for message in messages] if self._has_time else None
        return SourceRows(values, [message.position for message in messages], stamps)


class _NatsReader(GeneratorReader):
    """Reads the partitions of one task over one connection."""

    def __init__(self, spout: NatsSpout) -> None:
        super().__init__(spout.read, spout.begin, spout.committed)
        self._spout = spout

    def lag(self) -> int | None:
        lags = list(self._spout._lags.values())
        return sum(lags) if lags or not self._readings else None

    def close(self) -> None:
        super().close()
        # Behind a request that is under way.
        self._spout._context.run_beside(self._spout._connection.close)
