"""Roots that lost workers were processing: the next Routes report them to their spouts.

A root that was processed *alone* has taken the process down, and the spout counts it as a kill; of several roots the guilty one
cannot be known, and the spout tries them one at a time, so that the guilty one is alone the next time.

Several workers can be lost before the epoch rises, each while processing one root, and a Routes message has room for one such
verdict. Then one worker's root is named, that of the worker whose turn was longest ago, and the others are replayed without one:
what killed there strikes again and is named in its turn, so that the kills of each are counted to the end. Naming them all as
mere suspects would count none of them, as often as they strike together.
"""

from __future__ import annotations

from msgspec import Struct

from topo.ids import TaskId, WorkerId


class InFlightTuples(Struct, frozen=True):
    """The content of a dead worker's crash marker.

    Attributes:
        roots: of the tuples in processing.
        positions: (spout task, packed position) of those roots whose spout lived in the same worker and died with it.
    """

    roots: tuple[int, ...]
    positions: tuple[tuple[TaskId, bytes], ...] = ()


class Accused(Struct, frozen=True):
    """Contents of the next Routes: the roots, and whether it is a single root that was processed alone."""

    roots: tuple[int, ...] = ()
    alone: bool = False


class Suspects:
    """Gathers the crash markers of lost workers between two epochs."""

    def __init__(self) -> None:
        self._marks: dict[WorkerId, tuple[int, ...]] = {}
        self._turns: dict[WorkerId, int] = {}
        self._turn = 0

    def noted(self, worker: WorkerId, in_flight: InFlightTuples) -> None:
        """A worker was lost while it was processing roots."""
        if in_flight.roots:
            self._marks[worker] = tuple(dict.fromkeys(in_flight.roots))

    def take(self) -> Accused:
        """Return the contents for the Routes that are sent now, and forget them."""
        marks, self._marks = self._marks, {}
        roots = tuple(dict.fromkeys(root for mark in marks.values() for root in mark))
        if len(roots) > 1 and all(len(mark) == 1 for mark in marks.values()):
            named = min(marks, key=lambda worker: self._turns.get(worker, 0))
            roots = marks[named]
            self._turn += 1
            self._turns[named] = self._turn
        return Accused(roots, alone=len(roots) == 1)
