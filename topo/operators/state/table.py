"""The table of keyed state: cells addressed by namespace and key.

The public methods of `StateTable` are the whole of what a store has to offer; everything that users see is built on it. It keeps
cells in dicts. A store on disk would be another implementation, whose cells are encoded in `put` and decoded in `get`.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from weakref import ref

from topo.hot import ATOMS
from topo.operators.state.deep_copy import independent, independent_rows


@dataclass(slots=True, weakref_slot=True, eq=False)
class Frozen:
    """The cells of a table at one moment, by namespace and key."""

    cells: dict[Any, dict[Any, Any]]


class StateTable:
    """The cells of one state, in one dict for each namespace: where many keys share one, cheaper than a single dict by pairs.

    No cell is None. Owner thread only.

    Freezing copies the dicts and not the cells in them: a cell that is read while a frozen copy is still in use is
    replaced by a copy first, since its reader may change it in place. Not so cells that are changed through
    `rows`, past `get`: of a table that has given any away everything is copied at once.
    """

    __slots__ = ("_frozen", "_gave_rows", "_given", "_namespaces")

    def __init__(self) -> None:
        self._namespaces: dict[Hashable, dict[Any, Any]] = {}
        self._gave_rows = False
        self._given: set[Hashable] = set()
        """Namespaces whose rows are with a caller: they stay where they are, also when they are empty."""
        self._frozen: ref[Frozen] | None = None
        """Snapshots that share cells with the table."""

    def get(self, namespace: Hashable, key: Hashable) -> Any:
        """Return the cell, or None."""
        return self._own(namespace, key)

    def put(self, namespace: Hashable, key: Hashable, cell: Any) -> None:
        """Set the cell. Called after every change, also when a mutable cell from `get` was changed in place."""
        self.load(namespace, key, cell)

    def load(self, namespace: Hashable, key: Hashable, cell: Any) -> None:
        """Set a cell that has been restored: no change of the call at hand."""
        rows = self._namespaces.get(namespace)
        if rows is None:
            self._namespaces[namespace] = {key: cell}
        else:
            rows[key] = cell

    def delete(self, namespace: Hashable, key: Hashable) -> None:
        """Drop the cell; nothing happens when there is none."""
        self._drop(namespace, key)

    def peek(self, namespace: Hashable, key: Hashable) -> Any:
        """Return the cell, or None; the caller neither changes it in place nor gives it, or its contents, to others."""
        rows = self._namespaces.get(namespace)
        return None if rows is None else rows.get(key)

    def extend(self, namespace: Hashable, key: Hashable, elements: Collection[Any]) -> None:
        """Append to a cell that is a list, or make one. As `put` but cheaper: its cost does not grow with the cell."""
        cell = self._own(namespace, key)
        if cell is None:
            self.load(namespace, key, list(elements))
        else:
            cell.extend(elements)

    def splice(self, namespace: Hashable, key: Hashable, start: int, stop: int, elements: Collection[Any]) -> None:
        """Replace a slice of a cell that is a list (none there counts as empty) of elements that never change; drop an empty one.

        As `put` but cheaper: the caller finds the slice, and only elements behind it move. A cell
        that becomes empty is dropped as it is.
        """
        rows = self._namespaces.get(namespace)
        cell = None if rows is None else rows.get(key)
        if rows is None or cell is None:
            if elements:
                self.load(namespace, key, list(elements))
        elif stop - start >= len(cell) and not elements:
            self._drop(namespace, key)
        else:
            if self._frozen is not None and self._shares(namespace, key, cell):
                cell = rows[key] = cell.copy()
            cell[start:stop] = elements

    def entry(self, namespace: Hashable, key: Hashable, entry: Hashable, default: Any) -> Any:
        """Return one value of a cell that is a dict, or the default."""
        cell = self.peek(namespace, key)
        if cell is None or entry not in cell:
            return default
        value = cell[entry]
        # A value that can be changed in place must not be shared.
        return value if type(value) in ATOMS else self._own(namespace, key)[entry]

    def put_entry(self, namespace: Hashable, key: Hashable, entry: Hashable, value: Any) -> None:
        """Set one value of a cell that is a dict, or make one; its cost does not grow with the cell."""
        cell = self._own(namespace, key)
        if cell is None:
            self.load(namespace, key, {entry: value})
        else:
            cell[entry] = value

    def remove_entry(self, namespace: Hashable, key: Hashable, entry: Hashable) -> None:
        """Drop one value of a cell that is a dict, and the cell with the last one; nothing happens when there is none."""
        self.forget(namespace, key, entry)

    def forget(self, namespace: Hashable, key: Hashable, entry: Hashable) -> None:
        """As `remove_entry`, of a value that has expired: no change of the call at hand."""
        cell = self._own(namespace, key)
        if cell is not None:
            cell.pop(entry, None)
            if not cell:
                self._drop(namespace, key)

    def rows(self, namespace: Hashable) -> dict[Any, Any]:
        """Return the cells of one namespace by key, to read and change many at once; they stay the table's until `give_back`."""
        self._gave_rows = True
        self._given.add(namespace)
        rows = self._namespaces.setdefault(namespace, {})
        if self._is_shared:
            rows.update(independent_rows(rows))
        return rows

    def give_back(self, namespace: Hashable) -> None:
        """End the use of what `rows` has returned; nothing happens when it was not called."""
        self._given.discard(namespace)
        if not self._namespaces.get(namespace, True):
            del self._namespaces[namespace]

    def namespaces(self) -> list[Any]:
        """Return the namespaces that have cells."""
        return [namespace for namespace, rows in self._namespaces.items() if rows]

    def keys(self, namespace: Hashable) -> list[Any]:
        """Return the keys of one namespace, in the order in which their cells were made."""
        return list(self._namespaces.get(namespace, ()))

    def discard(self, namespace: Hashable, keys: Iterable[Any]) -> None:
        """Drop cells of one namespace: no change of the call at hand."""
        rows = self._namespaces.get(namespace)
        if rows is not None:
            for key in keys:
                rows.pop(key, None)
            if not rows and namespace not in self._given:
                del self._namespaces[namespace]

    def items(self) -> Iterator[tuple[Any, Any, Any]]:
        """Yield (namespace, key, cell) of every cell; the table must not be changed meanwhile."""
        for namespace, rows in self._namespaces.items():
            for key, cell in rows.items():
                yield namespace, key, cell

    def frozen(self) -> Frozen:
        """Return all cells as they are now; they stay so, whatever is changed in place, as long as it is referred to."""
        if self._gave_rows or self._is_shared:
            return Frozen({namespace: independent_rows(rows) for namespace, rows in self._namespaces.items()})
        frozen = Frozen({namespace: dict(rows) for namespace, rows in self._namespaces.items()})
        self._frozen = ref(frozen)
        return frozen

    @property
    def _is_shared(self) -> bool:
        return self._frozen is not None and self._frozen() is not None

    def _own(self, namespace: Hashable, key: Hashable) -> Any:
        """Return the cell, or None; if it can be changed in place it is the table's own from now on."""
        rows = self._namespaces.get(namespace)
        if rows is None:
            return None
        cell = rows.get(key)
        if type(cell) not in ATOMS and self._shares(namespace, key, cell):
            cell = rows[key] = independent(cell)
        return cell

    def _shares(self, namespace: Hashable, key: Hashable, cell: Any) -> bool:
        """Whether the frozen copy holds this very cell."""
        if self._frozen is None:
            return False
        frozen = self._frozen()
        if frozen is None:
            self._frozen = None
            return False
        return frozen.cells.get(namespace, {}).get(key) is cell

    def _drop(self, namespace: Hashable, key: Hashable) -> None:
        rows = self._namespaces.get(namespace)
        if rows is not None:
            rows.pop(key, None)
            if not rows and namespace not in self._given:
                del self._namespaces[namespace]

    def __len__(self) -> int:
        return sum(map(len, self._namespaces.values()))
