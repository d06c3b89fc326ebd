"""Decides how a shuffle grouping shares rows among tasks whose workers are not equally busy.

Workers that hold other tasks, too, or run on slower machines, become the limit of a topology while others rest. So where a worker
is at work all the time, each evaluation moves rows from the tasks of busier workers to those of others, a part of what
the difference asks for (an integral controller): the shares come to rest where all are equally busy. Where no worker is,
they become even again. The number of unprocessed rows before a task would not do as a measure: a task of the sender's own
worker has always processed its rows when the sender emits again, however busy the worker.
"""

from __future__ import annotations

from collections.abc import Sequence

INTERVAL_S = 0.1
"""Between two evaluations; loads are measured over intervals as long."""
BUSY = 80
"""Percent: rows move while a worker has this load or more."""
EQUAL = 5
"""Points of percent: a smaller difference of two loads is noise."""
GAIN = 0.5
"""How much of a difference from the mean load one evaluation corrects."""
LEAST = 0.05
"""The smallest share of a task, as a part of an even share: its confirmations carry the news that its worker has become idle."""


class ShuffleShares:
    """The shares of the tasks of one shuffle grouping at one sender.

    Attributes:
        shares: by task, 1 on average; None while all are even.
    """

    __slots__ = ("_count", "_due", "shares")

    def __init__(self, count: int) -> None:
        self._count = count
        self._due = 0.0
        self.shares: list[float] | None = None

    def is_due(self, now: float) -> bool:
        """Whether it is time to evaluate."""
        return now >= self._due

    def evaluate(self, loads: Sequence[int], now: float) -> None:
        """Learn the loads of the tasks' workers, in percent."""
        self._due = now + INTERVAL_S
        most = max(loads)
        if most - min(loads) >= EQUAL and most >= BUSY:
            mean = sum(loads) / self._count
            shares = [
                max(LEAST, share * (1.0 + GAIN * (mean - load) / 100))
                for share, load in zip(self.shares or [1.0] * self._count, loads, strict=True)
            ]
        elif self.shares is not None and most < BUSY:
            shares = [share + GAIN * (1.0 - share) / 10 for share in self.shares]
        else:
            return
        scale = self._count / sum(shares)
        self.shares = [share * scale for share in shares]
        if max(self.shares) - min(self.shares) < LEAST:
            self.shares = None
