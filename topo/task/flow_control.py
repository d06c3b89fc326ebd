"""The two ends of an edge: a sliding window of numbered frames.

What an edge promises: the receiver processes frame 0, 1, 2, ... of an epoch in order, each once, or nothing more after the
first that is missing. What it knows: the sender, which numbers are out and which the receiver has confirmed as *processed*.
What it must not know: what is in the frames.

    sender    next_number ........ the number the next frame gets
              confirmed .......... the last number known to be processed; -1 before the first
              window ............. next in line may leave while number - confirmed <= window
    receiver  expected ........... the number that must come next
              processed .......... the last number that was processed
              confirmed .......... the last number the sender was told

A number above `expected` is a gap: frames were lost, and the edge is dead until the next epoch. A number below it was seen
already and is dropped. Both ends begin anew in every epoch.
"""

from __future__ import annotations

from collections import deque
from enum import Enum

from topo.ids import TaskId
from topo.wire.frames import Frame

UNLIMITED_WINDOW = 1 << 62
"""For edges whose volume is bounded otherwise: an acker's verdicts, by the spout's pending limit."""


class OutEdge:
    """The sender's end of an edge."""

    __slots__ = ("confirmed", "inbox_is_control", "local", "next_number", "target", "unconfirmed_since", "waiting", "window")

    def __init__(self, target: TaskId, window: int, *, local: bool, inbox_is_control: bool = False) -> None:
        self.target = target
        self.window = window
        self.local = local
        self.inbox_is_control = inbox_is_control
        self.waiting: deque[Frame | bytes] = deque()
        self.next_number = 0
        self.confirmed = -1
        self.unconfirmed_since: float | None = None

    @property
    def has_room(self) -> bool:
        """Whether a frame offered now would leave at once."""
        return not self.waiting and self.next_number - self.confirmed <= self.window

    @property
    def is_confirmed(self) -> bool:
        """Whether the receiver has processed all that was ever offered."""
        return self.confirmed == self.next_number - 1

    def offer(self, frame: Frame | bytes, now: float) -> bool:
        """Take the frame that was built with `next_number`; True when it may leave now, False when it waits."""
        leaves = self.has_room
        self.next_number += 1
        if not leaves:
            self.waiting.append(frame)
        elif self.unconfirmed_since is None:
            self.unconfirmed_since = now
        return leaves

    def confirm(self, number: int, now: float) -> list[Frame | bytes]:
        """Note that everything up to `number` is processed; return the waiting frames that may leave now, in order.

        A number that is known already is a sign of life: the receiver has frames and has not got to them.
        """
        if number <= self.confirmed:
            if self.unconfirmed_since is not None:
                self.unconfirmed_since = now
            return []
        first_waiting = self.next_number - len(self.waiting)
        self.confirmed = min(number, first_waiting - 1)
        room = self.confirmed + self.window - first_waiting + 1
        released = [self.waiting.popleft() for _ in range(min(room, len(self.waiting)))]
        self.unconfirmed_since = None if self.is_confirmed else now
        return released

    def validate(self) -> None:
        """Assert the invariants of the window."""
        sent = self.next_number - len(self.waiting)
        assert -1 <= self.confirmed < max(sent, 1), (self.confirmed, sent)
        assert sent - 1 - self.confirmed <= self.window, "more frames out than the window allows"
        assert not (self.waiting and sent - self.confirmed <= self.window), "a frame waits although there is room"


class EdgeStatus(Enum):
    """What the receiver knows of the sender's stream."""

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
    """What `InEdge.accept` says of a frame's number."""

    NEXT = "next"
    DUPLICATE = "duplicate"
    GAP = "gap"
    """Frames before it are missing: the edge has died of it."""
    DEAD = "dead"
    """The edge was dead before."""


class InEdge:
    """The receiver's end of an edge."""

    __slots__ = ("confirmed", "expected", "is_behind_barrier", "processed", "sender", "status", "watermark")

    def __init__(self, sender: TaskId) -> None:
        self.sender = sender
        self.expected = 0
        self.processed = -1
        self.confirmed = -1
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
        """How many frames were processed that the sender has not been told of."""
        return self.processed - self.confirmed

    def validate(self) -> None:
        """Assert the order of the three numbers."""
        assert -1 <= self.confirmed <= self.processed < max(self.expected, 1), (self.confirmed, self.processed, self.expected)
