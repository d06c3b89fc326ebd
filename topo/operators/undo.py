"""Taking back what a call of user code has changed in keyed state and timers before it raised, so that it can be repeated.

A log holds what the call at hand has touched: for each cell what it was before, for each timer its opposite. It costs something
for each cell touched, so only operators have one whose calls are repeated in place.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from topo.operators.independent import ATOMS, independent
from topo.operators.state_table import MemoryTable


class UndoLog:
    """What the call at hand has changed."""

    __slots__ = ("_steps", "_touched")

    def __init__(self) -> None:
        self._steps: list[Callable[[], object]] = []
        self._touched: set[Hashable] = set()

    def begin(self) -> None:
        """A call begins: what was changed before stays."""
        if self._steps:
            self._steps.clear()
            self._touched.clear()

    def note(self, step: Callable[[], object]) -> None:
        """Remember what takes a change back."""
        self._steps.append(step)

    def touches(self, address: Hashable) -> bool:
        """Whether this is the first change at an address in the call at hand."""
        if address in self._touched:
            return False
        self._touched.add(address)
        return True

    def undo(self) -> None:
        """Take everything back that was changed since `begin`, the last change first."""
        while self._steps:
            self._steps.pop()()
        self._touched.clear()


class UndoableTable(MemoryTable):
    """A table in memory whose changes are noted in a log; those made through `rows` are not."""

    __slots__ = ("_log",)

    def __init__(self, log: UndoLog) -> None:
        super().__init__()
        self._log = log

    def get(self, namespace: Hashable, key: Hashable) -> Any:
        cell = super().get(namespace, key)
        # Whoever gets it may change it in place, and put it back then.
        if cell is not None and type(cell) not in ATOMS:
            self._note(namespace, key, cell)
        return cell

    def put(self, namespace: Hashable, key: Hashable, cell: Any) -> None:
        self._note(namespace, key, super().get(namespace, key))
        super().put(namespace, key, cell)

    def delete(self, namespace: Hashable, key: Hashable) -> None:
        self._note(namespace, key, super().get(namespace, key))
        super().delete(namespace, key)

    def _note(self, namespace: Hashable, key: Hashable, cell: Any) -> None:
        if self._log.touches((id(self), namespace, key)):
            before = independent(cell)
            if before is None:
                self._log.note(lambda: MemoryTable.delete(self, namespace, key))
            else:
                self._log.note(lambda: MemoryTable.put(self, namespace, key, before))
