"""Messages on their way to a JetStream stream: the limits of the stream, and how they are published and acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from topo.api.tuples import Tuple
from topo.connectors.name_templates import fields_in, filled
from topo.connectors.nats.connection import NatsConnection
from topo.connectors.nats.subject_feed import StreamState, overlap
from topo.errors import ConfigError, UnsupportedValueError, UserError

OutgoingMessage = tuple[str, bytes]
"""Subject and data."""
MESSAGE_ID = "Nats-Msg-Id"
_HEADER_BYTES = 512
"""Room for the headers of a message, which count as its size."""
_SLICE_S = 0.1
"""How often it is looked whether the connection is still there."""
_MOST_ROWS, _MOST_BYTES = 1000, 1 << 20
"""Of the messages that wait for their acknowledgements together."""


class StreamTarget(NamedTuple):
    """What a stream takes.

    Attributes:
        state: as of now.
        subjects: filters of the subjects that it stores.
        most_bytes: of a message.
        window_s: the time for which it recognises the id of a message.
        keeps: whether messages stay until they are too old or too many, also when they were read.
        keeps_last: whether of each subject only the last ones stay.
    """

    state: StreamState
    subjects: tuple[str, ...]
    most_bytes: int
    window_s: float
    keeps: bool
    keeps_last: bool

    def check(self, stream: str, subject: str, data: bytes) -> None:
        """Raise UserError for a message that the stream does not take."""
        if not any(overlap(one, subject) for one in self.subjects):
            shown = ", ".join(map(repr, self.subjects)) or "none"
            raise UserError(f"stream {stream!r} does not store subject {subject!r}; its subjects are {shown}")
        if len(data) > self.most_bytes:
            raise UnsupportedValueError(
                f"a message of {len(data)} bytes for subject {subject!r}: stream {stream!r} and its server take {self.most_bytes}"
            )


class Published(NamedTuple):
    """The outcome of a batch.

    Attributes:
        refused: why the stream has not taken a message, by its place in the batch.
        last: the highest sequence number of those that it has; 0: none.
    """

    refused: dict[int, str]
    last: int


class _Acknowledgement(msgspec.Struct):
    """The reply of a stream to a message."""

    seq: int = 0
    error: dict[str, Any] | None = None


_acknowledgement = msgspec.json.Decoder(_Acknowledgement).decode


def subject_of(given: str | Callable[[Tuple], str]) -> Callable[[Tuple], str]:
    """Return what names the subject of a tuple: a text in which names of fields may stand in braces, or a function.

    Raises:
        ConfigError: the text is no subject to publish to.
    """
    if callable(given):
        return given
    if not isinstance(given, str) or not given:
        raise ConfigError(f"NatsSink: subject={given!r} must be a subject, or a function of the tuple")
    plain = given.format_map(dict.fromkeys(fields_in(given, "NatsSink: subject="), "x"))
    if not is_subject(plain):
        raise ConfigError(f"NatsSink: subject={given!r} must be tokens with '.' between them, without blanks, * and >")
    return filled(given, "NatsSink: subject=", _token)


def is_subject(text: Any) -> bool:
    """Whether a message can be published under a subject."""
    return isinstance(text, str) and bool(text) and not set(text) & set(" \t\r\n*>\0") and all(text.split("."))


def _token(value: Any, name: str) -> str:
    text = "" if value is None else str(value)
    if not is_subject(text) or "." in text:
        raise UserError(
            f"field {name!r} is {value!r}, which is no token of a subject: it is empty, or has a blank or one of . * >"
        )
    return text


async def target_of(client: Any, stream_context: Any, *, stream: str) -> StreamTarget:
    """Return what a stream takes, and its state."""
    info = await stream_context.stream_info(stream)
    config = info.config
    limit = config.max_msg_size or 0
    most = min(client.max_payload, limit) if limit > 0 else client.max_payload
    state = StreamState(round(info.created.timestamp() * 1_000_000), info.state.first_seq, info.state.last_seq)
    return StreamTarget(
        state,
        tuple(config.subjects or ()),
        max(0, most - _HEADER_BYTES),
        float(config.duplicate_window or 0),
        keeps=str(config.retention).endswith("limits"),
        keeps_last=(config.max_msgs_per_subject or 0) > 0,
    )


def batches(messages: Iterable[tuple[int, OutgoingMessage]]) -> Iterator[list[tuple[int, OutgoingMessage]]]:
    """Yield numbered messages by as many as wait for their acknowledgements together."""
    batch, size = list[tuple[int, OutgoingMessage]](), 0
    for numbered in messages:
        batch.append(numbered)
        size += len(numbered[1][1])
        if len(batch) >= _MOST_ROWS or size >= _MOST_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def publish(connection: NatsConnection, messages: Sequence[OutgoingMessage], ids: Sequence[str] | None = None) -> Published:
    """Publish messages in their order, and wait until the stream has acknowledged or refused each.

    Args:
        connection: to the server.
        messages: at most as many as `batches` gives.
        ids: by which the stream recognises a message that it has.

    Raises:
        TimeoutError: an acknowledgement has not come; the stream may have the message all the same.
        Exception: see `NatsConnection.run`.
    """

    async def action(client: Any, _stream_context: Any) -> Published:
        return await _publish(client, connection, messages, ids)

    return connection.run(action)


async def _publish(
    client: Any, connection: NatsConnection, messages: Sequence[OutgoingMessage], ids: Sequence[str] | None
) -> Published:
    from nats.errors import MaxPayloadError

    waiting = set(range(len(messages)))
    refused = dict[int, str]()
    last = 0
    end: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def take(reply: Any) -> None:
        nonlocal last
        place = int(reply.subject.rpartition(".")[2])
        if (reply.headers or {}).get("Status") == "503":
            if not end.done():
                why = "it was removed, or has other subjects now, or its server has just started"
                end.set_exception(ConnectionError(f"no stream takes subject {messages[place][0]!r}: {why}"))
            return
        answer = _acknowledgement(reply.data)
        if answer.error is not None:
            refused[place] = str(answer.error.get("description") or answer.error)
        last = max(last, answer.seq)
        waiting.discard(place)
        if not waiting and not end.done():
            end.set_result(None)

    inbox = client.new_inbox()
    subscription = await client.subscribe(f"{inbox}.*", cb=take)
    try:
        for place, (subject, data) in enumerate(messages):
            headers = None if ids is None else {MESSAGE_ID: ids[place]}
            try:
                await client.publish(subject, data, reply=f"{inbox}.{place}", headers=headers)
            except MaxPayloadError:
                # It has come back with a lower limit.
                refused[place] = f"a message of {len(data)} bytes; the server takes {client.max_payload}"
                waiting.discard(place)
        if not waiting and not end.done():
            end.set_result(None)
        await _wait(client, connection, end, waiting)
    finally:
        end.cancel()
        if client.is_connected:
            await subscription.unsubscribe()
    return Published(refused, last)


async def _wait(client: Any, connection: NatsConnection, end: asyncio.Future[None], waiting: set[int]) -> None:
    """Wait for the last acknowledgement as long as others come."""
    from nats.errors import ConnectionClosedError

    loop = asyncio.get_running_loop()
    left, until = len(waiting), loop.time() + connection.timeout_s
    while not end.done():
        await asyncio.wait([end], timeout=_SLICE_S)
        if len(waiting) < left:
            left, until = len(waiting), loop.time() + connection.timeout_s
        elif not client.is_connected and not end.done():
            raise ConnectionClosedError
        elif connection.complaint and not end.done():
            # A message that the server refuses for want of a permission has no answer.
            raise connection.refusal()
        elif loop.time() > until and not end.done():
            raise TimeoutError(f"{left} messages were not acknowledged within {connection.timeout_s:g} s")
    end.result()
