"""Where rows have their event time: in one of their values, which the watermarks read for many at once, or given with each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from topo.api.streams import DEFAULT_STREAM
from topo.api.watermarks import WatermarkStrategy
from topo.streams.chain import Chain, ChainStep, Leaf, inlined, row_place
from topo.streams.graph import SAME_RECORDS, Node


def watermarks_of(chain: Chain, clock: Node) -> WatermarkStrategy:
    """Return the watermarks of a chain with the `with_event_time` of `clock`, and have its rows leave as these read them."""
    chain.time_place = time_place(chain.tree)
    strategy = WatermarkStrategy.bounded_out_of_orderness(clock.settings["disorder"], chain.time_place)
    idle = clock.settings["idle"]
    return strategy if idle is None else strategy.with_idleness(idle)


def time_place(tree: Sequence[ChainStep | Leaf]) -> int | None:
    """Return which value of each row of the main stream is its event time; None where there is none for all.

    There is one where `with_event_time` returns an attribute, and no function gets the record from there to its row: it may
    change it.
    """
    places = set(_places(tree, None))
    return places.pop() if len(places) == 1 else None


def _places(tree: Sequence[ChainStep | Leaf], at: Any) -> Iterator[int | None]:
    """Yield the place for each row of the main stream; `at` returns the event time of its record, and is None if nothing does."""
    for part in tree:
        if isinstance(part, Leaf):
            if part.stream == DEFAULT_STREAM:
                yield _place_in(part, at)
            continue
        is_quiet = part.function is None or inlined(part.function, "record") is not None
        keeps = part.kind in SAME_RECORDS and is_quiet
        for behind in part.then.values():
            yield from _places(behind, part.function if part.kind == "with_event_time" else at if keeps else None)
        # The parts behind this one read the same record.
        at = at if is_quiet else None


def _place_in(leaf: Leaf, at: Any) -> int | None:
    if at is None or leaf.spread or not leaf.with_record or not leaf.layout.attributes:
        return None
    place = row_place(at, leaf.layout)
    return None if place is None else place + leaf.keyed
