"""A durable consumer of a stream, which tasks and other programs share: fetches, acknowledges, keeps held messages; all block."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from topo.connectors.nats.connection import NatsConnection
from topo.connectors.nats.subject_feed import NatsMessage, numbers_of, pull
from topo.errors import ConfigError, TopoEnvironmentError

MOST_HELD = 20_000
"""Messages of a consumer, made here, that may wait for their acknowledgement; those of all its readers count."""
_SMALLER = re.compile(r"exceeded maxrequestbatch of (\d+)", re.IGNORECASE)


@dataclass(slots=True, eq=False)
class DurableMessage:
    """A message that the consumer has given to this task.

    Attributes:
        message: its position is (nanoseconds, sequence): the number alone is that of another one where the stream was made again.
        reply: where its acknowledgement goes; any connection takes it.
        position: of its row; 0 until it has one.
    """

    message: NatsMessage
    reply: str
    position: int = 0


class TurnOutcome(NamedTuple):
    """The outcome of a turn: messages, and how many more there are.

    Attributes:
        lag: None: that was not asked.
        refusal: of requests that get no answer, such as acknowledgements; None: none were refused.
    """

    messages: list[DurableMessage]
    lag: int | None
    refusal: TopoEnvironmentError | None = None

    def __bool__(self) -> bool:
        """Whether the task has something to do about it."""
        return bool(self.messages) or self.refusal is not None


class DurableConsumer:
    """Used by one thread at a time.

    Args:
        connection: to the server.
        stream: its name.
        name: of the consumer. It is made where it does not exist.
        subject: which messages a new one gives.
        is_latest: whether a new one begins behind the last message.
        ack_wait_s: after how long a new one gives a message again that is neither acknowledged nor kept.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        connection: NatsConnection,
        stream: str,
        name: str,
        subject: str,
        *,
        is_latest: bool,
        ack_wait_s: float,
        clock: Callable[[], float],
    ) -> None:
        self._connection, self._stream, self._name, self._subject = connection, stream, name, subject
        self._is_latest, self._ack_wait_s, self._clock = is_latest, ack_wait_s, clock
        self._number = 0
        """Of the connection on which the consumer was looked up."""
        self._keep_at = 0.0
        self._most_asked, self._most_held = MOST_HELD, MOST_HELD
        """Messages of one request, and those without an acknowledgement, that the server gives."""
        self._is_crowded = False
        """Whether it has left a request without an answer, as it does while its readers together hold the most."""

    def open(self) -> None:
        """Look the consumer up, or make it.

        Raises:
            ConfigError: it is of another kind.
        """
        self._connection.run(self._open)

    def turn(self, done: Sequence[str], held: Sequence[str], room: int) -> TurnOutcome:
        """Acknowledge messages, have held ones kept when it is time, and return at most `room` new ones.

        Args:
            done: replies of messages that are done. When it raises, they are to be given again.
            held: replies of the others.
            room: 0: none are fetched.

        Raises:
            TopoEnvironmentError: the server refuses requests.
        """
        outcome = self._connection.run(lambda client, context: self._turn(client, context, done, held, room))
        return outcome._replace(refusal=self._connection.refusal()) if self._connection.complaint else outcome

    async def _open(self, _client: Any, stream_context: Any) -> None:
        from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
        from nats.js.errors import NotFoundError

        try:
            found = (await stream_context.consumer_info(self._stream, self._name)).config
        except NotFoundError:
            wanted = ConsumerConfig(
                durable_name=self._name,
                ack_policy=AckPolicy.EXPLICIT,
                ack_wait=self._ack_wait_s,
                deliver_policy=DeliverPolicy.NEW if self._is_latest else DeliverPolicy.ALL,
                filter_subject=None if self._subject == ">" else self._subject,
                max_ack_pending=MOST_HELD,
            )
            found = (await stream_context.add_consumer(self._stream, wanted)).config
        if found.deliver_subject is not None or str(found.ack_policy).rpartition(".")[2].lower() != "explicit":
            raise ConfigError(
                f"NatsSpout: consumer {self._name!r} of stream {self._stream!r} must be a pull consumer with explicit "
                "acknowledgements; give another name as durable=, and it is made"
            )
        filters = found.filter_subjects or [found.filter_subject or ">"]
        # ">" is the default: whatever the consumer gives.
        if self._subject != ">" and list(filters) != [self._subject]:
            raise ConfigError(
                f"NatsSpout: consumer {self._name!r} of stream {self._stream!r} gives {', '.join(map(repr, filters))}, and "
                f"subjects= asks for {self._subject!r}: edit or remove it, or give another name as durable=, and it is made"
            )
        self._ack_wait_s = float(found.ack_wait or self._ack_wait_s)
        most = found.max_ack_pending or 0
        self._most_held = most if most > 0 else sys.maxsize
        self._number = self._connection.number

    async def _turn(self, client: Any, stream_context: Any, done: Sequence[str], held: Sequence[str], room: int) -> TurnOutcome:
        if self._number != self._connection.number:
            # The server may have lost it meanwhile.
            await self._open(client, stream_context)
        for reply in done:
            await client.publish(reply, b"+ACK")
        if self._clock() >= self._keep_at:
            self._keep_at = self._clock() + self._ack_wait_s / 4
            for reply in held:
                await client.publish(reply, b"+WPI")
        if done or held:
            await client.flush(self._connection.timeout_s)
        return await self._fetch(client, stream_context, min(room, self._most_asked, self._most_held - len(held)))

    async def _fetch(self, client: Any, stream_context: Any, room: int) -> TurnOutcome:
        lag: int | None = None
        if self._is_crowded and room > 0:
            held, lag = await self._counts(stream_context)
            room = min(room, self._most_held - held)
        if room <= 0:
            return TurnOutcome([], lag)
        received, is_there, refusal = await pull(client, self._stream, self._name, room, self._connection.timeout_s)
        self._is_crowded = is_there is None
        if not received:
            if is_there is None:
                # Also where the server is away: then this is not answered either.
                return TurnOutcome([], (await self._counts(stream_context))[1])
            if smaller := _SMALLER.match(refusal):
                self._most_asked = max(1, int(smaller[1]))
                return TurnOutcome([], None)
            if refusal:
                raise TopoEnvironmentError(
                    f"the server gives no messages of consumer {self._name!r} of stream {self._stream!r}: {refusal}"
                )
        if is_there is False:
            self._number = 0
        messages, lag = list[DurableMessage](), 0
        for message in received:
            sequence, _, nanoseconds, lag = numbers_of(message.reply)
            headers = dict(message.headers or {})
            stamp = nanoseconds // 1_000_000
            kept = NatsMessage(self._stream, message.subject, sequence, stamp, headers, message.data, (nanoseconds, sequence))
            messages.append(DurableMessage(kept, message.reply))
        return TurnOutcome(messages, lag)

    async def _counts(self, stream_context: Any) -> tuple[int, int]:
        """Return how many messages wait for an acknowledgement, and how many were not given."""
        from nats.js.errors import NotFoundError

        try:
            info = await stream_context.consumer_info(self._stream, self._name)
        except NotFoundError:
            self._number = 0
            return 0, 0
        return info.num_ack_pending or 0, info.num_pending or 0
