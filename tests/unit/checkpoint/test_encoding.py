"""A task's snapshot as bytes: what goes in comes out, in whole or by key group, and nothing else is taken for it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topo.checkpoint.encoding import (
    SCHEMA_VERSION,
    EncodedPart,
    PartName,
    TaskSnapshot,
    decode_snapshot,
    encode_snapshot,
    pack,
    unpack,
    verify_part,
)
from topo.errors import CheckpointDamagedError, CheckpointRefusedError, UnsupportedValueError
from topo.ids import TaskId
from topo.keys import KeyGroupRange
from topo.nesting import MAX_STATE_DEPTH
from topo.wire.serializers import SerializerRegistry

TYPES = SerializerRegistry()
BIG = 200_000
"""Bytes of a section that does not fit into the first read."""


def snapshot(**changes: object) -> TaskSnapshot:
    fields: dict[str, object] = {
        "component": "count",
        "task": TaskId(4),
        "index": 1,
        "parallelism": 2,
        "key_groups": {64: pack([("a", 1)], TYPES), 70: b"", 127: bytes(BIG)},
        "values": {"position": 17, "mine": {"a": (1, 2)}},
    }
    return TaskSnapshot(**{**fields, **changes})  # type: ignore[arg-type]


def encoded(taken: TaskSnapshot | None = None) -> EncodedPart:
    return encode_snapshot(taken or snapshot(), "words", 12, TYPES)


def reader(data: bytes) -> Callable[[int, int], bytes]:
    return lambda start, length: data[start : start + length]


def name(part: EncodedPart, **changes: object) -> PartName:
    fields: dict[str, object] = {
        "file": "0012/task-4.part",
        "topology": "words",
        "checkpoint": 12,
        "component": "count",
        "task": TaskId(4),
        "length": part.length,
        "checksum": part.checksum,
    }
    return PartName(**{**fields, **changes})  # type: ignore[arg-type]


def test_a_snapshot_comes_out_as_it_went_in() -> None:
    part = encoded()
    assert len(part.data) == part.length
    assert decode_snapshot(reader(part.data), name(part), TYPES) == snapshot()


def test_a_snapshot_without_anything_in_it_is_carried() -> None:
    empty = snapshot(key_groups={}, values={})
    part = encoded(empty)
    assert decode_snapshot(reader(part.data), name(part), TYPES) == empty
    verify_part(reader(part.data), name(part))


def test_values_are_what_tuples_carry() -> None:
    values = {"at": datetime(2026, 2, 3, tzinfo=UTC), "sum": Decimal("1.5"), "key": {(1, "a"): b"x"}}
    part = encoded(snapshot(values=values))
    assert decode_snapshot(reader(part.data), name(part), TYPES).values == values


def test_a_value_that_no_tuple_carries_is_refused_by_type() -> None:
    with pytest.raises(UnsupportedValueError, match=r"state cannot be stored: range: topo carries"):
        encoded(snapshot(values={"seen": range(3)}))


def nested(levels: int) -> object:
    value: object = "deep"
    for _ in range(levels):
        value = (value,)
    return value


def test_state_is_stored_as_deep_as_it_can_be_read() -> None:
    deepest = nested(MAX_STATE_DEPTH)
    assert unpack(pack(deepest, TYPES), TYPES) == deepest
    for deeper in (MAX_STATE_DEPTH + 1, 1_024, 1_025, 100_000):
        with pytest.raises(UnsupportedValueError, match="state cannot be stored"):
            pack(nested(deeper), TYPES)


def test_more_elements_than_a_frame_may_have_are_fine_in_a_snapshot() -> None:
    rows = list(range(1_200_000))
    assert unpack(pack(rows, TYPES), TYPES) == tuple(rows)


def test_some_key_groups_are_read_without_the_others() -> None:
    part = encoded()
    asked: list[tuple[int, int]] = []

    def read(start: int, length: int) -> bytes:
        asked.append((start, length))
        return part.data[start : start + length]

    found = decode_snapshot(read, name(part), TYPES, KeyGroupRange(64, 100), values=False)
    assert found == snapshot(key_groups={group: snapshot().key_groups[group] for group in (64, 70)}, values={})
    assert sum(length for _, length in asked) < BIG


def test_values_are_read_without_key_groups() -> None:
    part = encoded()
    found = decode_snapshot(reader(part.data), name(part), TYPES, KeyGroupRange(0, -1))
    assert found == snapshot(key_groups={})


def test_nothing_wanted_is_nothing_read_but_the_header() -> None:
    part = encoded()
    found = decode_snapshot(reader(part.data), name(part), TYPES, KeyGroupRange(0, 10), values=False)
    assert found == snapshot(key_groups={}, values={})


@given(st.data())
def test_a_flipped_bit_is_never_missed(data: st.DataObject) -> None:
    part = encoded(snapshot(key_groups={1: b"some state", 2: b"more"}))
    at = data.draw(st.integers(0, part.length * 8 - 1))
    broken = bytearray(part.data)
    broken[at // 8] ^= 1 << at % 8
    with pytest.raises((CheckpointDamagedError, CheckpointRefusedError)):
        decode_snapshot(reader(bytes(broken)), name(part), TYPES)
    with pytest.raises((CheckpointDamagedError, CheckpointRefusedError)):
        verify_part(reader(bytes(broken)), name(part))


@given(st.integers(0, 400))
def test_a_torn_part_is_never_taken_for_a_whole_one(kept: int) -> None:
    part = encoded(snapshot(key_groups={1: b"some state", 2: b"more"}))
    torn = part.data[: min(kept, part.length - 1)]
    with pytest.raises(CheckpointDamagedError, match=r"0012/task-4.part is damaged"):
        decode_snapshot(reader(torn), name(part), TYPES)
    with pytest.raises(CheckpointDamagedError):
        verify_part(reader(torn), name(part))


@given(st.binary(max_size=200))
def test_any_other_file_is_refused(data: bytes) -> None:
    with pytest.raises(CheckpointDamagedError):
        decode_snapshot(reader(data), "some.part", TYPES)


def test_damage_outside_of_what_is_wanted_does_not_matter() -> None:
    part = encoded()
    broken = part.data[:-1] + b"\1"
    found = decode_snapshot(reader(broken), name(part), TYPES, KeyGroupRange(64, 70))
    assert found.values == snapshot().values
    with pytest.raises(CheckpointDamagedError, match="key group 127"):
        decode_snapshot(reader(broken), name(part), TYPES)
    with pytest.raises(CheckpointDamagedError, match="key group 127"):
        verify_part(reader(broken), name(part))


def test_a_part_of_a_newer_schema_is_refused_by_name() -> None:
    data = bytearray(encoded().data)
    struct.pack_into("<H", data, 8, SCHEMA_VERSION + 1)
    with pytest.raises(CheckpointRefusedError, match=rf"newer topo \(schema {SCHEMA_VERSION + 1}; this is topo .*, schema"):
        decode_snapshot(reader(bytes(data)), "some.part", TYPES)


def test_a_part_of_another_topology_is_refused_by_name() -> None:
    part = encoded()
    with pytest.raises(CheckpointRefusedError, match="belongs to topology 'words', not to 'numbers'"):
        decode_snapshot(reader(part.data), name(part, topology="numbers"), TYPES)


@pytest.mark.parametrize("change", [{"task": TaskId(5)}, {"checkpoint": 11}, {"component": "split"}])
def test_a_part_of_another_task_or_checkpoint_is_damage(change: dict[str, object]) -> None:
    part = encoded()
    with pytest.raises(CheckpointDamagedError, match=r"it is checkpoint 12 of task 4 \(count\) where"):
        decode_snapshot(reader(part.data), name(part, **change), TYPES)


@pytest.mark.parametrize("change", [{"length": 7}, {"checksum": "00"}])
def test_another_file_than_the_manifest_names_is_damage(change: dict[str, object]) -> None:
    part = encoded()
    with pytest.raises(CheckpointDamagedError, match="another file than the manifest names"):
        decode_snapshot(reader(part.data), name(part, **change), TYPES)


def test_the_checksum_tells_any_two_parts_apart() -> None:
    first, second = encoded(snapshot(key_groups={1: b"a"})), encoded(snapshot(key_groups={1: b"b"}))
    assert first.length == second.length
    assert first.checksum != second.checksum
