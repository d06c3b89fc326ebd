"""Keyed state: values, lists and maps that belong to the current key (and a namespace, such as a window).

A state has a name and a kind. Asking twice for a name gives two handles of one state; what they do is in `handles.py`.

Time to live: with `ttl`, a value that was not written for that time is gone: never returned, left out of snapshots, and
dropped bit by bit as the state is written. Each element of a list and each entry of a map ages separately.

Stored values must not be changed from outside afterwards, and must be of types that a tuple could carry. They stay as they were
set until a checkpoint is restored; lists in them are tuples then.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from topo.api.aggregates import AggregateFunction
from topo.api.durations import duration_ms
from topo.errors import UserError
from topo.operators.state.deep_copy import independent
from topo.operators.state.handles import (
    AGGREGATING,
    LIST,
    MAP,
    REDUCING,
    VALUE,
    Ageing,
    AggregatingState,
    KeyContext,
    Kind,
    ListState,
    MapState,
    ReducingState,
    SortedState,
    ValueState,
)
from topo.operators.state.table import StateTable
from topo.user_errors import forgets_result

__all__ = ["AggregatingState", "KeyContext", "KeyedState", "ListState", "MapState", "ReducingState", "SortedState", "ValueState"]


@dataclass(slots=True)
class _State:
    """One named state: its kind and its cells."""

    kind: Kind
    table: StateTable
    ageing: Ageing | None


class KeyedState:
    """All keyed state of one operator, by name.

    Args:
        keys: holds the current key.
        now_ms: the processing time, for times to live.
        new_table: makes the store of one state, given its name.
    """

    def __init__(
        self, keys: KeyContext, now_ms: Callable[[], int], new_table: Callable[[str], StateTable] = lambda _name: StateTable()
    ) -> None:
        self._keys = keys
        self._now_ms = now_ms
        self._new_table = new_table
        self._states: dict[str, _State] = {}
        self._unclaimed: dict[int, dict[str, Any]] = {}

    def value(
        self, name: str, *, default: Any = None, ttl: str | timedelta | None = None, refresh_on_read: bool = False
    ) -> ValueState:
        """Return a handle of the value state `name`.

        Raises:
            UserError: the name belongs to a state of another kind, or of another choice about `ttl`. So for all kinds.
        """
        state = self._state(name, VALUE, ttl, refresh_on_read)
        return ValueState(self._keys, state.table, state.ageing, default)

    def sorted(self, name: str) -> SortedState:
        """Return a handle of the value state `name`, each value being a sorted list."""
        return SortedState(self._keys, self._state(name, VALUE, None, False).table, None)

    def list(self, name: str, *, ttl: str | timedelta | None = None, refresh_on_read: bool = False) -> ListState:
        """Return a handle of the list state `name`."""
        state = self._state(name, LIST, ttl, refresh_on_read)
        return ListState(self._keys, state.table, state.ageing)

    def map(self, name: str, *, ttl: str | timedelta | None = None, refresh_on_read: bool = False) -> MapState:
        """Return a handle of the map state `name`."""
        state = self._state(name, MAP, ttl, refresh_on_read)
        return MapState(self._keys, state.table, state.ageing)

    def reducing(
        self, name: str, reduce: Callable[[Any, Any], Any], *, ttl: str | timedelta | None = None, refresh_on_read: bool = False
    ) -> ReducingState:
        """Return a handle of the reducing state `name`. Raises UserError, too, where the function forgets its result."""
        _check_result(name, "", reduce, "the combination of both")
        state = self._state(name, REDUCING, ttl, refresh_on_read)
        return ReducingState(self._keys, state.table, state.ageing, reduce)

    def aggregating(
        self, name: str, aggregate: AggregateFunction, *, ttl: str | timedelta | None = None, refresh_on_read: bool = False
    ) -> AggregatingState:
        """Return a handle of the aggregating state `name`. Raises UserError, too, where `add` forgets to return it."""
        _check_result(name, f"{type(aggregate).__name__}.add", aggregate.add, "the accumulator")
        state = self._state(name, AGGREGATING, ttl, refresh_on_read)
        return AggregatingState(self._keys, state.table, state.ageing, aggregate)

    @property
    def entries(self) -> int:
        """How many cells there are, over all states."""
        return sum(len(state.table) for state in self._states.values())

    def entries_of(self, name: str) -> int:
        """How many cells the state `name` has; 0 for a state that was never requested."""
        state = self._states.get(name)
        return 0 if state is None else len(state.table)

    def snapshot(self) -> dict[int, dict[str, Any]]:
        """Return all state: by key group, by name. It includes restored state that was never requested."""
        return independent(self.freeze()())  # type: ignore[no-any-return]

    def freeze(self) -> Callable[[], dict[int, dict[str, Any]]]:
        """Hold on to all state as it is now, as fast as that can be done.

        Returns:
            A function that makes the snapshot, later and on any thread. It has to be kept until the snapshot is no longer needed:
            the cells in it may be those of the tables, which do not change as long as it exists.
        """
        groups: dict[int, dict[str, Any]] = {group: dict(states) for group, states in self._unclaimed.items() if states}
        group_of, now_ms = self._keys.group_of, self._now_ms()
        held = [(name, state, state.table.frozen()) for name, state in self._states.items()]

        def sort() -> dict[int, dict[str, Any]]:
            for name, state, frozen in held:
                live, ages = state.kind.live, state.ageing is not None
                rows: dict[int, list[tuple[Any, Any, Any]]] = {}
                for namespace, cells in frozen.cells.items():
                    for key, cell in cells.items():
                        if ages and (cell := live(cell, now_ms)) is None:
                            continue
                        rows.setdefault(group_of[key], []).append((key, namespace, cell))
                for group, found in rows.items():
                    groups.setdefault(group, {})[name] = {"kind": state.kind.name, "ttl": ages, "rows": found}
            return groups

        return sort

    def restore(
        self, groups: Mapping[int, Mapping[str, Any]], decode_namespace: Callable[[Any], Any] = lambda encoded: encoded
    ) -> None:
        """Take over the state of a snapshot; that of a name not asked for yet waits until it is.

        Raises:
            UserError: a state in the snapshot is of another kind than the one of that name here.
        """
        for group, states in groups.items():
            for name, part in states.items():
                decoded = {**part, "rows": [(key, decode_namespace(namespace), cell) for key, namespace, cell in part["rows"]]}
                if name in self._states:
                    self._load(name, self._states[name], decoded)
                else:
                    self._unclaimed.setdefault(group, {})[name] = decoded

    def _state(self, name: str, kind: Kind, ttl: str | timedelta | None, refresh_on_read: bool) -> _State:
        state = self._states.get(name)
        if state is None:
            state = _State(kind, self._new_table(name), None)
            if ttl is not None:
                lifetime_ms = duration_ms(ttl)
                if lifetime_ms <= 0:
                    raise UserError(f"state {name!r}: a time to live must be above zero; got {ttl!r}")
                state.ageing = Ageing(state.table, kind, lifetime_ms, refresh_on_read, self._now_ms)
            for states in self._unclaimed.values():
                if name in states:
                    self._load(name, state, states.pop(name))
            self._states[name] = state
        else:
            self._check(name, state, kind.name, ttl is not None)
        return state

    def _load(self, name: str, state: _State, part: Mapping[str, Any]) -> None:
        self._check(name, state, part["kind"], part["ttl"])
        for key, namespace, cell in part["rows"]:
            state.table.load(namespace, key, state.kind.copy(cell))

    @staticmethod
    def _check(name: str, state: _State, kind: str, ages: bool) -> None:
        if kind != state.kind.name or ages != (state.ageing is not None):
            there = f"{state.kind.name} state {'with' if state.ageing else 'without'} a time to live"
            raise UserError(f"state {name!r} is a {there}; it was a {kind} state {'with' if ages else 'without'} one")


def _check_result(name: str, method: str, function: Any, result: str) -> None:
    """Refuse a function whose None would be taken for a state that is cleared."""
    code = getattr(inspect.unwrap(getattr(function, "__func__", function)), "__code__", None)
    if code is not None and forgets_result(code):
        what = f"the state {name!r}: {method or 'its function'} returns nothing"
        raise UserError(f"{what}, so it would keep nothing; return {result}")
