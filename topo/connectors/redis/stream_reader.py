"""Reads the streams of one task: requests on the task's helper thread, one ahead of the rows that are given."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from topo.api.context import TaskContext
from topo.api.partition_values import Partition, PartitionOutput
from topo.connectors.redis.client import is_unreachable
from topo.connectors.redis.entries import (
    NO_STREAM,
    EntryDecoder,
    EntryPosition,
    StreamEntry,
    StreamInfo,
    id_of,
    info_of,
    is_replaced,
    lost_entries,
    numbers_of,
    positions_of,
    shown_entry,
)
from topo.connectors.server_link import RequestLine, ServerLink
from topo.errors import ConfigError, TopoEnvironmentError

_CHECK_S = 10.0
"""How often streams without new entries are looked at: they may have been deleted."""


def stream_infos(client: Any, names: Sequence[str], link: ServerLink) -> list[StreamInfo | Exception]:
    """Return the state of each stream; an error for a key that holds no stream.

    Raises:
        Exception: the server cannot be asked.
    """
    if not names:
        return []
    pipeline = client.pipeline(transaction=False)
    for name in names:
        pipeline.execute_command("XINFO STREAM", name)
    replies = pipeline.execute(raise_on_error=False)
    return [_info(name, reply, link) for name, reply in zip(names, replies, strict=True)]


def _info(name: str, reply: Any, link: ServerLink) -> StreamInfo | Exception:
    if isinstance(reply, Exception):
        if is_unreachable(reply):
            raise reply
        if "no such key" in str(reply):
            return NO_STREAM
        return TopoEnvironmentError(f"stream {name!r} cannot be read: {link.explained(reply)}")
    try:
        return info_of(reply)
    except ConfigError as error:
        return error


class _Chunk:
    """Entries of one reply that were not given yet; the first has the ordinal `ordinal`. `loss` is in front of them."""

    __slots__ = ("at", "entries", "loss", "ordinal")

    def __init__(self, entries: Sequence[StreamEntry], ordinal: int, loss: tuple[int | None, Exception] | None) -> None:
        self.entries, self.ordinal, self.loss = entries, ordinal, loss
        self.at = 0


class _StreamReading:
    """A stream that is assigned: `fetched` is the position behind which the next request reads."""

    __slots__ = ("chunks", "fetched", "is_paused", "is_replaced", "partition")

    def __init__(self, partition: Partition, position: EntryPosition) -> None:
        self.partition = partition
        self.fetched = position
        self.chunks: deque[_Chunk] = deque()
        self.is_paused = False
        self.is_replaced = False
        """Whether the stream was deleted since `fetched`, and this was reported."""

    @property
    def waiting(self) -> int:
        return sum(len(chunk.entries) - chunk.at for chunk in self.chunks)


class _Reply(NamedTuple):
    """The answer for one stream: its chunk, or the error that fails it."""

    reading: _StreamReading
    chunk: _Chunk | None
    info: StreamInfo | None
    error: Exception | None = None


class StreamReader:
    """A `PartitionReader` of Redis streams.

    One request for all streams of the task is under way at a time, on the helper thread: the next one while rows of the last
    are given. Its replies are for the readings as they were; those of streams that were released meanwhile are dropped.

    Args:
        client: of the server.
        link: is informed whether the server answers.
        context: of the task.
        decoder: makes values of entries.
        begin: returns where a new stream begins.
        batch: the most entries of a request.
        wait_ms: how long the server holds a request without entries.
        has_time: whether ids are event times.
    """

    def __init__(
        self,
        client: Any,
        link: ServerLink,
        context: TaskContext,
        decoder: EntryDecoder,
        begin: Callable[[Partition, bool], Any],
        batch: int,
        wait_ms: int,
        has_time: bool,
    ) -> None:
        self._client, self._link = client, link
        self._clock = context.clock
        self._decoder = decoder
        self._begin = begin
        self._batch = batch
        # Without a helper thread nothing may wait.
        self._wait_ms = wait_ms if context.has_helper_thread else 0
        self._has_time = has_time
        self._readings: dict[str, _StreamReading] = {}
        self._turns: deque[str] = deque()
        self._requests: RequestLine[list[_Reply]] = RequestLine(context, link)
        self._failed: list[tuple[_StreamReading, Exception]] = []
        self._check_at = float("-inf")
        self._bytes = context.metrics.counter("bytes")
        self._added: dict[str, int] = {}
        """Entries that each stream has ever had, as last seen: for the lag."""

    # -- partitions ----------------------------------------------------------------------------------------------------------

    def assign(self, partition: Partition, position: Any, found_later: bool) -> Any:
        if position is None:
            position = self._begin(partition, found_later)
        self._readings[partition.name] = _StreamReading(partition, tuple(position))
        self._turns.append(partition.name)
        return position

    def release(self, partition: Partition) -> None:
        if self._readings.pop(partition.name, None) is not None:
            self._turns.remove(partition.name)
            self._added.pop(partition.name, None)

    def pause(self, partition: Partition, paused: bool) -> None:
        self._readings[partition.name].is_paused = paused

    def committed(self, positions: Mapping[str, Any]) -> None:
        """Do nothing: entries stay in their stream."""

    def lag(self) -> int | None:
        if self._readings and not self._added:
            return None
        return sum(
            max(0, self._added.get(name, 0) - reading.fetched[2]) + reading.waiting for name, reading in self._readings.items()
        )

    def close(self) -> None:
        self._readings.clear()
        self._turns.clear()
        self._client.connection_pool.disconnect()

    # -- rows ----------------------------------------------------------------------------------------------------------------

    def poll(self, output: PartitionOutput) -> None:
        self._take_answer()
        self._ask()
        self._take_answer()
        for reading, error in self._failed:
            output.failed(reading.partition, error)
        self._failed.clear()
        left = len(self._turns)
        while left and output.room > 0:
            name = self._turns[0]
            self._turns.rotate(-1)
            reading = self._readings[name]
            if not reading.is_paused:
                self._give(reading, max(1, output.room // left), output)
            left -= 1

    def _give(self, reading: _StreamReading, most: int, output: PartitionOutput) -> None:
        while reading.chunks and most > 0:
            chunk = reading.chunks[0]
            if chunk.loss is not None:
                (count, error), chunk.loss = chunk.loss, None
                output.lost(reading.partition, count, error)
            entries = chunk.entries[chunk.at : chunk.at + most]
            self._rows(reading.partition, entries, chunk.ordinal + chunk.at, output)
            chunk.at += len(entries)
            most -= len(entries)
            output.room -= len(entries)
            if chunk.at == len(chunk.entries):
                reading.chunks.popleft()

    def _rows(self, partition: Partition, entries: Sequence[StreamEntry], ordinal: int, output: PartitionOutput) -> None:
        values, name, decode = list[tuple[Any, ...]](), partition.name, self._decoder.values
        positions = positions_of(entries, ordinal)
        begin = 0

        def give(end: int) -> None:
            if values:
                given = positions[begin:end]
                output.rows(partition, values, given, [position[0] for position in given] if self._has_time else None)

        for place, entry in enumerate(entries):
            try:
                values.append(decode(name, entry))
            except Exception as error:
                give(place)
                output.bad(partition, positions[place], shown_entry(entry), error)
                values, begin = [], place + 1
        give(len(entries))

    # -- requests ------------------------------------------------------------------------------------------------------------

    def _ask(self) -> None:
        """Request more entries, unless a request is under way, or enough entries wait."""
        now = self._clock()
        if not self._requests.is_free:
            return
        wanted = [
            (reading, reading.fetched)
            for reading in self._readings.values()
            if not reading.is_paused and reading.waiting < self._batch
        ]
        if not wanted:
            return
        # A request that the server holds delays rows that are here: only an idle task waits.
        wait_ms = self._wait_ms if all(not reading.chunks for reading, _ in wanted) else 0
        is_check = now >= self._check_at
        if is_check:
            self._check_at = now + _CHECK_S
        self._requests.ask(partial(self._request, wanted, wait_ms, is_check), always_wakes=wait_ms > 0)

    def _take_answer(self) -> None:
        answer = self._requests.take()
        if isinstance(answer, Exception):
            self._failed += [(reading, answer) for reading in self._readings.values()]
        else:
            for reply in answer or ():
                self._take_reply(reply)

    def _take_reply(self, reply: _Reply) -> None:
        reading = reply.reading
        if self._readings.get(reading.partition.name) is not reading:
            return
        if reply.error is not None:
            self._failed.append((reading, reply.error))
        if reply.info is not None:
            self._added[reading.partition.name] = reply.info.added
        chunk = reply.chunk
        if chunk is None:
            return
        was_replaced, reading.is_replaced = reading.is_replaced, chunk.loss is not None and chunk.loss[0] is None
        if was_replaced and reading.is_replaced:
            chunk.loss = None
        reading.chunks.append(chunk)
        entries = chunk.entries
        last_id = numbers_of(entries[-1][0]) if entries else reading.fetched[:2]
        reading.fetched = (*last_id, chunk.ordinal + len(entries) - 1)
        self._bytes.add(sum(map(len, chain.from_iterable([entry[1] for entry in entries]))))

    # -- on the helper thread ------------------------------------------------------------------------------------------------

    def _request(self, wanted: Sequence[tuple[_StreamReading, EntryPosition]], wait_ms: int, is_check: bool) -> list[_Reply]:
        from redis.exceptions import ResponseError

        try:
            found = self._read([(reading.partition.name, position) for reading, position in wanted], wait_ms)
        except ResponseError as error:
            if len(wanted) == 1:
                name = wanted[0][0].partition.name
                unread = TopoEnvironmentError(f"stream {name!r} cannot be read: {self._link.explained(error)}")
                return [_Reply(wanted[0][0], None, None, unread)]
            # One of the keys holds no stream, or is not allowed.
            return [reply for one in wanted for reply in self._request([one], 0, is_check)]
        looked_at = [one for one in wanted if one[0].partition.name in found or is_check]
        infos = stream_infos(self._client, [reading.partition.name for reading, _ in looked_at], self._link)
        return [
            self._reply(reading, position, found.get(reading.partition.name, ()), info)
            for (reading, position), info in zip(looked_at, infos, strict=True)
        ]

    def _reply(
        self, reading: _StreamReading, position: EntryPosition, entries: Sequence[StreamEntry], info: StreamInfo | Exception
    ) -> _Reply:
        name = reading.partition.name
        if isinstance(info, Exception):
            return _Reply(reading, None, None, info)
        if not is_replaced(position, info) and lost_entries(position, info) == 0:
            # The stream was looked at after it was read: an entry that is here now was here then.
            return _Reply(reading, _Chunk(entries, position[2] + 1, None) if entries else None, info)
        # Entries may have been removed between the two: ask for both at one moment.
        pipeline = self._client.pipeline(transaction=True)
        pipeline.execute_command("XREAD", "COUNT", self._batch, "STREAMS", name, id_of(position))
        pipeline.execute_command("XINFO STREAM", name)
        replies = pipeline.execute(raise_on_error=False)
        now = _info(name, replies[1], self._link)
        if isinstance(now, Exception):
            return _Reply(reading, None, None, now)
        entries = replies[0][0][1] if isinstance(replies[0], list) and replies[0] else ()
        if is_replaced(position, now):
            why = f"stream {name!r} was deleted since entry {id_of(position)} was read"
            what = f"{why}: entries that it has had behind that, or has again up to that id, are not read"
            return _Reply(reading, _Chunk(entries, now.removed + 1, (None, TopoEnvironmentError(what))), now)
        count = lost_entries(position, now)
        loss = None
        if count:
            error = TopoEnvironmentError(
                f"stream {name!r} has lost {count} entries behind {id_of(position)}: they were removed before they were read"
            )
            loss = (count, error)
        if not entries and loss is None:
            return _Reply(reading, None, now)
        return _Reply(reading, _Chunk(entries, now.removed + 1 if loss else position[2] + 1, loss), now)

    def _read(self, places: Sequence[tuple[str, EntryPosition]], wait_ms: int) -> dict[str, Sequence[StreamEntry]]:
        """Return entries by stream, at most `batch` in all, as far as each may have one."""
        names, ids = [name for name, _ in places], [id_of(position) for _, position in places]
        block = ("BLOCK", wait_ms) if wait_ms else ()
        count = max(1, self._batch // len(places))
        reply = self._client.execute_command("XREAD", "COUNT", count, *block, "STREAMS", *names, *ids)
        return {name.decode(): entries for name, entries in reply or ()}
