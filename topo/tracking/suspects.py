"""Roots that lost workers had in hand: their spouts are told with the next Routes.

A root that was *alone* in hand has taken the process down by itself, and the spout counts it as a kill; of several in hand, which
one did it cannot be known, and the spout tries them one at a time, so that the guilty one is alone the next time.

Several workers can be lost before the epoch rises, each with one root alone in hand, while a Routes message has room for one such
verdict. Then one worker's root is named, that of the worker whose turn was longest ago, and the others are replayed without one:
what killed there strikes again and is named in its turn, so that the kills of each are counted to the end. Naming them all as
mere suspects would count none of them, as often as they strike together.
"""

from __future__ import annotations

from dataclasses import dataclass

from topo.ids import WorkerId
from topo.master.events import InFlightTuples


@dataclass(frozen=True, slots=True)
class Accused:
    """What the next Routes say: the roots, and whether it is a single one that was alone in hand."""

    roots: tuple[int, ...] = ()
    alone: bool = False


class Suspects:
    """Gathers the notes of lost workers between two epochs."""

    def __init__(self) -> None:
        self._notes: dict[WorkerId, tuple[int, ...]] = {}
        self._turns: dict[WorkerId, int] = {}
        self._turn = 0

    def noted(self, worker: WorkerId, in_hand: InFlightTuples) -> None:
        """A worker was lost with roots in hand."""
        if in_hand.roots:
            self._notes[worker] = tuple(dict.fromkeys(in_hand.roots))

    def take(self) -> Accused:
        """Return what the Routes that go out now have to say, and forget it."""
        notes, self._notes = self._notes, {}
        roots = tuple(dict.fromkeys(root for note in notes.values() for root in note))
        if len(roots) > 1 and all(len(note) == 1 for note in notes.values()):
            named = min(notes, key=lambda worker: self._turns.get(worker, 0))
            roots = notes[named]
            self._turn += 1
            self._turns[named] = self._turn
        return Accused(roots, alone=len(roots) == 1)
