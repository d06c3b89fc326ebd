"""The two ends of an edge: a sliding window of numbered frames.

What an edge promises: the receiver processes frame 0, 1, 2, ... of an epoch in order, each once, or nothing more after the
first that is missing. It knows the sender, the numbers that are out, and those that the receiver has confirmed as *processed*.
It must not know the contents of the frames.

    sender    next_number ........ the number the next frame gets
              confirmed .......... the last number known to be processed; -1 before the first
              window ............. next in line may leave while number - confirmed <= window
              allowance .......... and while fewer tuples are out than the receiver has granted
    receiver  expected ........... the number that must come next
              processed .......... the last number that was processed
              confirmed .......... the last number that was confirmed

A number above `expected` is a gap: frames were lost, and the edge is dead until the next epoch. A number below it was seen
already and is dropped. Both ends start again in every epoch.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from itertools import takewhile

from topo.hot import Column
from topo.ids import TaskId
from topo.wire.batcher import PIECES
from topo.wire.frames import Frame

UNLIMITED_WINDOW = 1 << 62
"""For edges whose volume is bounded otherwise: an acker's verdicts, by the spout's pending limit."""


BUSY = 90
"""Percent: a worker with this load, or more, has no time for more input than it has."""


class OutEdge:
    """The sender's end of an edge.

    Attributes:
        allowance: tuples that may be out, by the receiver's last confirmation; 0: it has set no limit.
        load: of the receiver's worker, in percent, by its last confirmation; None before the first.
        held: tuples offered and not confirmed, whether they have left or wait.
        out: tuples that have left and are not confirmed.
        sent: tuples offered so far.
    """

    __slots__ = (
        "_ledger", "allowance", "carries_verdicts", "confirmed", "held", "load", "local", "next_number", "out", "sent",
        "target", "unconfirmed_since", "waiting", "window",
    )  # fmt: skip

    def __init__(self, target: TaskId, window: int, *, local: bool, carries_verdicts: bool = False) -> None:
        self.target = target
        self.window = window
        self.local = local
        self.carries_verdicts = carries_verdicts
        self.waiting: deque[Frame | bytes] = deque()
        self.next_number = 0
        self.confirmed = -1
        self.unconfirmed_since: float | None = None
        self.allowance = 0
        self.load: int | None = None
        self.held = 0
        self.out = 0
        self.sent = 0
        self._ledger: deque[tuple[int, Column, float]] = deque()
        """By unconfirmed frame, in order: its tuples, their roots, and when it was offered."""

    @property
    def has_room(self) -> bool:
        """Whether a frame offered now would leave at once."""
        return not self.waiting and self._may_leave(self.next_number)

    def _may_leave(self, number: int) -> bool:
        return number - self.confirmed <= self.window and (not self.allowance or self.out < self.allowance)

    @property
    def is_confirmed(self) -> bool:
        """Whether the receiver has processed all that was ever offered."""
        return self.confirmed == self.next_number - 1

    @property
    def is_late(self) -> bool:
        """Whether the receiver's worker has no time, and has not processed all that was offered. Never in the sender's worker."""
        return not self.local and self.load is not None and self.load >= BUSY and not self.is_confirmed

    @property
    def spare(self) -> int | None:
        """Tuples that may be offered until the edge is full: twice its allowance. None where nothing is granted."""
        return 2 * self.allowance - self.held if self.allowance else None

    @property
    def beyond(self) -> int:
        """Tuples offered beyond the allowance: the receiver has to process as many before a frame offered now can leave."""
        return self.held - self.allowance

    def piece(self, most: int) -> int:
        """Return how many tuples a frame has at most, given the size of a full batch, where none wait beyond the allowance."""
        return min(most, max(1, self.allowance // PIECES)) if self.allowance else most

    def offer(self, frame: Frame | bytes, now: float, tuples: int = 0, roots: Column = b"") -> bool:
        """Take the frame that was built with `next_number`; True when it may leave now, False when it waits.

        Args:
            frame: as it is to be sent.
            now: monotonic seconds.
            tuples: how many there are in it.
            roots: of these, packed.
        """
        leaves = self.has_room
        self.next_number += 1
        self.held += tuples
        self.sent += tuples
        self._ledger.append((tuples, roots, now))
        if not leaves:
            self.waiting.append(frame)
        else:
            self.out += tuples
            if self.unconfirmed_since is None:
                self.unconfirmed_since = now
        return leaves

    def confirm(self, number: int, now: float, allowance: int = 0) -> list[Frame | bytes]:
        """Note that everything up to `number` is processed; return the waiting frames that may leave now, in order.

        A number that is known already is a sign of life: the receiver has frames and has not got to them.
        """
        self.allowance = allowance
        first_waiting = self.next_number - len(self.waiting)
        number = min(number, first_waiting - 1)
        for _ in range(number - self.confirmed):
            tuples, _, _ = self._ledger.popleft()
            self.held -= tuples
            self.out -= tuples
        self.confirmed = max(self.confirmed, number)
        released: list[Frame | bytes] = []
        while self.waiting and self._may_leave(first_waiting):
            released.append(self.waiting.popleft())
            self.out += self._ledger[first_waiting - self.confirmed - 1][0]
            first_waiting += 1
        self.unconfirmed_since = None if self.confirmed == first_waiting - 1 else now
        return released

    def roots_since(self, moment: float) -> list[Column]:
        """Return the roots of the unconfirmed frames that were offered up to a moment, frame by frame."""
        return [roots for _, roots, at in takewhile(lambda entry: entry[2] <= moment, self._ledger) if roots]

    def validate(self) -> None:
        """Assert the invariants of the window."""
        sent = self.next_number - len(self.waiting)
        assert -1 <= self.confirmed < max(sent, 1), (self.confirmed, sent)
        assert sent - 1 - self.confirmed <= self.window, "more frames out than the window allows"
        assert not (self.waiting and self._may_leave(sent)), "a frame waits although there is room"
        assert len(self._ledger) == self.next_number - 1 - self.confirmed, "an unconfirmed frame is not in the ledger"
        tuples = [entry[0] for entry in self._ledger]
        assert self.held == sum(tuples) and self.out == sum(tuples[: sent - 1 - self.confirmed])


class EdgeStatus(Enum):
    """The receiver's knowledge of the sender's stream."""

    OPENING = "opening"
    """No frame yet in this epoch."""
    ACTIVE = "active"
    """Tuples may come; its watermark holds the task's watermark back."""
    IDLE = "idle"
    """Tuples may come; its watermark holds nothing back until it is active again."""
    FINISHED = "finished"
    """The source behind it has ended. Replays may still come."""
    DEAD = "dead"
    """Frames were lost; nothing more on it is processed in this epoch."""


