"""Tracks the inputs of a window bolt: when each of them may be acked, and when it fails.

An input is held by every pane (key and window) that it went into. It is acked when the last of them has been released *and* all
results of those panes have been processed downstream. Two ideas keep that cheap:

Shares. An input's edge is split over its panes by XOR: each further pane gets a random share, which is acked at once and acked
again when that pane is released. The tree closes when all shares have come, in any order, without any counter.

Pane roots. The results of one firing of a pane are anchored on a new root, drawn here and followed by the ackers like a
spout's message. So results carry one id, however many inputs the pane has; when the acker reports that the firing is complete, or
has failed, this bolt acks or fails the pane's inputs.

    pane: roots and edges (columns, 16 bytes an input), lines of firings, released or not
    input acked  = every pane released, all its firings complete
    firing fails = every input that the pane holds fails; the replays come as new inputs

An input that has failed before has a mark in its root (`REPLAYED_BIT`), as has each firing of a pane that has held such inputs.

Lines (`FiringChain`). Inputs that leave a pane before its end wait for the firings that are open then. A pane numbers its
firings, so the part that leaves is kept with the number of the latest one: it is done when no firing up to that number is open,
and fails with each of those that fails. The cost of a firing, and of a part that leaves, does not depend on the open ones.

A firing without a verdict fails after `message_timeout`, since the messages of its inputs have timed out by then.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Container, Iterable, Sequence
from operator import itemgetter
from typing import Any

from topo.hot import Acks, Ids, hold_run
from topo.ids import REPLAYED_BIT, is_replayed
from topo.tracking.firings import Firing, FiringChain, OnlyFiring, Pane
from topo.tracking.pane_table import PaneTable

_ROOTS_AT_ONCE = 256


class WindowTracker:
    """The panes of one task.

    Args:
        ids: draws shares and roots.

    Attributes:
        acks: by root: the owed values that have not been taken yet.
        fails: roots to fail.
        is_firing: results are being emitted.
        current: the firing that they are anchored on.
        missed_replays: inputs of the batch that have failed before, and were too late for a window; once for each such window.
        acked: inputs that no pane holds any more, since the owner last set it to 0. It lags while an input of several panes has
            lost some of them, and never exceeds the truth.
    """

    def __init__(self, ids: Ids) -> None:
        self._ids = ids
        self._panes = PaneTable()
        self._fresh_roots: list[int] = []
        self._open: dict[int, Firing | OnlyFiring] = {}
        self._firings: list[Firing] = []
        self._roots: Sequence[Any] = ()
        self._edges: Sequence[Any] = ()
        self._is_single = True
        self._is_plain = True
        """Each input of the batch has exactly one root, and none has failed before."""
        self._has_ids = True
        """Some input of the batch has a root."""
        self._held_once: bytearray = bytearray()
        self._epoch = 0
        self.acks = Acks()
        self.fails: dict[int, None] = {}
        self.is_firing = False
        self.current: Firing | None = None
        self._firing_pane: Pane | None = None
        self._lost = 0
        self.missed_replays: list[int] = []
        self.acked = 0
        self._repeats = 0
        """How often inputs were put into a further pane, less the releases that this has been set off against."""

    def reset(self, epoch: int) -> None:
        """Forget everything: every held input is replayed."""
        self._epoch = epoch
        self._panes = PaneTable()
        self._open.clear()
        self._firings.clear()
        self.acks.clear()
        self.fails.clear()
        self.missed_replays.clear()
        self._end_firing()
        self.acked = self._repeats = 0

    @property
    def open_firings(self) -> int:
        """Firings without a verdict."""
        return len(self._open) + len(self._firings)

    @property
    def open_panes(self) -> int:
        """Panes that hold inputs."""
        return len(self._panes)

    def held_roots(self) -> dict[int, None]:
        """Return the roots of the inputs of all panes."""
        return {root: None for pane in self._panes for root in pane.roots}

    def validate(self) -> None:
        known = {*self._open.values(), *self._firings}
        for firing in known:
            if isinstance(firing, Firing):
                assert firing in firing.line.firings() and not firing.is_done, "a firing that its pane does not wait for"
            else:
                assert firing.pane.released and firing.pane.awaited == 1, "an only firing of a pane that is held"
        self._panes.validate()
        for pane in self._panes:
            waiting = [firing for line in pane.lines for firing in line.firings() if not firing.is_done]
            assert pane.awaited == len(waiting) and known.issuperset(waiting), "a pane has lost count of its firings"
            for line in pane.lines:
                parts, oldest = line.parts or (), line.oldest
                assert line.pane is pane and list(parts) == sorted(parts, key=itemgetter(0))
                assert not parts or (oldest is not None and oldest.number <= parts[0][0]), "a part that waits for nothing"
            assert not pane.released and len(pane.roots) == len(pane.edges)
            assert pane.counts is None or sum(pane.counts) == len(pane.roots), "ids that belong to no input"

    # -- inputs ----------------------------------------------------------------------------------------------------------

    def begin(self, roots: Sequence[Any], edges: Sequence[Any], *, is_single: bool, are_replays: bool = False) -> None:
        """A batch begins.

        Args:
            roots: for each input its root, or a tuple of its roots. An array of roots is the quickest.
            edges: for each input its edge in the tree of its root, or of each.
            is_single: each has exactly one.
            are_replays: there may be inputs that have failed before.
        """
        self._roots, self._edges, self._is_single = roots, edges, is_single
        self._is_plain = is_single and not are_replays
        self._has_ids = is_single or any(roots)
        self._held_once = bytearray(len(roots))
        self.missed_replays.clear()
        self._end_firing()

    def unheld(self) -> list[int]:
        """Return the inputs of the batch that no pane has taken."""
        if 0 not in self._held_once:
            return []
        return [position for position, held in enumerate(self._held_once) if not held]

    def held(self, position: int, key: Any, window: Any) -> None:
        """An input went into a pane."""
        pane = self._panes.open(key, window)
        # The common case: one root, and the first pane of the input, which takes the input's own edge and needs no share.
        if self._is_plain and pane.counts is None and not self._held_once[position]:
            self._held_once[position] = 1
            pane.roots.append(self._roots[position])
            pane.edges.append(self._edges[position])
        else:
            self._hold(pane, position)

    def held_run(self, positions: Sequence[int], keys: Sequence[Any], window: Any) -> None:
        """Inputs went into panes of one window, and each into no other."""
        if not self._has_ids:
            held_once = self._held_once
            for position in positions:
                held_once[position] = 1
                self._panes.open(keys[position], window).count_inputs().append(0)
            return
        if not self._is_plain:
            for position in positions:
                self.held(position, keys[position], window)
            return
        panes = self._panes.of_window(window)
        hold_run(positions, keys, self._roots, self._edges, panes, Pane, self._held_once)

    def _hold(self, pane: Pane, position: int) -> None:
        roots, edges = self._roots[position], self._edges[position]
        if self._is_single:
            roots, edges = (roots,), (edges,)
        if not self._is_plain:
            pane.is_replay |= _mark(roots)
        if pane.counts is not None or len(roots) != 1:
            pane.count_inputs().append(len(roots))
        pane.roots.extend(roots)
        if not self._held_once[position]:
            self._held_once[position] = 1
            pane.edges.extend(edges)
            return
        self._repeats += 1
        # A further pane: acked now and once more at its release, its share keeps the tree open between the two.
        shares = self._ids.roots(len(roots))
        pane.edges.extend(shares)
        self.acks.add(roots, shares)

    def missed(self, position: int) -> None:
        """An input was too late for a window."""
        roots = self._roots[position]
        if _mark((roots,) if self._is_single else roots):
            self.missed_replays.append(position)

    def merge(self, key: Any, target: Any, sources: Sequence[Any]) -> None:
        """Panes were merged."""
        into = self._panes.open(key, target)
        for source in sources:
            pane = self._panes.take(key, source)
            if pane is not None:
                if into.counts is not None or pane.counts is not None:
                    into.count_inputs().extend(pane.input_counts())
                into.roots.extend(pane.roots)
                into.edges.extend(pane.edges)
                into.is_replay |= pane.is_replay
                self._adopt(into, pane)

    def _adopt(self, into: Pane, pane: Pane) -> None:
        """Let the firings of a pane that was merged away count for the other."""
        if pane.awaited:
            into.lines = tuple(line for line in (*into.lines, *pane.lines) if line.oldest is not None)
            into.awaited += pane.awaited
            for line in into.lines:
                line.pane = into

    # -- firings ---------------------------------------------------------------------------------------------------------

    def firing(self, key: Any, window: Any) -> None:
        """The next results come from this pane."""
        pane = self._firing_pane = self._panes.find(key, window)
        self.is_firing, self.current = True, None
        # A pane whose inputs are untracked has no roots to ack or fail, so its firing needs no verdict.
        if pane is not None and len(pane.roots):
            if not self._fresh_roots:
                self._fresh_roots = self._ids.unmarked_roots(_ROOTS_AT_ONCE)
            pane.lines = pane.lines or (FiringChain(pane),)
            self.current = Firing(pane.lines[-1], self._fresh_roots.pop() | pane.is_replay, self._epoch)
            self._firings.append(self.current)

    def raised(self, error: Exception) -> bool:
        """The pane that fires has raised in its last attempt."""
        if self._firing_pane is not None:
            self._lose_inputs(self._firing_pane)
        return False

    def fired(self) -> None:
        """The pane has emitted all its results."""
        self._end_firing()

    def abandon(self, key: Any, window: Any) -> None:
        """A pane is over without having fired: its inputs fail."""
        pane = self._panes.find(key, window)
        if pane is not None:
            self._lose_inputs(pane)
            self._fail_inputs(pane)

    def _end_firing(self) -> None:
        self.is_firing, self.current, self._firing_pane = False, None, None

    def evicted(self, key: Any, window: Any, positions: Sequence[int]) -> None:
        """Inputs have left a pane; they are done when the firings that had them are done, the current one included."""
        pane = self._panes.find(key, window)
        if pane is None:
            return
        left = pane.split(positions)
        # Results with these inputs may still be in processing: the part waits in each chain that has open firings.
        for line in pane.lines:
            if line.oldest is not None:
                line.detach(left)
        self._release(left)

    def released(self, key: Any, window: Any) -> None:
        """A pane holds nothing any more."""
        pane = self._panes.take(key, window)
        if pane is not None:
            self._release(pane)

    def released_all(self, window: Any) -> None:
        """The panes of a window hold nothing any more."""
        for pane in self._panes.take_window(window):
            self._release(pane)

    def only_panes(self, keys: Sequence[Any], window: Any) -> tuple[list[Pane], list[int]] | None:
        """Return panes that fire for the first and the last time, and a root for each: none where no pane has inputs with ids.

        None when that is not known of all of them: they fire one by one.
        """
        panes = self._panes.find_all(keys, window)
        known = [pane for pane in panes if pane is not None and not pane.lines]
        with_ids = sum([bool(pane.roots) for pane in known])
        if len(known) < len(panes) or with_ids not in (0, len(panes)):
            return None
        fresh = self._ids.unmarked_roots(with_ids)
        return known, [root | pane.is_replay for root, pane in zip(fresh, known, strict=False)]

    def fired_once(
        self,
        keys: Sequence[Any],
        window: Any,
        panes: Sequence[Pane],
        roots: Sequence[int],
        values: Sequence[int],
        now: float,
        refused: Collection[int] = (),
    ) -> None:
        """The only results of panes that `only_panes` has returned were sent at `now`; the panes hold nothing any more.

        `values` has for each root the XOR of the edges of its results; 0 where no task has to process any.
        `refused` has the places of roots with results that could not be sent: their inputs fail.
        """
        self._panes.remove_all(keys, window)
        for place, (root, value, pane) in enumerate(zip(roots, values, panes, strict=False)):
            if value or place in refused:
                pane.released = True
                pane.awaited += 1
                self._open[root] = OnlyFiring(pane, now)
        if not all(values) or not roots:
            for pane in panes:
                if not pane.awaited:
                    self._release(pane)
        self.failed([roots[place] for place in refused])

    def release_all(self) -> None:
        """The input has ended: panes that are still held will never fire."""
        for pane in self._panes.take_all():
            self._release(pane)

    def fail_current(self) -> None:
        """The pane that fires has raised in its last attempt: its inputs fail."""
        if self.current is not None:
            self._fail(self.current)
        self._end_firing()

    def take_lost(self) -> int:
        """Return how many inputs without ids, which cannot fail, were in calls that raised."""
        lost, self._lost = self._lost, 0
        return lost

    def take_firings(self, now: float, refused: Container[int] = ()) -> list[tuple[int, int]]:
        """Return root and XOR of the results, for each firing whose results were sent; the ackers follow them now.

        The inputs of firings in `refused` fail: none of their results could be sent.
        """
        firings, self._firings = self._firings, []
        self._end_firing()
        started: list[tuple[int, int]] = []
        for firing in firings:
            # Without results no tuple is on its way: the ackers need not know of the firing, which is complete.
            if firing.anchor.out:
                firing.began = now
                self._open[firing.root] = firing
                started.append((firing.root, firing.anchor.out))
            else:
                if firing.root in refused:
                    self._fail(firing)
                self._complete(firing)
        return started

    def completed(self, roots: Sequence[int]) -> None:
        """The results of these firings have been processed."""
        over: list[Pane] = []
        for root in roots:
            firing = self._open.pop(root, None)
            if type(firing) is OnlyFiring:
                firing.pane.awaited -= 1
                over.append(firing.pane)
            elif firing is not None:
                self._complete(firing)
        self._release_each(over)

    def failed(self, roots: Iterable[int]) -> None:
        """Firings have failed: so have their inputs."""
        for root in roots:
            firing = self._open.pop(root, None)
            if firing is not None:
                # In this order: to complete it may release the pane, which would ack inputs that have failed.
                self._fail(firing)
                self._complete(firing)

    def expire(self, now: float, timeout_s: float) -> int:
        """Fail the firings that are open for as long as `timeout_s`; return how many."""
        expired = []
        for root, firing in self._open.items():
            # In order of `began`: all that follow are younger.
            if firing.began + timeout_s > now:
                break
            expired.append(root)
        self.failed(expired)
        return len(expired)

    def oldest_firing(self) -> float | None:
        """When the oldest open firing began, in monotonic seconds."""
        return next((firing.began for firing in self._open.values()), None)

    def touched(self, roots: Sequence[int], now: float) -> dict[int, None]:
        """Return the roots of the inputs of firings whose results are still in processing; their timeouts restart."""
        found: dict[int, None] = {}
        for root in roots:
            firing = self._open.pop(root, None)
            if firing is not None:
                # In order of `began`, which `expire` relies on.
                firing.began = now
                self._open[root] = firing
                for pane in firing.panes():
                    found.update(dict.fromkeys(pane.roots))
        return found

    def _complete(self, firing: Firing | OnlyFiring) -> None:
        for pane in firing.complete():
            self._release(pane)

    def _release(self, pane: Pane) -> None:
        self._release_each((pane,))
        if not pane.awaited:
            pane.roots, pane.edges, pane.counts = array("Q"), array("Q"), None

    def _release_each(self, panes: Iterable[Pane]) -> None:
        """Owe what released panes hold, unless they wait for a firing. Each is given once."""
        roots, edges, inputs = array("Q"), array("Q"), 0
        for pane in panes:
            pane.released = True
            if not pane.awaited:
                inputs += len(pane.roots) if pane.counts is None else sum(map(bool, pane.counts))
                roots += pane.roots
                edges += pane.edges
        # An input of several panes counts as acked once: as many releases are set off as it went into further panes.
        self._repeats -= (repeats := min(inputs, self._repeats))
        self.acked += inputs - repeats
        if roots:
            self.acks.fold(memoryview(roots).cast("B"), memoryview(edges).cast("B"))

    def _fail(self, firing: Firing | OnlyFiring) -> None:
        for pane in firing.take_failed():
            self._fail_inputs(pane)

    def _lose_inputs(self, pane: Pane) -> None:
        if pane.counts is not None and not len(pane.roots):
            lost = max(0, len(pane.counts) - pane.lost)
            pane.lost += lost
            self._lost += lost

    def _fail_inputs(self, pane: Pane) -> None:
        self.fails.update(dict.fromkeys(pane.roots))
        pane.forget()


def _mark(roots: Iterable[int]) -> int:
    """Return `REPLAYED_BIT` if one of the roots has it, else 0."""
    return REPLAYED_BIT if is_replayed(roots) else 0
