"""A worker's snapshots on their way to the store: encoded and written in a thread of their own, one after another."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

from topo.checkpoint.encoding import ExtTypes, PartName, TaskSnapshot, encode_snapshot, pack, unpack
from topo.ids import TaskId
from topo.keys import KeyGroupRange
from topo.plan.physical import PhysicalPlan
from topo.runtime.checkpoint_store import CheckpointStore, open_store
from topo.task.snapshots import Snapshot, Stored, StoredPart
from topo.wire.control import PartToRead

_LOG = logging.getLogger(__name__)


class Background:
    """One thread that does what it is given, in order. It does not keep the process from ending."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def do(self, job: Callable[[], None]) -> None:
        """Have something done. It tells of its own failures."""
        self._jobs.put(job)

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            try:
                job()
            except Exception:
                _LOG.exception("a background job failed")


class TaskSnapshots:
    """Where one task's snapshots go and come from: a `SnapshotStore`.

    Args:
        store: of the topology.
        plan: names the task's component and parallelism.
        task: whose.
        types: the ext types of the topology.
        background: the worker's writing thread.
    """

    def __init__(self, store: CheckpointStore, plan: PhysicalPlan, task: TaskId, types: ExtTypes, background: Background) -> None:
        self._store = store
        self._topology = plan.name
        self._task = plan.task(task)
        self._parallelism = plan.component(self._task.component).parallelism
        self._types = types
        self._background = background

    def pack(self, value: Any) -> bytes:
        """Return a value as it is stored. Raises ValueNotCarried."""
        return pack(value, self._types)

    def unpack(self, packed: bytes) -> Any:
        """Return what `pack` packed; sequences are tuples."""
        return unpack(packed, self._types)

    def write(self, checkpoint: int, snapshot: Snapshot, stored: Stored) -> None:
        """Store a snapshot in the background; `stored` is called on that thread."""
        self._background.do(lambda: self._write(checkpoint, snapshot, stored))

    def read(self, folder: str, checkpoint: int, parts: Sequence[PartToRead]) -> list[Snapshot]:
        """Return what the task takes from each part.

        Raises:
            CheckpointDamaged: a part is not what was written.
            TopoError: it cannot be read, or is of another topology or a newer version.
        """
        store = open_store(folder, self._topology) if folder else self._store
        found = []
        for part in parts:
            name = PartName(part.file, self._topology, checkpoint, part.component, part.task, part.length, part.checksum)
            snapshot = store.read_part(name, self._types, KeyGroupRange(*part.groups), values=part.takes_values)
            keyed = {group: self.unpack(packed) for group, packed in snapshot.key_groups.items()}
            found.append(Snapshot(keyed, snapshot.values))
        return found

    def _write(self, checkpoint: int, snapshot: Snapshot, stored: Stored) -> None:
        try:
            groups = {group: self.pack(state) for group, state in snapshot.keyed.items()}
            whole = TaskSnapshot(
                component=self._task.component,
                task=self._task.id,
                index=self._task.index,
                parallelism=self._parallelism,
                key_groups=groups,
                values=snapshot.values,
            )
            part = encode_snapshot(whole, self._topology, checkpoint, self._types)
            file = self._store.write_part(checkpoint, self._task.id, part)
        except Exception as error:
            stored(None, error)
            return
        stored(StoredPart(file, part.length, part.checksum), None)
