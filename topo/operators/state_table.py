"""Where keyed state lies: cells addressed by namespace and key.

`StateTable` is the whole of what a store has to offer; everything that users see is built on it. `MemoryTable` keeps cells in
dicts. A store on disk is another implementation, whose cells are encoded in `put` and decoded in `get`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, MutableMapping
from typing import Any

from topo.operators.independent import independent_rows


class StateTable(ABC):
    """The cells of one state. No cell is None. Owner thread only."""

    @abstractmethod
    def get(self, namespace: Hashable, key: Hashable) -> Any:
        """Return the cell, or None."""

    @abstractmethod
    def put(self, namespace: Hashable, key: Hashable, cell: Any) -> None:
        """Set the cell. Called after every change, also when a mutable cell from `get` was changed in place."""

    @abstractmethod
    def delete(self, namespace: Hashable, key: Hashable) -> None:
        """Drop the cell; nothing happens when there is none."""

    @abstractmethod
    def rows(self, namespace: Hashable) -> MutableMapping[Any, Any]:
        """Return the cells of one namespace by key, to read and change many at once.

        It stands for the table until the next call of `delete`, after which it has to be asked for again.
        """

    @abstractmethod
    def items(self) -> Iterator[tuple[Any, Any, Any]]:
        """Yield (namespace, key, cell) of every cell; the table must not be changed meanwhile."""

    @abstractmethod
    def copied(self) -> dict[Any, dict[Any, Any]]:
        """Return all cells, by namespace and key, as they are now and stay, whatever is changed in place."""

    @abstractmethod
    def __len__(self) -> int:
        """How many cells there are."""


class MemoryTable(StateTable):
    """Cells in one dict for each namespace: where many keys share one, cheaper than a single dict by pairs."""

    __slots__ = ("_namespaces",)

    def __init__(self) -> None:
        self._namespaces: dict[Hashable, dict[Any, Any]] = {}

    def get(self, namespace: Hashable, key: Hashable) -> Any:
        rows = self._namespaces.get(namespace)
        return None if rows is None else rows.get(key)

    def put(self, namespace: Hashable, key: Hashable, cell: Any) -> None:
        rows = self._namespaces.get(namespace)
        if rows is None:
            self._namespaces[namespace] = {key: cell}
        else:
            rows[key] = cell

    def delete(self, namespace: Hashable, key: Hashable) -> None:
        rows = self._namespaces.get(namespace)
        if rows is not None:
            rows.pop(key, None)
            if not rows:
                del self._namespaces[namespace]

    def rows(self, namespace: Hashable) -> MutableMapping[Any, Any]:
        return self._namespaces.setdefault(namespace, {})

    def items(self) -> Iterator[tuple[Any, Any, Any]]:
        for namespace, rows in self._namespaces.items():
            for key, cell in rows.items():
                yield namespace, key, cell

    def copied(self) -> dict[Any, dict[Any, Any]]:
        return {namespace: independent_rows(rows) for namespace, rows in self._namespaces.items()}

    def __len__(self) -> int:
        return sum(map(len, self._namespaces.values()))
