"""The places of a task where operators watch tuples. Unused, each costs one look at an attribute a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from topo.hot import Row

Tap = Callable[[str, Sequence[str], Sequence[Row]], None]
"""Called with the name of a stream, its fields, and rows, which are not to be changed or kept. It never raises."""


class Taps:
    """The taps of one task.

    Attributes:
        out: called with the rows that are about to be routed; None while it is not used.
        taken: called with the rows of each frame of input; None while it is not used. Streams have the name COMPONENT:STREAM.
    """

    __slots__ = ("out", "taken")

    def __init__(self) -> None:
        self.out: Tap | None = None
        self.taken: Tap | None = None
