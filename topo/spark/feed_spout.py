"""A spout that takes the rows of Structured Streaming, which `feed` sends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from topo.api.context import TaskContext
from topo.api.spout import RetryingSpout, SpoutCollector
from topo.errors import ConfigError, TopoEnvironmentError, UserError
from topo.spark.row_values import named_values, rows_of, timestamps_ms_of
from topo.storage.state_folder import write_atomically
from topo.transport.feed import Chunk, FeedAddress, FeedListener, new_feed_address

_MOST_ROWS = 256
"""Rows that one call of `next_tuple` emits, and so may overshoot `max_spout_pending` by."""


class FeedSpout(RetryingSpout):
    """Emits the rows that `feed` sends from a streaming DataFrame, and reports to it when they are done: acked or dead-lettered.

    Rows come in chunks, each to one task. A row's position is (number of its chunk, row in it). It never ends its input. What a
    killed process had not confirmed is sent again; so no row is lost, and rows of these chunks may repeat.
    """

    def __init__(
        self, fields: Sequence[str], *, timestamp: str | None = None, host: str = "127.0.0.1", folder: str | Path | None = None
    ) -> None:
        """Say what comes, and where to listen for it.

        Args:
            fields: the columns to emit, in this order. The streaming DataFrame has them; further ones are left out.
            timestamp: the column of event time: a timestamp, a date, or whole milliseconds.
            host: the address of this machine that Spark's executors reach. Traffic is encrypted, and only who can read
                `folder` can send.
            folder: where `feed` finds the address; by default the topology's own on this machine.

        Raises:
            ConfigError: there are no fields.
        """
        if isinstance(fields, str) or not fields:
            raise ConfigError(f"fields={fields!r} names no columns; give a tuple of names")
        self.outputs = self._fields = tuple(fields)
        self._timestamp = timestamp
        self._host = host
        self._folder = None if folder is None else Path(folder).absolute()

    def open(self, context: TaskContext, collector: SpoutCollector) -> None:
        """Listen, at the address of the last life if it is free, and say where.

        Raises:
            ConfigError: there is no folder for the address.
            TopoEnvironmentError: the address cannot be used.
        """
        folder = self._folder or context.folder
        if folder is None:
            raise ConfigError("FeedSpout needs a folder where feed() finds its address: give folder=")
        self._collector = collector
        committed = context.committed_position
        self._number: int = committed[0] if committed is not None else 0
        self._rows: Iterator[tuple[int, tuple[tuple[Any, ...], int | None]]] | None = None
        self._open_chunks: dict[int, tuple[bytes, int]] = {}
        path = address_path(folder, context.component, context.task_index)
        known = read_address(path)
        same_place = known is not None and known.endpoint.removeprefix("tcp://").rpartition(":")[0] == self._host
        address = known if known is not None and same_place else new_feed_address(self._host, context.parallelism)
        self._listener = FeedListener(msgspec.structs.replace(address, tasks=context.parallelism))
        # A state folder that was removed is not made again.
        folder.mkdir(mode=0o700, parents=self._folder is not None, exist_ok=True)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_atomically(path, msgspec.json.encode(self._listener.address))
        context.logger.info("rows are taken at %s", self._listener.address.endpoint)

    def next_tuple(self) -> None:
        """Emit the next rows of the current chunk, or of the next one if it has arrived."""
        if self._rows is None:
            chunk = self._listener.take()
            if chunk is None or not self._begin(chunk):
                return
        assert self._rows is not None
        number, emit = self._number, self._collector.emit
        rows = list(islice(self._rows, _MOST_ROWS))
        for row, (values, timestamp) in rows:
            emit(values, (number, row), timestamp=timestamp)
        if len(rows) < _MOST_ROWS:
            self._rows = None

    def _begin(self, chunk: Chunk) -> bool:
        try:
            rows = self._read(chunk.body)
        except (UserError, pa.ArrowException) as error:
            self._listener.refuse(chunk.id, str(error))
            self._collector.report_error(error)
            return False
        if not rows:
            self._listener.done(chunk.id)
            return False
        self._number += 1
        self._open_chunks[self._number] = (chunk.id, len(rows))
        self._rows = enumerate(rows)
        return True

    def _read(self, body: bytes) -> list[tuple[tuple[Any, ...], int | None]]:
        batch = pa.ipc.open_stream(pa.py_buffer(body)).read_next_batch()
        wanted = (*self._fields, self._timestamp) if self._timestamp else self._fields
        if missing := [name for name in wanted if name not in batch.schema.names]:
            has = ", ".join(batch.schema.names)
            raise UserError(f"FeedSpout wants the column {', '.join(missing)}, and the DataFrame has {has}")
        rows = list(rows_of([batch.column(name) for name in self._fields], self._fields))
        if self._timestamp is None:
            return [(row, None) for row in rows]
        return list(zip(rows, named_values(batch.column(self._timestamp), self._timestamp, timestamps_ms_of), strict=True))

    def ack(self, message_id: Any) -> None:
        """Count the row; the last one of its chunk confirms the chunk."""
        number = message_id[0]
        # A message that was in flight in a former process.
        if number not in self._open_chunks:
            return
        chunk, left = self._open_chunks[number]
        if left > 1:
            self._open_chunks[number] = (chunk, left - 1)
        else:
            del self._open_chunks[number]
            self._listener.done(chunk)

    def fail(self, message_id: Any) -> None:
        """Count the row as done: its dead letter is stored."""
        self.ack(message_id)

    def close(self) -> None:
        """Stop listening."""
        self._listener.close()


def address_path(folder: Path, component: str, task: int) -> Path:
    return folder / component / f"feed.{task}.json"


def read_address(path: Path) -> FeedAddress | None:
    """Return a task's address; None when it has none yet.

    Raises:
        TopoEnvironmentError: it cannot be read.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=FeedAddress)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise TopoEnvironmentError(f"cannot read the feed's address in {path}: {error}") from error
