"""The output of a bolt: event time of the input passes through it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from topo.emission.emitter import Emitter
from topo.operators.time.watermarks import InputStatus
from topo.task.output import TaskOutput
from topo.task.parts import TaskParts


class BoltOutput(TaskOutput):
    """The output of one bolt task.

    Args:
        parts: of the task.
        collector: takes the rows that user code emits.
        floor: returns the least timestamp of the inputs that user code holds back; None without any.
    """

    def __init__(self, parts: TaskParts, collector: Emitter, floor: Callable[[], int | None] | None = None) -> None:
        # No row would ever move the event time of such a task, and readers would wait for it.
        gets_nothing = getattr(parts.spec.component, "gets_nothing", None)
        stays_idle = gets_nothing is not None and gets_nothing(parts.spec.context)
        super().__init__(parts, collector, parts.env.wall_ms, floor, stays_idle=stays_idle)

    def begin_epoch(self, now: float) -> None:
        """Forget the event time of the epoch before."""
        self.watermarks.reset(now, forget=True)
        self.has_ended = False

    def pass_time(self, news: Sequence[int | InputStatus], now: float) -> bool:
        """Pass the event time of the input on; returns True, since nothing waits for another turn."""
        for one in news:
            if isinstance(one, InputStatus):
                self.on_input_idle(one is InputStatus.IDLE)
            else:
                self.on_watermark(one)
        return True

    def on_watermark(self, watermark: int) -> None:
        """Pass on that the input is complete up to a moment. A watermark strategy swallows it."""
        if not self.watermarks.is_used:
            self.watermarks.watermark(watermark)
            self.send_event_time()

    def on_input_idle(self, idle: bool) -> None:
        """Pass on that all input is idle, or is not any more. A watermark strategy swallows it."""
        if not self.watermarks.is_used:
            self.watermarks.is_idle = idle
            self.send_event_time()
