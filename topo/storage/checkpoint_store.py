"""The folder of a topology's checkpoints, and of a savepoint.

    ROOT/0000000012/task-00003.part    one for each task, written by the task's worker
    ROOT/0000000012/manifest.json      written last: a checkpoint without one is not complete

Numbers are never used twice, so nothing is ever replaced. A manifest is the first thing that is removed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from shlex import quote

import msgspec
from msgspec import Struct

from topo.checkpoint.encoding import EncodedPart, ExtTypes, PartName, TaskSnapshot, decode_snapshot, verify_part
from topo.checkpoint.manifest import Manifest, decode_manifest, encode_manifest, name_of
from topo.errors import CheckpointDamagedError, CheckpointMissingError, CheckpointRefusedError, TopoEnvironmentError
from topo.ids import TaskId
from topo.keys import KeyGroupRange
from topo.storage.files import Files, PartFiles, open_files, shown

MANIFEST = "manifest.json"
ABANDONED = "manifest.abandoned.json"
PART = re.compile(r"[0-9]{10,19}/task-[0-9]{5,10}\.part")
"""The names of parts."""


class StoredCheckpoint(Struct, frozen=True):
    """A checkpoint that is in the store, or would be: without a manifest it is damaged, and `problem` describes the damage."""

    checkpoint: int
    manifest: Manifest | None
    problem: str = ""


class Found(Struct, frozen=True):
    """The checkpoint to restore.

    Attributes:
        manifest: None: there has never been one.
        problems: the damage of later ones, in words, to be reported.
        passed_over: the numbers of those.
    """

    manifest: Manifest | None
    problems: tuple[str, ...] = ()
    passed_over: tuple[int, ...] = ()


class PartStore:
    """The parts of checkpoints in one place, as workers see it. Blocking; for any thread."""

    def __init__(self, files: PartFiles) -> None:
        self._files = files

    def write_part(self, checkpoint: int, task: TaskId, part: EncodedPart) -> str:
        """Store a task's part; return its file's name, once it is durable. Raises TopoEnvironmentError when it cannot be."""
        file = f"{_folder(checkpoint)}/task-{task:05d}.part"
        self._files.write(file, part.sections)
        return file

    def read_part(
        self, name: PartName, types: ExtTypes, groups: KeyGroupRange | None = None, *, values: bool = True
    ) -> TaskSnapshot:
        """Return a task's snapshot, or some key groups of it.

        Raises:
            CheckpointDamagedError: it is missing, or its content has changed.
            CheckpointRefusedError: it is another topology's, or a newer version's.
            TopoEnvironmentError: the storage fails.
        """
        return decode_snapshot(self._reader(name.file), name, types, groups, values=values)

    def _reader(self, file: str) -> Callable[[int, int], bytes]:
        def read(start: int, length: int) -> bytes:
            try:
                return self._files.read(file, start, length)
            except FileNotFoundError:
                raise CheckpointDamagedError(file, "it is not there") from None

        return read


class CheckpointStore(PartStore):
    """Checkpoints of one topology in one place. Blocking; for any thread, but a checkpoint is one thread's at a time.

    Args:
        files: where.
        topology: whose; the checkpoints of another one are refused.
        keep: how many complete ones `prune` leaves.
    """

    _files: Files

    def __init__(self, files: Files, topology: str, keep: int = 3) -> None:
        super().__init__(files)
        self._topology = topology
        self._keep = keep
        self.url = files.url
        self._shown = shown(files.url)

    def make_root(self) -> None:
        """Make the place, for writers that do not. Raises TopoEnvironmentError when it cannot be made."""
        self._files.make_root()

    @property
    def acts_late(self) -> bool:
        """Whether a commit may take effect after it has failed, or the process that wanted it has died."""
        return self._files.acts_late

    def commit(self, manifest: Manifest) -> None:
        """Make a checkpoint complete: all its parts are durable. May be repeated.

        Raises:
            TopoEnvironmentError: the storage fails; whether it is complete is not known until `discard` has removed it.
        """
        self._files.write(_manifest(manifest.checkpoint), [encode_manifest(manifest)])

    def keep(self, checkpoint: int) -> None:
        """Make sure that a complete checkpoint stays complete after a power cut: the master that wrote it may have died before.

        Raises:
            TopoEnvironmentError: the storage fails; repeat it.
        """
        self._files.keep_name(_manifest(checkpoint))

    def discard(self, checkpoint: int) -> None:
        """Throw a checkpoint away, complete or not. Raises TopoEnvironmentError when it may still be complete."""
        self._files.remove(_manifest(checkpoint))
        with suppress(TopoEnvironmentError):
            self._files.remove_folder(_folder(checkpoint))

    def revoke(self, checkpoint: int) -> None:
        """Throw away a checkpoint that a failed call, or a process that has died, was about to make complete.

        Raises:
            TopoEnvironmentError: it may still be complete, or become so.
        """
        self.discard(checkpoint)
        if self.acts_late:
            self.abandon([checkpoint])

    def abandon(self, checkpoints: Iterable[int]) -> None:
        """Make sure that no process restores these checkpoints any more: an earlier one takes their place.

        The sinks that continue remove the data staged for them, so a later restore would miss it. Parts stay, and so does the
        manifest under the name `ABANDONED`, for somebody who can still save something. Beside that file no manifest counts:
        an earlier commit may take effect later.

        Raises:
            TopoEnvironmentError: the storage fails; repeat it.
        """
        for checkpoint in checkpoints:
            kept = b""
            with suppress(FileNotFoundError):
                kept = self._files.read(_manifest(checkpoint))
            if kept or not self._is_abandoned(checkpoint):
                self._files.write(f"{_folder(checkpoint)}/{ABANDONED}", [kept])
            self._files.remove(_manifest(checkpoint))

    def prune(self, under_way: int) -> list[int]:
        """Remove checkpoints that are no longer needed; return their numbers.

        The last `keep` complete checkpoints stay, savepoints do, and those from `under_way` on.
        """
        older = [number for number in self._numbers() if number < under_way]
        complete = [stored for number in older if (stored := self._stored(number)) is not None]
        whole = [stored for stored in complete if stored.manifest is not None]
        needed = {stored.checkpoint for stored in whole[-self._keep :]}
        needed |= {stored.checkpoint for stored in whole if stored.manifest is not None and stored.manifest.is_savepoint}
        # A damaged checkpoint that is younger than every whole one is evidence, and may hold state that can be saved by hand.
        youngest = max(needed, default=0)
        needed |= {stored.checkpoint for stored in complete if stored.manifest is None and stored.checkpoint > youngest}
        # The mark of an abandoned checkpoint stays while an older one could be restored.
        oldest = min(needed, default=0)
        gone = [number for number in older if number not in needed and not (number > oldest and self._is_abandoned(number))]
        for number in gone:
            self.discard(number)
        return gone

    def checkpoints(self) -> list[StoredCheckpoint]:
        """Return the checkpoints that are, or were, complete, the oldest first. Parts are not looked at."""
        return [stored for number in self._numbers() if (stored := self._stored(number)) is not None]

    def highest(self) -> int:
        """Return the highest number that was ever begun here, as far as can be seen; 0 for none."""
        return max(self._numbers(), default=0)

    def latest(self, *, expected: int = 0, below: int | None = None) -> Found:
        """Return the last complete checkpoint, every byte of which was looked at.

        Args:
            expected: a checkpoint known to have been complete; 0: none is.
            below: only those with a lower number.

        Raises:
            CheckpointRefusedError: the last one is another topology's, or a newer version's.
            CheckpointMissingError: there is none, although one was complete once.
            TopoEnvironmentError: the storage fails.
        """
        problems: list[str] = []
        passed_over: list[int] = []
        for number in sorted(self._numbers(), reverse=True):
            if below is not None and number >= below:
                continue
            try:
                manifest = self.load(number)
                self.verify(manifest)
            except CheckpointMissingError:
                continue
            except CheckpointDamagedError as error:
                problems.append(f"checkpoint {number} cannot be used: {error}")
                passed_over.append(number)
                continue
            if expected > number and not problems:
                problems.append(f"checkpoint {expected} was complete and is gone from {self._shown}")
            return Found(manifest, tuple(problems), tuple(passed_over))
        if problems or expected:
            what = "; ".join(problems) or f"checkpoint {expected} was complete and is gone"
            raise CheckpointMissingError(f"there is no checkpoint to restore in {self._shown}: {what}")
        return Found(None)

    def load(self, checkpoint: int) -> Manifest:
        """Return the manifest of a checkpoint.

        Raises:
            CheckpointMissingError: it is not complete.
            CheckpointDamagedError: its manifest is.
            CheckpointRefusedError: it is another topology's, or a newer version's.
        """
        if self._is_abandoned(checkpoint):
            raise CheckpointMissingError(f"checkpoint {checkpoint} was abandoned in {self._shown}")
        name = _manifest(checkpoint)
        try:
            manifest = decode_manifest(self._files.read(name), name)
        except FileNotFoundError:
            raise CheckpointMissingError(f"checkpoint {checkpoint} is not complete in {self._shown}") from None
        if manifest.topology != self._topology:
            raise CheckpointRefusedError(
                f"{self._shown} holds checkpoints of topology {manifest.topology!r}, not of {self._topology!r}; "
                f"run it as --name {quote(manifest.topology)} to continue from them, or name another folder"
            )
        if manifest.checkpoint != checkpoint:
            raise CheckpointDamagedError(name, f"it is that of checkpoint {manifest.checkpoint}")
        return manifest

    def verify(self, manifest: Manifest) -> None:
        """Look at every byte of a checkpoint. Raises as `read_part` does."""
        for part in manifest.parts:
            verify_part(self._reader(part.file), name_of(part, manifest))

    def copy(self, checkpoint: int, target: CheckpointStore) -> Manifest:
        """Copy a complete checkpoint into another store, as a savepoint.

        Raises:
            CheckpointRefusedError: the target has checkpoints of another topology, or this one.
            CheckpointDamagedError: its content has changed.
            TopoEnvironmentError: the storage fails; the savepoint is not complete.
        """
        manifest = self.load(checkpoint)
        if any(stored.checkpoint == checkpoint for stored in target.checkpoints()):
            raise CheckpointRefusedError(f"{target._shown} has a checkpoint {checkpoint} already; name another folder")
        for part in manifest.parts:
            verify_part(self._reader(part.file), name_of(part, manifest))
            target._files.write(part.file, [self._files.read(part.file)])
        savepoint = msgspec.structs.replace(manifest, is_savepoint=True)
        target.commit(savepoint)
        return savepoint

    def _is_abandoned(self, checkpoint: int) -> bool:
        return ABANDONED in self._files.names(_folder(checkpoint))

    def _stored(self, number: int) -> StoredCheckpoint | None:
        try:
            return StoredCheckpoint(number, self.load(number))
        except CheckpointMissingError:
            return None
        except CheckpointDamagedError as error:
            return StoredCheckpoint(number, None, str(error))

    def _numbers(self) -> list[int]:
        return sorted(int(name) for name in self._files.names() if name.isdecimal())


def open_store(url: str, topology: str, keep: int = 3) -> CheckpointStore:
    """Return the checkpoints of a topology at a path or URL. Raises TopoEnvironmentError when it cannot be reached from here."""
    return CheckpointStore(open_files(url), topology, keep)


def locate(url: str, reach: Callable[[str], Files] = open_files) -> tuple[str, int | None]:
    """Return what a path that a user names stands for: the root of a store, and the number if it is the folder of one."""
    url = url.rstrip("/")
    head, _, name = url.rpartition("/")
    return (head, int(name)) if name.isdecimal() and MANIFEST in reach(url).names() else (url, None)


def topology_of(root: str) -> str:
    """Return the name of the topology whose checkpoints are there.

    Raises:
        CheckpointMissingError: there is no complete checkpoint.
        CheckpointDamagedError: no manifest can be read.
        CheckpointRefusedError: a newer topo has written it.
    """
    files = open_files(root)
    damage: CheckpointDamagedError | None = None
    for number in sorted((int(name) for name in files.names() if name.isdecimal()), reverse=True):
        try:
            return decode_manifest(files.read(_manifest(number)), _manifest(number)).topology
        except FileNotFoundError:
            continue
        except CheckpointDamagedError as error:
            damage = damage or error
    if damage is not None:
        raise damage
    raise nothing_in(root)


def nothing_in(root: str, reach: Callable[[str], Files] = open_files) -> CheckpointMissingError:
    """Return the error of a folder without a complete checkpoint. It names the newest run with one, if these are its runs."""
    files = reach(root)
    runs = sorted(filter(str.isdecimal, files.names()), key=int, reverse=True)
    found = next(
        (run for run in runs if any(MANIFEST in files.names(f"{run}/{one}") for one in files.names(run) if one.isdecimal())), None
    )
    hint = "" if "/" in root else "; `topo checkpoints NAME` shows the folder of a topology's"
    if found is not None:
        hint = f"; each run has its own in a folder of it: the newest are in {shown(root.rstrip('/'))}/{found}"
    return CheckpointMissingError(f"there is no complete checkpoint in {shown(root)}{hint}")


def _folder(checkpoint: int) -> str:
    return f"{checkpoint:010d}"


def _manifest(checkpoint: int) -> str:
    return f"{_folder(checkpoint)}/{MANIFEST}"
