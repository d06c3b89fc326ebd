"""A queue of timers: a heap of distinct timestamps over a dict of buckets.

Most buckets hold one timer and are that timer's (key, namespace) itself; windows put thousands of keys on one timestamp, which
then cost one heap entry. Deleting the last timer of a bucket leaves its timestamp in the heap, to be skipped; the head of the
heap is never such a leftover. A heap that has doubled since its last check is rebuilt if half of it is leftovers, so deleting
never has to check.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any

from topo.errors import UserError
from topo.operators.time.clock import MAX_TIMESTAMP, MIN_TIMESTAMP

_SLACK = 64


def check_timestamp(timestamp: Any) -> None:
    """Raise UserError for a value that no clock or watermark reaches: beside it no timer could be ordered, or stored."""
    try:
        if MIN_TIMESTAMP <= timestamp <= MAX_TIMESTAMP:
            return
    except TypeError:
        pass
    raise UserError(f"a timer's timestamp is a signed 64-bit number of milliseconds; got {timestamp!r}")


class _Draining(dict[tuple[Any, Any], None]):
    """A bucket from which timers are being taken: in reverse, because a dict gives up its last entry cheaply."""


Bucket = tuple[Any, Any] | dict[tuple[Any, Any], None]


class TimerQueue:
    """A set of (timestamp, key, namespace), ordered by timestamp alone.

    Invariant: heap[0] is a timestamp of `buckets`; no bucket is empty. `more` counts the timers but for the first of each bucket.
    """

    __slots__ = ("_heap", "_look_at", "buckets", "more")

    def __init__(self) -> None:
        self._heap: list[int] = []
        self.buckets: dict[int, Bucket] = {}
        self.more = 0
        self._look_at = _SLACK
        """The length at which the heap is looked at for leftovers."""

    def __len__(self) -> int:
        return len(self.buckets) + self.more

    def __iter__(self) -> Iterator[tuple[int, Any, Any]]:
        """Yield (timestamp, key, namespace) in no order."""
        for timestamp, bucket in self.buckets.items():
            if type(bucket) is tuple:
                yield timestamp, *bucket
            else:
                for key, namespace in bucket:
                    yield timestamp, key, namespace

    def copied(self) -> dict[int, Bucket]:
        """Return a copy of the timers: by timestamp, one (key, namespace) or several."""
        return {timestamp: bucket if type(bucket) is tuple else dict(bucket) for timestamp, bucket in self.buckets.items()}

    @property
    def head(self) -> int | None:
        """The earliest timestamp; None when empty."""
        return self._heap[0] if self._heap else None

    def add(self, timestamp: int, key: Hashable, namespace: Hashable) -> bool:
        """Add a timer, once; return whether there is a new earliest timestamp. Raises as `check_timestamp` does."""
        entry = (key, namespace)
        buckets = self.buckets
        bucket = buckets.get(timestamp)
        if bucket is None:
            check_timestamp(timestamp)
            buckets[timestamp] = entry
            heap = self._heap
            # A timestamp that is still in the heap as a leftover gets a second place there; the later one is skipped.
            is_head = not heap or timestamp < heap[0]
            heappush(heap, timestamp)
            if len(heap) > self._look_at:
                self._tidy()
            return is_head
        if type(bucket) is tuple:
            if bucket != entry:
                buckets[timestamp] = {bucket: None, entry: None}
                self.more += 1
        elif entry not in bucket:
            bucket[entry] = None  # type: ignore[index]
            self.more += 1
        return False

    def _tidy(self) -> None:
        if len(self._heap) > 2 * len(self.buckets):
            self._heap[:] = self.buckets
            heapify(self._heap)
        self._look_at = 2 * len(self._heap) + _SLACK

    def has(self, timestamp: int, key: Hashable, namespace: Hashable) -> bool:
        bucket = self.buckets.get(timestamp)
        return bucket is not None and (bucket == (key, namespace) if type(bucket) is tuple else (key, namespace) in bucket)

    def remove(self, timestamp: int, key: Hashable, namespace: Hashable) -> bool:
        """Remove a timer if it is registered; return whether the earliest timestamp went with it."""
        buckets = self.buckets
        bucket = buckets.get(timestamp)
        if bucket is None:
            return False
        if type(bucket) is tuple:
            if bucket != (key, namespace):
                return False
        else:
            try:
                del bucket[key, namespace]  # type: ignore[union-attr]
            except KeyError:
                return False
            if bucket:
                self.more -= 1
                return False
        del buckets[timestamp]
        if self._heap[0] == timestamp:
            self._drop_leftovers()
            return True
        return False

    def take(self, last: int) -> tuple[int, Any, Any] | None:
        """Take out one timer of the earliest timestamp if that is <= `last`."""
        heap = self._heap
        if not heap or (timestamp := heap[0]) > last:
            return None
        bucket = self.buckets[timestamp]
        if type(bucket) is tuple:
            del self.buckets[timestamp]
            self._drop_leftovers()
            return timestamp, *bucket
        if type(bucket) is dict:
            bucket = self.buckets[timestamp] = _Draining(reversed(bucket.items()))
        (key, namespace), _ = bucket.popitem()  # type: ignore[union-attr]
        if bucket:
            self.more -= 1
        else:
            del self.buckets[timestamp]
            self._drop_leftovers()
        return timestamp, key, namespace

    def _drop_leftovers(self) -> None:
        heap, buckets = self._heap, self.buckets
        while heap and heap[0] not in buckets:
            heappop(heap)
