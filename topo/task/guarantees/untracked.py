"""Inputs that are delivered at most once: ackers do not follow them, and lost rows are counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from topo.emission.collectors import BoltCollector, TrackedTuple
from topo.emission.emitter import StreamRows
from topo.errors import FrameError
from topo.task.batch import Batch
from topo.task.events import RoutesChanged
from topo.task.guarantees.inputs import InputGuarantee
from topo.wire.frames import Frame


class UntrackedInputs(InputGuarantee):
    """Inputs of a topology without ackers."""

    def begin_epoch(self, event: RoutesChanged, now: float) -> None:
        """Forget the epoch of the output."""
        self._out.begin_epoch(now)

    def frame_lost(self, frame: Frame, error: FrameError, now: float) -> None:
        """Drop a frame that cannot be read."""
        self._count_lost_frame(error, now)

    def fail_input(self, collector: BoltCollector, tup: TrackedTuple, error: BaseException) -> None:
        """Fail an input whose call has failed."""
        collector.fail(tup)

    def _route_slice(
        self, streams: Sequence[StreamRows], batch: Batch, first: int, last: int, failures: dict[int, Exception]
    ) -> None:
        self._route_untracked(streams, batch, first, last)

    def lose_input(self, values: Any, roots: Iterable[int], error: Exception) -> None:
        """Nothing more: the input counts as failed."""

    def lose_row(self, values: Any, roots: Sequence[int], error: Exception) -> None:
        """Count the row."""
        self._counters.unsent += 1

    def _lose_anchored(self, values: Any, anchors: tuple[TrackedTuple, ...], error: Exception) -> None:
        self._counters.unsent += 1

    def _fail_slice_input(self, batch: Batch, index: int, error: Exception) -> None: ...

    def _decide(self, acked: list[TrackedTuple], failed: list[TrackedTuple], touched: list[TrackedTuple], now: float) -> None: ...
