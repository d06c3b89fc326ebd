"""Column batches on the wire: they arrive as they left, and damaged ones are refused without harm."""

from __future__ import annotations

import random
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from topo import ColumnBatch
from topo.errors import FrameError
from topo.wire.codec import Codec

LISTS = ColumnBatch.of({"a": ["x", None, "z"], "b": [1, 2.5, True], "c": [date(2026, 1, 1), Decimal("1.5"), (1, "y")]}, [5, 6, 7])
ARROW = ColumnBatch.of(
    pa.record_batch(
        {
            "a": pa.array(["x", None, "z"]).dictionary_encode(),
            "b": pa.array([1, 2, None], pa.int32()),
            "c": pa.array([[1], [], None], pa.list_(pa.int64())),
            "d": pa.array([datetime(2026, 1, 1), None, None], pa.timestamp("ns")),
        }
    ),
    [5, 6, 7],
)

ASCII = ColumnBatch.of({"a": pa.array(["x", "", None, "yz"] * 5), "b": pa.array(["", "", "w", ""] * 5)})
TEXT = ColumnBatch.of(
    {"a": pa.array(["ä", "", None, "yz"] * 5), "b": pa.array(["", "", "", ""] * 5), "c": pa.nulls(20, pa.string())}
)


@pytest.mark.parametrize("batch", [LISTS, ARROW, ARROW.slice(1, 3), ASCII, TEXT, ASCII.slice(1, 3), TEXT.slice(3, 4)])
def test_a_batch_arrives_as_it_left(batch: ColumnBatch) -> None:
    codec = Codec()
    (row,) = codec.unpack_rows(codec.pack_rows([(batch,)]), 1)
    arrived = row[0]
    assert arrived == batch and arrived.is_arrow is batch.is_arrow
    assert (arrived.earliest, arrived.latest) == (batch.earliest, batch.latest)
    if batch.is_arrow:
        assert arrived.to_arrow().schema == batch.to_arrow().schema


def test_of_a_slice_only_its_rows_are_sent() -> None:
    batch = ColumnBatch.of({"a": pa.array(["x" * 100] * 10_000)})
    assert len(Codec().pack_rows([(batch.slice(5, 6),)])) < 1000


@pytest.mark.parametrize(("batch", "least_read"), [(LISTS, 100), (ARROW, 100), (ASCII, 50), (TEXT, 50)])
def test_damaged_batches_are_refused_or_can_be_read(batch: ColumnBatch, least_read: int) -> None:
    codec, chance = Codec(), random.Random(7)
    packed, read = codec.pack_rows([(batch,)]), 0
    for _ in range(1500):
        damaged = bytearray(packed)
        for _ in range(chance.randint(1, 3)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        try:
            rows = codec.unpack_rows(bytes(damaged), 1)
        except FrameError:
            continue
        if not isinstance(value := rows[0][0], ColumnBatch):
            continue
        # Values may be others, but nothing points outside of the batch.
        read += 1
        assert {len(value[field]) for field in value.fields} == {len(value)}
        if value.is_arrow:
            value.to_arrow().validate(full=True)
        else:
            assert len(value.rows()) == len(value)
    assert read > least_read


@pytest.mark.parametrize("columns", [((), ()), (((),), ()), (((1,), (1, 2)), None), (("a", "b"), None)])
def test_columns_that_are_no_table_are_refused(columns: Any) -> None:
    import msgpack

    content = msgpack.packb((["a"] * len(columns[0]), columns[0], None))
    with pytest.raises(FrameError, match="columns of different lengths"):
        Codec().registry.decode(15, content)
