"""The handles of keyed state: what operators and users read and write with.

A handle reads and writes the cell of the current key, which the operator's driver sets in `KeyContext`, and of its
`namespace`. Where the state has a time to live its cells are stamped: a stamped value is (value, first millisecond at which it is
gone), and each element of a list and each entry of a map has its own stamp.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from topo.api.aggregates import AggregateFunction
from topo.errors import UserError
from topo.keys import DEFAULT_MAX_PARALLELISM, key_group
from topo.operators.state.deep_copy import independent
from topo.operators.state.table import StateTable

_SWEPT_PER_WRITE = 2
_REMEMBERED_GROUPS = 1 << 16


class KeyGroups(dict[Any, int]):
    """Key groups by key, remembered because working one out takes microseconds, and each snapshot looks up all keys.

    Former keys are remembered, too, up to 65,536 keys in all, or up to twice the number of keys in state.
    """

    def __init__(self, max_parallelism: int) -> None:
        self._max_parallelism = max_parallelism
        self._most = _REMEMBERED_GROUPS

    def note_keys(self, keys: int) -> None:
        """Take note of the number of keys in state."""
        self._most = max(self._most, 2 * keys)

    def __missing__(self, key: Any) -> int:
        if len(self) >= self._most:
            self.clear()
        group = self[key] = key_group(key, self._max_parallelism)
        return group


class KeyContext:
    """The key that an operator is at work for.

    Attributes:
        key: the key; None before the first.
        group_of: the key group of any key.
    """

    __slots__ = ("group_of", "key")

    def __init__(self, max_parallelism: int = DEFAULT_MAX_PARALLELISM) -> None:
        self.key: Any = None
        self.group_of = KeyGroups(max_parallelism)


class Kind:
    """The format of the cells of a kind of state; by default the cell itself is the value."""

    def __init__(self, name: str) -> None:
        self.name = name

    def live(self, cell: Any, now_ms: int) -> Any:
        """Return what of a stamped cell has not expired, or None."""
        return cell if cell[1] > now_ms else None

    def copy(self, cell: Any) -> Any:
        """Return a cell that does not change when this one does."""
        return independent(cell)


class ListKind(Kind):
    def live(self, cell: Any, now_ms: int) -> Any:
        if all(expires > now_ms for _, expires in cell):
            return cell
        return [stamped for stamped in cell if stamped[1] > now_ms] or None

    def copy(self, cell: Any) -> Any:
        return [independent(element) for element in cell]


class MapKind(Kind):
    def live(self, cell: Any, now_ms: int) -> Any:
        if all(expires > now_ms for _, expires in cell.values()):
            return cell
        return {entry: stamped for entry, stamped in cell.items() if stamped[1] > now_ms} or None

    def copy(self, cell: Any) -> Any:
        return {entry: independent(value) for entry, value in cell.items()}


VALUE, LIST, MAP, REDUCING, AGGREGATING = Kind("value"), ListKind("list"), MapKind("map"), Kind("reducing"), Kind("aggregating")


class Ageing:
    """When the cells of one state expire."""

    def __init__(self, table: StateTable, kind: Kind, lifetime_ms: int, refresh_on_read: bool, now_ms: Callable[[], int]) -> None:
        self.now_ms = now_ms
        self.refresh_on_read = refresh_on_read
        self._table = table
        self._kind = kind
        self._lifetime_ms = lifetime_ms
        self._to_sweep: Iterator[tuple[Any, Any, Any]] = iter(())

    def stamp(self, value: Any) -> tuple[Any, int]:
        return value, self.now_ms() + self._lifetime_ms

    def sweep(self) -> None:
        """Check a few values and drop those that have expired; each value gets its turn, read or not."""
        now_ms = self.now_ms()
        for _ in range(_SWEPT_PER_WRITE):
            address = next(self._to_sweep, None)
            if address is None:
                self._to_sweep = self._addresses()
                return
            namespace, key, entry = address
            cell = self._table.peek(namespace, key)
            if cell is None:
                continue
            if self._kind is MAP:
                if entry in cell and cell[entry][1] <= now_ms:
                    self._table.forget(namespace, key, entry)
            elif (cell[0] if self._kind is LIST else cell)[1] <= now_ms:
                live = self._kind.live(cell, now_ms)
                if live is None:
                    self._table.delete(namespace, key)
                else:
                    self._table.put(namespace, key, live)

    def _addresses(self) -> Iterator[tuple[Any, Any, Any]]:
        """Yield namespace and key of each cell there is now, and of a map's each entry."""
        for namespace, key in [(namespace, key) for namespace, key, _ in self._table.items()]:
            if self._kind is MAP:
                for entry in list(self._table.peek(namespace, key) or ()):
                    yield namespace, key, entry
            else:
                yield namespace, key, None


