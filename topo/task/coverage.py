"""What becomes of a spout's messages when checkpoints cover them, not ackers.

A message is done when the first checkpoint after it is complete. Two kinds of source:

    with positions    after a recovery the spout is opened again at the position of the checkpoint, and reads on from there
    without           what is not covered is failed, and the spout emits it again. What was covered and not acked any more when
                      the process died, the source delivers again: its ids are in the checkpoint, and it is acked, not sent

A spout is told of what is covered in parts. Until it has been, the source may deliver it again: it stays in the checkpoints.

Messages of one spout task are covered in the order of emission.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any

REMEMBERED = 100_000
"""Ids that were covered before a recovery are recognised for so long as there are no more of them than this."""

Covered = dict[str, Any]
"""What a snapshot says of a spout: `position`, the last one emitted, or the `ids` that the source may deliver again."""


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
        self._untold: deque[Any] = deque()
        """Messages that are covered and of which the spout has not been told."""
        self._known: dict[Hashable, int] = {}
        """Ids that a checkpoint covers from which an epoch went on, and how often each has not come again."""
        self._snapshotted = 0
        self.emitted = 0
        self.covered = 0
        self._marks: deque[tuple[int, int]] = deque()
        """For each snapshot since the last complete one: its checkpoint, and how many messages there were."""

    @property
    def uncovered(self) -> int:
        """Messages whose ids are kept until a checkpoint covers them."""
        return len(self._open)

    @property
    def untold(self) -> int:
        """Messages that are covered and of which the spout has not been told."""
        return len(self._untold)

    @property
    def has_known(self) -> bool:
        """Whether the source may deliver messages again that a checkpoint covers."""
        return bool(self._known)

    def accept(self, messages: Sequence[Any]) -> list[int] | None:
        """Take over messages that the spout emits.

        Returns:
            The places of those that are to be sent, None for all; the others were covered before.
        """
        places: list[int] | None = None
        if self._known and not self._known.keys().isdisjoint(messages):
            places = []
            for place, message in enumerate(messages):
                if self._recognise(message):
                    self._untold.append(message)
                else:
                    places.append(place)
        self.emitted += len(messages) if places is None else len(places)
        if self._keeps_ids:
            kept = messages if places is None else [messages[place] for place in places]
            self._open.extend((self._snapshotted, message) for message in kept)
        return places

    def reach(self, position: Any) -> None:
        """Take over the position of the last message that the spout has emitted, over all its streams."""
        self.position = position

    def snapshot(self, checkpoint: int) -> Covered:
        """Return what has to be remembered at a checkpoint."""
        covered: Covered = {"position": self.position} if self._has_positions else {"ids": list(self._may_come_again())}
        self._snapshotted = checkpoint
        self._marks.append((checkpoint, self.emitted))
        return covered

    def _may_come_again(self) -> Iterator[Any]:
        for message, times in self._known.items():
            yield from [message] * times
        yield from self._untold
        for _, message in self._open:
            yield message

    def _recognise(self, message: Any) -> bool:
        """Whether a message is among the known ones; it then counts as having come again."""
        times = self._known.get(message, 0)
        if times > 1:
            self._known[message] = times - 1
        elif times:
            del self._known[message]
        return times > 0

    def restore(self, states: Iterable[Covered], checkpoint: int) -> list[Any]:
        """Begin a new epoch from what a checkpoint has; without one (0), from the beginning.

        Its completion may be told again, and covers nothing that is emitted from here on.

        Returns:
            Messages that it does not cover, which a source without positions has to emit again.
        """
        before = [message for _, message in self._open]
        if not self._has_positions:
            # An earlier checkpoint may take the place of a damaged one, and not cover what that did.
            before = [*self._untold, *before]
            self._untold.clear()
        self._open.clear()
        self._marks.clear()
        self._known = {}
        self.position = None
        self._snapshotted = checkpoint
        self.emitted = self.covered
        for state in states:
            self.position = state.get("position")
            for message in state.get("ids", ()):
                self._known[message] = self._known.get(message, 0) + 1
        lost = []
        for message in before:
            if self._recognise(message):
                self._untold.append(message)
            else:
                lost.append(message)
        for message in list(self._known)[: max(0, len(self._known) - REMEMBERED)]:
            del self._known[message]
        return lost

    def complete(self, checkpoint: int) -> None:
        """A checkpoint is complete: the spout is to be told of what it covers, of the ids that are kept."""
        while self._open and self._open[0][0] < checkpoint:
            self._untold.append(self._open.popleft()[1])
        while self._marks and self._marks[0][0] <= checkpoint:
            self.covered = max(self.covered, self._marks.popleft()[1])

    def tell(self, most: int) -> Iterator[Any]:
        """Yield covered messages, at most so many, in order; each counts as told when it is taken."""
        for _ in range(min(most, len(self._untold))):
            yield self._untold.popleft()
