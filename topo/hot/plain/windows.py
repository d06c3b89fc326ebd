"""Elements of a batch into the accumulators of open windows, and their ids into panes."""

from __future__ import annotations

from array import array
from collections.abc import Callable, MutableMapping, Sequence
from itertools import islice
from typing import Any, Protocol, TypeVar

from topo.hot.plain.values import ATOMS

Slots = dict[int, tuple[tuple[dict[Any, Any], ...], list[int]]]
"""By start of a slot: for each window of it the accumulators by key; and the positions of the elements that went into them."""


FieldPlace = int | None | tuple["FieldPlace", ...]


class AddField:
    """Adds fields of an element to an accumulator: what `Sum`, `Count` and `Mean` do, without a call of theirs for each element.

    Attributes:
        place: of the field, 0 or more; None adds 1 for each element. A tuple of places has an accumulator of as many parts.
    """

    __slots__ = ("place", "zero")

    def __init__(self, place: FieldPlace) -> None:
        self.place = place
        self.zero = _zero(place)

    def __call__(self, value: Any, kept: Any = None) -> Any:
        """Return the accumulator of an element and the former accumulator, if any."""
        return _added(self.place, value, self.zero if kept is None else kept)


def _zero(place: FieldPlace) -> Any:
    return tuple([_zero(one) for one in place]) if type(place) is tuple else 0


def _added(place: Any, value: Any, kept: Any) -> Any:
    if type(place) is tuple:
        return tuple([_added(one, value, part) for one, part in zip(place, kept, strict=True)])
    return kept + (1 if place is None else value[place])


def accumulate(
    keys: Sequence[Any],
    values: Sequence[Any],
    stamps: array[int],
    at: int,
    slots: Slots,
    offset: int,
    step: int,
    more: Callable[[Any, Any], Any],
    first: Callable[[Any], Any] | None,
    protect: Callable[[Any], Any] | None,
) -> tuple[int, Exception | None]:
    """Add elements to the accumulators of their windows, each to all or to none, up to the first whose slot is not open.

    Args:
        keys, values, stamps: of the elements. The call ends behind the element at hand when `values` is emptied meanwhile.
        at: the first element to take.
        slots: those that are open.
        offset, step: slots begin at `offset` modulo `step`.
        more: returns the accumulator of a further element and the former accumulator; None drops it. The quickest is `AddField`.
        first: returns the accumulator of a first element. None: the call ends at an element of a key without accumulator.
        protect: copies an accumulator before it is given to `more`. None: it is given as it is.

    Returns:
        The position of the first element that was not taken, and the error if a call for it has raised.
    """
    slot_of = slots.get
    # Iterators over lists: they end when another thread cuts the batch short.
    elements = zip(islice(keys, at, None), islice(values, at, None), islice(stamps, at, None))  # noqa: B905
    for key, value, stamp in elements:
        slot = slot_of(stamp - (stamp - offset) % step)
        if slot is None:
            return at, None
        windows, taken = slot
        added = []
        try:
            # Looked at ahead of the calls: each is made once.
            if first is None and not all(key in cells for cells in windows):
                return at, None
            for cells in windows:
                kept = cells.get(key)
                if kept is not None:
                    if protect is not None and type(kept) not in ATOMS:
                        kept = protect(kept)
                    added.append(more(value, kept))
                else:
                    added.append(first(value))  # type: ignore[misc]
        except Exception as error:
            return at, error
        for cells, accumulator in zip(windows, added):  # noqa: B905
            if accumulator is None:
                cells.pop(key, None)
            else:
                cells[key] = accumulator
        taken.append(at)
        at += 1
    return at, None


class HoldsIds(Protocol):
    """A pane: takes the ids of inputs, as columns.

    Attributes:
        roots, edges: of its inputs.
        counts: by input, how many of the ids are its own; None while each has one.
    """

    roots: array[int]
    edges: array[int]
    counts: array[int] | None


Holder = TypeVar("Holder", bound=HoldsIds)


def hold_run(
    positions: Sequence[int],
    keys: Sequence[Any],
    roots: Sequence[int],
    edges: Sequence[int],
    panes: MutableMapping[Any, Holder],
    make: Callable[[], Holder],
    held: bytearray,
) -> None:
    """Put inputs of one root each into the panes of their keys.

    Args:
        positions: of the inputs in their batch.
        keys, roots, edges: of all inputs of the batch.
        panes: by key.
        make: returns a new pane, for a key without one.
        held: by position; becomes 1 for each of these inputs.
    """
    pane_of = panes.get
    for position in positions:
        key = keys[position]
        pane = pane_of(key)
        if pane is None:
            pane = panes[key] = make()
        held[position] = 1
        pane.roots.append(roots[position])
        pane.edges.append(edges[position])
        if pane.counts is not None:
            pane.counts.append(1)
