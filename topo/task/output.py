"""The output of a task that runs user code: rows on their way to the router, event time behind them, and END behind all."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from topo.api.streams import DEFAULT_STREAM
from topo.emission.emission import Emission
from topo.emission.emitter import Emitter
from topo.emission.output_watermarks import OutputWatermarks
from topo.operators.time.watermarks import InputStatus
from topo.task.parts import TaskParts
from topo.task.router_factory import make_router


class TaskOutput:
    """The output of one task of a spout or a bolt.

    Args:
        parts: of the task.
        collector: takes the rows that user code emits.
        now_ms: the clock of idleness.
        floor: returns the least timestamp of output that is still to come below the watermark; None without any.
        by_partition: its rows belong to partitions, each with its watermark.
        stays_idle: it will have no rows.

    Attributes:
        watermarks: event time of the output.
        emission: routes rows.
        has_ended: END has been sent in this epoch, or the opening frames have marked the end.
    """

    def __init__(
        self,
        parts: TaskParts,
        collector: Emitter,
        now_ms: Callable[[], int],
        floor: Callable[[], int | None] | None,
        *,
        by_partition: bool = False,
        stays_idle: bool = False,
    ) -> None:
        state = parts.state
        declared = [stream.declaration for stream in collector.streams]
        main = next((stream for stream in declared if stream.name == DEFAULT_STREAM), None)
        self._outbound = parts.outbound
        self.watermarks = OutputWatermarks(
            parts.spec.watermarks,
            () if main is None else main.fields,
            now_ms,
            state.config.watermark_interval_s,
            state.component_id,
            lambda error: parts.reports.user_error(error, state.now),
            columnar=main is not None and main.columnar,
            by_partition=by_partition,
            stays_idle=stays_idle,
        )
        self.emission = self._emission(parts, collector)
        self.has_ended = False
        self._floor = floor

    def _emission(self, parts: TaskParts, collector: Emitter) -> Emission:
        router = make_router(parts.spec, parts.env.ids, parts.outbound.outbox, collector)
        names = [stream.declaration.name for stream in collector.streams]
        return Emission(router, self.watermarks, names, parts.state.counters, self._send_time, parts.taps)

    def on_time(self, now: float) -> None:
        """Ask the watermark strategy by its interval."""
        if self.watermarks.is_used:
            self.watermarks.probe(now)
            self.send_event_time()

    def send_event_time(self) -> None:
        """Send changes of event time behind the rows that were emitted before them."""
        if self.watermarks.has_updates and not self.has_ended:
            self._send_time(self.watermarks.drain_updates(None if self._floor is None else self._floor()))

    def _send_time(self, news: Sequence[int | InputStatus]) -> None:
        if not self.has_ended:
            self._outbound.send_time(news)

    def send_end(self) -> None:
        """Send END, behind all rows and ids."""
        self.has_ended = True
        self._outbound.send_end()
