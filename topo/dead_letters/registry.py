"""Dead letters on their way to disk: each is stored once and confirmed to the spout task that waits for it.

A task resends a dead letter after every epoch until it is confirmed. A dead letter of a checkpoint is resent by each task that
restores it, under the same identity; a new master knows the identities of those on disk. Without checkpoints a spout that was
replaced before its position was committed gives the same message up again, under another number. So such dead letters are
distinguished by (task, position); but within one life another number is another message, whose id is used for the second time.
The last REMEMBERED dead letters of the topology are remembered as stored; the message of an earlier one is committed by then,
unless spouts are allowed more than that many uncommitted messages, and costs a second copy at worst.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
from msgspec import Struct

from topo.ids import Incarnation, TaskId, WorkerId
from topo.wire.control import Cause, DeadLetter

REMEMBERED = 100_000
CAUSES = 10_000
"""Failed roots whose causes are remembered until their messages are given up; most are processed at the next attempt."""
CAUSE_WAIT_S = 0.3
"""A task's cause and the spout's dead letter come over two connections: the longest wait of the second for the first."""
WRITE_TIMEOUT_S = 5.0
"""Time after which a dead letter that is not on disk (the disk may be full) is written again."""
TASK_FAILED = "a task failed it"
"""Why an attempt failed, as far as the task of the spout knows. A cause that another task has reported stands in its place."""

_Key = int | tuple[TaskId, bytes]
"""The identity of a dead letter, or (task, position)."""


class Waiting(Struct, frozen=True):
    """The task that waits for a dead letter to be stored, and its number for it."""

    worker: WorkerId
    incarnation: Incarnation
    task: TaskId
    id: int


@dataclass(slots=True)
class _UnderWay:
    dead_letter: DeadLetter
    ask_again_at: float
    waiting: list[Waiting]


class DeadLetters:
    """The dead letters of one topology.

    Args:
        count: dead letters that were on disk when this master started.
        stored: identities of the latest of them, oldest first.

    Attributes:
        count: dead letters on disk.
    """

    def __init__(self, count: int = 0, stored: Iterable[int] = ()) -> None:
        self._stored: dict[_Key, Waiting | None] = dict.fromkeys(stored)
        """The task that reported it last."""
        self._under_way: dict[_Key, _UnderWay] = {}
        self._causes: dict[int, Cause] = {}
        self.count = count

    @property
    def in_flight(self) -> int:
        """The number of dead letters that are not written yet."""
        return len(self._under_way)

    def failed(self, causes: Iterable[tuple[Cause, list[int]]]) -> None:
        """A task has failed these roots. The first cause of a root counts; the oldest causes are forgotten."""
        for cause, roots in causes:
            for root in roots:
                self._causes.setdefault(root, cause)
        while len(self._causes) > CAUSES:
            del self._causes[next(iter(self._causes))]

    def explained(self, dead_letter: DeadLetter) -> DeadLetter:
        """Return the dead letter with the causes of its failures, as far as tasks have reported them."""
        if dead_letter.earlier:
            first = max(1, dead_letter.attempts - len(dead_letter.earlier))
            attempts = [
                f"attempt {at}: {self._causes.get(root, why)}" for at, (why, root) in enumerate(dead_letter.earlier, first)
            ]
            dead_letter = msgspec.structs.replace(dead_letter, errors=[*attempts, *dead_letter.errors], earlier=[])
        cause = self._causes.get(dead_letter.root)
        return (
            dead_letter
            if cause is None
            else msgspec.structs.replace(
                dead_letter, errors=[*(error for error in dead_letter.errors if error != TASK_FAILED), str(cause)], cause=cause
            )
        )

    def is_stored(self, waiting: Waiting, dead_letter: DeadLetter) -> bool:
        """Register the task that waits for a stored dead letter, to be confirmed at once; False when it is not stored."""
        key = _key(dead_letter)
        if key not in self._stored:
            return False
        last = self._stored[key]
        if last is not None and last.incarnation == waiting.incarnation and last.id != waiting.id:
            return False
        self._stored[key] = waiting
        return True

    def is_new(self, waiting: Waiting, dead_letter: DeadLetter, now: float) -> bool:
        """Register the task that waits for a dead letter that is not stored; True when it is to be written now.

        Without the cause of its failure it waits until `overdue` returns it.
        """
        key = _key(dead_letter)
        found = self._under_way.get(key)
        if found is not None:
            if waiting not in found.waiting:
                found.waiting.append(waiting)
            return False
        lacks_cause = dead_letter.root != 0 and dead_letter.cause is None
        ask_again_at = now + (CAUSE_WAIT_S if lacks_cause else WRITE_TIMEOUT_S)
        self._under_way[key] = _UnderWay(dead_letter, ask_again_at, [waiting])
        return not lacks_cause

    def written(self, dead_letters: tuple[DeadLetter, ...]) -> list[Waiting]:
        """Dead letters are on disk; return the tasks to confirm them to."""
        waiting: list[Waiting] = []
        for dead_letter in dead_letters:
            key = _key(dead_letter)
            if (found := self._under_way.pop(key, None)) is not None:
                waiting += found.waiting
                self.count += 1
                self._stored[key] = found.waiting[-1]
        while len(self._stored) > REMEMBERED:
            del self._stored[next(iter(self._stored))]
        return waiting

    def overdue(self, now: float) -> list[tuple[Waiting, DeadLetter]]:
        """Return the dead letters to write, for the first time or again, each with a task that waits for it."""
        found = [under_way for under_way in self._under_way.values() if under_way.ask_again_at <= now]
        for under_way in found:
            under_way.ask_again_at = now + WRITE_TIMEOUT_S
            if under_way.dead_letter.cause is None:
                under_way.dead_letter = self.explained(under_way.dead_letter)
        return [(under_way.waiting[-1], under_way.dead_letter) for under_way in found]

    def next_deadline(self) -> float | None:
        """When `overdue` will return something."""
        return min((under_way.ask_again_at for under_way in self._under_way.values()), default=None)


def _key(dead_letter: DeadLetter) -> _Key:
    return dead_letter.identity or (dead_letter.task, dead_letter.position)
