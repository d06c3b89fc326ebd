"""Groupers: resolved groupings. Which row of a batch goes to which of the subscriber's tasks.

A grouping is what a user declares (`topo.api.groupings`); a grouper is made from it for one subscription of one sending task. It
sees whole batches: `split(rows)` returns `(position, selection)` pairs, where `position` counts the subscriber's tasks and
`selection` is a slice or a list of row indexes. A grouper that `partitions` gives each row to exactly one task.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import accumulate
from math import ceil
from operator import index as as_index
from operator import itemgetter
from typing import Any, Generic, Protocol, TypeVar

from topo.dead_letters.payload import in_words
from topo.emission.shuffle_shares import ShuffleShares
from topo.errors import EmitError
from topo.hot import EVERY_ROW, Column, RowShare, Selection, share
from topo.keys import route_of, second_hash
from topo.user_errors import kind_and_message

R = TypeVar("R")
Rows = Sequence[tuple[Any, ...]]
TargetShare = tuple[int, Selection]

_GOLDEN = 0.618034
"""Of all steps, that of the golden ratio wanders most evenly."""
_REMEMBERED_KEYS = 65_536
"""Routes of keys kept before the memory is dropped and filled again: bounded, whatever the number of keys."""


class Grouper(Protocol):
    """Splits a batch among `n` target tasks."""

    partitions: bool

    def split(self, rows: Rows) -> list[TargetShare]:
        """Return the share of each target that gets any row. Raises EmitError when a row cannot be routed."""
        ...


class OneTarget:
    """Everything to one task: global grouping, or any grouping with a single target."""

    partitions = True

    def __init__(self) -> None:
        self._shares: list[TargetShare] = [(0, EVERY_ROW)]

    def split(self, rows: Rows) -> list[TargetShare]:
        """Give every row to the one target."""
        return self._shares


class EveryTarget:
    """All grouping: each task gets each row."""

    partitions = False

    def __init__(self, targets: int) -> None:
        self._shares: list[TargetShare] = [(position, EVERY_ROW) for position in range(targets)]

    def split(self, rows: Rows) -> list[TargetShare]:
        """Give every row to every target."""
        return self._shares


class ShuffleEdges(Protocol):
    """The edges to the target tasks of a shuffle, as far as it has to know them."""

    def has_room(self, position: int) -> bool:
        """Whether the edge to a task would send a frame at once."""
        ...

    def load(self, position: int) -> int | None:
        """Return the load of a task's worker, in percent; None while it is not known."""
        ...

    @property
    def now(self) -> float:
        """Monotonic seconds."""
        ...


