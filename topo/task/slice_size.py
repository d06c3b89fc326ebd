"""Sizes the slice of one turn, so that a turn lasts less than a batch may wait: few tuples of a slow bolt, many of a fast one."""

from __future__ import annotations

SLICE_BATCHES = 16
"""Batches in a bolt's slice at most. A slice ends after `flush_interval`, too; with fewer batches a fast task that most tuples go
to, in a worker with many others, would have a small part of the worker's time."""


class AdaptiveSliceSize:
    """A slice size that doubles while slices are short and halves when one was long.

    Args:
        target_s: how long a slice should last at most, in seconds.
        most: the largest slice.
    """

    __slots__ = ("_most", "_target_s", "size")

    def __init__(self, target_s: float, most: int) -> None:
        self._target_s = target_s
        self._most = most
        self.size = min(8, most)

    def note(self, done: int, seconds: float) -> None:
        """Learn from a slice of `done` tuples that took `seconds`."""
        if seconds > self._target_s:
            self.size = max(1, min(self.size, done) // 2)
        elif done >= self.size and seconds < self._target_s / 2:
            self.size = min(self._most, self.size * 2)

    def filled(self, done: int, seconds: float) -> float:
        """Return which part of the largest slice a turn has filled, by its tuples or by its time: 0 to 1."""
        return min(1.0, max(done / self._most, seconds / self._target_s if self._target_s else 1.0))
