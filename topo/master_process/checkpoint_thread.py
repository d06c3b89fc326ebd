"""The master's hand on the store: commits, copies and searches in a thread of their own, one after another.

A slow store holds up checkpoints, and nothing else.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

import msgspec

from topo.checkpoint.manifest import Manifest
from topo.checkpoint.store_messages import (
    CheckpointFound,
    CheckpointStored,
    CommitCheckpoint,
    CopyCheckpoint,
    DiscardCheckpoint,
    FindCheckpoint,
    SavepointStored,
    StoreAnswer,
    StoreCommand,
)
from topo.errors import CheckpointDamagedError, CheckpointMissingError, CheckpointRefusedError, TopoEnvironmentError, TopoError
from topo.master_process.restore_point import way_out
from topo.storage.checkpoint_store import CheckpointStore
from topo.storage.files import Files, open_files
from topo.transport.bell import Bell

_LOG = logging.getLogger(__name__)

RETRY_S = 0.5
_LEAVE_S = 5.0
"""Time for the current write to finish when the master ends."""


class CheckpointWriterThread:
    """Performs commands on a store.

    Args:
        store: of the run.
        topology: its name.
        wall_ms: the wall clock, for the moment in a manifest.
        reach: returns the files at another path or URL.

    Attributes:
        descriptor: becomes readable when there are answers.
    """

    def __init__(
        self,
        store: CheckpointStore,
        topology: str,
        wall_ms: Callable[[], int] = lambda: int(time.time() * 1000),
        reach: Callable[[str], Files] = open_files,
    ) -> None:
        self._store = store
        self._topology = topology
        self._wall_ms = wall_ms
        self._reach = reach
        self._commands: SimpleQueue[StoreCommand | None] = SimpleQueue()
        self._answers: deque[StoreAnswer] = deque()
        self._is_leaving = threading.Event()
        self._bell = Bell()
        self.descriptor = self._bell.descriptor
        self._thread = threading.Thread(target=self._work, name="checkpoints", daemon=True)
        self._thread.start()

    def do(self, command: StoreCommand) -> None:
        self._commands.put(command)

    def answers(self) -> list[StoreAnswer]:
        self._bell.clear()
        found: list[StoreAnswer] = []
        while self._answers:
            found.append(self._answers.popleft())
        return found

    def close(self) -> None:
        """Finish the current request, within limits. No further answers follow."""
        self._is_leaving.set()
        self._commands.put(None)
        self._thread.join(_LEAVE_S)
        if not self._thread.is_alive():
            self._bell.close()

    def _work(self) -> None:
        while (command := self._commands.get()) is not None:
            try:
                answer = self._perform(command)
            except Exception as error:  # the master would wait for an answer for ever
                _LOG.exception("%s failed", type(command).__name__)
                answer = _failure(command, f"{type(error).__name__}: {error}")
            if answer is not None:
                self._answers.append(answer)
                self._bell.ring()

    def _perform(self, command: StoreCommand) -> StoreAnswer | None:
        if isinstance(command, CommitCheckpoint):
            return self._commit(command)
        if isinstance(command, DiscardCheckpoint):
            with contextlib.suppress(TopoEnvironmentError):
                self._store.discard(command.checkpoint)
            return None
        if isinstance(command, CopyCheckpoint):
            try:
                self._store.copy(command.checkpoint, self._store_in(command.folder))
            except TopoError as error:
                return SavepointStored(command.folder, str(error))
            return SavepointStored(command.folder)
        return self._find(command)

    def _commit(self, command: CommitCheckpoint) -> CheckpointStored | None:
        manifest = msgspec.structs.replace(command.manifest, created_ms=self._wall_ms())
        try:
            self._store.commit(manifest)
        except TopoEnvironmentError as error:
            # It may be there in spite of the error, and a later master would continue from it. Make sure that it is not.
            if not self._until_done(lambda: self._store.revoke(manifest.checkpoint)):
                return None
            return CheckpointStored(manifest, str(error))
        try:
            self._store.prune(manifest.checkpoint + 1)
        except Exception as error:  # whatever it is, this one is complete
            _LOG.warning("old checkpoints were not removed: %s", error)
        return CheckpointStored(manifest)

    def _find(self, command: FindCheckpoint) -> CheckpointFound | None:
        answers: list[CheckpointFound] = []

        def look() -> None:
            try:
                answers.append(CheckpointFound(self._last_whole(command)))
            except (CheckpointMissingError, CheckpointRefusedError, CheckpointDamagedError) as error:
                answers.append(CheckpointFound(None, f"{error}; {way_out(self._topology)}"))

        return answers[0] if self._until_done(look) else None

    def _last_whole(self, command: FindCheckpoint) -> Manifest | None:
        if command.folder:
            source = self._store_in(command.folder)
            manifest = source.load(command.upto)
            source.verify(manifest)
            return manifest
        found = self._store.latest(expected=command.upto, below=command.upto + 1)
        for problem in found.problems:
            _LOG.error("%s", problem)
        self._store.abandon(found.passed_over)
        return found.manifest

    def _store_in(self, folder: str) -> CheckpointStore:
        return CheckpointStore(self._reach(folder), self._topology)

    def _until_done(self, do: Callable[[], None]) -> bool:
        """Try until the store does it; False when the master ends before."""
        while True:
            try:
                do()
                return True
            except TopoEnvironmentError as error:
                _LOG.error("the store of checkpoints: %s; tried again", error)
                if self._is_leaving.wait(RETRY_S):
                    return False


def _failure(command: StoreCommand, why: str) -> StoreAnswer | None:
    if isinstance(command, CommitCheckpoint):
        return CheckpointStored(command.manifest, why)
    if isinstance(command, CopyCheckpoint):
        return SavepointStored(command.folder, why)
    return CheckpointFound(None, why) if isinstance(command, FindCheckpoint) else None
