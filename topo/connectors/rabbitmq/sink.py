"""A sink that publishes tuples to an exchange of RabbitMQ."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import count as counter
from itertools import islice
from typing import Any

from topo.api.context import TaskContext
from topo.api.tuples import Tuple
from topo.api.two_phase import TwoPhaseSink
from topo.connectors.argument_checks import checks_arguments
from topo.connectors.name_templates import fields_in, filled
from topo.connectors.rabbitmq.address import RabbitAddress, is_unreachable
from topo.connectors.rabbitmq.publisher import RabbitPublisher, RoutedMessage
from topo.connectors.record_encoder import Select, Serialize, encoder_of, fields_named, selector_of
from topo.connectors.server_link import ServerLink
from topo.connectors.staged_count import StagedCount
from topo.connectors.staged_rows import StagedRows, staging_of
from topo.errors import ConfigError, StagedRowsLostError, TopoEnvironmentError, UnsupportedValueError, UserError

_MOST_KEY_BYTES = 255
_BATCH = 500
"""Messages whose confirms are waited for together in a commit."""


class RabbitSink(TwoPhaseSink):
    """Publishes a persistent message for each tuple, and waits for the broker's confirm.

        builder.set_bolt("alerts", RabbitSink("amqp://guest:guest@localhost", "alerts", "{machine}")).shuffle_grouping("hot")

    | delivery | promise |
    | --- | --- |
    | `at_least_once` | no row is missing; some repeat after a recovery, and where a confirm was lost |
    | `exactly_once` | no row is missing; rows repeat, with the same ids, where a process dies while it publishes a checkpoint |
    | `at_most_once` | rows can be missing |

    RabbitMQ recognises no repeats: a reader that wants each row once keeps the ids of messages that it has seen.
    """

    @checks_arguments
    def __init__(
        self,
        url: str,
        exchange: str,
        routing_key: str | Callable[[Tuple], str],
        *,
        tls: Mapping[str, Any] | None = None,
        value: str | Select | None = None,
        value_serializer: str | Serialize = "json",
        id: str | Select | None = None,
        staging: str | os.PathLike[str] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        max_batch: int = 500,
        flush_interval: str | timedelta | float = "100ms",
        timeout: str | timedelta = "5s",
        heartbeat: str | timedelta = "60s",
    ) -> None:
        """Keep where to publish; nothing is connected yet.

        Args:
            url: "amqp://user:password@host:port/vhost", or "amqps://..." with TLS.
            tls: files of TLS, for a URL with amqps: `ca_certs`, for a broker with a private authority; `certfile`, `keyfile`,
                `keyfile_password`, where it wants certificates of clients; `ciphers`. None: the system's certificates.
            exchange: its name; it has to exist. "": the default one, whose routing keys are names of queues.
            routing_key: names of fields in braces are replaced, as in "orders.{shop}"; or a function of the tuple.
            value: the field, or a function of the tuple, that is the body; None: an object of all fields.
            value_serializer: "json", "text", "bytes", or a function of the value that returns bytes.
            id: the field, or a function of the tuple, that is the message's id, at most 255 bytes; None: it is drawn.
            staging: with `exactly_once`: a folder or URL for staged rows that all workers reach. None: beside the checkpoints.
            storage_options: for fsspec, where `staging` is a URL.
            max_batch: tuples that are published together, but with `exactly_once`.
            flush_interval: the longest that a tuple waits for others, but with `exactly_once`.
            timeout: how long a confirm may take before the broker counts as lost.
            heartbeat: a connection that was idle for half as long is made again.

        Raises:
            ConfigError: an argument cannot be used, or pika is missing.
        """
        super().__init__(max_batch=max_batch, flush_interval=flush_interval)
        self._address = RabbitAddress("RabbitSink", url, timeout, heartbeat, tls)
        if not isinstance(exchange, str):
            raise ConfigError(f"RabbitSink: exchange={exchange!r} must be the name of an exchange")
        self._exchange = exchange
        if not callable(routing_key) and (not isinstance(routing_key, str) or (not exchange and not routing_key)):
            raise ConfigError(f"RabbitSink: routing_key={routing_key!r} must be a text, or a function of the tuple")
        self._routing_key = routing_key if callable(routing_key) else filled(routing_key, "RabbitSink: routing_key=", _word)
        self._encode = encoder_of(value, value_serializer)
        self._id = None if id is None else selector_of(id, "id")
        self.required_fields = fields_named(*fields_in(routing_key, "RabbitSink: routing_key="), value, id)
        self._content_type = {"json": "application/json", "text": "text/plain"}.get(str(value_serializer))
        self._staging, self._storage_options = staging, storage_options

    # -- connection ----------------------------------------------------------------------------------------------------------

    def open(self, context: TaskContext) -> None:
        """Connect, and look the exchange up.

        Raises:
            ConfigError: the broker refuses this user, or has no such exchange.
            TopoEnvironmentError: it is not reached.
        """
        self._clock, self._progress = context.clock, context.progress
        metrics = context.metrics
        self._written, self._bytes = metrics.counter("rows"), metrics.counter("bytes")
        self._rejected, self._retries = metrics.counter("rejected_rows"), metrics.counter("retries")
        self._staged_count = StagedCount(metrics)
        self._publish_ms, self._commit_ms = metrics.histogram("publish_ms"), metrics.histogram("commit_ms")
        writer = f"{context.topology}.{context.component}.{context.task_index}"
        # A replacement must never draw an id as its predecessor did, which may be alive still.
        process = os.urandom(6).hex()
        self._ids: Iterator[str] = (f"{writer}.{process}.{number}" for number in counter(1))
        self._rows: list[RoutedMessage] = []
        self._publisher = RabbitPublisher(self._address, self._exchange, self._content_type, f"topo {writer}")
        self._link = ServerLink(self._address, context, self._collector.report_error, is_unreachable)
        try:
            self._publisher.check()
        except BaseException:
            self._publisher.close()
            raise
        if self._is_staged:
            place = staging_of(context, self._staging, "RabbitSink")
            self._staged = StagedRows(context, place, "RabbitSink", self._collector.report_error, self._storage_options)
            self._confirmed: dict[str, set[int]] = {}
            """Rows that a commit of this process has published before it was cut off."""

    def close(self) -> None:
        """Close the connection."""
        self._publisher.close()

    # -- a transaction -------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start with no rows."""
        self._rows = []

    def write(self, tup: Tuple) -> None:
        """Add a message.

        Raises:
            UserError: the tuple makes none that can be published.
            SinkBlockedError: nothing can be staged for now, and too many rows wait.
        """
        try:
            message = self._message(tup)
        except Exception:
            self._rejected.add()
            raise
        if self._is_staged:
            self._staged.add(message, len(message.body))
        else:
            self._rows.append(message)

    def _message(self, tup: Tuple) -> RoutedMessage:
        key, body = self._routing_key(tup), self._encode(tup) or b""
        given = next(self._ids) if self._id is None else self._id(tup)
        for name, text in {"routing key": key, "id": given}.items():
            if not isinstance(text, str) or len(text.encode()) > _MOST_KEY_BYTES:
                raise UserError(
                    f"a tuple from {tup.component!r} has {text!r} as its {name}: it must be a text of at most 255 bytes"
                )
        if len(body) > self._publisher.most_bytes:
            raise UnsupportedValueError(f"a message of {len(body)} bytes: RabbitMQ takes {self._publisher.most_bytes}")
        return RoutedMessage(key, body, given)

    def pre_commit(self) -> Any:
        """Have the rows in a staged file. The token: the file, and how many rows it has; in other modes the batch itself."""
        if not self._is_staged:
            return self._rows or None
        count = self._staged.count
        name = self._staged.seal()
        if name is None:
            return None
        self._staged_count.set(name, count)
        return [name, count]

    def commit(self, token: Any) -> None:
        """Publish a transaction. A repetition leaves out the rows that this process has published."""
        if not self._is_staged:
            self._publish_batch(token)
            return
        began = self._clock()
        name, count = token
        # It is removed when its rows are published.
        if self._staged.is_staged(name):
            confirmed = self._confirmed.get(name)
            if confirmed is not None:
                self._retries.add()
            else:
                confirmed = self._confirmed[name] = set()
            try:
                rows = enumerate(self._staged.rows(name, count))
                left = ((row, RoutedMessage(*values)) for row, values in rows if row not in confirmed)
                while batch := list(islice(left, _BATCH)):
                    self._progress()
                    self._publish_staged(confirmed, batch)
            except StagedRowsLostError as error:
                self._collector.report_error(error)
            self._staged.remove(name)
            self._commit_ms.record(1000 * (self._clock() - began))
        elif self._staged.is_new and not self._staged.is_drawn(name):
            self._collector.report_error(
                StagedRowsLostError(
                    f"{count} rows were staged in {name}, and the place of staged rows is a new one: unless they were published "
                    "before they are lost. Give the place of earlier workers as staging="
                )
            )
        self._confirmed.pop(name, None)
        self._staged_count.set(name, 0)

    def _publish_staged(self, confirmed: set[int], batch: Sequence[tuple[int, RoutedMessage]]) -> None:
        refused = self._link.ask(self._publisher.publish, [message for _, message in batch])
        confirmed.update(row for place, (row, _) in enumerate(batch) if place not in refused)
        self._count(batch, refused)
        if refused:
            raise TopoEnvironmentError(self._refusal(refused, len(batch), "it is tried again"))

    def _publish_batch(self, rows: Sequence[RoutedMessage]) -> None:
        """Publish a batch. The tuples of messages that the broker does not take fail, and no others."""
        began = self._clock()
        refused = self._link.ask(self._publisher.publish, rows)
        self._publish_ms.record(1000 * (self._clock() - began))
        self._count(list(enumerate(rows)), refused)
        if refused:
            self._rejected.add(len(refused))
            self._collector.report_error(TopoEnvironmentError(self._refusal(refused, len(rows), "their tuples fail")))
            for place in refused:
                self._collector.fail(self._committing[place])
            self._committing = [tup for place, tup in enumerate(self._committing) if place not in refused]

    def _count(self, batch: Sequence[tuple[int, RoutedMessage]], refused: Mapping[int, str]) -> None:
        self._written.add(len(batch) - len(refused))
        self._bytes.add(sum(len(message.body) for _, message in batch))

    def _refusal(self, refused: Mapping[int, str], count: int, what: str) -> str:
        return f"{self._address} does not take {len(refused)} of {count} messages, and {what}: {next(iter(refused.values()))}"

    def abort(self, token: Any) -> None:
        """Drop staged rows; None: those of the open transaction."""
        if token is not None:
            self._staged.remove(token[0])
            self._staged_count.set(token[0], 0)
        elif self._is_staged:
            self._staged.discard()

    def recover(self, tokens: Sequence[Any]) -> None:
        """Publish what counts; remove the other staged files of this task, and of tasks that no longer exist."""
        super().recover(tokens)
        if self._is_staged:
            self._staged.clean()


def _word(value: Any, name: str) -> str:
    if value is None:
        raise UserError(f"field {name!r} is None, which is no part of a routing key")
    return str(value)