class ShuffleGrouper:
    """Contiguous runs of rows, to targets whose edge has room while any has, and fewer to those whose worker limits the rate."""

    partitions = True

    def __init__(self, positions: Sequence[int], edges: ShuffleEdges, shares: ShuffleShares) -> None:
        self._positions = list(positions)
        self._edges = edges
        self._shares = shares
        self._next = 0
        self._offset = 0.0

    def split(self, rows: Rows) -> list[TargetShare]:
        """Cut the batch into runs by the targets' shares."""
        edges, shares = self._edges, self._shares
        if shares.is_due(edges.now):
            shares.evaluate(list(map(edges.load, self._positions)), edges.now)
        places = [place for place, position in enumerate(self._positions) if edges.has_room(position)]
        if shares.shares is None:
            return self._even(len(rows), [self._positions[place] for place in places] or self._positions)
        places = places or list(range(len(self._positions)))
        return self._uneven(len(rows), places, [shares.shares[place] for place in places])

    def _uneven(self, count: int, places: list[int], shares: list[float]) -> list[TargetShare]:
        """Cut at the bounds of the shares, laid along the rows, from an offset that wanders: so few rows are shared out, too."""
        ends = list(accumulate(shares))
        scale, offset, start = count / ends[-1], self._offset, 0
        self._offset = (offset + _GOLDEN) % 1.0
        runs: list[TargetShare] = []
        for place, end in zip(places, ends, strict=True):
            stop = count if place == places[-1] else max(start, ceil(end * scale - offset))
            if stop > start:
                runs.append((self._positions[place], slice(start, stop)))
                start = stop
        return runs

    def _even(self, count: int, open_positions: list[int]) -> list[TargetShare]:
        """Cut runs that differ by at most one row, starting after the target that was served last."""
        targets = len(open_positions)
        first = self._next % targets
        self._next = first + count
        if count < targets:
            return [(open_positions[(first + i) % targets], slice(i, i + 1)) for i in range(count)]
        bounds = [count * i // targets for i in range(targets + 1)]
        return [(open_positions[(first + i) % targets], slice(bounds[i], bounds[i + 1])) for i in range(targets)]


class KeyGrouper(ABC, Generic[R]):
    """Routes rows by their key; the route of a key is computed once and remembered."""

    partitions = True

    def __init__(
        self, indexes: Sequence[int], targets: int, max_parallelism: int, remembered_keys: int = _REMEMBERED_KEYS
    ) -> None:
        self._remembered_keys = remembered_keys
        self._fields = indexes
        self._targets = targets
        self._max_parallelism = max_parallelism
        self._routes: dict[Any, R] = {}

    @abstractmethod
    def _route(self, key: Any) -> R:
        """Compute the route of a key, to be remembered."""

    def _owner(self, key: Any) -> int:
        return route_of(key, self._max_parallelism, self._targets)

    def routes_of(self, keys: Sequence[Any]) -> list[R]:
        """Return the route of each key. Raises EmitError for a key that cannot be used."""
        try:
            return list(map(self._routes.__getitem__, keys))
        except Exception:
            return [self._look_up(key) for key in keys]

    def _look_up(self, key: Any) -> R:
        try:
            route = self._routes.get(key)
            if route is None:
                route = self._route(key)
                if len(self._routes) >= self._remembered_keys:
                    self._routes.clear()
                self._routes[key] = route
            return route
        except Exception as error:
            raise EmitError(f"a fields grouping cannot use the key {in_words(key)}: {error}") from None


class FieldsGrouper(KeyGrouper[int]):
    """Equal keys to the same task, by key group, so that keyed state can move when the parallelism changes."""

    def _route(self, key: Any) -> int:
        return self._owner(key)

    def split(self, rows: Rows) -> list[TargetShare]:
        """Group the rows by the task that owns their key."""
        return [(position, places) for position, places, *_ in self.share(rows)]

    def share(self, rows: Rows, *columns: Column) -> list[RowShare]:
        """Group the rows, and their words of columns."""
        return share(rows, self._fields, self._routes, self._targets, self._look_up, *columns)


class OneOwner(OneTarget):
    """Grouping by key with a single target. Refuses unusable keys until the first usable one: a look at every key would cost.

    Args:
        check: raises EmitError for a row whose key, or a batch one of whose keys, cannot be used.
    """

    def __init__(self, check: Callable[[tuple[Any, ...]], object]) -> None:
        super().__init__()
        self._check: Callable[[tuple[Any, ...]], object] | None = check

    def split(self, rows: Rows) -> list[TargetShare]:
        """Give every row to the one target. Raises EmitError for the key of the first row, as several targets do."""
        if self._check is not None and rows:
            self._check(rows[0])
            self._check = None
        return super().split(rows)


class PartialKeyGrouper(KeyGrouper[tuple[int, int]]):
    """Each key has two candidate tasks; a row goes to the one this sender has sent less to (power of two choices)."""

    def __init__(
        self, indexes: Sequence[int], targets: int, max_parallelism: int, remembered_keys: int = _REMEMBERED_KEYS
    ) -> None:
        super().__init__(indexes, targets, max_parallelism, remembered_keys)
        self._sent = [0] * targets
        self._key = itemgetter(*indexes)

    def _route(self, key: Any) -> tuple[int, int]:
        first = self._owner(key)
        second = second_hash(key) % (self._targets - 1)
        return first, second + (second >= first)

    def split(self, rows: Rows) -> list[TargetShare]:
        """Send each row to the less used of its key's two candidates."""
        sent = self._sent
        shares: list[list[int]] = [[] for _ in sent]
        for index, (first, second) in enumerate(self.routes_of(list(map(self._key, rows)))):
            chosen = second if sent[second] < sent[first] else first
            sent[chosen] += 1
            shares[chosen].append(index)
        return [(position, share) for position, share in enumerate(shares) if share]


class CustomGrouper:
    """A user's grouping: `choose(values)` names one or several positions for each row."""

    partitions = False

    def __init__(self, choose: Callable[[tuple[Any, ...]], Sequence[int]], targets: int) -> None:
        self._choose = choose
        self._targets = targets

    def split(self, rows: Rows) -> list[TargetShare]:
        """Ask the user's function for each row. Raises EmitError when it raises, or names a task that does not exist."""
        shares: list[list[int]] = [[] for _ in range(self._targets)]
        for index, row in enumerate(rows):
            for position in self._positions(row):
                shares[position].append(index)
        return [(position, share) for position, share in enumerate(shares) if share]

    def _positions(self, row: tuple[Any, ...]) -> list[int]:
        try:
            answer = self._choose(row)
        except Exception as error:
            raise _raised(error) from error
        try:
            positions = list(dict.fromkeys(map(as_index, answer)))
        except Exception as error:
            # Without code of the user's on the stack it is the answer; else that is a generator, which has raised only now.
            if isinstance(error, TypeError) and error.__traceback__ is not None and error.__traceback__.tb_next is None:
                what = f"a custom grouping returned {in_words(answer)}; return a sequence of task indexes"
                raise EmitError(what) from None
            raise _raised(error) from error
        for position in positions:
            if not 0 <= position < self._targets:
                raise EmitError(f"a custom grouping chose task {position}; the subscriber's tasks are 0 to {self._targets - 1}")
        return positions


def _raised(error: Exception) -> EmitError:
    return EmitError(f"a custom grouping raised {kind_and_message(error)}")
