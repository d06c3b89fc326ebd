"""Dead letters on their way back into the topology: asked for, emitted by a spout task, done or failed again.

A dead letter is known by the number of its row. The file of replays has a row for each change, so that a new master knows the
dead letters that are under way. They are sent to a spout task again and again until it reports a result: the task ignores those
that it has, and a new process of it begins with those that its predecessor had. A dead letter that is under way or done is not
emitted again however often it is asked for; after another failure it may be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from topo.ids import TaskId
from topo.wire.control import LetterToReplay, ReplayLetters

TELL_S = 2.0
"""Time after which dead letters without a result are sent to their tasks again."""
MOST_UNDER_WAY = 100
"""Dead letters of one component that its tasks have at a time; they share `max_spout_pending` with its messages."""
UNDER_WAY, DONE, FAILED = "under way", "done", "failed"


def times_asked(rows: Iterable[Mapping[str, Any]]) -> Counter[int]:
    """Return how often each dead letter was asked for, by its number."""
    return Counter(row["dead_letter"] for row in rows if row.get("state") == UNDER_WAY)


def latest_replays(rows: Iterable[Mapping[str, Any]]) -> dict[int, Mapping[str, Any]]:
    """Return the last row of each dead letter that was asked for, by its number."""
    return {row["dead_letter"]: row for row in rows if isinstance(row.get("dead_letter"), int)}


class LetterReplays:
    """The dead letters that are under way.

    Args:
        tasks: the spout tasks of each component.
    """

    def __init__(self, tasks: Mapping[str, Sequence[TaskId]]) -> None:
        self._tasks = tasks
        self._letters: dict[str, dict[int, LetterToReplay]] = {}
        self._tell_at = 0.0

    def __len__(self) -> int:
        """How many are under way."""
        return sum(map(len, self._letters.values()))

    def ask(self, component: str, dead_letters: Iterable[LetterToReplay]) -> None:
        """Have dead letters emitted again by a component. Those that are under way stay so."""
        self._letters.setdefault(component, {}).update((dead_letter.number, dead_letter) for dead_letter in dead_letters)
        self._tell_at = 0.0

    def finished(self, numbers: Iterable[int]) -> list[int]:
        """Dead letters have a result; return those that were under way."""
        found = []
        for number in numbers:
            for dead_letters in self._letters.values():
                if dead_letters.pop(number, None) is not None:
                    found.append(number)
        if found:
            self._tell_at = 0.0
        return found

    def due(self, now: float) -> list[ReplayLetters]:
        """Return the messages for tasks that are due. A dead letter goes to the same task each time."""
        if now < self._tell_at:
            return []
        self._tell_at = now + TELL_S
        messages: dict[TaskId, list[LetterToReplay]] = {}
        for component, dead_letters in self._letters.items():
            tasks = self._tasks[component]
            for dead_letter in islice(dead_letters.values(), MOST_UNDER_WAY):
                messages.setdefault(tasks[dead_letter.number % len(tasks)], []).append(dead_letter)
        return [ReplayLetters(task, dead_letters) for task, dead_letters in messages.items()]

    def next_deadline(self) -> float | None:
        """When `due` will return something."""
        return self._tell_at if any(self._letters.values()) else None
