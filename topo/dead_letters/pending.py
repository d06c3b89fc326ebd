"""Dead letters of a task in a topology with checkpoints: a tuple is given up only when a checkpoint covers it.

A tuple that has used up its attempts is held here. Stored at once, its dead letter would be stored a second time when the tuple
is replayed after a recovery. So dead letters are part of the snapshot, and reported to the master when its checkpoint is
complete: by the task that took the snapshot, or by the task that restores it. Both may report a dead letter more than once; its
identity, which is in the snapshot, too, makes them one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from topo.dead_letters.payload import pack_or_say
from topo.hot import Ids
from topo.ids import TaskId
from topo.wire.codec import Codec
from topo.wire.control import DeadLetter

PendingState = dict[str, Any]

STATE_KEY = "letters"
"""Key of these dead letters, in a part's values as in `PendingState`; files of earlier releases have it."""

REMEMBERED = 10_000
"""Number of stored dead letters that are recognised when a checkpoint restores them."""

MOST_HELD, MOST_HELD_BYTES = 10_000, 64 << 20
"""How many a task holds, and how large, before its source waits for a checkpoint."""


class PendingDeadLetters:
    """The dead letters of one task.

    Args:
        ids: where identities are drawn from.
        send: sends a dead letter to the master.
    """

    def __init__(self, task: TaskId, codec: Codec, ids: Ids, send: Callable[[DeadLetter], None]) -> None:
        self._task = task
        self._codec = codec
        self._ids = ids
        self._report_to_master = send
        self._held: dict[int, tuple[Any, ...]] = {}
        """By identity: the last checkpoint without it, values, why, attempts, and the position in the source where it has one."""
        self._on_disk: dict[int, None] = {}
        """Identities of the latest that have been stored and counted."""
        self._bytes = 0
        """Of the values that are held."""
        self._snapshotted = 0

    def __len__(self) -> int:
        """How many have not been stored yet."""
        return len(self._held)

    @property
    def fullness(self) -> float:
        """The part of what may be held; from 1 on no more records are to be read before a checkpoint is complete."""
        return max(len(self._held) / MOST_HELD, self._bytes / MOST_HELD_BYTES)

    def add(self, values: Any, why: str, attempts: int, position: Any = None) -> None:
        """Give a tuple up; `position`: that of its record in the source, if it has one."""
        dead_letter = (self._snapshotted, pack_or_say(self._codec, values), why, attempts)
        self._bytes += len(dead_letter[1])
        self._held[self._new_identity()] = dead_letter if position is None else (*dead_letter, position)

    def snapshot(self, checkpoint: int) -> PendingState:
        """Return the held dead letters as state."""
        self._snapshotted = checkpoint
        return {STATE_KEY: [(identity, *dead_letter[1:]) for identity, dead_letter in self._held.items()]}

    def restore(self, states: Iterable[PendingState], checkpoint: int) -> None:
        """Restore the snapshots of a checkpoint.

        The checkpoint's completion may be reported again, and covers no dead letter that is added from here on.
        """
        self._held.clear()
        self._bytes = 0
        self._snapshotted = checkpoint
        for state in states:
            for identity, *dead_letter in state.get(STATE_KEY, ()):
                if identity not in self._on_disk:
                    self._held[identity] = (-1, *dead_letter)
                    self._bytes += len(dead_letter[0])
            # Until 0.1.0 they had numbers, which each life of a task counted from the start.
            for _, *dead_letter in state.get("held", ()):
                self._held[self._new_identity()] = (-1, *dead_letter)
                self._bytes += len(dead_letter[0])

    def publish(self, checkpoint: int) -> None:
        """A checkpoint is complete: send the dead letters that it covers to the master."""
        for identity, (before, values, why, attempts, *position) in self._held.items():
            if before < checkpoint:
                self._report_to_master(
                    DeadLetter(
                        task=self._task,
                        id=identity,
                        position=self._codec.pack_value(position[0] if position else None),
                        values=values,
                        errors=[why],
                        attempts=attempts,
                        identity=identity,
                    )
                )

    def stored(self, identities: Iterable[int]) -> int:
        """The dead letters are on disk; return how many of them were held here."""
        known = [identity for identity in dict.fromkeys(identities) if identity in self._held]
        for identity in known:
            self._bytes -= len(self._held.pop(identity)[1])
        self._on_disk.update(dict.fromkeys(known))
        while len(self._on_disk) > REMEMBERED:
            del self._on_disk[next(iter(self._on_disk))]
        return len(known)

    def _new_identity(self) -> int:
        return self._ids.roots(1)[0]
