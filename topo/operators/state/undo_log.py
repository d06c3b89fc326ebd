"""Undoes the changes of a call that has raised to keyed state, timers and output, so that it can be repeated.

A log holds the changes of the current call: for each cell its former value, for each timer the opposite change. Each changed cell
costs something, so only operators whose calls are repeated in place have one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from enum import Enum
from typing import Any, Protocol

from topo.hot import ATOMS
from topo.operators.state.deep_copy import independent
from topo.operators.state.table import StateTable


class Rewindable(Protocol):
    """Output that can be taken back."""

    def mark(self) -> Any:
        """Return how far the output has come."""

    def rewind(self, mark: Any) -> None:
        """Take back the output since a mark."""


class UndoLog:
    """The changes of the current call.

    Args:
        output: taken back as well; None: the driver does that.
    """

    __slots__ = ("_mark", "_output", "_steps", "_touched")

    def __init__(self, output: Rewindable | None = None) -> None:
        self._output = output
        self._mark: Any = None if output is None else output.mark()
        self._steps: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self._touched: set[Hashable] = set()

    def begin(self) -> None:
        """Begin a call: earlier changes stay."""
        if self._steps:
            self._steps.clear()
            self._touched.clear()
        if self._output is not None:
            self._mark = self._output.mark()

    def note(self, step: Callable[..., object], *arguments: Any) -> None:
        """Remember the call that takes a change back. Arguments are cheaper than a closure: many notes are made, few are used."""
        self._steps.append((step, arguments))

    def touches(self, address: Hashable) -> bool:
        """Whether this is the first change at an address in the call at hand."""
        if address in self._touched:
            return False
        self._touched.add(address)
        return True

    def undo(self) -> None:
        """Take back all changes since `begin`, the last one first, then the output."""
        while self._steps:
            step, arguments = self._steps.pop()
            step(*arguments)
        self._touched.clear()
        if self._output is not None:
            self._output.rewind(self._mark)


class UndoableTable(StateTable):
    """A table in memory whose changes are noted in a log; those made through `rows` are not.

    What may be changed in place is copied before it is given away, whole. Appending to a list and setting an entry of a map note
    only what they change, and cost the same whatever the size.
    """

    __slots__ = ("_log",)

    def __init__(self, log: UndoLog) -> None:
        super().__init__()
        self._log = log

    def get(self, namespace: Hashable, key: Hashable) -> Any:
        cell = self._own(namespace, key)
        # The caller may change it in place, and put it back then.
        if type(cell) not in ATOMS and self._log.touches((id(self), namespace, key)):
            self._note(namespace, key, independent(cell))
        return cell

    def put(self, namespace: Hashable, key: Hashable, cell: Any) -> None:
        self._note_as_it_is(namespace, key)
        self.load(namespace, key, cell)

    def delete(self, namespace: Hashable, key: Hashable) -> None:
        self._note_as_it_is(namespace, key)
        self._drop(namespace, key)

    def extend(self, namespace: Hashable, key: Hashable, elements: Collection[Any]) -> None:
        cell = self.peek(namespace, key)
        if cell is None:
            self._note_as_it_is(namespace, key)
        elif self._log.touches((id(self), namespace, key, _LENGTH)):
            length = len(cell)
            self._log.note(self._shorten, namespace, key, length)
        super().extend(namespace, key, elements)

    def splice(self, namespace: Hashable, key: Hashable, start: int, stop: int, elements: Collection[Any]) -> None:
        rows = self._namespaces.get(namespace)
        cell = None if rows is None else rows.get(key)
        if cell is None:
            self._log.note(self._drop, namespace, key)
        elif stop - start >= len(cell) and not elements:
            # It leaves the table as it is.
            self._log.note(self.load, namespace, key, cell)
        else:
            self._log.note(StateTable.splice, self, namespace, key, start, start + len(elements), cell[start:stop])
        StateTable.splice(self, namespace, key, start, stop, elements)

    def entry(self, namespace: Hashable, key: Hashable, entry: Hashable, default: Any) -> Any:
        value = super().entry(namespace, key, entry, default)
        if type(value) not in ATOMS and value is not default:
            self._note_entry(namespace, key, entry)
        return value

    def put_entry(self, namespace: Hashable, key: Hashable, entry: Hashable, value: Any) -> None:
        if self.peek(namespace, key) is None:
            self._note_as_it_is(namespace, key)
        else:
            self._note_entry(namespace, key, entry)
        super().put_entry(namespace, key, entry, value)

    def remove_entry(self, namespace: Hashable, key: Hashable, entry: Hashable) -> None:
        cell = self.peek(namespace, key)
        if cell is None or entry not in cell:
            return
        if len(cell) == 1:
            self.delete(namespace, key)
            return
        self._note_entry(namespace, key, entry)
        # The entry goes back to its place; its value, if it was set in this call, is taken back after that. The places that are
        # known without a look at all entries are those of queues and stacks.
        value, order = cell[entry], None
        is_first = next(iter(cell)) == entry
        if not is_first and next(reversed(cell)) != entry:
            order = list(cell)
        self._log.note(self._put_back, namespace, key, entry, value, is_first, order)
        self.forget(namespace, key, entry)

    def _note_as_it_is(self, namespace: Hashable, key: Hashable) -> None:
        """Note a cell that leaves the table, so that it is no longer changed, or that there is none."""
        if self._log.touches((id(self), namespace, key)):
            self._note(namespace, key, self.peek(namespace, key))

    def _note(self, namespace: Hashable, key: Hashable, before: Any) -> None:
        if before is None:
            self._log.note(self._drop, namespace, key)
        else:
            self._log.note(self.load, namespace, key, before)

    def _note_entry(self, namespace: Hashable, key: Hashable, entry: Hashable) -> None:
        if self._log.touches((id(self), namespace, key, _ENTRY, entry)):
            before = independent((self.peek(namespace, key) or {}).get(entry, _ABSENT))
            if before is _ABSENT:
                self._log.note(self.forget, namespace, key, entry)
            else:
                self._log.note(StateTable.put_entry, self, namespace, key, entry, before)

    def _shorten(self, namespace: Hashable, key: Hashable, length: int) -> None:
        cell = self._own(namespace, key)
        if cell is not None:
            del cell[length:]

    def _put_back(
        self, namespace: Hashable, key: Hashable, entry: Hashable, value: Any, is_first: bool, order: list[Any] | None
    ) -> None:
        cell = self._own(namespace, key) or {}
        if is_first:
            cell = {entry: value, **cell}
        else:
            cell[entry] = value
            if order is not None:
                cell = {one: cell[one] for one in order if one in cell}
        self.load(namespace, key, cell)


class _Absent(Enum):
    ABSENT = 0


_ABSENT = _Absent.ABSENT
_LENGTH, _ENTRY = object(), object()
