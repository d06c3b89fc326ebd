"""What becomes of a spout's messages when checkpoints cover them, not ackers.

A message is done when the first checkpoint after it is complete. Two kinds of source:

    with positions    after a recovery the spout is opened again at the position of the checkpoint, and reads on from there
    without           what is not covered is failed, and the spout emits it again. What was covered and not acked any more when
                      the process died, the source delivers again: its ids are in the checkpoint, and it is acked, not sent

Messages of one spout task are covered in the order of emission.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

REMEMBERED = 100_000
"""Ids that were covered before a recovery are recognised for so long as there are no more of them than this."""

Covered = dict[str, Any]
"""What a snapshot says of a spout: `position`, the last one emitted, or `ids` of the messages since the checkpoint before."""


class Coverage:
    """The messages of one spout task.

    Args:
        has_positions: message ids are positions in the source.
        keeps_ids: whether anybody wants to know which messages a checkpoint covers; always so without positions.
    """

    def __init__(self, *, has_positions: bool, keeps_ids: bool) -> None:
        self._has_positions = has_positions
        self._keeps_ids = keeps_ids or not has_positions
        self.position: Any = None
        self._open: deque[tuple[int, Any]] = deque()
        """Messages that are not covered: the last checkpoint before them, and the id."""
        self._known: dict[Hashable, None] = {}
        """Ids that a checkpoint covers from which an epoch went on, and that have not come again."""
        self._snapshotted = 0
        self.emitted = 0
        self.covered = 0
        self._marks: deque[tuple[int, int]] = deque()
        """For each snapshot since the last complete one: its checkpoint, and how many messages there were."""

    @property
    def uncovered(self) -> int:
        """Messages whose ids are kept until a checkpoint covers them."""
        return len(self._open)

    def accept(self, messages: Sequence[Any]) -> list[int] | None:
        """Take over messages that the spout emits.

        Returns:
            The places of those that are to be sent, None for all; the others were covered before.
        """
        places: list[int] | None = None
        if self._known and not self._known.keys().isdisjoint(messages):
            places = [place for place, message in enumerate(messages) if message not in self._known]
            for message in messages:
                self._known.pop(message, None)
        self.emitted += len(messages) if places is None else len(places)
        if self._has_positions:
            self.position = messages[-1]
        if self._keeps_ids:
            kept = messages if places is None else [messages[place] for place in places]
            self._open.extend((self._snapshotted, message) for message in kept)
        return places

    def snapshot(self, checkpoint: int) -> Covered:
        """Return what has to be remembered at a checkpoint."""
        covered: Covered = (
            {"position": self.position} if self._has_positions else {"ids": [*self._known, *(one for _, one in self._open)]}
        )
        self._snapshotted = checkpoint
        self._marks.append((checkpoint, self.emitted))
        return covered

    def restore(self, states: Iterable[Covered], checkpoint: int) -> tuple[list[Any], list[Any]]:
        """Begin a new epoch from what a checkpoint has; without one (0), from the beginning.

        Its completion may be told again, and covers nothing that is emitted from here on.

        Returns:
            Messages that no checkpoint covers, which a source without positions has to emit again, and those that are done.
        """
        lost = [message for _, message in self._open]
        self._open.clear()
        self._marks.clear()
        self._known = {}
        self.position = None
        self._snapshotted = checkpoint
        self.emitted = self.covered
        for state in states:
            self.position = state.get("position")
            self._known.update(dict.fromkeys(state.get("ids", ())))
        covered = [message for message in lost if message in self._known]
        for message in covered:
            del self._known[message]
        for message in list(self._known)[: max(0, len(self._known) - REMEMBERED)]:
            del self._known[message]
        done = set(covered)
        return [message for message in lost if message not in done], covered

    def complete(self, checkpoint: int) -> list[Any]:
        """A checkpoint is complete; return the ids that it covers, of those that are kept."""
        done = []
        while self._open and self._open[0][0] < checkpoint:
            done.append(self._open.popleft()[1])
        while self._marks and self._marks[0][0] <= checkpoint:
            self.covered = max(self.covered, self._marks.popleft()[1])
        return done
