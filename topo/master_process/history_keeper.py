"""Keeps the history of a run: a point a second in memory, and each minute a line in the topology's folder.

A line is written without waiting for the disk, and dropped if it cannot be: history never holds up the master.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from topo.errors import TopoEnvironmentError
from topo.observability.history import History, block_of
from topo.storage.state_folder import append_lines, rotate

_LOG = logging.getLogger(__name__)

POINT_S = 1.0
MAX_HISTORY_BYTES = 16 << 20
"""Size at which the file is rotated; one older file is kept."""


class HistoryKeeper:
    """The history of one master.

    Args:
        path: the file.
        ask: returns the overview of the last second.
        wall_s: the wall clock, in seconds since 1970.
        max_bytes: size at which the file is rotated.
    """

    def __init__(
        self,
        path: Path,
        ask: Callable[[], dict[str, Any]],
        wall_s: Callable[[], float] = time.time,
        max_bytes: int = MAX_HISTORY_BYTES,
    ) -> None:
        self._path = path
        self._ask = ask
        self._wall_s = wall_s
        self._max_bytes = max_bytes
        self._history = History()
        self._due_at = 0.0
        self._has_failed = False

    def tick(self, now: float) -> None:
        """Take a point if one is due; write the block that it completes."""
        if now < self._due_at:
            return
        self._due_at = now + POINT_S
        at_s = self._wall_s()
        self._history.record(int(at_s * 1000), self._ask())
        self._write(self._history.take_block(int(at_s)))

    def close(self) -> None:
        """Write the points that are left; to be called at the end of a run, before the workers are forgotten."""
        self._write(self._history.take_block(int(self._wall_s()), is_last=True))

    def answer(
        self,
        since_ms: int = 0,
        step_s: int = 1,
        components: Iterable[str] = (),
        series: Iterable[str] = (),
        subjects: Iterable[str] = (),
    ) -> list[dict[str, Any]]:
        """Return the points from a moment on as blocks; with components or subjects, these alone; with series, those alone."""
        parts = self._history.since(int(since_ms) // 1000, int(step_s))
        chosen, names = {*subjects, *(f"component/{name}" for name in components)}, set(series)
        for part in parts:
            part.series = {
                key: column
                for key, column in part.series.items()
                if (not chosen or key[0] in chosen) and (not names or key[1] in names)
            }
        return [block_of(part) for part in parts]

    def _write(self, block: dict[str, Any] | None) -> None:
        if block is None:
            return
        try:
            rotate(self._path, self._max_bytes)
            append_lines(self._path, [json.dumps(block).encode()], is_durable=False)
        except TopoEnvironmentError as error:
            if not self._has_failed:
                _LOG.warning("a minute of history is not kept: %s", error)
            self._has_failed = True
        else:
            self._has_failed = False
