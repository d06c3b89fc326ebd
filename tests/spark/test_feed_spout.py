"""FeedSpout with a sender in the same process: the messages of a chunk, its event time, and when the chunk is done. No Spark."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

from tests.spark.test_feed_link import PATIENCE_S, at_the_same_time, sending  # noqa: E402
from topo import ColumnBatch, ConfigError, UnsupportedValueError  # noqa: E402
from topo.api.context import TaskContext  # noqa: E402
from topo.emission.emitter import checked_timestamp  # noqa: E402
from topo.errors import EmitError  # noqa: E402
from topo.spark import FeedSpout, feed  # noqa: E402
from topo.spark.feed_push import _chunks  # noqa: E402
from topo.spark.feed_spout import address_path, read_address  # noqa: E402
from topo.transport.feed import MAX_CHUNK_BYTES, FeedAddress, FeedRefused  # noqa: E402

FIELDS = ("number",)


class Emitted:
    """Takes rows and batches, and refuses batches with a negative number."""

    def __init__(self) -> None:
        self.messages: list[tuple[Any, Any, Any]] = []

    def emit(self, values: Any, message_id: Any, stream: str, timestamp: Any) -> None:
        if timestamp is not None:
            checked_timestamp(timestamp, "timestamp")
        self.messages.append((values, message_id, timestamp))

    def emit_batch(self, columns: Any, message_id: Any, stream: str, timestamps: Any) -> None:
        batch = ColumnBatch.of(columns, timestamps)
        if batch.rows()[0][0] < 0:
            raise UnsupportedValueError("too long")
        self.messages.append((batch.rows(), message_id, batch.stamp_list()))


def body(numbers: list[int], at: list[int | None]) -> bytes:
    batch = pa.record_batch({"number": numbers, "at": pa.array(at, pa.int64()), "more": ["x"] * len(numbers)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def opened(folder: Path, **more: Any) -> tuple[FeedSpout, Emitted, FeedAddress]:
    spout, emitted = FeedSpout(FIELDS, timestamp="at", folder=folder, **more), Emitted()
    spout.open(TaskContext("t", "rows", 1), emitted)
    address = read_address(address_path(folder, "rows", 0))
    assert address is not None
    return spout, emitted, address.for_clients()


def turn(spout: FeedSpout, emitted: Emitted, messages: int) -> None:
    until = time.monotonic() + PATIENCE_S
    while len(emitted.messages) < messages:
        assert time.monotonic() < until, "no message has come"
        spout.next_tuple()
        time.sleep(0.001)


@pytest.mark.parametrize(
    ("more", "messages"),
    [
        ({}, [((n,), (1, n), stamp) for n, stamp in enumerate([5, 6, None, 8, 9])]),
        ({"batches": True}, [([(0,), (1,)], (1, 1), [5, 6]), ([(2,)], (1, 2), None), ([(3,), (4,)], (1, 4), [8, 9])]),
        (
            {"batches": True, "batch_rows": 1},
            [([(n,)], (1, n), None if stamp is None else [stamp]) for n, stamp in enumerate([5, 6, None, 8, 9])],
        ),
    ],
)
def test_a_chunk_is_done_when_each_of_its_messages_is(tmp_path: Path, more: dict[str, Any], messages: Any) -> None:
    spout, emitted, address = opened(tmp_path, **more)
    try:
        with sending(address) as sender:
            sender.start_with(0)
            sender.send(b"1", body([0, 1, 2, 3, 4], [5, 6, None, 8, 9]))
            is_done: list[bool] = []
            with at_the_same_time(lambda: (sender.wait_done(), is_done.append(True))):
                turn(spout, emitted, len(messages))
                assert emitted.messages == messages
                for place, (_, position, _) in enumerate(messages):
                    assert not is_done
                    spout.fail(position) if place % 2 else spout.ack(position)
            assert is_done
    finally:
        spout.close()


def test_a_chunk_with_a_row_that_no_frame_can_hold_is_refused_with_the_reason(tmp_path: Path) -> None:
    spout, _, address = opened(tmp_path, batches=True)
    try:
        with sending(address) as sender:
            sender.start_with(0)
            sender.send(b"1", body([-1], [1]))
            with at_the_same_time(sender.wait_done) as raised, pytest.raises(UnsupportedValueError, match="too long"):
                turn(spout, Emitted(), 1)
            assert isinstance(raised[0], FeedRefused) and "too long" in str(raised[0])
    finally:
        spout.close()


def test_a_chunk_with_an_event_time_that_no_row_may_have_is_refused_with_the_reason(tmp_path: Path) -> None:
    """The least 64-bit number is what programs on the JVM write for none."""
    spout, emitted, address = opened(tmp_path)
    try:
        with sending(address) as sender:
            sender.start_with(0)
            sender.send(b"1", body([1, 2], [5, -(2**63)]))
            with at_the_same_time(sender.wait_done) as raised, pytest.raises(EmitError, match="does not fit 64 bits"):
                turn(spout, emitted, 3)
            assert isinstance(raised[0], FeedRefused) and "does not fit 64 bits" in str(raised[0])
            spout.ack((1, 0))
    finally:
        spout.close()


def test_a_chunk_that_cannot_be_read_is_refused_with_the_reason(tmp_path: Path) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], names=["number", "number", "at"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    spout, emitted, address = opened(tmp_path)
    emitted.report_error = lambda error: emitted.messages.append((error, None, None))
    try:
        with sending(address) as sender:
            sender.send(b"1", sink.getvalue().to_pybytes())
            with at_the_same_time(sender.wait_done) as raised:
                turn(spout, emitted, 1)
            assert isinstance(raised[0], FeedRefused) and "number" in str(raised[0])
    finally:
        spout.close()


def test_rows_of_very_different_size_are_cut_into_chunks_that_the_link_takes() -> None:
    rows = ["short"] * 300 + ["x" * (8 << 20)] * 10
    chunks = list(_chunks(iter([pa.record_batch({"number": rows})])))
    assert sum(count for _, count in chunks) == len(rows)
    assert max(len(body) for body, _ in chunks) < MAX_CHUNK_BYTES


def test_rows_of_a_batch_are_for_batches() -> None:
    with pytest.raises(ConfigError, match="batch_rows=5 is for batches"):
        FeedSpout(FIELDS, batch_rows=5)
    for number in (0, 1e4, "5"):
        with pytest.raises(ConfigError, match=f"batch_rows={number!r}.* must be a whole number, "):
            FeedSpout(FIELDS, batches=True, batch_rows=number)  # type: ignore[arg-type]


@pytest.mark.parametrize("window", [0, -1, 1.5])
def test_a_window_that_holds_no_chunk_is_refused(window: Any) -> None:
    with pytest.raises(ConfigError, match=f"window={window!r} must be a whole number, at least 1"):
        feed(None, "fed", checkpoint="checkpoint", window=window)  # type: ignore[arg-type]
