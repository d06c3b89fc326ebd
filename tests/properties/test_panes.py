"""The pane ledger against a model that remembers, for each input, the panes that hold it and the firings that it waits for.

A pane waits as a whole: an element that leaves it waits for all of its open firings, and its elements fail with each of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from topo.hot import Ids, unpack_words
from topo.tracking.window_tracking import WindowTracker


@dataclass
class Input:
    """One input: acked when no pane holds it and no firing of a pane that it has left is open."""

    ids: dict[int, int]
    panes: set[str] = field(default_factory=set)
    firings: set[int] = field(default_factory=set)
    has_failed: bool = False

    @property
    def is_done(self) -> bool:
        return not self.panes and not self.firings


class Model:
    """Both, side by side."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.ledger = WindowTracker(Ids(seed.to_bytes(8, "big")))
        self.ledger.reset(1)
        self.inputs: list[Input] = []
        self.contents: dict[str, list[Input]] = {}
        self.open: dict[str, set[int]] = {pane: set() for pane in "abcd"}
        """Open firings by pane."""
        self.firings: set[int] = set()
        self.acked: dict[int, int] = {}
        self.failed: set[int] = set()
        self.next_root = 1

    def new_input(self) -> Input:
        count = self.random.choice((0, 1, 1, 1, 2, 3))
        ids = {}
        for _ in range(count):
            ids[self.next_root] = self.random.getrandbits(63) | 1
            self.next_root += 1
        one = Input(ids)
        self.inputs.append(one)
        return one

    def pane(self) -> str:
        return self.random.choice("abcd")

    def step(self) -> None:
        self.random.choice((self.put, self.put, self.put, self.fire, self.fire, self.release, self.merge, self.verdict))()
        for root, value in zip(*map(unpack_words, self.ledger.acks.take()), strict=True):
            self.acked[root] = self.acked.get(root, 0) ^ value
        self.failed.update(self.ledger.fails)
        self.ledger.fails.clear()
        self.ledger.validate()
        self.check()

    def put(self) -> None:
        batch = [self.new_input() for _ in range(self.random.randint(1, 4))]
        is_single = all(len(one.ids) == 1 for one in batch)
        roots: list[Any] = [tuple(one.ids) for one in batch]
        edges: list[Any] = [tuple(one.ids.values()) for one in batch]
        if is_single:
            roots, edges = [root for (root,) in roots], [edge for (edge,) in edges]
        self.ledger.begin(roots, edges, is_single=is_single)
        for position, one in enumerate(batch):
            for pane in self.random.sample("abcd", self.random.randint(1, 3)):
                self.ledger.held(position, "k", pane)
                self.contents.setdefault(pane, []).append(one)
                one.panes.add(pane)

    def fire(self) -> None:
        pane = self.pane()
        there = self.contents.get(pane, [])
        if not there:
            return
        self.ledger.firing("k", pane)
        current = self.ledger.current
        holds = [one for one in there if one.ids and not one.has_failed]
        # An input that has failed in another pane has left its ids here, so there may be a firing all the same.
        assert current is not None or not holds
        emits = self.random.random() < 0.7
        if current is not None and emits:
            current.anchor.out = 5
        if current is not None and self.random.random() < 0.1:
            self.ledger.fail_current()
            for one in holds:
                one.has_failed = True
        tag = None
        if current is not None and emits:
            tag = current.root
            self.open[pane].add(tag)
            self.firings.add(tag)
        if self.random.random() < 0.3:
            gone = sorted(self.random.sample(range(len(there)), self.random.randint(1, len(there))))
            self.ledger.evicted("k", pane, gone)
            leaving = [there[place] for place in gone]
            self.contents[pane] = [one for place, one in enumerate(there) if place not in gone]
            for one in leaving:
                one.firings |= self.open[pane]
                if not any(one is other for other in self.contents[pane]):
                    one.panes.discard(pane)
        if self.random.random() < 0.4:
            self.drop(pane)
        started = self.ledger.take_firings(0.0)
        assert started == ([(tag, 5)] if tag is not None else [])

    def drop(self, pane: str) -> None:
        self.ledger.released("k", pane)
        for one in self.contents.pop(pane, []):
            one.panes.discard(pane)
            one.firings |= self.open[pane]
        self.open[pane] = set()

    def release(self) -> None:
        self.drop(self.pane())

    def merge(self) -> None:
        target, *sources = self.random.sample("abcd", self.random.randint(2, 3))
        self.ledger.merge("k", target, sources)
        for source in sources:
            for one in self.contents.pop(source, []):
                self.contents.setdefault(target, []).append(one)
                one.panes.discard(source)
                one.panes.add(target)
            self.open[target] |= self.open[source]
            self.open[source] = set()

    def verdict(self) -> None:
        if not self.firings:
            return
        root = self.random.choice(sorted(self.firings))
        self.firings.remove(root)
        holding = {pane for pane, firings in self.open.items() if root in firings}
        if self.random.random() < 0.7:
            self.ledger.completed([root])
        else:
            self.ledger.failed([root])
            for one in self.inputs:
                if root in one.firings or one.panes & holding:
                    one.has_failed = True
        for one in self.inputs:
            one.firings.discard(root)
        for firings in self.open.values():
            firings.discard(root)

    def check(self) -> None:
        for one in self.inputs:
            for root, edge in one.ids.items():
                if root in self.failed:
                    assert one.has_failed, f"input {root} failed without a reason"
                    continue
                assert not one.has_failed, f"input {root} was in something that failed, and did not fail"
                is_acked = self.acked.get(root, 0) == edge
                assert is_acked == one.is_done, f"input {root}: acked {is_acked}, held by {one.panes}, firings {one.firings}"

    def finish(self) -> None:
        """Release all panes and complete all firings: nothing may be left."""
        for pane in "abcd":
            self.drop(pane)
        self.ledger.completed(list(self.firings))
        for one in self.inputs:
            one.firings.clear()
        for root, value in zip(*map(unpack_words, self.ledger.acks.take()), strict=True):
            self.acked[root] = self.acked.get(root, 0) ^ value
        self.check()
        assert self.ledger.open_firings == 0 and self.ledger.open_panes == 0


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 60))
def test_an_input_is_acked_exactly_when_no_pane_holds_it_and_no_firing_of_it_is_open(seed: int, steps: int) -> None:
    model = Model(seed)
    for _ in range(steps):
        model.step()
    model.finish()
