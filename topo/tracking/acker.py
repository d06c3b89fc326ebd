"""The acker as the framework's own bolt: the ledger and its clock, at the granularity of a frame.

An acker task calls one `on_...` method for each frame that reaches it and then `verdicts`, whose lists go to the spouts'
control inboxes. It calls `on_time` *before* it takes the frames of the same moment, so that a rotation that comes late (a
process that was stopped, a clock that leapt) does not age what has only just arrived.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from topo.ids import TaskId
from topo.tracking.ack_ledger import AckLedger, LedgerStatistics, Verdicts
from topo.tracking.rotating_map import Rotation

_BUCKETS = 3


@dataclass(frozen=True, slots=True)
class AckerStatistics:
    """The ledger's counts and how many open trees the latest rotation expired."""

    ledger: LedgerStatistics
    expired_last: int


class Acker:
    """Follows the trees of the roots that hash to this acker task.

    Args:
        message_timeout_s: the spouts' timeout T in seconds; records live between 2 T and 3 T, so that the acker outlives the
            spout. None: records never expire.
        now: monotonic seconds.
    """

    def __init__(self, message_timeout_s: float | None, now: float) -> None:
        self.ledger = AckLedger(_BUCKETS)
        self._rotation = Rotation(message_timeout_s, _BUCKETS, now)
        self._expired_last = 0

    def on_init(self, spout: TaskId, roots: Sequence[int], values: Sequence[int]) -> None:
        """Take an INIT frame of a spout task."""
        self.ledger.init(spout, roots, values)

    def on_ack(self, roots: Sequence[int], values: Sequence[int]) -> None:
        """Take an ACK frame."""
        self.ledger.ack(roots, values)

    def on_fail(self, roots: Sequence[int]) -> None:
        """Take a FAIL frame."""
        self.ledger.fail(roots)

    def on_reset(self, roots: Sequence[int]) -> None:
        """Take a RESET frame: a bolt asks for more time for these roots."""
        self.ledger.reset(roots)

    def verdicts(self) -> dict[TaskId, Verdicts]:
        """Return what was decided since the last call, by the spout task that is to be told."""
        return self.ledger.take_verdicts()

    def on_reset_epoch(self) -> None:
        """Forget all trees: the spouts have failed or replayed every pending message for the new epoch."""
        self.ledger.clear()

    def on_time(self, now: float) -> list[int]:
        """Do the rotations that are due at `now` (monotonic seconds). Returns the roots of open trees that expired."""
        rotations = self._rotation.due(now)
        if not rotations:
            return []
        expired = [self.ledger.rotate() for _ in range(rotations)]
        self._expired_last = len(expired[-1])
        return [root for roots in expired for root in roots]

    @property
    def next_deadline(self) -> float | None:
        """When `on_time` wants to be called, in monotonic seconds; None if never."""
        return self._rotation.next_deadline

    def statistics(self) -> AckerStatistics:
        """Return the counts."""
        return AckerStatistics(ledger=self.ledger.statistics(), expired_last=self._expired_last)

    def validate(self) -> None:
        """Assert the ledger's invariants."""
        self.ledger.validate()
