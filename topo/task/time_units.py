"""Detects timestamps that are no milliseconds. The first is reported, since windows over them are silently wrong."""

from __future__ import annotations

from datetime import UTC, datetime

from topo.errors import UserError
from topo.ids import TaskId
from topo.task.error_reports import Reports
from topo.task.state import TaskState
from topo.wire.frames import Frame

_MS_OF_1985 = 473_385_600_000
_MS_OF_2128 = 4_985_971_200_000
_UNITS = (("seconds", 1000, 1, "multiply by 1000"), ("microseconds", 1, 1000, "divide by 1000"),
          ("nanoseconds", 1, 1_000_000, "divide by 1,000,000"))  # fmt: skip


class SuspiciousTimestamps(UserError):
    """Timestamps are taken for milliseconds, and look like another unit."""


def suspicion(timestamp: int) -> str | None:
    """Return a warning with the unit that a timestamp fits, if not milliseconds: 1985 to 2128 in that unit alone."""
    for unit, times, by, fix in _UNITS:
        at_ms = timestamp * times // by
        if _MS_OF_1985 <= at_ms < _MS_OF_2128 and not _MS_OF_1985 <= timestamp < _MS_OF_2128:
            then = datetime.fromtimestamp(at_ms / 1000, UTC)
            return f"{timestamp} looks like {unit} ({then:%Y-%m-%d %H:%M}); event time is in milliseconds since the epoch: {fix}"
    return None


class TimestampCheck:
    """Reports once that the timestamps of one task's input are no milliseconds, by the first of a frame."""

    def __init__(self, state: TaskState, reports: Reports) -> None:
        self._state = state
        self._reports = reports
        self._is_over = False

    def look(self, frame: Frame, now: float) -> None:
        """Look at a frame of rows."""
        if self._is_over or not frame.timestamps:
            return
        why = suspicion(int.from_bytes(frame.timestamps[:8], "little", signed=True))
        if why is not None:
            self._is_over = True
            component, source = self._state.component_id, self._state.plan.task(TaskId(frame.sender)).component
            where = f"component {component!r}: a tuple of {source!r} has a timestamp in another unit"
            self._reports.record(SuspiciousTimestamps(f"{where}: {why}"), now)
