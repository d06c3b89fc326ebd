"""State of a `StatefulBolt` or `StatefulColumnBolt` in checkpoints: by key group where the bolt has a key, else as one value."""

from __future__ import annotations

from typing import Any

from topo.api.bolt import StatefulBolt
from topo.api.columns import StatefulColumnBolt
from topo.checkpoint.alignment import Snapshot, SnapshotStore
from topo.errors import UnsupportedStateError, UserError
from topo.operators.state.deep_copy import independent_rows
from topo.operators.state.handles import KeyGroups

AnyStatefulBolt = StatefulBolt | StatefulColumnBolt


def is_broadcast(bolt: AnyStatefulBolt) -> bool:
    """Return whether all tasks have the same state, of which a checkpoint has the copy of the first."""
    return isinstance(bolt, StatefulBolt) and bolt.is_broadcast


def snapshot_user(component: str, bolt: AnyStatefulBolt, store: SnapshotStore, group_of: KeyGroups) -> Snapshot:
    """Return the state of a bolt. It is copied now; with a key it is split by key groups later, on another thread."""
    state = bolt.snapshot()
    if is_broadcast(bolt):
        packed = store.pack([(None, state)])
        return Snapshot(keyed=lambda: {0: packed})
    if not bolt.key:
        return Snapshot(values={"user": store.pack(state)})
    if not isinstance(state, dict):
        what = f"component {component!r}: snapshot() of a StatefulBolt with a key"
        raise UnsupportedStateError(f"{what} returns a dict by key; got a {type(state).__name__}")
    copied = independent_rows(state)
    group_of.note_keys(len(copied))

    def split() -> dict[int, bytes]:
        groups: dict[int, list[tuple[Any, Any]]] = {}
        for key, value in copied.items():
            groups.setdefault(group_of[key], []).append((key, value))
        return {group: _pack_entries(entries, store) for group, entries in groups.items()}

    return Snapshot(keyed=split)


def _pack_entries(entries: list[tuple[Any, Any]], store: SnapshotStore) -> bytes:
    """Return values by key as bytes. The error of a value that cannot be stored names its key."""
    try:
        return store.pack(entries)
    except UnsupportedStateError:
        for key, value in entries:
            store.pack(value, f"the state of key {key!r:.60}")
        raise


def restore_user(component: str, bolt: AnyStatefulBolt, store: SnapshotStore, parts: list[Snapshot]) -> None:
    """Give a bolt the state of a checkpoint; without parts it begins with nothing.

    Raises:
        UserError: the state was written by a bolt with a key, and this one has none, or the other way round.
    """
    if is_broadcast(bolt):
        copies = [packed for part in parts for packed in part.keyed().values()]
        bolt.restore(store.unpack(copies[0])[0][1] if copies else None)
        return
    if any(part.keyed() if not bolt.key else "user" in part.values for part in parts):
        raise UserError(
            f"component {component!r}: its state in the checkpoint goes by {'no' if bolt.key else 'a'} key, "
            "other than that of the StatefulBolt that it is now; leave it as it was, or let it begin with nothing "
            f"(--drop-state {component})"
        )
    if bolt.key:
        keyed = {key: value for part in parts for packed in part.keyed().values() for key, value in store.unpack(packed)}
        bolt.restore(keyed if parts else None)
        return
    states = [store.unpack(part.values["user"]) for part in parts if "user" in part.values]
    if len(states) > 1:
        raise UserError(
            f"component {component!r}: a StatefulBolt without a key takes over the state of one task, not of "
            f"{len(states)}; leave its parallelism as it was"
        )
    bolt.restore(states[0] if states else None)
