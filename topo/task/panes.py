"""Which inputs a window bolt owes acks for, and when.

An input is held by every pane (key and window) that it went into. It is acked when the last of them has been released *and*
everything that those panes have put out has been processed downstream. Two ideas keep that cheap:

Shares. An input's edge is split over its panes by XOR: each further pane gets a random share, which is acked at once and acked
again when that pane is released. The tree closes when all shares have come, in any order; nobody counts.

Pane roots. What a pane puts out in one firing is anchored on a root of its own, drawn here and followed by the ackers like a
spout's message. So results carry one id, however many inputs the pane has; when the acker says that the firing is complete, or
has failed, this bolt passes that on to the pane's inputs.

    pane: roots and edges (columns, 16 bytes an input), open firings, released or not
    input acked  = every pane released, all its firings complete
    firing fails = every input that the pane holds fails; the replays come as new inputs
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from topo.api.tuples import Origin
from topo.ids import IdSource
from topo.task.collectors import TrackedTuple

_FIRING = Origin("__pane", 0)


class Pane:
    """What one key holds in one window."""

    __slots__ = ("edges", "open_firings", "released", "roots")

    def __init__(self) -> None:
        self.roots = array("Q")
        self.edges = array("Q")
        self.open_firings = 0
        self.released = False


class Firing:
    """One firing of a pane: `anchor` is what its results are anchored on, `left` what the evictor took away with it."""

    __slots__ = ("anchor", "left", "pane", "root")

    def __init__(self, pane: Pane, root: int, epoch: int) -> None:
        self.pane = pane
        self.root = root
        self.left: Pane | None = None
        self.anchor = TrackedTuple.made((), _FIRING, None, epoch, (root,), (0,))


class PaneLedger:
    """The panes of one task; observes its window operator.

    Attributes:
        acks: by root: what is owed and has not been taken yet.
        fails: roots to fail.
        current: the firing whose results are being put out.
    """

    def __init__(self, ids: IdSource) -> None:
        self._ids = ids
        self._panes: dict[tuple[Any, Any], Pane] = {}
        self._open: dict[int, Firing] = {}
        self._firings: list[Firing] = []
        self._roots: Sequence[Sequence[int]] = ()
        self._edges: Sequence[Sequence[int]] = ()
        self._held_once: bytearray = bytearray()
        self._epoch = 0
        self.acks: dict[int, int] = {}
        self.fails: dict[int, None] = {}
        self.current: Firing | None = None

    def reset(self, epoch: int) -> None:
        """Forget everything: every input that was held comes again."""
        self._epoch = epoch
        self._panes.clear()
        self._open.clear()
        self._firings.clear()
        self.acks.clear()
        self.fails.clear()
        self.current = None

    @property
    def open_firings(self) -> int:
        """Firings whose fate is not known."""
        return len(self._open) + len(self._firings)

    @property
    def open_panes(self) -> int:
        """Panes that hold inputs."""
        return len(self._panes)

    def begin(self, roots: Sequence[Sequence[int]], edges: Sequence[Sequence[int]]) -> None:
        """A batch begins: for each input its roots and its edge in each of their trees."""
        self._roots, self._edges = roots, edges
        self._held_once = bytearray(len(roots))
        self.current = None

    def unheld(self) -> list[int]:
        """Return the inputs of the batch that no pane has taken."""
        return [position for position, held in enumerate(self._held_once) if not held]

    def held(self, position: int, key: Any, window: Any) -> None:
        """An input went into a pane."""
        pane = self._panes.get((key, window))
        if pane is None:
            pane = self._panes[key, window] = Pane()
        roots = self._roots[position]
        if not self._held_once[position]:
            self._held_once[position] = 1
            pane.roots.extend(roots)
            pane.edges.extend(self._edges[position])
            return
        shares = self._ids.roots(len(roots))
        pane.roots.extend(roots)
        pane.edges.extend(shares)
        for root, share in zip(roots, shares, strict=True):
            self.acks[root] = self.acks.get(root, 0) ^ share

    def moved(self, key: Any, target: Any, sources: Sequence[Any]) -> None:
        """Panes were merged."""
        into = self._panes.get((key, target))
        if into is None:
            into = self._panes[key, target] = Pane()
        for source in sources:
            pane = self._panes.pop((key, source), None)
            if pane is not None:
                into.roots.extend(pane.roots)
                into.edges.extend(pane.edges)
                self._adopt(into, pane)

    def _adopt(self, into: Pane, pane: Pane) -> None:
        """Let the firings of a pane that was merged away count for the other."""
        into.open_firings += pane.open_firings
        for firing in (*self._open.values(), *self._firings):
            if firing.pane is pane:
                firing.pane = into

    def firing(self, key: Any, window: Any) -> None:
        """What is put out next comes from this pane."""
        pane = self._panes.get((key, window))
        if pane is None or not len(pane.roots):
            self.current = None
            return
        self.current = Firing(pane, self._ids.roots(1)[0], self._epoch)
        pane.open_firings += 1
        self._firings.append(self.current)

    def evicted(self, key: Any, window: Any, positions: Sequence[int]) -> None:
        """Inputs have left a pane; they are done when the firing at hand is, the last in which they took part."""
        pane = self._panes.get((key, window))
        if pane is None or not len(pane.roots):
            return
        gone = set(positions)
        left = Pane()
        kept_roots, kept_edges = array("Q"), array("Q")
        for position, (root, edge) in enumerate(zip(pane.roots, pane.edges, strict=True)):
            roots, edges = (left.roots, left.edges) if position in gone else (kept_roots, kept_edges)
            roots.append(root)
            edges.append(edge)
        pane.roots, pane.edges = kept_roots, kept_edges
        if self.current is None:
            self._release(left)
            return
        left.open_firings = 1
        left.released = True
        self.current.left = left

    def released(self, key: Any, window: Any) -> None:
        """A pane holds nothing any more."""
        pane = self._panes.pop((key, window), None)
        if pane is not None:
            self._release(pane)

    def release_all(self) -> None:
        """The input has ended: what is still held will never fire."""
        panes, self._panes = self._panes, {}
        for pane in panes.values():
            self._release(pane)

    def fail_current(self) -> None:
        """The function of the pane that fires has raised: what the pane holds fails."""
        if self.current is not None:
            self._fail(self.current.pane)

    def take_firings(self) -> list[tuple[int, int]]:
        """Return root and XOR of what was put out, for each firing whose results went anywhere; the ackers follow them now."""
        firings, self._firings = self._firings, []
        self.current = None
        started: list[tuple[int, int]] = []
        for firing in firings:
            if firing.anchor.out:
                self._open[firing.root] = firing
                started.append((firing.root, firing.anchor.out))
            else:
                self._complete(firing)
        return started

    def completed(self, roots: Sequence[int]) -> None:
        """Firings are through."""
        for root in roots:
            firing = self._open.pop(root, None)
            if firing is not None:
                self._complete(firing)

    def failed(self, roots: Sequence[int]) -> None:
        """Firings have failed: so have their inputs."""
        for root in roots:
            firing = self._open.pop(root, None)
            if firing is not None:
                self._fail(firing.pane)
                if firing.left is not None:
                    self._fail(firing.left)
                self._complete(firing)

    def _complete(self, firing: Firing) -> None:
        for pane in (firing.pane, firing.left):
            if pane is not None:
                pane.open_firings -= 1
                if pane.released:
                    self._release(pane)

    def _release(self, pane: Pane) -> None:
        pane.released = True
        if pane.open_firings:
            return
        acks = self.acks
        for root, edge in zip(pane.roots, pane.edges, strict=True):
            acks[root] = acks.get(root, 0) ^ edge
        pane.roots, pane.edges = array("Q"), array("Q")

    def _fail(self, pane: Pane) -> None:
        self.fails.update(dict.fromkeys(pane.roots))
        pane.roots, pane.edges = array("Q"), array("Q")
