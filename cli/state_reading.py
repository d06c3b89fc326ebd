"""Checkpoints read without the topology's code, as plain values to show."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgpack

from topo.checkpoint.encoding import TaskSnapshot, unpack
from topo.checkpoint.manifest import Manifest, name_of
from topo.dead_letters.pending import STATE_KEY
from topo.errors import FrameError, NotFoundError
from topo.storage.checkpoint_store import locate, nothing_in, open_store, topology_of
from topo.storage.state_folder import near_misses
from topo.wire.serializers import MAX_LEVELS, SerializerRegistry
from topo.wire.structures import CODES


class PlainTypes(SerializerRegistry):
    """topo's own ext types. A class that is not imported becomes its content, a registered class a note of its size."""

    def decode(self, code: int, data: bytes, levels: int = 0, spend: Callable[[Any], Any] | None = None) -> Any:
        try:
            return super().decode(code, data, levels, spend)
        except FrameError:
            if code in CODES and levels < MAX_LEVELS:
                hook = partial(self.decode, levels=levels + 1)
                return msgpack.unpackb(data, use_list=False, strict_map_key=False, ext_hook=hook)
            return msgpack.ExtType(code, data)


TYPES = PlainTypes()


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint, and the snapshots of its tasks by component and index."""

    manifest: Manifest
    snapshots: list[TaskSnapshot]


def read_checkpoint(path: str) -> Checkpoint:
    """Return the checkpoint that a path names, the last one if it names a folder of several.

    Raises:
        CheckpointMissingError: there is none.
        CheckpointDamagedError: its files have changed.
        CheckpointRefusedError: a newer topo has written it.
    """
    root, number = locate(path)
    store = open_store(root, topology_of(root))
    if number is None:
        stored = store.checkpoints()
        if not stored:
            raise nothing_in(root)
        number = stored[-1].checkpoint
    manifest = store.load(number)
    parts = sorted(manifest.parts, key=lambda part: (list(manifest.components).index(part.component), part.index))
    return Checkpoint(manifest, [store.read_part(name_of(part, manifest), TYPES) for part in parts])


def overview(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the facts of a checkpoint, and a row for each task."""
    manifest = checkpoint.manifest
    sizes = {part.task: part.length for part in manifest.parts}
    return {
        "topology": manifest.topology,
        "checkpoint": manifest.checkpoint,
        "created_ms": manifest.created_ms,
        "is_savepoint": manifest.is_savepoint,
        "topo": manifest.topo,
        "bytes": sum(sizes.values()),
        "components": {
            name: {"kind": shape.kind, "parallelism": shape.parallelism, "max_parallelism": shape.max_parallelism}
            for name, shape in manifest.components.items()
        },
        "tasks": [_task(snapshot, sizes[snapshot.task]) for snapshot in checkpoint.snapshots],
    }


def entries_of(checkpoint: Checkpoint, component: str) -> list[dict[str, Any]]:
    """Return every entry of a component's state, its values in words.

    Raises:
        NotFoundError: the checkpoint has no such component.
    """
    names = checkpoint.manifest.components
    if component not in names:
        raise NotFoundError(f"the checkpoint has no component {component!r}.", near_misses(component, names))
    return [
        {"component": component, "index": snapshot.index, "state": state, "key": key, "namespace": namespace, "value": value}
        for snapshot in checkpoint.snapshots
        if snapshot.component == component
        for state, key, namespace, value in _entries(snapshot)
    ]


def _task(snapshot: TaskSnapshot, size: int) -> dict[str, Any]:
    states: dict[str, int] = {}
    timers = 0
    for state, *_ in _keyed(snapshot):
        if state.startswith(_TIMER):
            timers += 1
        else:
            states[state] = states.get(state, 0) + 1
    return {
        "task": snapshot.task,
        "component": snapshot.component,
        "index": snapshot.index,
        "bytes": size,
        "key_groups": len(snapshot.key_groups),
        "states": states,
        "timers": timers,
        "values": dict(_values(snapshot)),
    }


_TIMER = "timer "
_NAMES = {STATE_KEY: "dead_letters"}
_OWN = "user"
"""The value that a StatefulBolt returned from `snapshot`, packed by its task."""


def _entries(snapshot: TaskSnapshot) -> Iterator[tuple[str, str, str, str]]:
    """Yield (state, key, namespace, value), in words."""
    for state, key, namespace, value in _keyed(snapshot):
        shown = value if state.startswith(_TIMER) else _shown(value)
        yield state, _shown(key), "" if namespace is None else _shown(namespace), shown
    for name, value in _values(snapshot):
        yield name, "", "", value


def _values(snapshot: TaskSnapshot) -> Iterator[tuple[str, str]]:
    for name, value in snapshot.values.items():
        yield _NAMES.get(name, name), _shown(unpack(value, TYPES) if name == _OWN and isinstance(value, bytes) else value)


def _keyed(snapshot: TaskSnapshot) -> Iterator[tuple[str, Any, Any, Any]]:
    for packed in snapshot.key_groups.values():
        group = unpack(packed, TYPES)
        if isinstance(group, bytes):
            # A user's own snapshot by key, packed separately.
            yield from ((_OWN, key, None, value) for key, value in unpack(group, TYPES))
            continue
        for name, state in group.get("state", {}).items():
            yield from ((name, key, namespace, cell) for key, namespace, cell in state["rows"])
        for name, domains in group.get("timers", {}).items():
            for domain, timers in zip(("event time", "processing time"), domains, strict=True):
                yield from ((f"{_TIMER}{name}", key, namespace, f"{domain} {at}") for key, namespace, at in timers)


def _shown(value: Any) -> str:
    if isinstance(value, msgpack.ExtType):
        return f"<type {value.code}, {len(value.data)} bytes>"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_shown(key)}: {_shown(one)}" for key, one in value.items()) + "}"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(_shown, value)) + ("," if len(value) == 1 else "") + ")"
    return repr(value)
