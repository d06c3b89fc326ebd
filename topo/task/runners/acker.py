"""Ackers: frames of ids become tuple trees, and verdicts on these go to the spouts.

An acker always processes: the spouts' pending limits bound its verdicts, so it never waits for room, and the cycle
spout -> bolt -> acker -> spout cannot block.
"""

from __future__ import annotations

from itertools import chain

from topo.hot import Rotation, Trees, unpack_words
from topo.ids import TaskId
from topo.task.events import RoutesChanged
from topo.task.flow_control import EdgeStatus, InEdge
from topo.task.guarantees.verdict_delivery import VerdictDelivery
from topo.task.parts import TaskParts
from topo.wire.frames import MIN_WATERMARK, Frame, FrameKind, SenderStatus

ACKER_FRAMES = frozenset((FrameKind.OPEN, FrameKind.INIT, FrameKind.ACK, FrameKind.FAIL, FrameKind.RESET, FrameKind.END))

_BUCKETS = 3
REST_S = 0.001
"""How long ids may lie unread once an acker has gone idle, so that more come with them."""
LONG_REST_S = 0.0025
"""The same where spouts may have many messages in flight meanwhile."""


class AckerRunner:
    """Runs an acker: passes columns of ids to the trees.

    Records of trees live between two and three message timeouts, so that the acker outlives the spout.

    Args:
        parts: of the task.
        delivery: takes the verdicts from the trees.
    """

    def __init__(self, parts: TaskParts, delivery: VerdictDelivery) -> None:
        self._state = parts.state
        self._inbound = parts.inbound
        self._outbound = parts.outbound
        self._delivery = delivery
        self._trees: Trees = delivery.trees
        self._rotation = Rotation(delivery.tree_timeout_s, _BUCKETS, parts.state.clock())
        self._expired_last = 0

    def begin_epoch(self, event: RoutesChanged, now: float, *, is_first: bool) -> None:
        """Open the edges to the tasks that draw roots."""
        self._outbound.send_opening(SenderStatus.ACTIVE, MIN_WATERMARK)

    def on_time(self, now: float) -> None:
        """Deliver the verdicts that are due; forget the trees that have had no ids for too long."""
        self._delivery.on_time(now)
        # Called before the frames of the same moment: a late rotation does not age roots that have only just arrived.
        rotations = self._rotation.due(now)
        if not rotations:
            return
        expired = [unpack_words(self._trees.rotate()) for _ in range(rotations)]
        self._expired_last = len(expired[-1])
        roots = list(chain.from_iterable(expired))
        self._state.counters.expired_trees += len(roots)
        if self._state.observer is not None and roots:
            self._state.observer.trees_expired(self._state.id, roots, now)

    def deadlines(self, now: float) -> list[float | None]:
        """Return when verdicts are due, and when trees may expire next."""
        return [self._delivery.deadline, self._rotation.next_deadline]

    @property
    def has_work(self) -> bool:
        """Whether frames wait."""
        return bool(self._inbound.queue)

    def act(self, now: float) -> None:
        """Process all frames that wait."""
        inbound = self._inbound
        while inbound.queue:
            edge, frame = inbound.queue.popleft()
            self._process(edge, frame, now)
            inbound.processed(edge, frame, now)
        self._delivery.deliver_batch()

    def _process(self, edge: InEdge, frame: Frame, now: float) -> None:
        kind, trees, state = frame.kind, self._trees, self._state
        if state.observer is not None:
            state.observer.ids_received(state.id, frame)
        if kind is FrameKind.ACK:
            trees.ack(frame.roots, frame.edges)
        elif kind is FrameKind.INIT:
            trees.init(TaskId(frame.sender), frame.roots, frame.edges)
        elif kind is FrameKind.FAIL:
            trees.fail(frame.roots)
        elif kind is FrameKind.RESET:
            trees.reset(frame.roots)
        elif kind is FrameKind.OPEN:
            self._inbound.opened(edge, frame)
        else:
            edge.status = EdgeStatus.FINISHED
        self._delivery.taken(frame.count, now)
        state.counters.executed += frame.count

    def levels(self) -> dict[str, float]:
        """Return the records of trees, and how many open ones the last rotation has expired."""
        return {"trees": float(len(self._trees)), "expired_last": float(self._expired_last)}
