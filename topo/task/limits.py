"""Bounds on memory and pauses of a task that are no settings."""

from __future__ import annotations

from msgspec import Struct


class TaskLimits(Struct, frozen=True):
    """Bounds of memory and of pauses; results are the same with others, as the simulator shows by drawing small ones.

    Attributes:
        acks_at_once: messages, covered by a checkpoint, whose `ack` is called before the spout may emit again.
        causes: roots of one batch whose reason to fail is reported.
        held_inputs: inputs that a bolt may hold back before those are looked for that it has let go of.
        remembered_keys: keys whose route a grouping remembers.
    """

    acks_at_once: int = 256
    causes: int = 1_000
    held_inputs: int = 1_000
    remembered_keys: int = 65_536
