"""Decides how a shuffle grouping shares rows among tasks whose workers are not equally busy.

Workers that hold other tasks, too, or run on slower machines, become the limit of a topology while others rest. So where a worker
is at work all the time, each evaluation moves rows from the tasks of busier workers to those of others, a part of what
the difference asks for (an integral controller): the shares come to rest where all are about equally busy. All else draws
them slowly back to even ones. The number of unprocessed rows before a task would not do as a measure: a task of the sender's
own worker has always processed its rows when the sender emits again, however busy the worker.
"""

from __future__ import annotations

from collections.abc import Sequence

INTERVAL_S = 0.1
"""Between two evaluations; loads are measured over intervals as long."""
BUSY = 80
"""Percent: rows move while a worker has this load or more."""
EQUAL = 15
"""Points of percent: a smaller difference of two loads is not worth rows that have farther to go."""
GAIN = 0.5
"""How much of a difference from the mean load one evaluation corrects."""
RETURN = 0.01
"""How much of its difference from an even share a share loses in one evaluation."""
NEAR = 0.1
"""Shares that differ less from even ones are even."""
LEAST = 0.05
"""The smallest share, as a part of an even one: its confirmations carry the news that a worker has become idle."""


class ShuffleShares:
    """The shares of the tasks of one shuffle grouping at one sender.

    Args:
        workers: the worker of each task. Tasks of one worker have equal shares.

    Attributes:
        shares: by task, 1 on average; None while all are even.
    """

    __slots__ = ("_due", "_of_worker", "_workers", "shares")

    def __init__(self, workers: Sequence[int]) -> None:
        self._workers = workers
        self._of_worker = dict.fromkeys(workers, 1.0)
        self._due = 0.0
        self.shares: list[float] | None = None

    def is_due(self, now: float) -> bool:
        """Whether it is time to evaluate."""
        return now >= self._due and len(self._of_worker) > 1

    def evaluate(self, loads: Sequence[int | None], now: float) -> None:
        """Learn, for each task, the load of its worker in percent; None where it is not known, as when an epoch has begun."""
        self._due = now + INTERVAL_S
        known: dict[int, list[int]] = {worker: [] for worker in self._of_worker}
        for worker, load in zip(self._workers, loads, strict=True):
            if load is not None:
                known[worker].append(load)
        if all(known.values()):
            self._move({worker: sum(of_tasks) / len(of_tasks) for worker, of_tasks in known.items()})
        else:
            self._of_worker = dict.fromkeys(self._of_worker, 1.0)
            self.shares = None

    def _move(self, loads: dict[int, float]) -> None:
        most, mean, before = max(loads.values()), sum(loads.values()) / len(loads), self._of_worker
        is_moved = most >= BUSY and most - min(loads.values()) >= EQUAL
        gain = GAIN / 100 if is_moved else 0.0
        moved = {
            worker: max(LEAST, share * (1.0 + gain * (mean - loads[worker])) + RETURN * (1.0 - share))
            for worker, share in before.items()
        }
        scale = len(self._workers) / sum([moved[worker] for worker in self._workers])
        self._of_worker = {worker: share * scale for worker, share in moved.items()}
        is_even = all(abs(share - 1.0) < NEAR for share in self._of_worker.values())
        self.shares = None if is_even else [self._of_worker[worker] for worker in self._workers]
