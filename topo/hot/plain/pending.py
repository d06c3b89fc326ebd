"""Messages of a spout that have no verdict yet: root id to the task's record of the message, with the message timeout.

The map is the only thing that times messages out; the acker never reports an expiry. It rotates 11 buckets every tenth of the
timeout T, so a message that gets no verdict is handed back by `expire` between T and 1.1 T after `add` or its last `touch`. Time
in which its owner stands still, and does not call `expire`, counts as a tenth at most.

Order. The map keeps messages in the order in which they were emitted, and `touch` does not change that order: a touched
message stays where it is, and when its bucket is dropped before its time it goes back to the front as the oldest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, repeat
from operator import itemgetter
from typing import Any, Generic, TypeVar

from topo.hot.plain.rotating_map import RotatingMap, Rotation
from topo.hot.plain.words import Column, unpack_words

R = TypeVar("R")

_BUCKETS = 11
_ABSENT: Any = object()
_record, _moment = itemgetter(0), itemgetter(1)


class Pending(Generic[R]):
    """The pending messages of one spout task. R is whatever the task needs to ack, fail or replay a message.

    Args:
        message_timeout_s: T in seconds; None if messages never time out.
        now: monotonic seconds.

    Attributes:
        late_acks: verdicts for roots that were no longer pending: timed out before, or of an earlier life of the task.
    """

    def __init__(self, message_timeout_s: float | None, now: float, buckets: int = _BUCKETS) -> None:
        period_s = None if message_timeout_s is None else message_timeout_s / (buckets - 1)
        self._map: RotatingMap[int, tuple[R, float]] = RotatingMap(buckets)
        self._rotation = Rotation(period_s, buckets, now)
        self._rotations = 0
        self._touched: dict[int, int] = {}
        """Roots touched in the last `buckets` rotations, with the number of rotations at their last touch."""
        self.late_acks = 0

    def add(self, roots: Column, records: Sequence[R], now: float) -> bool:
        """Remember a batch of messages that are emitted at `now`, in order of emission.

        Call `expire` first with the same moment, read after whatever may have blocked: a rotation that is late also ages what
        was added while it was late.

        Returns:
            False, and nothing is added, if one of `roots` is pending or occurs twice. The task draws the whole batch again.
        """
        drawn, entries = unpack_words(roots), self._map.entries
        if len(drawn) != len(records):
            raise ValueError(f"{len(drawn)} roots and {len(records)} records")
        if not entries.keys().isdisjoint(distinct := set(drawn)) or len(distinct) < len(drawn):
            return False
        entries.update(zip(drawn, zip(records, repeat(now)), strict=True))
        return True

    def complete(self, roots: Column) -> tuple[list[R], list[tuple[float, int]]]:
        """Remove the roots of a verdict; those that are not pending count as late.

        Returns:
            The records found, in the order of `roots`; and the moments at which they were added, in order, each with the number
            of them.
        """
        words, before = unpack_words(roots), len(self._map)
        found: list[tuple[R, float]] = list(map(self._map.entries.pop, words, repeat(_ABSENT)))
        late = len(words) - (before - len(self._map))
        if late:
            self.late_acks += late
            found = [pair for pair in found if pair is not _ABSENT]
        # Few bursts have emitted them: sorted, their moments are counted in a third of the instructions of a `Counter`.
        moments = [(moment, len(list(same))) for moment, same in groupby(sorted(map(_moment, found)))]
        return list(map(_record, found)), moments

    def find(self, roots: Iterable[int]) -> list[R]:
        """Return the records of those roots that are pending, and leave them there."""
        return [self._map.entries[root][0] for root in roots if root in self._map.entries]

    def touch(self, root: int) -> bool:
        """Start the timeout of a root again. False, and counted as late, if it is not pending."""
        if root not in self._map:
            self.late_acks += 1
            return False
        self._touched[root] = self._rotations
        return True

    def keep(self, roots: Iterable[int]) -> None:
        """Start the timeouts of those roots again that are pending."""
        self._touched.update(dict.fromkeys(self._map.entries.keys() & set(roots), self._rotations))

    def expire(self, now: float) -> dict[int, R]:
        """Do the rotation due at `now` (monotonic seconds). Returns what timed out, by root, in order of emission.

        Several are due when the owner has stood still, maybe together with those whose verdicts it waits for: that counts as one.
        """
        dropped: dict[int, tuple[R, float]] = {}
        if self._rotation.due(now):
            dropped = self._map.rotate()
            self._rotations += 1
            if self._touched:
                dead = self._rotations - self._map.buckets
                self._touched = {root: moment for root, moment in self._touched.items() if moment > dead}
                kept = {root: dropped.pop(root) for root in list(dropped) if root in self._touched}
                self._map.put_oldest(kept)
        return {root: record for root, (record, _) in dropped.items()}

    @property
    def next_deadline(self) -> float | None:
        """When `expire` wants to be called, in monotonic seconds; None if never."""
        return self._rotation.next_deadline

    def items(self) -> Iterator[tuple[int, R]]:
        """Roots and records in order of emission. Do not change the map while iterating."""
        return ((root, record) for root, (record, _) in self._map.items())

    def drain(self) -> dict[int, R]:
        """Empty the map, as at a new epoch. Returns the records by root, in order of emission."""
        self._touched = {}
        return {root: record for root, (record, _) in self._map.drain().items()}

    def __contains__(self, root: object) -> bool:
        return root in self._map

    def __len__(self) -> int:
        return len(self._map)

    def validate(self) -> None:
        """Assert the invariants."""
        self._map.validate()
        horizon = self._rotations - self._map.buckets
        assert all(horizon < moment <= self._rotations for moment in self._touched.values()), "a touch outlived its effect"