class _Handle:
    """Base of all handles.

    Attributes:
        namespace: read and written beside the current key; None where there is no namespace.
    """

    __slots__ = ("_ageing", "_keys", "_table", "namespace")

    def __init__(self, keys: KeyContext, table: StateTable, ageing: Ageing | None) -> None:
        self.namespace: Hashable = None
        self._keys = keys
        self._table = table
        self._ageing = ageing

    def clear(self) -> None:
        """Drop the values of the current key and namespace."""
        self._table.delete(self.namespace, self._keys.key)

    @property
    def table(self) -> StateTable:
        """The cells themselves (for an aggregating state: accumulators), to work on in bulk.

        Raises:
            UserError: the state has a time to live.
        """
        if self._ageing is not None:
            raise UserError("a state with a time to live has no table: its entries have to be looked at one by one")
        return self._table


class _SingleHandle(_Handle):
    """A handle whose cell is one value."""

    __slots__ = ()

    def _read(self, namespace: Hashable) -> Any:
        cell = self._table.get(namespace, self._keys.key)
        ageing = self._ageing
        if cell is None or ageing is None:
            return cell
        value, expires = cell
        if expires <= ageing.now_ms():
            self._table.delete(namespace, self._keys.key)
            return None
        if ageing.refresh_on_read:
            self._table.put(namespace, self._keys.key, ageing.stamp(value))
        return value

    def _write(self, namespace: Hashable, value: Any) -> None:
        if value is None:
            self._table.delete(namespace, self._keys.key)
        elif self._ageing is None:
            self._table.put(namespace, self._keys.key, value)
        else:
            self._table.put(namespace, self._keys.key, self._ageing.stamp(value))
            self._ageing.sweep()

    def _merge(self, target: Hashable, sources: Iterable[Hashable], combine: Callable[[Any, Any], Any]) -> None:
        merged = self._read(target)
        for source in sources:
            value = None if source == target else self._read(source)
            if value is not None:
                self._table.delete(source, self._keys.key)
                merged = value if merged is None else combine(merged, value)
        self._write(target, merged)


class ValueState(_SingleHandle):
    """One value. Setting None is clearing it."""

    __slots__ = ("_default",)

    def __init__(self, keys: KeyContext, table: StateTable, ageing: Ageing | None, default: Any) -> None:
        super().__init__(keys, table, ageing)
        self._default = default

    def get(self) -> Any:
        """Return the value, or the default given with the state's name."""
        value = self._read(self.namespace)
        return self._default if value is None else value

    def set(self, value: Any) -> None:
        """Keep `value`. A list, or one in it, is a tuple after a checkpoint was restored."""
        self._write(self.namespace, value)


class SortedState(_Handle):
    """A sorted list of elements that never change, as one value: cheap to search and to change in one place."""

    __slots__ = ()

    def get(self) -> Sequence[Any]:
        """Return the elements, not to be changed; they show what `splice` does, but not that it removes all."""
        return self._table.peek(self.namespace, self._keys.key) or ()

    def splice(self, start: int, stop: int, elements: Collection[Any]) -> None:
        """Replace the elements from `start` up to `stop`, both between 0 and the length; the caller keeps the order."""
        self._table.splice(self.namespace, self._keys.key, start, stop, elements)

    def decode(self, decode: Callable[[Any], list[Any]]) -> None:
        """Replace the list of every key after a restore by what `decode` makes of it."""
        for namespace, key, cell in list(self._table.items()):
            self._table.load(namespace, key, decode(cell))


class ReducingState(_SingleHandle):
    """All that was added, reduced to one value of the same kind, in the order in which it came."""

    __slots__ = ("_reduce",)

    def __init__(self, keys: KeyContext, table: StateTable, ageing: Ageing | None, reduce: Callable[[Any, Any], Any]) -> None:
        super().__init__(keys, table, ageing)
        self._reduce = reduce

    def get(self) -> Any:
        """Return the value, or None when nothing was added."""
        return self._read(self.namespace)

    def add(self, value: Any) -> None:
        """Reduce `value` into the stored value."""
        kept = self._read(self.namespace)
        self._write(self.namespace, value if kept is None else self._reduce(kept, value))

    def merge_namespaces(self, target: Hashable, sources: Iterable[Hashable]) -> None:
        """Move the values of the current key in `sources` to `target`, reduced in this order."""
        self._merge(target, sources, self._reduce)


class AggregatingState(_SingleHandle):
    """The accumulator of an aggregate."""

    __slots__ = ("_aggregate",)

    def __init__(self, keys: KeyContext, table: StateTable, ageing: Ageing | None, aggregate: AggregateFunction) -> None:
        super().__init__(keys, table, ageing)
        self._aggregate = aggregate

    def get(self) -> Any:
        """Return the result, or None when nothing was added."""
        accumulator = self._read(self.namespace)
        return None if accumulator is None else self._aggregate.get_result(accumulator)

    def add(self, value: Any) -> None:
        """Add `value` to the accumulator."""
        accumulator = self._read(self.namespace)
        if accumulator is None:
            accumulator = self._aggregate.create_accumulator()
        self._write(self.namespace, self._aggregate.add(value, accumulator))

    def merge_namespaces(self, target: Hashable, sources: Iterable[Hashable]) -> None:
        """Move the values of the current key in `sources` to `target`, merged in this order."""
        self._merge(target, sources, self._aggregate.merge)


