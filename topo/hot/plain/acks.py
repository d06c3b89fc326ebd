"""Values that a task owes for roots: one for each root, the XOR of all that were folded into it."""

from __future__ import annotations

from collections.abc import Iterable

from topo.hot.plain.words import Column, pack_words, unpack_words


class Acks:
    """Roots and values, folded, in the order in which the roots first came."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._values)

    def fold(self, roots: Column, values: Column) -> None:
        """Fold a value for each root. Rows of one message mostly are neighbours: runs are folded before the lookup."""
        owed = self._values
        get = owed.get
        last = value = 0
        for root, edge in zip(unpack_words(roots), unpack_words(values), strict=True):
            if root == last:
                value ^= edge
            else:
                if last:
                    owed[last] = get(last, 0) ^ value
                last, value = root, edge
        if last:
            owed[last] = get(last, 0) ^ value

    def add(self, roots: Iterable[int], edges: Iterable[int], out: int = 0) -> None:
        """Fold an input: for each of its roots its edge, and the XOR `out` of the edges that are anchored on it."""
        owed = self._values
        for root, edge in zip(roots, edges, strict=True):
            owed[root] = owed.get(root, 0) ^ edge ^ out

    def merge(self, other: Acks) -> None:
        """Move all values of another one here; it is empty then."""
        if not self._values:
            self._values, other._values = other._values, self._values
            return
        owed = self._values
        for root, value in other._values.items():
            owed[root] = owed.get(root, 0) ^ value
        other._values.clear()

    def take(self) -> tuple[Column, Column]:
        """Return roots and values, and forget them."""
        owed, self._values = self._values, {}
        return pack_words(owed), pack_words(owed.values())

    def clear(self) -> None:
        """Forget everything."""
        self._values.clear()
