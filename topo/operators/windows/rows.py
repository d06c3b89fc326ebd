"""The elements of a window as tuples with field names and sources, and how they differ from those of the last firing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from topo.api.tuples import Origin, Tuple
from topo.errors import UserError

Element = tuple[Any, ...]


class WindowRows:
    """Reads the elements that one window operator keeps.

    Args:
        origins: the streams that the operator reads, by the name that `sourced` gives the rows; None where elements are no rows.
        is_sourced: whether each element ends with the name of its stream.
    """

    def __init__(self, origins: Mapping[str, Origin] | None, is_sourced: bool = False) -> None:
        self._origins = origins
        self._is_sourced = is_sourced

    def plain(self, elements: Sequence[Element]) -> Sequence[Element]:
        return [element[:-1] for element in elements] if self._is_sourced else elements

    def tuples(self, elements: Sequence[Element]) -> list[Tuple]:
        """Return the elements as tuples. Raises UserError where they have no field names or more than one source."""
        if self._origins is None:
            raise UserError("windows with aggregate= or reduce= keep no rows; leave it out, and use process= alone")
        if self._is_sourced:
            return [Tuple(element[:-1], self._origins[element[-1]]) for element in elements]
        if len(self._origins) > 1:
            raise UserError(
                f"the rows come from {' and '.join(self._origins)}, and it is not kept from which; give WindowBolt(sources=True)"
            )
        (origin,) = self._origins.values()
        return [Tuple(element, origin) for element in elements]


def source_name(component: str, stream: str) -> str:
    """Return what an element ends with whose source is kept. It is in snapshots; neither name has a slash."""
    return f"{component}/{stream}"


def difference(elements: Sequence[Element], others: Sequence[Element]) -> list[Element]:
    """Return the elements that are not among the others, in order; of equal ones the first are taken to be the same."""
    left = Counter(map(_hashable, others))
    found = []
    for element in elements:
        key = _hashable(element)
        if left[key]:
            left[key] -= 1
        else:
            found.append(element)
    return found


def _hashable(element: Element) -> Hashable:
    try:
        hash(element)
    except TypeError:
        return repr(element)
    return element
