"""Checkpoints of two components as a store holds them, written and read."""

from __future__ import annotations

from typing import Any

from topo.checkpoint.encoding import TaskSnapshot, encode_snapshot, pack, unpack
from topo.checkpoint.manifest import ComponentShape, Manifest, Part, name_of, shares_for
from topo.ids import TaskId
from topo.keys import key_group, route_of
from topo.storage.checkpoint_store import CheckpointStore
from topo.wire.serializers import SerializerRegistry

TYPES = SerializerRegistry()


GROUPS = 128


def counts(checkpoint: int, keys: int = 50) -> dict[str, int]:
    return {f"key {number}": checkpoint * 1000 + number for number in range(keys)}


def write(
    store: CheckpointStore, checkpoint: int, state: dict[str, int] | None = None, parallelism: int = 2, topology: str = "words"
) -> Manifest:
    """Store the parts of a checkpoint, and return the manifest that is to be committed."""
    state = counts(checkpoint) if state is None else state
    parts = []
    for index in range(parallelism):
        mine: dict[int, dict[str, int]] = {}
        for key, value in state.items():
            if route_of(key, GROUPS, parallelism) == index:
                mine.setdefault(key_group(key, GROUPS), {})[key] = value
        snapshot = TaskSnapshot(
            component="count",
            task=TaskId(index + 1),
            index=index,
            parallelism=parallelism,
            key_groups={group: pack(rows, TYPES) for group, rows in mine.items()},
            values={"staged": [f"{checkpoint}/{index}"]},
        )
        encoded = encode_snapshot(snapshot, topology, checkpoint, TYPES)
        file = store.write_part(checkpoint, snapshot.task, encoded)
        part = Part(
            file=file, length=encoded.length, checksum=encoded.checksum, component="count", task=snapshot.task, index=index
        )
        parts.append(part)
    shape = ComponentShape(kind="bolt", parallelism=parallelism, max_parallelism=GROUPS)
    return Manifest(topology=topology, checkpoint=checkpoint, components={"count": shape}, parts=tuple(parts))


def complete(store: CheckpointStore, checkpoint: int, **fields: Any) -> Manifest:
    manifest = write(store, checkpoint, **fields)
    store.commit(manifest)
    return manifest


def read(store: CheckpointStore, manifest: Manifest, parallelism: int = 2) -> list[dict[str, int]]:
    """Return the state that each task of a parallelism restores."""
    found = []
    for index in range(parallelism):
        mine: dict[str, int] = {}
        for share in shares_for(manifest, "count", index, parallelism):
            snapshot = store.read_part(name_of(share.part, manifest), TYPES, share.groups, values=share.takes_values)
            for packed in snapshot.key_groups.values():
                rows = unpack(packed, TYPES)
                assert not mine.keys() & rows.keys()
                mine.update(rows)
        found.append(mine)
    return found


def numbers(store: CheckpointStore) -> list[int]:
    return [stored.checkpoint for stored in store.checkpoints()]
