"""The queues of the async operator: elements in flight, in the order in which they may leave.

Ordered: entries leave in the order in which they came. Unordered: the queue is cut into segments by the watermarks; in the first
segment entries leave as they complete, and no entry of a later segment leaves before the first is empty. A watermark is a
separate segment, so nothing overtakes it and it overtakes nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from topo.errors import TopoInternalError


class Entry:
    """An element or a watermark in the queue. Compared by identity.

    Attributes:
        key, value, timestamp: the element.
        watermark: the watermark; None for an element.
        results: what came of the element; None while it is not known.
        has_failed: whether an error came instead; results are empty then.
    """

    __slots__ = ("has_failed", "key", "results", "timestamp", "value", "watermark")

    def __init__(self, key: Any, value: Any, timestamp: int | None) -> None:
        self.key = key
        self.value = value
        self.timestamp = timestamp
        self.watermark: int | None = None
        self.results: Sequence[Any] | None = None
        self.has_failed = False

    @classmethod
    def of_watermark(cls, timestamp: int) -> Entry:
        """Return the entry of a watermark, which is complete from the beginning."""
        entry = cls(None, None, None)
        entry.watermark = timestamp
        entry.results = ()
        return entry

    @property
    def is_done(self) -> bool:
        return self.results is not None

    def as_input(self) -> dict[str, Any]:
        """Return the element or watermark as plain data, for a snapshot."""
        if self.watermark is not None:
            return {"watermark": self.watermark}
        return {"key": self.key, "value": self.value, "timestamp": self.timestamp}


class ResultQueue(ABC):
    """At most `capacity` entries, in the order in which they may leave."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def is_full(self) -> bool:
        return self._size >= self._capacity

    def put(self, entry: Entry) -> None:
        """Take an entry in. There must be room."""
        if self.is_full:
            raise TopoInternalError(f"an async queue of {self._capacity} was given one entry more")
        self._size += 1
        self._append(entry)

    def pop_ready(self) -> Entry | None:
        """Take out the entry that may leave next, or None when none may yet."""
        if not self.has_ready:
            return None
        self._size -= 1
        return self._pop()

    @property
    @abstractmethod
    def has_ready(self) -> bool:
        """Whether an entry may leave."""

    @abstractmethod
    def completed(self, entry: Entry) -> None:
        """Take note that the results of an entry are known."""

    @abstractmethod
    def entries(self) -> Iterator[Entry]:
        """Yield all entries in the order of the queue."""

    @abstractmethod
    def _append(self, entry: Entry) -> None: ...

    @abstractmethod
    def _pop(self) -> Entry: ...


class OrderedQueue(ResultQueue):
    """First in, first out."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._entries: deque[Entry] = deque()

    @property
    def has_ready(self) -> bool:
        return bool(self._entries) and self._entries[0].is_done

    def completed(self, entry: Entry) -> None:
        pass

    def entries(self) -> Iterator[Entry]:
        return iter(self._entries)

    def _append(self, entry: Entry) -> None:
        self._entries.append(entry)

    def _pop(self) -> Entry:
        return self._entries.popleft()


class _Segment:
    """Entries that may leave in any order: those that wait for results, and those that have them, in order of completion."""

    __slots__ = ("completed", "incomplete")

    def __init__(self) -> None:
        self.completed: deque[Entry] = deque()
        self.incomplete: dict[Entry, None] = {}

    @property
    def is_empty(self) -> bool:
        return not self.completed and not self.incomplete


class UnorderedQueue(ResultQueue):
    """Segments of entries, divided by watermarks.

    Invariants: the last segment holds no watermark; all others are not empty, the first excepted while nothing left it.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._segments: deque[_Segment] = deque([_Segment()])
        self._segment_of: dict[Entry, _Segment] = {}

    @property
    def has_ready(self) -> bool:
        return bool(self._segments[0].completed)

    def completed(self, entry: Entry) -> None:
        segment = self._segment_of.pop(entry)
        del segment.incomplete[entry]
        segment.completed.append(entry)

    def entries(self) -> Iterator[Entry]:
        for segment in self._segments:
            yield from segment.completed
            yield from segment.incomplete

    def _append(self, entry: Entry) -> None:
        last = self._segments[-1]
        if entry.watermark is None:
            last.incomplete[entry] = None
            self._segment_of[entry] = last
            return
        if not last.is_empty:
            last = _Segment()
            self._segments.append(last)
        last.completed.append(entry)
        self._segments.append(_Segment())

    def _pop(self) -> Entry:
        first = self._segments[0]
        entry = first.completed.popleft()
        if first.is_empty and len(self._segments) > 1:
            self._segments.popleft()
        return entry
