"""The body of a Spark task of `feed`: sends a partition's rows, and returns when the topology has processed them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from topo.transport.feed import FeedAddress, FeedSender

_MOST_BYTES = 4 << 20
"""Approximate size of a chunk; a longer row is a chunk alone."""


@dataclass(frozen=True, slots=True)
class Push:
    """A function for `mapInArrow`. Sent to the executors, with the keys.

    Attributes:
        feed: drawn for each call of `feed`, used where Spark does not name the query.
        batch: number of the micro-batch.
        window: chunks that a Spark task has on the way.
        patience_s: how long a task of the topology may be silent.
    """

    addresses: tuple[FeedAddress, ...]
    feed: str
    batch: int
    window: int
    patience_s: float

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Send the batches of one partition; yield how many rows they had.

        Raises:
            FeedLost: the topology does not answer.
            FeedRefused: the topology cannot use the rows.
        """
        from pyspark import TaskContext

        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        query = (context.getLocalProperty("sql.streaming.queryId") if context is not None else None) or self.feed
        sender = FeedSender(self.addresses, self.window, self.patience_s)
        rows = 0
        try:
            sender.start_with(partition)
            for number, body in enumerate(_chunks(batches)):
                # A partition that is computed again may come in another order, so an id stands for the content as well.
                digest = hashlib.blake2b(body[0], digest_size=16).hexdigest()
                sender.send(f"{query}/{self.batch}/{partition}/{number}/{digest}".encode(), body[0])
                rows += body[1]
            sender.wait_done()
        finally:
            sender.close()
        yield pa.RecordBatch.from_pydict({"rows": pa.array([rows], pa.int64())})


def _chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[bytes, int]]:
    for batch in batches:
        for piece in _pieces(batch):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, piece.schema) as stream:
                stream.write_batch(piece)
            yield sink.getvalue().to_pybytes(), piece.num_rows


def _pieces(batch: pa.RecordBatch) -> Sequence[pa.RecordBatch]:
    if batch.num_rows > 1 and batch.nbytes > _MOST_BYTES:
        middle = batch.num_rows // 2
        return [*_pieces(batch.slice(0, middle)), *_pieces(batch.slice(middle))]
    return [batch] if batch.num_rows else []
