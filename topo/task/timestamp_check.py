"""Reports the first timestamp that is no milliseconds, since windows over such ones are silently wrong."""

from __future__ import annotations

from topo.api.time_units import SuspiciousTimestamps, suspicion
from topo.ids import TaskId
from topo.task.error_reports import Reports
from topo.task.state import TaskState
from topo.wire.frames import Frame


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
