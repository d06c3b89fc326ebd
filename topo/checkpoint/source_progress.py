"""The messages of a spout that are covered by checkpoints, not by ackers.

A message is done when the first checkpoint after it is complete. Two kinds of source:

    with positions    after a recovery the spout is opened again at the position of the checkpoint, and reads on from there
    without           messages that are not covered fail, and the spout emits them again. Those covered and not yet acked when
                      the process died, the source redelivers: their ids are in the checkpoint, and they are acked, not sent

An id alone does not identify a message: a counter restarts in each process. So a checkpoint keeps a digest of the
values with each id. A message whose id is known with other values is reported: it is neither sent nor taken for the covered one.

Covered messages are reported to the spout in parts. Until then the source may redeliver them: they stay in the checkpoints.

Messages of one spout task are covered in the order of emission.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, NamedTuple

REMEMBERED = 100_000
"""Number of covered ids that are remembered across a recovery."""

Covered = dict[str, Any]
"""A spout's part of a snapshot: `position`, the last one emitted, or the `ids` that the source may redeliver, each with
one of the `digests`."""
ANY_VALUES = 0
"""The digest of values that are not known."""


class Accepted(NamedTuple):
    """Places of messages that are to be sent, and of those whose id a covered message with other values has."""

    sent: list[int]
    changed: list[int]


class _Interval(NamedTuple):
    """Messages between two checkpoints: the number of the first one, ids, and the digests where there are no positions."""

    begin: int
    ids: list[Any]
    digests: list[int]


class UncommittedMessages:
    """The messages of one spout task.

    Args:
        has_positions: message ids are positions in the source.
        keeps_ids: whether anybody wants to know which messages a checkpoint covers; always so without positions.
        digest: of the values of a message, the same in every process.
    """

    def __init__(
        self, *, has_positions: bool, keeps_ids: bool, digest: Callable[[Any], int] = lambda _values: ANY_VALUES
    ) -> None:
        self._digest = digest
        self._has_positions = has_positions
        self._keeps_ids = keeps_ids or not has_positions
        self.position: Any = None
        self._open: deque[_Interval] = deque()
        """Messages that are not covered.

        Digests are taken as messages come: the snapshot would stand still for those of a second.
        """
        self._unreported: deque[tuple[Any, int]] = deque()
        """Messages that are covered and not yet reported to the spout, with digests."""
        self._known: dict[Hashable, list[int]] = {}
        """Ids covered by the restored checkpoint: the digests of the messages that were not redelivered yet."""
        self._snapshotted = 0
        self.emitted = 0
        self.covered = 0
        self._marks: deque[tuple[int, int]] = deque()
        """For each snapshot since the last complete one: its checkpoint, and how many messages there were."""

    @property
    def uncovered(self) -> int:
        """Messages whose ids are kept until a checkpoint covers them."""
        return sum([len(interval.ids) for interval in self._open])

    @property
    def unreported(self) -> int:
        """The number of messages that are covered and not yet reported to the spout."""
        return len(self._unreported)

    @property
    def has_known(self) -> bool:
        """Whether the source may deliver messages again that a checkpoint covers."""
        return bool(self._known)

    def accept(self, messages: Sequence[Any], values: Sequence[Any]) -> Accepted | None:
        """Take over messages that the spout emits, with the values of each.

        Returns:
            Which of them were not covered before; None for all.
        """
        accepted: Accepted | None = None
        digests = [ANY_VALUES] * len(messages) if self._has_positions else list(map(self._digest, values))
        if self._known and not self._known.keys().isdisjoint(messages):
            accepted = Accepted([], [])
            for place, message in enumerate(messages):
                if message not in self._known:
                    accepted.sent.append(place)
                elif self._recognise(message, digests[place]):
                    self._unreported.append((message, digests[place]))
                else:
                    accepted.changed.append(place)
        if accepted is not None:
            places = sorted((*accepted.sent, *accepted.changed))
            messages, digests = [messages[place] for place in places], [digests[place] for place in places]
        self.emitted += len(messages)
        if self._keeps_ids:
            if not self._open or self._open[-1].begin != self._snapshotted:
                self._open.append(_Interval(self._snapshotted, [], []))
            self._open[-1].ids.extend(messages)
            self._open[-1].digests.extend(digests)
        return accepted

    def reach(self, position: Any) -> None:
        """Take over the position of the last message that the spout has emitted, over all its streams."""
        self.position = position

    def snapshot(self, checkpoint: int) -> Covered:
        """Return the spout's part of a checkpoint."""
        covered: Covered = {"position": self.position}
        if not self._has_positions:
            known = [(message, digest) for message, digests in self._known.items() for digest in digests]
            known += self._unreported
            ids, digests = map(list, zip(*known, strict=True)) if known else ([], [])
            for interval in self._open:
                ids += interval.ids
                digests += interval.digests
            covered = {"ids": ids, "digests": digests}
        self._snapshotted = checkpoint
        self._marks.append((checkpoint, self.emitted))
        return covered

    def _recognise(self, message: Any, digest: int) -> bool:
        """Whether a message is among the known ones; it then counts as redelivered."""
        digests = self._known.get(message, [])
        found = next((one for one in digests if one in (digest, ANY_VALUES) or digest == ANY_VALUES), None)
        if found is None:
            return False
        digests.remove(found)
        if not digests:
            del self._known[message]
        return True

    def restore(self, states: Iterable[Covered], checkpoint: int) -> list[Any]:
        """Begin a new epoch from what a checkpoint has; without one (0), from the beginning.

        Its completion may be reported again, and covers no message that is emitted from here on.

        Returns:
            Messages that it does not cover, which a source without positions has to emit again.
        """
        before = [pair for interval in self._open for pair in zip(interval.ids, interval.digests, strict=True)]
        if not self._has_positions:
            # An earlier checkpoint may take the place of a damaged one, and not cover what that did.
            before = [*self._unreported, *before]
            self._unreported.clear()
        self._open.clear()
        self._marks.clear()
        self._known = {}
        self.position = None
        self._snapshotted = checkpoint
        self.emitted = self.covered
        for state in states:
            self.position = state.get("position")
            ids = state.get("ids", ())
            for message, digest in zip(ids, state.get("digests") or repeat(ANY_VALUES, len(ids)), strict=True):
                self._known.setdefault(message, []).append(digest)
        lost = []
        for message, digest in before:
            if self._recognise(message, digest):
                self._unreported.append((message, digest))
            else:
                lost.append(message)
        for message in list(self._known)[: max(0, len(self._known) - REMEMBERED)]:
            del self._known[message]
        return lost

    def complete(self, checkpoint: int) -> None:
        """A checkpoint is complete: its covered messages, of the ids that are kept, are to be reported to the spout."""
        while self._open and self._open[0].begin < checkpoint:
            interval = self._open.popleft()
            self._unreported.extend(zip(interval.ids, interval.digests, strict=True))
        while self._marks and self._marks[0][0] <= checkpoint:
            self.covered = max(self.covered, self._marks.popleft()[1])

    def report(self, most: int) -> Iterator[Any]:
        """Yield covered messages, at most that number, in order; each counts as reported when it is taken."""
        for _ in range(min(most, len(self._unreported))):
            yield self._unreported.popleft()[0]
