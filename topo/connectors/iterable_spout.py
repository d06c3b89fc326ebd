"""A spout that emits the items of an iterable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Protocol

from topo.api.arguments import texts_of
from topo.api.context import TaskContext
from topo.api.spout import RetryingSpout, SpoutCollector
from topo.errors import UserError
from topo.user_errors import blame

_MOST_AT_ONCE = 64
"""Items that are skipped between two looks at the time: each may take long to come."""
_UNORDERED = (set, frozenset)
"""Texts have other hashes in each process, and with them another order."""


class ItemCollector(SpoutCollector, Protocol):
    """The collector of a spout that passes over items."""

    def pass_over(self, message_id: Any, record: Any, error: Exception | None) -> None:
        """Make a dead letter of a record, in a call that emits nothing."""


def items_problem(items: Any) -> str | None:
    """Return why something cannot be read, and again after a restart, and the fix; None where it can."""
    shown = f"{items!r:.60} ({type(items).__name__})"
    if isinstance(items, Iterator):
        why = "an iterator, and items are read again after a crash"
        return f"{shown}, {why}; give a list, or the function that makes it"
    if isinstance(items, _UNORDERED):
        return f"{shown}, whose order is another one in each process; give a list in a fixed order, such as sorted(...)"
    can_be_read = callable(items) or isinstance(items, Iterable) or hasattr(items, "__getitem__")
    return None if can_be_read else f"{shown}; give an iterable, or a function that returns one"


class IterableSpout(RetryingSpout):
    """Emits the items of an iterable, then ends. An item's position is its index.

    Several tasks share the items in turn: of n tasks the first takes items 0, n, 2n, ... Each task iterates over all of them,
    and after a restart it iterates again up to where it was, so the iterable must give the same items each time. That counts as
    progress, however long it takes, and `topo status` shows it. An iterator, such as a generator, can be read only once and is
    refused; give the function that makes it. A set has another order in each process and is refused, too; give `sorted(...)`.

    An item that cannot be emitted is a dead letter. An iterable that raises is read again after a pause, up to where it was.
    """

    declared_at: tuple[str, int] | None = None
    """File and line where it is added to a topology, for errors in which nothing else is the user's, such as those of an item."""

    def __init__(self, items: Iterable[Any] | Callable[[], Iterable[Any]], fields: Sequence[str] = ("value",)) -> None:
        """Keep what to emit.

        Args:
            items: an iterable, or a function without arguments that returns one. With one field an item is the value itself,
                with several it is a sequence of values.
            fields: names of the fields.

        Raises:
            UserError: the items could be read only once, or not at all.
        """
        if (problem := items_problem(items)) is not None:
            raise UserError(f"IterableSpout was given {problem}")
        if isinstance(fields, str) and len(fields) > 1:
            raise UserError(
                f"IterableSpout was given fields={fields!r}, of which each character would be a name; give ({fields!r},)"
            )
        self.outputs = self._fields = texts_of("fields", fields, ("user", "cents"))
        self._is_single = len(self._fields) == 1
        self._items = items
        self._row_of: Callable[[Any], Sequence[Any]] = self._values
        self._row_class: type | None = tuple
        """Items of this class are rows."""

    def convert(self, row_of: Callable[[Any], tuple[Any, ...]]) -> None:
        """Have a function make the row of each item. It raises for an item that cannot be emitted."""
        self._row_of, self._row_class, self._is_single = row_of, None, False

    def open(self, context: TaskContext, collector: SpoutCollector) -> None:
        """Begin after the committed position."""
        self._collector: ItemCollector = collector  # type: ignore[assignment]
        self._stride = context.parallelism
        done = context.committed_position
        self._next = context.task_index if done is None else done + self._stride
        self._context = context
        self._begin()

    def _begin(self) -> None:
        """Iterate from the first item on."""
        items: Any = self._items() if callable(self._items) else self._items
        is_readable = isinstance(items, Iterable) or hasattr(items, "__getitem__")
        if callable(self._items) and (not is_readable or isinstance(items, _UNORDERED)):
            how = "return a list of them" if not is_readable else "return them in a fixed order, such as sorted(...)"
            error = UserError(f"the function of the items returned {items!r:.60} ({type(items).__name__}); {how}")
            blame(error, self._items)
            raise error
        self._all: Iterator[Any] | None = iter(items)
        self._to_skip, self._at_once = self._next, 1
        # Until the position is reached there is nothing to emit.
        self._remaining: Iterator[Any] = iter(()) if self._to_skip else islice(self._all, 0, None, self._stride)

    def next_tuple(self) -> None:
        """Emit the next item."""
        try:
            item = next(self._remaining)
        except StopIteration:
            if self._all is None:
                self._begin()
            elif not self._to_skip:
                self._collector.end_of_input()
            elif self._skip(self._all):
                self.next_tuple()
            return
        except BaseException:
            self._break_off()
            raise
        try:
            # A look at the class of an item costs as much as all else.
            values: Any = (item,) if self._is_single else item if type(item) is self._row_class else self._row_of(item)
            self._collector.emit(values, self._next)
        except Exception as error:
            self._collector.report_error(error)
            self._collector.pass_over(self._next, item, error)
        self._next += self._stride

    def _break_off(self) -> None:
        """Have the next call iterate again: a generator that has raised is over."""
        self._all, self._remaining = None, iter(())

    def _values(self, item: Any) -> tuple[Any, ...]:
        """Return the values of an item, one for each field. The keys of a mapping are none."""
        if not isinstance(item, Mapping):
            with suppress(TypeError):
                return tuple(item)
        raise UserError(
            f"item {self._next} is {item!r:.60} ({type(item).__name__}), and the spout has the fields {', '.join(self._fields)}: "
            f"give a sequence of {len(self._fields)} values"
        )

    def _skip(self, items: Iterator[Any]) -> bool:
        """Skip items before the position, for as long as the worker can wait; return whether it is reached."""
        while self._to_skip:
            try:
                skipped = sum(1 for _ in islice(items, min(self._at_once, self._to_skip)))
            except BaseException:
                self._break_off()
                raise
            self._to_skip = self._to_skip - skipped if skipped else 0
            if self._context.progress() and self._to_skip:
                self._at_once = max(1, self._at_once // 4)
                at = self._next - self._to_skip
                self._context.progress(f"skipping to item {self._next:,}, where it left off; at {at:,}")
                return False
            self._at_once = min(2 * self._at_once, _MOST_AT_ONCE)
        self._remaining = islice(items, 0, None, self._stride)
        return True
