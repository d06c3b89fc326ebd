"""Writes a worker's snapshots in the background, and reads those that its tasks restore."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from topo.checkpoint.alignment import Snapshot, StoredCallback, StoredPart
from topo.checkpoint.encoding import ExtTypes, PartName, TaskSnapshot, encode_snapshot, pack, pack_group, unpack
from topo.errors import TopoEnvironmentError
from topo.ids import TaskId
from topo.keys import KeyGroupRange
from topo.plan.physical import PhysicalPlan
from topo.storage.checkpoint_store import PartStore
from topo.storage.files import PartFiles, open_files
from topo.wire.control import PartToRead


class SnapshotWriter:
    """The thread that encodes and stores the snapshots of all tasks of a worker, one after the other.

    Args:
        url: of the topology's checkpoints.
        reach: returns the files at a path or URL, as this process reaches them.

    Raises:
        TopoEnvironmentError: the thread cannot be started.
    """

    def __init__(self, url: str, plan: PhysicalPlan, types: ExtTypes, reach: Callable[[str], PartFiles] = open_files) -> None:
        self._plan = plan
        self._types = types
        self._reach = reach
        self._store = PartStore(reach(url))
        self._thread = ThreadPoolExecutor(1, "snapshots")
        try:
            # Started now, while there is room for a thread, rather than with the first snapshot.
            self._thread.submit(int).result()
        except RuntimeError as error:
            raise TopoEnvironmentError(f"cannot start the thread that stores snapshots: {error}; see ulimit -u and -v") from error

    def of(self, task: TaskId) -> TaskSnapshots:
        return TaskSnapshots(self._plan, task, self._store, self._types, self._thread.submit, self._reach)

    def close(self) -> None:
        """End the thread; snapshots not yet written are dropped."""
        self._thread.shutdown(wait=False, cancel_futures=True)


class TaskSnapshots:
    """A task's `SnapshotStore`.

    Args:
        submit: runs a function in the background.
        reach: returns the files at another path or URL.
    """

    def __init__(
        self,
        plan: PhysicalPlan,
        task: TaskId,
        store: PartStore,
        types: ExtTypes,
        submit: Callable[[Callable[[], None]], object],
        reach: Callable[[str], PartFiles] = open_files,
    ) -> None:
        self._plan = plan
        self._task = task
        self._store = store
        self._types = types
        self._submit = submit
        self._reach = reach
        self._waiting: deque[tuple[int, Snapshot, StoredCallback]] = deque(maxlen=1)
        """The snapshot to be written next. A later one takes its place: only one checkpoint is under way, so no task waits
        for it any more, and storage that is slower than `checkpoint_timeout` would have copies of the state pile up."""

    def pack(self, value: Any, what: str = "state") -> bytes:
        return pack(value, self._types, what)

    def unpack(self, packed: bytes) -> Any:
        return unpack(packed, self._types)

    def write(self, checkpoint: int, snapshot: Snapshot, stored: StoredCallback) -> None:
        """Encode and store a snapshot in the background, unless a later one comes before its turn does."""
        self._waiting.append((checkpoint, snapshot, stored))
        try:
            self._submit(self._write_next)
        except RuntimeError as error:  # the worker is closing
            stored(None, error)

    def _write_next(self) -> None:
        try:
            checkpoint, snapshot, stored = self._waiting.popleft()
        except IndexError:  # it was written in the turn of one whose place it has taken
            return
        try:
            stored(self._write(checkpoint, snapshot), None)
        except Exception as error:
            stored(None, error)

    def _write(self, checkpoint: int, snapshot: Snapshot) -> StoredPart:
        spec = self._plan.task(self._task)
        part = encode_snapshot(
            TaskSnapshot(
                component=spec.component,
                task=self._task,
                index=spec.index,
                parallelism=self._plan.component(spec.component).parallelism,
                key_groups={group: pack_group(data, self._types) for group, data in snapshot.keyed().items()},
                values=snapshot.values,
            ),
            self._plan.name,
            checkpoint,
            self._types,
        )
        return StoredPart(self._store.write_part(checkpoint, self._task, part), part.length, part.checksum)

    def read(self, folder: str, checkpoint: int, parts: Sequence[PartToRead]) -> list[Snapshot]:
        """Return the task's share of each part."""
        store = PartStore(self._reach(folder)) if folder else self._store
        return [self._read(store, checkpoint, part) for part in parts]

    def _read(self, store: PartStore, checkpoint: int, part: PartToRead) -> Snapshot:
        first, last = part.groups
        # KeyGroupRange cannot represent an empty range.
        groups = KeyGroupRange(first, last) if first <= last else None
        name = PartName(part.file, self._plan.name, checkpoint, part.component, part.task, part.length, part.checksum)
        found = store.read_part(name, self._types, groups, values=part.takes_values)
        keyed = {} if groups is None else {group: unpack(data, self._types) for group, data in found.key_groups.items()}
        return Snapshot(lambda: keyed, found.values)
