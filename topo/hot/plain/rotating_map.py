"""A map whose entries die by age, in buckets; and the one place that decides when buckets rotate.

A `RotatingMap` has n buckets, newest to oldest. `put` writes into the newest bucket and removes the key elsewhere; `rotate`
drops the oldest bucket and adds an empty newest one. A key therefore dies on the n-th rotation after its last put. If the
map is rotated every P seconds, the first of those n rotations follows the put after more than nothing and at most P, so
the lifetime L of an entry obeys

    (n - 1) * P < L <= n * P

An owner that promises a timeout T chooses P = T / (n - 1): nothing dies before T, and everything is dead by T * n / (n - 1).
The spout takes n = 11, P = T / 10 (T < L <= 1.1 T); the acker must outlive the spout and takes n = 3, P = T (2 T < L <= 3 T).

The buckets are stretches of one insertion-ordered dict, parted by n - 1 boundary keys, so a lookup costs one probe however
many buckets there are, an update in place keeps an entry's age, and only rotation looks at age at all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar, cast

K = TypeVar("K")
V = TypeVar("V")

_ABSENT = object()


class _Boundary:
    """Parts two buckets in the dict of a RotatingMap. Equal to itself only."""

    __slots__ = ()


class RotatingMap(Generic[K, V]):
    """A map of `buckets` age classes.

    Attributes:
        entries: the dict behind the map, for loops that cannot afford a call per key. Its owner may `get`, `pop`, overwrite
            in place (which keeps the age) and insert absent keys (which puts). It also holds the boundaries: do not iterate
            over it or take its length.

    Raises:
        ValueError: fewer than two buckets; a single one could drop an entry at once.
    """

    __slots__ = ("_boundaries", "buckets", "entries")

    def __init__(self, buckets: int) -> None:
        if buckets < 2:
            raise ValueError(f"a rotating map needs at least 2 buckets, not {buckets}")
        self.buckets = buckets
        self.entries: dict[K, V] = {}
        self._boundaries: deque[K] = deque()
        self._part()

    def put(self, key: K, value: V) -> None:
        """Write into the newest bucket, wherever the key was."""
        self.entries.pop(key, None)
        self.entries[key] = value

    def get(self, key: K) -> V | None:
        """Return the value, or None for a key that is unknown or has died. Does not change the age."""
        return self.entries.get(key)

    def touch(self, key: K) -> bool:
        """Move the key to the newest bucket; False if there is no such key."""
        value = self.entries.pop(key, _ABSENT)
        if value is _ABSENT:
            return False
        self.entries[key] = cast(V, value)
        return True

    def rotate(self) -> dict[K, V]:
        """Drop the oldest bucket and open a new one. Returns the dropped entries, oldest first."""
        entries = self.entries
        boundary = self._boundaries.popleft()
        dropped: dict[K, V] = {}
        for key, value in entries.items():
            if key is boundary:
                break
            dropped[key] = value
        for key in dropped:
            del entries[key]
        del entries[boundary]
        self._add_boundary()
        return dropped

    def put_oldest(self, items: dict[K, V]) -> None:
        """Write absent keys in front of everything: they are first in order and die at the next rotation.

        Takes time proportional to the whole map.
        """
        later = dict(self.entries)
        self.entries.clear()
        self.entries.update(items)
        self.entries.update(later)

    def items(self) -> Iterator[tuple[K, V]]:
        """Keys and values, oldest first."""
        return ((key, value) for key, value in self.entries.items() if type(key) is not _Boundary)

    def drain(self) -> dict[K, V]:
        """Empty the map. Returns its entries, oldest first."""
        held = dict(self.items())
        self.entries.clear()
        self._part()
        return held

    def __contains__(self, key: object) -> bool:
        return key in self.entries

    def __len__(self) -> int:
        return len(self.entries) - len(self._boundaries)

    def validate(self) -> None:
        """Assert that the boundaries are in the dict, all of them, in order."""
        found = [key for key in self.entries if type(key) is _Boundary]
        assert len(found) == self.buckets - 1, f"{len(found)} boundaries part {self.buckets} buckets"
        assert found == list(self._boundaries), "boundaries out of order"

    def _part(self) -> None:
        self._boundaries.clear()
        for _ in range(self.buckets - 1):
            self._add_boundary()

    def _add_boundary(self) -> None:
        boundary = cast(K, _Boundary())
        self._boundaries.append(boundary)
        self.entries[boundary] = cast(V, None)


class Rotation:
    """When a map of `buckets` buckets is to be rotated, every `period_s` seconds from `now` on.

    It belongs to the map's owner, one for each map: rotations follow the clock, never the number of tasks that pass on a
    tick. Its owner calls `due` *before* it puts anything at the same moment, since a late rotation also ages entries
    that were put while it was late.

    Attributes:
        next_deadline: monotonic seconds of the next rotation; None if the map never rotates.

    Raises:
        ValueError: a period that is not positive.
    """

    __slots__ = ("_buckets", "_period_s", "next_deadline")

    def __init__(self, period_s: float | None, buckets: int, now: float) -> None:
        if period_s is not None and not period_s > 0:
            raise ValueError(f"a rotation period must be positive, not {period_s} s")
        self._period_s = period_s
        self._buckets = buckets
        self.next_deadline: float | None = None if period_s is None else now + period_s

    def due(self, now: float) -> int:
        """Return how many rotations to do now, and arm the next deadline.

        One for each period that has elapsed, so that lateness does not lengthen lives; at most as many as empty the map.
        """
        if self.next_deadline is None or self._period_s is None or now < self.next_deadline:
            return 0
        elapsed = 1 + int((now - self.next_deadline) // self._period_s)
        self.next_deadline += elapsed * self._period_s
        return min(elapsed, self._buckets)
