"""How many rows of a task are staged and not yet published."""

from __future__ import annotations

from topo.api.metrics import Metrics


class StagedCount:
    """Keeps the gauge `staged_rows` of a task, by its transactions."""

    def __init__(self, metrics: Metrics) -> None:
        self._gauge = metrics.gauge("staged_rows")
        self._rows: dict[str | int, int] = {}

    def set(self, transaction: str | int, rows: int) -> None:
        """Note how many rows of a transaction, a name or a number, are not published; 0: none is."""
        self._rows.pop(transaction, None)
        if rows:
            self._rows[transaction] = rows
        self._gauge.set(sum(self._rows.values()))
