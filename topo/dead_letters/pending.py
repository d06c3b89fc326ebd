"""Dead letters of a task in a topology with checkpoints: given up for good only when a checkpoint covers it.

A tuple that user code has refused as often as it may is put aside here. Were its letter stored at once, it would be stored again
when the tuple comes again after a recovery. So letters are part of the snapshot, and told to the master when its checkpoint is
complete: by the task that took it, or by the one that goes on from it. Either may tell of it again; the letter's identity, which
is in the snapshot as well, says that it is the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from topo.dead_letters.payload import pack_or_say
from topo.ids import IdSource, TaskId
from topo.wire.codec import Codec
from topo.wire.control import DeadLetter

PendingState = dict[str, Any]

REMEMBERED = 10_000
"""Letters on disk that are recognised when a checkpoint brings them back."""


class PendingDeadLetters:
    """The dead letters of one task.

    Args:
        ids: where identities are drawn from.
        tell: sends a letter to the master.
    """

    def __init__(self, task: TaskId, codec: Codec, ids: IdSource, tell: Callable[[DeadLetter], None]) -> None:
        self._task = task
        self._codec = codec
        self._ids = ids
        self._report_to_master = tell
        self._held: dict[int, tuple[int, bytes, str, int]] = {}
        """By identity: the last checkpoint without it, values, why, attempts."""
        self._on_disk: dict[int, None] = {}
        """Identities of the latest that have been stored and counted."""
        self._snapshotted = 0

    def __len__(self) -> int:
        """How many have not been stored yet."""
        return len(self._held)

    def add(self, values: Any, why: str, attempts: int) -> None:
        """Give a tuple up."""
        self._held[self._new_identity()] = (self._snapshotted, pack_or_say(self._codec, values), why, attempts)

    def snapshot(self, checkpoint: int) -> PendingState:
        """Return what has to be remembered."""
        self._snapshotted = checkpoint
        return {"letters": [(identity, *letter[1:]) for identity, letter in self._held.items()]}

    def restore(self, states: Iterable[PendingState], checkpoint: int) -> None:
        """Go on from snapshots of a checkpoint.

        The checkpoint's completion may be told again, and covers no letter that is added from here on.
        """
        self._held.clear()
        self._snapshotted = checkpoint
        for state in states:
            for identity, *letter in state.get("letters", ()):
                if identity not in self._on_disk:
                    self._held[identity] = (-1, *letter)
            # Until 0.1.0 they had numbers, which every task gave anew.
            for _, *letter in state.get("held", ()):
                self._held[self._new_identity()] = (-1, *letter)

    def publish(self, checkpoint: int) -> None:
        """A checkpoint is complete: have the letters stored that it covers."""
        for identity, (before, values, why, attempts) in self._held.items():
            if before < checkpoint:
                self._report_to_master(
                    DeadLetter(
                        task=self._task,
                        id=identity,
                        position=self._codec.pack_value(None),
                        values=values,
                        errors=[why],
                        attempts=attempts,
                        identity=identity,
                    )
                )

    def stored(self, identities: Iterable[int]) -> int:
        """The letters are on disk; return how many of them were waited for."""
        known = [identity for identity in identities if self._held.pop(identity, None) is not None]
        self._on_disk.update(dict.fromkeys(known))
        while len(self._on_disk) > REMEMBERED:
            del self._on_disk[next(iter(self._on_disk))]
        return len(known)

    def _new_identity(self) -> int:
        return self._ids.roots(1)[0]
