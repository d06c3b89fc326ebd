"""The messages of one partition of a JetStream stream, request by request.

A *position* is `(creation, sequence)`: the microseconds at which the stream was made, and the sequence number of a message. A
stream that was deleted and made again has other messages under the same numbers, and a later creation.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, NamedTuple

from topo.connectors.nats.connection import NatsConnection
from topo.errors import ConfigError, TopoEnvironmentError

NatsPosition = tuple[int, int]
METADATA = ("stream", "subject", "sequence", "timestamp", "headers")
_IDLE_S = 60.0
"""After so much time without a request the server removes a consumer."""


class StreamState(NamedTuple):
    """The state of a stream: its creation in microseconds, and its first and last sequence number."""

    creation: int
    first: int
    last: int

    @property
    def beginning(self) -> NatsPosition:
        """The position in front of the first message."""
        return (self.creation, max(0, self.first - 1))

    @property
    def end(self) -> NatsPosition:
        """The position of the last message."""
        return (self.creation, self.last)


class NatsMessage(NamedTuple):
    """One message."""

    stream: str
    subject: str
    sequence: int
    timestamp: int
    headers: dict[str, str]
    data: bytes
    position: NatsPosition


class Fetched(NamedTuple):
    """The answer to a request.

    Attributes:
        messages: in their order.
        lag: how many more there are.
        loss: how many messages were removed before they were read, and the error; None: not known how many, 0: perhaps none.
    """

    messages: list[NatsMessage]
    lag: int
    loss: tuple[int | None, TopoEnvironmentError] | None = None

    def __bool__(self) -> bool:
        """Whether the task has something to do about it."""
        return bool(self.messages) or self.loss is not None


async def state_of(
    _client: Any, stream_context: Any, *, stream: str, pattern: str | None, acknowledges: bool = False
) -> tuple[StreamState, frozenset[str]]:
    """Return the state of a stream, and its subjects that match a pattern.

    Raises:
        ConfigError: it removes messages that were read, and none are acknowledged.
    """
    info = await stream_context.stream_info(stream, subjects_filter=pattern)
    retention = "limits" if acknowledges else str(info.config.retention)
    if retention.endswith("workqueue"):
        raise ConfigError(
            f"stream {stream!r} is a work queue: acknowledgements remove its messages, and none are made without durable="
        )
    if retention.endswith("interest"):
        raise ConfigError(
            f"stream {stream!r} has interest retention: a message that was delivered is removed, and could not be read again; "
            "give durable=, or make a stream with limits that mirrors it"
        )
    creation = round(info.created.timestamp() * 1_000_000)
    state = StreamState(creation, info.state.first_seq, info.state.last_seq)
    return state, frozenset(info.state.subjects or ())


def overlap(one: str, other: str) -> bool:
    """Return whether there are subjects that match both filters."""
    left, right = one.split("."), other.split(".")
    for mine, theirs in zip(left, right, strict=False):
        if ">" in (mine, theirs):
            return True
        if mine != theirs and "*" not in (mine, theirs):
            return False
    return len(left) == len(right)


def loss_of(
    stream: str, subject: str, position: NatsPosition, seen: int, state: StreamState
) -> tuple[int | None, TopoEnvironmentError] | None:
    """Return the messages that were removed before they were read, and the error; None: there are none.

    Args:
        stream: its name.
        subject: the filter of the partition.
        position: of the last message that was read.
        seen: all messages up to this number were read, or are of other subjects. No less than the position's.
        state: of the stream.
    """
    if state.creation != position[0] or state.last < position[1]:
        error = (
            f"stream {stream!r} was made again since its message {position[1]} was read; {subject!r} begins with its first one"
        )
        return None, TopoEnvironmentError(error)
    gone = state.first - 1 - seen
    if gone <= 0:
        return None
    which = f"messages {seen + 1} to {state.first - 1} of stream {stream!r} were removed before they were read"
    if subject == ">":
        return gone, TopoEnvironmentError(which)
    return 0, TopoEnvironmentError(f"{which}; whether some of them were of {subject!r} is not known")


class SubjectFeed:
    """Fetches the messages of one partition by an ordered consumer; all on one thread.

    Messages are not acknowledged, so a message that is lost on its way shows as a gap in the consumer's numbers: the consumer is
    then made again, behind the last message.

    Args:
        headers_only: whether messages come without their data.

    Attributes:
        is_at_end: whether the last request has found that there are no more.
    """

    def __init__(
        self,
        connection: NatsConnection,
        stream: str,
        subject: str,
        position: NatsPosition,
        batch: int,
        *,
        headers_only: bool = False,
    ) -> None:
        self._connection = connection
        self._stream, self._subject = stream, subject
        self._position = position
        self._seen = position[1]
        self._batch = batch
        self._headers_only = headers_only
        self.is_at_end = False
        self._consumer = ""
        self._number = 0
        """Of the connection that the consumer was made for."""
        self._delivered = 0
        """Messages that the consumer has delivered."""

    def fetch(self) -> Fetched:
        """Return the messages that there are behind the last one, at most `batch`."""
        self.is_at_end = False
        try:
            return self._connection.run(self._fetch)
        except BaseException:
            self._consumer = ""
            raise

    async def _fetch(self, client: Any, stream_context: Any) -> Fetched:
        if not self._consumer or self._number != self._connection.number:
            loss = await self._begin(client, stream_context)
            if loss is not None:
                return Fetched([], 0, loss)
        received = await self._request(client)
        self.is_at_end = received == []
        if received is None:
            self._consumer = ""
            return Fetched([], 0)
        messages = list[NatsMessage]()
        lag = 0
        for message in received:
            sequence, number, nanoseconds, lag = numbers_of(message.reply)
            if number != self._delivered + 1:
                # One was lost on its way.
                self._consumer = ""
                break
            self._delivered = number
            position = (self._position[0], sequence)
            headers = dict(message.headers or {})
            stamp = nanoseconds // 1_000_000
            messages.append(NatsMessage(self._stream, message.subject, sequence, stamp, headers, message.data, position))
        if messages:
            self._position = messages[-1].position
            self._seen = self._position[1]
        return Fetched(messages, lag)

    async def _begin(self, client: Any, stream_context: Any) -> tuple[int | None, TopoEnvironmentError] | None:
        """Make a consumer. Returns a loss, before any message is read behind it."""
        from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

        state, _ = await state_of(client, stream_context, stream=self._stream, pattern=None)
        loss = loss_of(self._stream, self._subject, self._position, self._seen, state)
        if loss is not None:
            creation, sequence = state.beginning
            self._position, self._seen = (creation, sequence if loss[0] is None else max(sequence, self._seen)), sequence
            return loss
        made = await stream_context.add_consumer(
            self._stream,
            ConsumerConfig(
                deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
                opt_start_seq=self._seen + 1,
                filter_subject=None if self._subject == ">" else self._subject,
                ack_policy=AckPolicy.NONE,
                inactive_threshold=_IDLE_S,
                headers_only=self._headers_only or None,
                mem_storage=True,
            ),
        )
        self._consumer, self._number, self._delivered = made.name, self._connection.number, 0
        return None

    async def _request(self, client: Any) -> list[Any] | None:
        """Return the messages that the consumer has, at most `batch`; None where it is gone."""
        received, is_there, _ = await pull(client, self._stream, self._consumer, self._batch, self._connection.timeout_s)
        if is_there is None:
            if not received:
                raise TimeoutError
            # The next consumer begins behind these.
            self._consumer = ""
        return None if is_there is False and not received else received


class Pulled(NamedTuple):
    """The answer of a consumer.

    Attributes:
        messages: at most as many as were asked for.
        is_there: whether there is such a consumer. None: the end of the answer has not come in time. On a slow line it may never
            do so for a whole batch.
        refusal: why the server does not take the request, while the consumer may be there.
    """

    messages: list[Any]
    is_there: bool | None
    refusal: str = ""


async def pull(client: Any, stream: str, consumer: str, batch: int, timeout_s: float) -> Pulled:
    """Return the messages that a consumer has, at most `batch`."""
    received = list[Any]()
    end: asyncio.Future[tuple[bool, str]] = asyncio.get_running_loop().create_future()

    async def take(message: Any) -> None:
        headers = message.headers or {}
        # With a subject for its acknowledgement it is a message of the stream, whose sender may have named a header so.
        status = None if message.reply else headers.get("Status")
        if status is None:
            received.append(message)
        if not end.done() and (status is not None or len(received) == batch):
            refusal = headers.get("Description", "") if status == "409" else ""
            is_passing = refusal.lower().startswith(("consumer deleted", "leadership", "server shutdown"))
            end.set_result((status in (None, "404", "408"), "" if is_passing else refusal))

    inbox = client.new_inbox()
    subscription = await client.subscribe(inbox, cb=take)
    try:
        ask = json.dumps({"batch": batch, "no_wait": True}).encode()
        await client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", ask, reply=inbox)
        return Pulled(received, *await asyncio.wait_for(end, timeout_s))
    except TimeoutError:
        return Pulled(received, None)
    finally:
        await subscription.unsubscribe()


def numbers_of(reply: str) -> tuple[int, int, int, int]:
    """Return sequence number, number of the delivery, nanoseconds, and how many messages are left, of a message's reply subject.

    Its end is STREAM.CONSUMER.DELIVERIES.SEQUENCE.NUMBER.NANOSECONDS.LEFT, in newer servers with a token behind it.
    """
    tokens = reply.split(".")
    sequence, number, nanoseconds, left = tokens[5:9] if len(tokens) == 9 else tokens[7:11]
    return int(sequence), int(number), int(nanoseconds), int(left)
