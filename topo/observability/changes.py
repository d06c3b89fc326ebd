"""Events between one overview of a topology and the next, for its history. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from topo.api.metrics import exponent_of

LATENCY = "latency/"
"""Begins the subjects that have the messages of a component by latency: `2^-3` those of more than 2^-4 and up to 2^-3 seconds."""


class Changes:
    """The changes since the overview before, which is about a second older."""

    def __init__(self) -> None:
        self._state: tuple[str, int] | None = None
        self._losses: dict[int, int] = {}
        self._complete = 0
        self._failed = self._failed_in_a_row = 0
        self._measured: dict[str, Counter[int]] = {}

    def taken(self, overview: Mapping[str, Any]) -> tuple[list[str], dict[str, dict[str, float | None]]]:
        """Take an overview; return marks of the changes, and figures by subject and series."""
        reason, checkpoints = overview["reason"], overview["checkpoints"]
        status = self._status((overview["status"], overview["epoch"]), reason)
        marks = [*self._workers(overview["workers"], reason if status else ""), *status]
        if checkpoints is None:
            return marks, {}
        last = checkpoints["last"]
        took: dict[str, float | None] = {}
        if last is not None and last["checkpoint"] > self._complete:
            self._complete, took = last["checkpoint"], {"took": last["duration_s"]}
        return [*marks, *self._checkpoints(checkpoints["failed"], bool(took), reason)], {"checkpoints": took}

    def latencies(self, overview: Mapping[str, Any]) -> dict[str, dict[str, float]]:
        """Take an overview with buckets; return the messages since the one before by latency, by subject and series."""
        return {LATENCY + row["component"]: self._latencies(row) for row in overview["components"] if row["kind"] != "acker"}

    def _latencies(self, row: Mapping[str, Any]) -> dict[str, float]:
        counts = Counter[int]()
        for bucket, count in ((row["histogram"] or {}).get("buckets") or {}).items():
            counts[exponent_of(int(bucket))] += count
        before = self._measured.get(row["component"], Counter())
        self._measured[row["component"]] = counts
        return {f"2^{power}": max(0, count - before[power]) for power, count in counts.items()}

    def _workers(self, workers: list[Mapping[str, Any]], reason: str) -> Iterator[str]:
        for row in workers:
            # The reason of a new status names one worker, if it has not come back within the second.
            if row["losses"] > self._losses.get(row["worker"], 0) and not reason.startswith(f"worker {row['worker']} ("):
                yield f"worker {row['worker']} was lost: {row['lost_why']}"
            self._losses[row["worker"]] = row["losses"]

    def _status(self, state: tuple[str, int], reason: str) -> list[str]:
        before, self._state = self._state, state
        return [] if state == before else [f"{state[0]}, epoch {state[1]}{': ' if reason else ''}{reason}"]

    def _checkpoints(self, failed: int, is_another_complete: bool, reason: str) -> Iterator[str]:
        """Yield the first and the end of checkpoints that fail in a row: one a second would push all other marks out."""
        failed, self._failed = failed - self._failed, failed
        if failed and not self._failed_in_a_row:
            yield reason if reason.startswith("checkpoint ") else "a checkpoint failed"
        self._failed_in_a_row += failed
        if is_another_complete and not failed:
            if self._failed_in_a_row > 1:
                yield f"checkpoint {self._complete} is complete, after {self._failed_in_a_row} that failed"
            self._failed_in_a_row = 0
