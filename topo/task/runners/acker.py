"""Ackers: frames of ids become entries of the ledger, and its verdicts go to the spouts' control inboxes.

An acker always processes: what it sends is bounded by the spouts' pending limits, so it never waits for room, and the cycle
spout -> bolt -> acker -> spout cannot block.
"""

from __future__ import annotations

from typing import Any

from topo.ids import TaskId
from topo.task.environment import TaskEnvironment, TaskSpec
from topo.task.events import RoutesChanged
from topo.task.flow_control import EdgeStatus, InEdge
from topo.task.task import Task
from topo.tracking.acker import Acker
from topo.wire.frames import Frame, FrameKind, pack_words


class AckerTask(Task):
    """One acker task."""

    ACCEPTS = frozenset((FrameKind.OPEN, FrameKind.INIT, FrameKind.ACK, FrameKind.FAIL, FrameKind.RESET, FrameKind.END))
    REST_S = 0.001

    def __init__(self, setup: TaskSpec, ports: TaskEnvironment) -> None:
        super().__init__(setup, ports)
        # The trees of barriers end with their epoch at the latest.
        timeout = None if self.config.delivery == "exactly_once" else self.plan.longest_message_timeout_s
        self.acker = Acker(timeout, ports.clock())
        self._undelivered = 0
        self._deliver_at: float | None = None
        """When verdicts that may have been reached are delivered at the latest."""

    def _edges_out(self) -> list[tuple[TaskId, bool]]:
        return [(spout, True) for spout in self.plan.origins]

    def _open(self, event: RoutesChanged, now: float) -> None:
        pass

    def _reset(self, event: RoutesChanged, now: float) -> None:
        self.acker.on_reset_epoch()
        self._undelivered = 0
        self._deliver_at = None

    @property
    def _may_act(self) -> bool:
        return True

    @property
    def _has_ended(self) -> bool:
        return True

    def _act(self, now: float) -> None:
        while self.inbound.queue:
            edge, frame = self.inbound.queue.popleft()
            self._process(edge, frame, now)
            self.inbound.processed(edge, frame, now)
        if self._undelivered >= self.config.batch_size:
            self._deliver()

    def _process(self, edge: InEdge, frame: Frame, now: float) -> bool:
        kind, acker = frame.kind, self.acker
        if self._observer is not None:
            self._observer.ids_received(self.id, frame)
        if kind is FrameKind.ACK:
            acker.on_ack(frame.root_list(), frame.edge_list())
        elif kind is FrameKind.INIT:
            acker.on_init(TaskId(frame.sender), frame.root_list(), frame.edge_list())
        elif kind is FrameKind.FAIL:
            acker.on_fail(frame.root_list())
        elif kind is FrameKind.RESET:
            acker.on_reset(frame.root_list())
        elif kind is FrameKind.OPEN:
            self.inbound.opened(edge, frame)
        else:
            edge.status = EdgeStatus.FINISHED
        self._undelivered += frame.count
        if self._deliver_at is None and frame.count:
            self._deliver_at = now + self.config.flush_interval_s
        self.counters.executed += frame.count
        return True

    def _flush(self, now: float) -> None:
        self._deliver()
        super()._flush(now)

    def _deliver(self) -> None:
        """Send the verdicts reached since the last time."""
        self._undelivered = 0
        self._deliver_at = None
        for spout, verdicts in self.acker.verdicts().items():
            if self._observer is not None:
                self._observer.verdicts_reached(self.id, verdicts)
            for kind, roots in (
                (FrameKind.FAILED, verdicts.failed),
                (FrameKind.ACKED, verdicts.acked),
                (FrameKind.TOUCHED, verdicts.reset),
            ):
                if roots:
                    self.outbox.put_ids(kind, spout, pack_words(roots))

    def _run_due(self, now: float) -> None:
        super()._run_due(now)
        expired = self.acker.on_time(now)
        self.counters.expired_trees += len(expired)
        if self._observer is not None and expired:
            self._observer.trees_expired(self.id, expired, now)
        if self._deliver_at is not None and now >= self._deliver_at:
            self._deliver()

    def _deadlines(self, now: float) -> list[float | None]:
        return [*super()._deadlines(now), self.acker.next_deadline, self._deliver_at]

    @property
    def is_quiet(self) -> bool:
        """Whether all verdicts have been delivered."""
        return super().is_quiet and not self._undelivered

    def _reject_row(self, stream: int, values: Any, roots: Any, error: Exception) -> None:
        raise error

    def _levels(self) -> dict[str, float]:
        statistics = self.acker.statistics()
        return {"trees": float(statistics.ledger.entries), "expired_last": float(statistics.expired_last)}

    def validate(self) -> None:
        """Assert the invariants."""
        super().validate()
        self.acker.validate()
