"""A spout that takes HTTP requests, and answers each one when its message is done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from topo.api.context import TaskContext
from topo.api.durations import duration_ms
from topo.api.spout import Spout, SpoutCollector
from topo.config import parse_size
from topo.connectors.argument_checks import checks_arguments
from topo.connectors.clients import check_installed
from topo.connectors.http.requests import check_reach
from topo.connectors.loop_thread import LoopThread
from topo.connectors.record_decoder import Decode, decoder_of, record_fields
from topo.errors import ConfigError, TopoEnvironmentError
from topo.nesting import MAX_DEPTH, TooDeep, check_depth

if TYPE_CHECKING:
    from topo.connectors.http.webhook_server import MessageDone, WebhookRequest

METADATA = ("id", "path", "headers")
_MOST_IN_ONE_CALL = 100
_MOST_LATE_ANSWERS = 10_000
_SILENT_S = 1.0
"""How often the task looks at the server's counts while no request wakes it."""


class WebhookSpout(Spout):
    """Listens on a port, and emits the body of each POST. The sender gets 200 when its message is done, and keeps it until then.

        builder.set_spout("orders", WebhookSpout(8080, "/orders", fields=("id", "cents"), secret=os.environ["WEBHOOK_SECRET"]))

    | delivery | promise |
    | --- | --- |
    | `at_least_once` | 200: all that descends from it is processed. What got no 200 the sender repeats: it may come twice |
    | `exactly_once` | 200: a complete checkpoint covers it. A repeat with the same `Idempotency-Key` counts once |
    | `at_most_once` | 200: it was emitted; it can be lost |

    A message that fails is answered with 503, and is the sender's to repeat: topo keeps none, and makes no dead letter of it. The
    run counts it as finally failed.
    """

    is_endless = True

    @checks_arguments
    def __init__(
        self,
        port: int,
        path: str = "/",
        *,
        host: str = "127.0.0.1",
        respond: Literal["done"] = "done",
        secret: str | None = None,
        signature_header: str = "X-Hub-Signature-256",
        allow_unsigned: bool = False,
        max_body: str | int = "1MiB",
        value_deserializer: str | Callable[[bytes], Any] = "json",
        fields: Sequence[str] | None = None,
        metadata: Sequence[str] = (),
        most_open: int = 1000,
        answer_timeout: str | timedelta = "30s",
        retry_after: str | timedelta = "5s",
    ) -> None:
        """Keep what to listen for; nothing is opened yet.

        Args:
            port: of the first task; the one with index n listens on port + n, for a load balancer in front of them.
            path: of the requests; others are answered with 404, and other methods than POST with 405.
            host: the address to listen on. One beyond this machine needs a `secret`, or `allow_unsigned`.
            respond: "done": a request is answered when its message is done.
            secret: the key of the HMAC with SHA-256 of the body that each request has to have; 401 where it has not.
            signature_header: has that signature in hexadecimal digits, with or without "sha256=" in front.
            allow_unsigned: listen beyond this machine without a secret.
            max_body: longer bodies are answered with 413.
            value_deserializer: "bytes", "text", "json" or a function of bytes. A body that it cannot decode is answered with 400,
                as is JSON with integers beyond 64 bits, which tuples do not carry.
            fields: keys of the decoded body that become the fields of the tuple, a "?" at the end lets it be missing; without,
                the one field is `value`.
            metadata: appended fields, of "id", "path" and "headers": a dict by lower-case name, without credentials.
            most_open: requests that may be open; further ones are answered with 503. With `exactly_once` those of a
                `checkpoint_interval` are. Twice as many connections may be.
            answer_timeout: a request that is not done by then is answered with 503, and its message is processed all the same.
                With `exactly_once` it must be longer than `checkpoint_interval`.
            retry_after: of these answers, in whole seconds.

        Raises:
            ConfigError: an argument cannot be used, or aiohttp is missing.
        """
        check_installed("WebhookSpout", "http", "aiohttp", "aiohttp")
        if not 0 < port < 65536:
            raise ConfigError(f"WebhookSpout: port={port!r} must be one of 1 to 65535, which the senders know")
        if not path.startswith("/") or "{" in path:
            raise ConfigError(f"WebhookSpout: path={path!r} must begin with '/', and is no pattern")
        if secret is not None and not secret:
            raise ConfigError("WebhookSpout: secret= is empty; leave it out, or give the secret that your sender signs with")
        check_reach(host, secret, allow_unsigned=allow_unsigned)
        if most_open < 1:
            raise ConfigError(f"WebhookSpout: most_open={most_open!r} must be at least 1")
        self._max_body = parse_size(max_body)
        self._answer_timeout_s = duration_ms(answer_timeout) / 1000
        self._retry_after_s = max(1, round(duration_ms(retry_after) / 1000))
        if self._max_body < 1 or self._answer_timeout_s <= 0:
            raise ConfigError(f"WebhookSpout: max_body={max_body!r} and answer_timeout={answer_timeout!r} must be above zero")
        self.outputs = record_fields(fields, metadata, METADATA)
        decode = decoder_of(value_deserializer, fields)
        self._decode = _carried(decode) if value_deserializer == "json" else decode
        self._metadata = tuple(metadata)
        self._host, self._port, self._path = host, port, path
        self._secret, self._signature_header = secret, signature_header
        self._most_open = most_open

    def open(self, context: TaskContext, collector: SpoutCollector) -> None:
        """Begin to listen.

        Raises:
            ConfigError: the settings of the topology do not go with those of the spout.
        """
        from topo.connectors.http.webhook_server import ServerSettings, WebhookServer

        port = self._port + context.task_index
        if port > 65535:
            raise ConfigError(f"WebhookSpout: task {context.task_index} would listen on port {port}; take a lower port=")
        if context.config.delivery == "exactly_once":
            self._check_exactly_once(context)
        settings = ServerSettings(
            self._host,
            port,
            self._path,
            None if self._secret is None else self._secret.encode(),
            self._signature_header,
            self._max_body,
            self._most_open,
            self._answer_timeout_s,
            self._retry_after_s,
            self._decode,
        )
        self._collector = collector
        self._endpoint = f"{self._host}:{port}"
        self._server = WebhookServer(settings)
        self._in_flight: dict[str, bytes | None] = {}
        """The digests of requests whose messages are not done, by id."""
        metrics = context.metrics
        self._records, self._bytes = metrics.counter("records"), metrics.counter("bytes")
        self._bad, self._refused = metrics.counter("bad_records"), metrics.counter("refused_requests")
        self._unauthorised = metrics.counter("unauthorised_requests")
        self._connected = metrics.gauge("connected")
        self._loop: LoopThread[WebhookRequest, MessageDone] = LoopThread(
            self._server.run,
            context.executor,
            self._report,
            most_items=self._most_open,
            # An answer for each open request, and for many whose senders have left.
            most_messages=self._most_open + _MOST_LATE_ANSWERS,
            name="topo-webhook",
        )
        self._loop.start()

    def _check_exactly_once(self, context: TaskContext) -> None:
        if "headers" in self._metadata:
            raise ConfigError(
                "WebhookSpout: metadata= with 'headers' is not for exactly_once: a repeat of a request is recognised by its "
                "values, and headers differ; leave it out"
            )
        interval_s = context.config.checkpoint_interval_s
        if self._answer_timeout_s <= interval_s:
            raise ConfigError(
                f"WebhookSpout: answer_timeout is {self._answer_timeout_s:g} s, and with exactly_once answers wait for the next "
                f"checkpoint, up to {interval_s:g} s: set a shorter checkpoint_interval, or a longer answer_timeout"
            )

    def _report(self, error: BaseException) -> None:
        if isinstance(error, OSError):
            text = f"WebhookSpout cannot listen on {self._endpoint}: {error}; it tries again"
            error = TopoEnvironmentError(text).with_traceback(error.__traceback__)
        self._collector.report_error(error)

    def next_tuple(self) -> None:
        """Emit requests that have come."""
        self._show_counts()
        requests = self._loop.take(_MOST_IN_ONE_CALL)
        if not requests:
            self._collector.nothing_before(_SILENT_S)
        for request in requests:
            if request.id in self._in_flight:
                # Its first sender has given up waiting; this one gets the answer of the message that is under way.
                continue
            extra = {"id": request.id, "path": request.path, "headers": request.headers}
            self._in_flight[request.id] = request.digest
            try:
                self._collector.emit((*request.values, *(extra[name] for name in self._metadata)), message_id=request.id)
            except Exception as error:
                # Raised further, it would discard the rows of the other requests of this call.
                self._collector.report_error(error)
                self._done(request.id, is_acked=False)
                continue
            self._records.add()
            self._bytes.add(request.size)

    def _show_counts(self) -> None:
        counts = self._server.counts
        for counter, value in (
            (self._bad, counts.bad),
            (self._refused, counts.refused),
            (self._unauthorised, counts.unauthorised),
        ):
            if value > counter.value:
                counter.add(value - counter.value)
        self._connected.set(float(counts.is_listening))

    def ack(self, message_id: Any) -> None:
        """Have the sender answered with 200."""
        self._done(message_id, is_acked=True)

    def fail(self, message_id: Any) -> None:
        """Have the sender answered with 503: it keeps the message, and sends it again."""
        self._done(message_id, is_acked=False)

    def _done(self, message_id: str, *, is_acked: bool) -> None:
        from topo.connectors.http.webhook_server import MessageDone

        self._loop.send(MessageDone(message_id, is_acked, self._in_flight.pop(message_id, None)))

    def activate(self) -> None:
        """Take requests."""
        self._server.is_paused = False

    def deactivate(self) -> None:
        """Refuse requests with 503; those that are open are answered."""
        self._server.is_paused = True

    def close(self) -> None:
        """Answer open requests with 503, and stop listening."""
        self._loop.close()


def _carried(decode: Decode) -> Decode:
    """Return a decoder of JSON that refuses values which no tuple carries: the sender is to have the reason."""

    def values_of(body: bytes) -> tuple[Any, ...]:
        values = decode(body)
        try:
            check_depth(msgspec.msgpack.encode([values]))
        except OverflowError:
            raise ValueError("an integer in the body does not fit 64 bits; send it as a text") from None
        except TooDeep:
            raise ValueError(f"the body is nested too deeply: at most {MAX_DEPTH - 2} levels are taken") from None
        return values

    return values_of
