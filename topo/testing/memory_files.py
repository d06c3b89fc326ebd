"""Checkpoints kept in memory: the real store over a tree of files that lives as long as the test."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from topo.checkpoint.alignment import SnapshotStore
from topo.checkpoint.store_messages import (
    CheckpointFound,
    CheckpointStored,
    CommitCheckpoint,
    CopyCheckpoint,
    DiscardCheckpoint,
    SavepointStored,
    StoreAnswer,
    StoreCommand,
)
from topo.plan.physical import PhysicalPlan
from topo.storage.checkpoint_store import CheckpointStore
from topo.storage.snapshots import TaskSnapshots
from topo.wire.serializers import SerializerRegistry


class MemoryFiles:
    """A tree of files (`storage.files.Files`)."""

    url = "memory"
    acts_late = False

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}

    def make_root(self) -> None:
        """Do nothing: there are no folders."""

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        self.content[name] = b"".join(chunks)

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Return bytes of a file. Raises FileNotFoundError when it is not there."""
        if name not in self.content:
            raise FileNotFoundError(name)
        return self.content[name][start : None if length is None else start + length]

    def names(self, folder: str = "") -> list[str]:
        start = f"{folder}/" if folder else ""
        return list({name.removeprefix(start).partition("/")[0] for name in self.content if name.startswith(start)})

    def keep_name(self, name: str) -> None:
        """Do nothing: no power cut is survived."""

    def remove(self, name: str) -> None:
        self.content.pop(name, None)

    def remove_folder(self, name: str) -> None:
        self.content = {file: data for file, data in self.content.items() if not file.startswith(f"{name}/")}


class MemoryCheckpoints:
    """The checkpoints of a topology in one process; each request is done at once."""

    def __init__(self, plan: PhysicalPlan, registry: SerializerRegistry) -> None:
        self._plan = plan
        self._registry = registry
        self.files = MemoryFiles()
        self.store = CheckpointStore(self.files, plan.name)
        self.unread: list[StoreAnswer] = []
        """Answers that the master has not taken."""

    def of(self, task: int) -> SnapshotStore:
        """Return where a task's snapshots go."""

        def at_once(work: Callable[[], None]) -> None:
            work()

        return TaskSnapshots(self._plan, self._plan.task(task).id, self.store, self._registry, at_once)

    def do(self, command: StoreCommand) -> None:
        if isinstance(command, CommitCheckpoint):
            self.store.commit(command.manifest)
            self.store.prune(command.manifest.checkpoint + 1)
            self.unread.append(CheckpointStored(command.manifest))
        elif isinstance(command, DiscardCheckpoint):
            self.store.discard(command.checkpoint)
        elif isinstance(command, CopyCheckpoint):
            self.unread.append(SavepointStored(command.folder, "a topology in one process has no folder to copy to"))
        else:
            self.unread.append(CheckpointFound(self.store.latest(below=command.upto + 1).manifest))

    def answers(self) -> list[StoreAnswer]:
        unread, self.unread = self.unread, []
        return unread
