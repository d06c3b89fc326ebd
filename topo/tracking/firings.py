"""Panes and their firings: what `WindowTracker` keeps of each key in each window.

A pane keeps the ids of its inputs as columns, 16 bytes an input. Its firings form a chain, in order: a part of the pane that is
evicted waits for the firings so far, and fails with each of them that fails.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat

from msgspec import Struct

from topo.api.tuples import Origin
from topo.emission.collectors import TrackedTuple

_FIRING = Origin("__pane", 0)
_no_words = array("Q").__copy__


class Pane:
    """The inputs of one key in one window.

    Attributes:
        roots, edges: of its inputs, in the order in which it has taken them.
        counts: by input, how many of the ids are its own; None while each has one.
        lines: of its firings, those of panes that were merged into it included; new ones come into the last.
        awaited: how many firings are open; for a part that has left a pane, how many of that pane's lines it is in.
        released: it holds nothing any more, and waits for its firings.
        lost: how many of its inputs without ids were in a firing that raised.
        is_replay: it has held inputs that have failed before.
    """

    __slots__ = ("awaited", "counts", "edges", "is_replay", "lines", "lost", "released", "roots")

    def __init__(self) -> None:
        # A copy costs a small part of what `array("Q")` does, which parses its arguments.
        self.roots = _no_words()
        self.edges = _no_words()
        self.counts: array[int] | None = None
        self.lines: tuple[FiringChain, ...] = ()
        self.awaited = 0
        self.released = False
        self.lost = 0
        self.is_replay = 0

    def input_counts(self) -> Iterable[int]:
        """How many ids each input has."""
        return repeat(1, len(self.roots)) if self.counts is None else self.counts

    def count_inputs(self) -> array[int]:
        """Count the ids of each input from now on."""
        if self.counts is None:
            self.counts = array("H", self.input_counts())
        return self.counts

    def split(self, positions: Sequence[int]) -> Pane:
        """Take out the inputs at these places, and return them as a pane that holds nothing any more."""
        gone = set(positions)
        left, kept = Pane(), Pane()
        if self.counts is not None:
            left.counts, kept.counts = array("H"), array("H")
        start = 0
        for place, count in enumerate(self.input_counts()):
            end = start + count
            side = left if place in gone else kept
            side.roots.extend(self.roots[start:end])
            side.edges.extend(self.edges[start:end])
            if side.counts is not None:
                side.counts.append(count)
            start = end
        self.roots, self.edges, self.counts = kept.roots, kept.edges, kept.counts
        left.released = True
        return left

    def forget(self) -> None:
        """Drop the ids, keep the inputs' places."""
        if len(self.roots):
            self.counts = array("H", bytes(2 * (len(self.roots) if self.counts is None else len(self.counts))))
            self.roots, self.edges = array("Q"), array("Q")


class FiringChain:
    """Firings of a pane, in order.

    Attributes:
        pane: what fails with them, and waits for them when it is released.
        latest: the number of the last one.
        oldest, newest: open firing, and last one, open or not; each firing knows the next. None while all are done.
        parts: the inputs that have left the pane, with the number of the last firing that it waits for, in order.
    """

    __slots__ = ("latest", "newest", "oldest", "pane", "parts")

    # Most windows fire once and lose no part, so a line costs little until it has more to keep.
    def __init__(self, pane: Pane) -> None:
        self.pane = pane
        self.latest = 0
        self.oldest: Firing | None = None
        self.newest: Firing | None = None
        self.parts: deque[tuple[int, Pane]] | None = None

    def firings(self) -> Iterator[Firing]:
        """Return the firings from the oldest open one on, those that are done among them."""
        firing = self.oldest
        while firing is not None:
            yield firing
            firing = firing.next

    def complete(self) -> list[Pane]:
        """Let go of the firings that are done, up to the first open one; return the parts that wait for none in the chain."""
        oldest, parts = self.oldest, self.parts
        while oldest is not None and oldest.is_done:
            oldest = oldest.next
        self.oldest = oldest
        if oldest is None:
            self.newest = None
        free = []
        while parts and (oldest is None or parts[0][0] < oldest.number):
            _, part = parts.popleft()
            part.awaited -= 1
            free.append(part)
        return free

    def detach(self, part: Pane) -> None:
        """Have a part of the pane wait for the firings so far."""
        if self.parts is None:
            self.parts = deque()
        self.parts.append((self.latest, part))
        part.awaited += 1


class Firing:
    """One firing of a pane.

    Attributes:
        anchor: what its results are anchored on.
        number: its place in the line.
        began: when its results were put out, in monotonic seconds.
        is_done: its verdict is known.
        next: the one behind it in the line.
    """

    __slots__ = ("anchor", "began", "is_done", "line", "next", "number", "root")

    def __init__(self, line: FiringChain, root: int, epoch: int) -> None:
        self.line = line
        self.number = line.latest = line.latest + 1
        self.next: Firing | None = None
        if line.newest is None:
            line.oldest = self
        else:
            line.newest.next = self
        line.newest = self
        line.pane.awaited += 1
        self.root = root
        self.began = 0.0
        self.is_done = False
        self.anchor = TrackedTuple.made((), _FIRING, None, epoch, (root,), (0,))

    def complete(self) -> list[Pane]:
        """Its verdict is known. Returns the released panes, and parts of them, that wait for one firing less."""
        pane = self.line.pane
        self.is_done = True
        free = self.line.complete()
        pane.awaited -= 1
        return [*free, pane] if pane.released else free

    def take_failed(self) -> list[Pane]:
        """Return the panes, and parts of them, whose inputs fail with it."""
        failed, parts = [self.line.pane], self.line.parts
        while parts and parts[-1][0] >= self.number:
            failed.append(parts.pop()[1])
        return failed

    def panes(self) -> list[Pane]:
        """Return the panes, and parts of them, that it has the inputs of."""
        return [self.line.pane, *(part for number, part in self.line.parts or () if number >= self.number)]


class OnlyFiring(Struct, eq=False, gc=False):
    """The only firing of a pane, which was released with it. A class whose instances are made without a call in Python.

    Attributes:
        pane: holds the inputs; it waits for this firing.
        began: when its result was put out, in monotonic seconds.
    """

    pane: Pane
    began: float

    def complete(self) -> list[Pane]:
        """Its verdict is known. Returns the panes that wait for one firing less."""
        self.pane.awaited -= 1
        return self.panes()

    def take_failed(self) -> list[Pane]:
        """Return the panes whose inputs fail with it."""
        return self.panes()

    def panes(self) -> list[Pane]:
        """Return the panes that it has the inputs of."""
        return [self.pane]