class ListState(_Handle):
    """Elements in the order in which they were added."""

    __slots__ = ()

    def get(self) -> list[Any]:
        """Return the elements as a list of the caller's own; empty when there is none."""
        cell = self._table.get(self.namespace, self._keys.key)
        ageing = self._ageing
        if cell is None:
            return []
        if ageing is None:
            return list(cell)
        now_ms = ageing.now_ms()
        values = [value for value, expires in cell if expires > now_ms]
        if ageing.refresh_on_read or len(values) < len(cell):
            stamped = [ageing.stamp(value) for value in values] if ageing.refresh_on_read else LIST.live(cell, now_ms)
            self._put(stamped)
        return values

    def add(self, value: Any) -> None:
        """Append one element."""
        self.extend((value,))

    def extend(self, values: Iterable[Any]) -> None:
        """Append elements."""
        ageing = self._ageing
        added = list(values) if ageing is None else [ageing.stamp(value) for value in values]
        if added:
            self._table.extend(self.namespace, self._keys.key, added)
        if ageing is not None:
            ageing.sweep()

    def replace(self, values: Iterable[Any]) -> None:
        """Keep these elements instead."""
        values = list(values)
        self.clear()
        if values:
            self.extend(values)

    def merge_namespaces(self, target: Hashable, sources: Iterable[Hashable]) -> None:
        """Append the values of the current key in `sources` to those in `target`, in this order."""
        key = self._keys.key
        merged = self._table.get(target, key) or []
        for source in sources:
            cell = None if source == target else self._table.get(source, key)
            if cell is not None:
                merged.extend(cell)
                self._table.delete(source, key)
        if merged:
            self._table.put(target, key, merged)

    def _put(self, cell: list[Any] | None) -> None:
        if cell:
            self._table.put(self.namespace, self._keys.key, cell)
        else:
            self.clear()


_ABSENT = object()


class MapState(_Handle):
    """Values by entry, in the order in which the entries were made."""

    __slots__ = ()

    def get(self, entry: Hashable, default: Any = None) -> Any:
        """Return the value of an entry, or `default`."""
        address = self.namespace, self._keys.key, entry
        kept = self._table.entry(*address, _ABSENT)
        if kept is _ABSENT:
            return default
        ageing = self._ageing
        if ageing is None:
            return kept
        value, expires = kept
        if expires <= ageing.now_ms():
            self._table.forget(*address)
            return default
        if ageing.refresh_on_read:
            self._table.put_entry(*address, ageing.stamp(value))
        return value

    def put(self, entry: Hashable, value: Any) -> None:
        """Set the value of an entry."""
        ageing = self._ageing
        self._table.put_entry(self.namespace, self._keys.key, entry, value if ageing is None else ageing.stamp(value))
        if ageing is not None:
            ageing.sweep()

    def update(self, entries: Mapping[Any, Any]) -> None:
        """Set several entries."""
        for entry, value in entries.items():
            self.put(entry, value)

    def remove(self, entry: Hashable) -> None:
        """Drop an entry; nothing happens when there is none."""
        self._table.remove_entry(self.namespace, self._keys.key, entry)

    def items(self) -> dict[Any, Any]:
        """Return all entries as a dict of the caller's own."""
        cell = self._cell()
        ageing = self._ageing
        if ageing is None:
            return dict(cell)
        if ageing.refresh_on_read and cell:
            cell = {entry: ageing.stamp(value) for entry, (value, _) in cell.items()}
            self._put(cell)
        return {entry: value for entry, (value, _) in cell.items()}

    def __contains__(self, entry: Hashable) -> bool:
        """Whether there is such an entry; to ask is to read it."""
        if self._ageing is None:
            return entry in (self._table.peek(self.namespace, self._keys.key) or ())
        return self.get(entry, _ABSENT) is not _ABSENT

    def __len__(self) -> int:
        cell = self._table.peek(self.namespace, self._keys.key) or {}
        if self._ageing is None:
            return len(cell)
        now_ms = self._ageing.now_ms()
        return sum(expires > now_ms for _, expires in cell.values())

    def _cell(self) -> dict[Any, Any]:
        cell = self._table.get(self.namespace, self._keys.key)
        if cell is not None and self._ageing is not None:
            live = MAP.live(cell, self._ageing.now_ms())
            if live is not cell:
                self._put(live or {})
            cell = live
        return {} if cell is None else cell

    def _put(self, cell: dict[Any, Any]) -> None:
        if cell:
            self._table.put(self.namespace, self._keys.key, cell)
        else:
            self.clear()
