"""Events between one overview of a topology and the next, for its history. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


class Changes:
    """The changes since the overview before, which is about a second older."""

    def __init__(self) -> None:
        self._state: tuple[str, int] | None = None
        self._losses: dict[int, int] = {}
        self._complete = 0
        self._failed = self._failed_in_a_row = 0

    def taken(self, overview: Mapping[str, Any]) -> tuple[list[str], dict[str, dict[str, float]]]:
        """Take an overview; return marks of the changes, and figures by subject and series."""
        reason, checkpoints = overview["reason"], overview["checkpoints"]
        marks = [*self._workers(overview["workers"], reason), *self._status((overview["status"], overview["epoch"]), reason)]
        if checkpoints is None:
            return marks, {}
        last, took = checkpoints["last"], {}
        if last is not None and last["checkpoint"] > self._complete:
            self._complete, took = last["checkpoint"], {"took": last["duration_s"]}
        return [*marks, *self._checkpoints(checkpoints["failed"], bool(took), reason)], {"checkpoints": took}

    def _workers(self, workers: list[Mapping[str, Any]], reason: str) -> Iterator[str]:
        for row in workers:
            # A worker that is back within the second is not in the reason.
            if row["losses"] > self._losses.get(row["worker"], 0) and row["lost_why"] not in reason:
                yield f"worker {row['worker']} was lost: {row['lost_why']}"
            self._losses[row["worker"]] = row["losses"]

    def _status(self, state: tuple[str, int], reason: str) -> Iterator[str]:
        if state != self._state:
            self._state = state
            yield f"{state[0]}, epoch {state[1]}{': ' if reason else ''}{reason}"

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