class Arrival(Enum):
    """The judgement of `InEdge.accept` on a frame's number."""

    NEXT = "next"
    DUPLICATE = "duplicate"
    GAP = "gap"
    """Frames before it are missing: the edge has died of it."""
    DEAD = "dead"
    """The edge was dead before."""


class InEdge:
    """The receiver's end of an edge."""

    __slots__ = ("confirmed", "expected", "is_behind_barrier", "owed_tuples", "processed", "sender", "status", "watermark")

    def __init__(self, sender: TaskId) -> None:
        self.sender = sender
        self.expected = 0
        self.processed = -1
        self.confirmed = -1
        self.owed_tuples = 0
        """Tuples that were processed and not confirmed."""
        self.status = EdgeStatus.OPENING
        self.watermark: int | None = None
        self.is_behind_barrier = False
        """The barrier at hand has come on it: what follows waits until it has come on all others."""

    def accept(self, number: int) -> Arrival:
        """Judge the number of an arriving frame; at a gap the edge dies."""
        if self.status is EdgeStatus.DEAD:
            return Arrival.DEAD
        if number == self.expected:
            self.expected = number + 1
            return Arrival.NEXT
        if number < self.expected:
            return Arrival.DUPLICATE
        self.status = EdgeStatus.DEAD
        return Arrival.GAP

    @property
    def owes_confirmation(self) -> int:
        """Number of frames that were processed and not confirmed."""
        return self.processed - self.confirmed

    def validate(self) -> None:
        """Assert the order of the three numbers."""
        assert -1 <= self.confirmed <= self.processed < max(self.expected, 1), (self.confirmed, self.processed, self.expected)
