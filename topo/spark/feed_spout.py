"""A spout that takes the rows of Structured Streaming, which `feed` sends, and emits them singly or as batches of columns."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import islice, repeat
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from topo.api.arrow_values import milliseconds_of, named_values, rows_of
from topo.api.columns import MAX_PENDING_BATCHES
from topo.api.context import TaskContext
from topo.api.spout import RetryingSpout
from topo.api.streams import DEFAULT_STREAM
from topo.connectors.argument_checks import checks_arguments
from topo.errors import ConfigError, TopoEnvironmentError, UserError
from topo.spark.record_batches import batch_rows_of, pieces_of
from topo.storage.state_folder import write_atomically
from topo.transport.feed import Chunk, FeedAddress, FeedListener, new_feed_address

FedMessage = tuple[int, Any, Any]
"""Number of the (last) row, values or columns, event time."""
_MOST_ROWS = 256
"""Rows that one call of `next_tuple` emits, and so may overshoot `max_spout_pending` by."""


class FeedSpout(RetryingSpout):
    """Emits the rows that `feed` sends from a streaming DataFrame, and reports to it when they are done: acked or dead-lettered.

    Rows come in chunks, each to one task. A row's position is (number of its chunk, row in it), that of a batch is its last
    row's. It never ends its input. What a killed process had not confirmed is sent again; so no row is lost, and rows of these
    chunks may repeat.
    """

    is_endless = True

    @checks_arguments
    def __init__(
        self,
        fields: Sequence[str],
        *,
        timestamp: str | None = None,
        host: str = "127.0.0.1",
        folder: str | os.PathLike[str] | None = None,
        batches: bool = False,
        batch_rows: int | None = None,
    ) -> None:
        """Say what comes, and where to listen for it.

        Args:
            fields: the columns to emit, in this order. The streaming DataFrame has them; further ones are left out.
            timestamp: the column of event time: a timestamp, a date, or whole milliseconds.
            host: the address of this machine that Spark's executors reach. Traffic is encrypted, and only who can read
                `folder` can send.
            folder: where `feed` finds the address; by default the topology's own on this machine.
            batches: emit batches of Arrow columns, as a `SparkSpout` does.
            batch_rows: rows in a batch at most, 16,384 by default; fewer at the end of a chunk.

        Raises:
            ConfigError: there are no fields.
        """
        if not fields:
            raise ConfigError(f"fields={fields!r} names no columns; give a tuple of names")
        self.outputs = self._fields = tuple(fields)
        self._timestamp = timestamp
        self._batch_rows = batch_rows_of(batches=batches, batch_rows=batch_rows)
        if batches:
            self.emits_batches = True
            self.component_settings = {"max_spout_pending": MAX_PENDING_BATCHES}
        self._host = host
        self._folder = None if folder is None else Path(folder).absolute()

    def open(self, context: TaskContext, collector: Any) -> None:
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
        self._rows: Iterator[FedMessage] | None = None
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
        """Emit the next rows of the current chunk, or of the next one if it has arrived.

        Raises:
            UnsupportedValueError: a row is larger than a batch may be.
            EmitError: an event time cannot be one. In both cases the chunk is refused, which ends the streaming query.
        """
        if self._rows is None:
            chunk = self._listener.take()
            if chunk is None or not self._begin(chunk):
                return
        assert self._rows is not None
        number, emit = self._number, self._collector.emit_batch if self._batch_rows else self._collector.emit
        rows = list(islice(self._rows, _MOST_ROWS))
        try:
            for row, values, time in rows:
                emit(values, (number, row), DEFAULT_STREAM, time)
        except Exception as error:  # whatever it is, `feed` would wait for the chunk for ever
            self._rows = None
            self._listener.refuse(self._open_chunks.pop(number)[0], str(error))
            raise
        if len(rows) < _MOST_ROWS:
            self._rows = None

    def _begin(self, chunk: Chunk) -> bool:
        try:
            messages = list(self._read(chunk.body))
        except Exception as error:  # whatever it is, `feed` would wait for the chunk for ever
            self._listener.refuse(chunk.id, str(error))
            self._collector.report_error(error)
            return False
        if not messages:
            self._listener.done(chunk.id)
            return False
        self._number += 1
        self._open_chunks[self._number] = (chunk.id, len(messages))
        self._rows = iter(messages)
        return True

    def _read(self, body: bytes) -> Iterator[FedMessage]:
        batch = pa.ipc.open_stream(pa.py_buffer(body)).read_next_batch()
        wanted = (*self._fields, self._timestamp) if self._timestamp else self._fields
        if missing := [name for name in wanted if name not in batch.schema.names]:
            has = ", ".join(batch.schema.names)
            raise UserError(f"FeedSpout wants the column {', '.join(missing)}, and the DataFrame has {has}")
        columns = {name: batch.column(name) for name in wanted}
        if self._batch_rows:
            for piece in pieces_of(columns, self._fields, self._timestamp, self._batch_rows):
                yield piece.last, piece.columns, piece.stamps
            return
        rows = rows_of([columns[name] for name in self._fields], self._fields)
        stamps = repeat(None)
        if self._timestamp is not None:
            stamps = named_values(columns[self._timestamp], self._timestamp, milliseconds_of).to_pylist()
        for row, (values, stamp) in enumerate(zip(rows, stamps, strict=False)):
            yield row, values, stamp

    def ack(self, message_id: Any) -> None:
        """Count the message; the last one of its chunk confirms the chunk."""
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
        """Count the message as done: its dead letter is stored."""
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
