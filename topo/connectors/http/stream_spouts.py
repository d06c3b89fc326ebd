"""Spouts that read what a server sends over one connection: server-sent events, and a WebSocket."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal

from topo.api.context import TaskContext
from topo.api.durations import duration_ms
from topo.api.partition_values import Partition, PartitionReader
from topo.api.partitions import PartitionedSpout
from topo.api.spout import SpoutCollector
from topo.config import parse_size
from topo.connectors.argument_checks import checks_arguments
from topo.connectors.clients import check_installed
from topo.connectors.http.requests import given_headers, shown_url, without_queries
from topo.connectors.http.stream_reader import STREAM, PushedReader, StreamClient
from topo.connectors.record_decoder import decoder_of, record_fields
from topo.connectors.secrets import secrets_of, without
from topo.errors import ConfigError


def _reader(
    spout: SseSpout | WebSocketSpout, make_client: Callable[[], StreamClient], context: TaskContext, collector: SpoutCollector
) -> PartitionReader:
    """Return the reader of the one stream, in whose errors no password, token, query or header stands."""
    hidden = {f"secret-{name}": value for name, value in spout.headers.items()}
    secrets = secrets_of({"url": spout.url, **hidden})

    def clean(text: str) -> str:
        return without(secrets, without_queries(spout.url, text))

    name = f"{type(spout).__name__} {shown_url(spout.url)}"
    return PushedReader(make_client, spout.decode, context, collector.report_error, clean, name)


def _check_url(name: str, url: str, schemes: tuple[str, ...]) -> None:
    check_installed(name, "http", "aiohttp", "aiohttp")
    if not url.lower().startswith(schemes):
        raise ConfigError(f"{name}: url={shown_url(url)!r} must begin with {' or '.join(schemes)}")


class SseSpout(PartitionedSpout):
    """Emits the events of a server (`text/event-stream`), which one task reads.

        builder.set_spout("changes", SseSpout("https://example.org/changes", value_deserializer="json", fields=("title",)))

    The position is the last event's id, sent as `Last-Event-ID`: a promise holds where the server gives ids and honours it.

    | delivery | promise |
    | --- | --- |
    | `at_least_once` | none missing, some repeat after a recovery |
    | `exactly_once` | reads again behind the checkpoint's id |
    | `at_most_once` | the position passes with the emit |

    Events without an id cannot be read again: those that come while no connection is open, or before a recovery, are lost.
    """

    discovery_interval = None
    is_endless = True
    # Losses are reported and counted: nothing can bring the messages back.
    on_lost = "skip"

    @checks_arguments
    def __init__(
        self,
        url: str,
        *,
        events: Collection[str] = (),
        headers: Mapping[str, str] | None = None,
        value_deserializer: str | Callable[[bytes], Any] = "text",
        fields: Sequence[str] | None = None,
        metadata: Sequence[str] = (),
        silence: str | timedelta = "5m",
        max_event: str | int = "1MiB",
        on_bad_record: Literal["dead_letter", "fail", "drop"] = "dead_letter",
    ) -> None:
        """Keep what to read; nothing is opened yet.

        Args:
            url: of the stream.
            events: names of the events to emit; all without. "message" is the name of those that have none.
            headers: of the request, such as Authorization.
            value_deserializer: "text", "json", "bytes" or a function of the data's bytes.
            fields: keys of the decoded data that become fields; without, the one field is `value`.
            metadata: appended fields, of "id" and "event".
            silence: after that time without any bytes a new connection is made; longer than the server's pauses.
            max_event: an event with more characters is a bad record, without its end.
            on_bad_record: see `PartitionedSpout`.

        Raises:
            ConfigError: an argument cannot be used, or aiohttp is missing.
        """
        _check_url("SseSpout", url, ("http://", "https://"))
        self._silence_s, self._most = duration_ms(silence) / 1000, parse_size(max_event)
        if self._silence_s <= 0 or self._most < 1:
            raise ConfigError(f"SseSpout: silence={silence!r} and max_event={max_event!r} must be above zero")
        self.outputs = record_fields(fields, metadata, ("id", "event"))
        self.decode = decoder_of(value_deserializer, fields)
        self.url, self.headers = url, given_headers("SseSpout", url, headers)
        self._events, self._metadata = frozenset(events), tuple(metadata)
        self.on_bad_record = on_bad_record

    def open(self, context: TaskContext, collector: SpoutCollector) -> None:
        """Connect soon."""
        self._collector = collector
        super().open(context, collector)

    def partitions(self) -> Collection[Partition]:
        """Return the one stream."""
        return (STREAM,)

    def reader(self, context: TaskContext) -> PartitionReader:
        """Return a reader of the stream."""
        return _reader(self, self._client, context, self._collector)

    def _client(self) -> StreamClient:
        from topo.connectors.http.sse_client import SseClient

        return SseClient(self.url, self.headers, self._events, self._metadata, self._silence_s, self._most)


class WebSocketSpout(PartitionedSpout):
    """Emits the messages of a WebSocket. It cannot replay: messages are lost while no connection is open, in each delivery mode.

        builder.set_spout("ticks", WebSocketSpout("wss://example.org/feed", subscribe='{"channel": "ticks"}'))

    Lost connections are reported, and made again: the counter `reconnects` has how often, and `lost_records` the messages that
    are known to be lost. With `at_least_once` a message that fails is replayed from memory, as long as the process lives. With
    `exactly_once` a recovery drops all messages since the checkpoint.
    """

    discovery_interval = None
    is_endless = True
    # Losses are reported and counted: nothing can bring the messages back.
    on_lost = "skip"

    @checks_arguments
    def __init__(
        self,
        url: str,
        *,
        subscribe: str | Sequence[str] = (),
        headers: Mapping[str, str] | None = None,
        value_deserializer: str | Callable[[bytes], Any] = "text",
        fields: Sequence[str] | None = None,
        heartbeat: str | timedelta = "20s",
        on_full: Literal["wait", "drop_oldest"] = "wait",
        most_waiting: int = 10_000,
        max_message: str | int = "4MiB",
        on_bad_record: Literal["dead_letter", "fail", "drop"] = "dead_letter",
    ) -> None:
        """Keep what to read; nothing is opened yet.

        Args:
            url: of the socket.
            subscribe: texts that are sent after each connection.
            headers: of the request, such as Authorization.
            value_deserializer: "text", "json", "bytes" or a function of the message's bytes.
            fields: keys of the decoded message that become fields; without, the one field is `value`.
            heartbeat: how often the server is pinged; without its answer in half that time, though there is room for messages, a
                new connection is made.
            on_full: when the topology is slower than the server: "wait" reads no more, so that the server has to wait, or drops
                or closes as it likes; "drop_oldest" drops the messages that wait longest, and counts them.
            most_waiting: messages that wait then, besides 1,000 that are handed over.
            max_message: a longer message ends the connection.
            on_bad_record: see `PartitionedSpout`.

        Raises:
            ConfigError: an argument cannot be used, or aiohttp is missing.
        """
        _check_url("WebSocketSpout", url, ("ws://", "wss://"))
        self._heartbeat_s, self._largest = duration_ms(heartbeat) / 1000, parse_size(max_message)
        if self._heartbeat_s <= 0 or self._largest < 1 or most_waiting < 1:
            given = f"heartbeat={heartbeat!r}, max_message={max_message!r} and most_waiting={most_waiting!r}"
            raise ConfigError(f"WebSocketSpout: {given} must be above zero")
        self.outputs = record_fields(fields)
        self.decode = decoder_of(value_deserializer, fields)
        self.url, self.headers = url, given_headers("WebSocketSpout", url, headers)
        self._subscribe = (subscribe,) if isinstance(subscribe, str) else tuple(subscribe)
        self._drops, self._most_waiting = on_full == "drop_oldest", most_waiting
        self.on_bad_record = on_bad_record

    def open(self, context: TaskContext, collector: SpoutCollector) -> None:
        """Connect soon."""
        self._collector = collector
        super().open(context, collector)

    def partitions(self) -> Collection[Partition]:
        """Return the one stream."""
        return (STREAM,)

    def reader(self, context: TaskContext) -> PartitionReader:
        """Return a reader of the stream."""
        return _reader(self, self._client, context, self._collector)

    def _client(self) -> StreamClient:
        from topo.connectors.http.websocket_client import WebSocketClient

        return WebSocketClient(
            self.url, self.headers, self._subscribe, self._heartbeat_s, self._most_waiting, self._largest, drops=self._drops
        )
