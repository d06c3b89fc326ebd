"""Dead letters on their way to disk: each is stored once and confirmed to the spout task that waits for it.

A task tells of a letter again after every epoch until it is confirmed. A letter of a checkpoint is told again by whoever goes on
from it, under an identity that it keeps; the identities of what is on disk are known to a new master. Without checkpoints a
spout that was replaced before its position was committed gives the same message up again, under another number. So such letters
are told apart by (task, position); but within one life another number is another message, whose id is used for the second time.
What was stored is remembered for the last REMEMBERED letters of the topology; the message of a letter further back is committed
by then, unless spouts are allowed more than that many uncommitted messages, and costs a second copy at worst.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from topo.ids import Incarnation, TaskId, WorkerId
from topo.wire.control import Cause, DeadLetter

REMEMBERED = 100_000
CAUSES = 10_000
"""Failed roots whose causes are remembered until their messages fail for good; most are processed at the next attempt."""
CAUSE_WAIT_S = 0.3
"""A task's cause and the spout's letter come over two connections: the letter waits so long for a cause that has not come."""
WRITE_TIMEOUT_S = 5.0
"""A letter that is not on disk by then (the disk may be full) is to be written again."""

_Key = int | tuple[TaskId, bytes]
"""The identity of a letter, or (task, position)."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Who waits for a letter to be stored, and the number it knows the letter by."""

    worker: WorkerId
    incarnation: Incarnation
    task: TaskId
    id: int


@dataclass(slots=True)
class _UnderWay:
    letter: DeadLetter
    ask_again_at: float
    waiting: list[Waiting]


class DeadLetters:
    """Letters of one topology.

    Args:
        count: letters that were on disk when this master started.
        stored: identities of the latest of them, oldest first.

    Attributes:
        count: letters on disk.
    """

    def __init__(self, count: int = 0, stored: Iterable[int] = ()) -> None:
        self._stored: dict[_Key, Waiting | None] = dict.fromkeys(stored)
        """With who was the last to tell of it."""
        self._under_way: dict[_Key, _UnderWay] = {}
        self._causes: dict[int, Cause] = {}
        self.count = count

    @property
    def in_flight(self) -> int:
        """Letters that are to be written and are not yet."""
        return len(self._under_way)

    def failed(self, causes: Iterable[tuple[Cause, list[int]]]) -> None:
        """A task has failed these roots. What came first says why; the oldest causes are forgotten."""
        for cause, roots in causes:
            for root in roots:
                self._causes.setdefault(root, cause)
        while len(self._causes) > CAUSES:
            del self._causes[next(iter(self._causes))]

    def explained(self, letter: DeadLetter) -> DeadLetter:
        """Return the letter with the causes of its failures, as far as tasks have reported them."""
        if letter.earlier:
            first = max(1, letter.attempts - len(letter.earlier))
            attempts = [f"attempt {at}: {self._causes.get(root, why)}" for at, (why, root) in enumerate(letter.earlier, first)]
            letter = msgspec.structs.replace(letter, errors=[*attempts, *letter.errors], earlier=[])
        cause = self._causes.get(letter.root)
        return letter if cause is None else msgspec.structs.replace(letter, errors=[*letter.errors, str(cause)], cause=cause)

    def is_stored(self, waiting: Waiting, letter: DeadLetter) -> bool:
        """Note who waits for a letter that is on disk, so that it can be confirmed at once; False when it is not on disk."""
        key = _key(letter)
        if key not in self._stored:
            return False
        last = self._stored[key]
        if last is not None and last.incarnation == waiting.incarnation and last.id != waiting.id:
            return False
        self._stored[key] = waiting
        return True

    def is_new(self, waiting: Waiting, letter: DeadLetter, now: float) -> bool:
        """Note who waits for a letter that is not stored; True when it has to be written, False when it is under way.

        One that a task has failed without having told why is under way until `overdue` returns it.
        """
        key = _key(letter)
        found = self._under_way.get(key)
        if found is not None:
            if waiting not in found.waiting:
                found.waiting.append(waiting)
            return False
        lacks_cause = letter.root != 0 and letter.cause is None
        ask_again_at = now + (CAUSE_WAIT_S if lacks_cause else WRITE_TIMEOUT_S)
        self._under_way[key] = _UnderWay(letter, ask_again_at, [waiting])
        return not lacks_cause

    def written(self, letters: tuple[DeadLetter, ...]) -> list[Waiting]:
        """Letters are on disk; return who is to be told."""
        told: list[Waiting] = []
        for letter in letters:
            key = _key(letter)
            if (found := self._under_way.pop(key, None)) is not None:
                told += found.waiting
                self.count += 1
                self._stored[key] = found.waiting[-1]
        while len(self._stored) > REMEMBERED:
            del self._stored[next(iter(self._stored))]
        return told

    def overdue(self, now: float) -> list[tuple[Waiting, DeadLetter]]:
        """Return the letters whose writing has to be asked for, the first time or again, each with one who waits for it."""
        found = [under_way for under_way in self._under_way.values() if under_way.ask_again_at <= now]
        for under_way in found:
            under_way.ask_again_at = now + WRITE_TIMEOUT_S
            if under_way.letter.cause is None:
                under_way.letter = self.explained(under_way.letter)
        return [(under_way.waiting[-1], under_way.letter) for under_way in found]

    def next_deadline(self) -> float | None:
        """When `overdue` will return something."""
        return min((under_way.ask_again_at for under_way in self._under_way.values()), default=None)


def _key(letter: DeadLetter) -> _Key:
    return letter.identity or (letter.task, letter.position)
