"""Faults planted into times to live, windows by number and `dedupe` behind streams. Undone by `monkeypatch`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulation.planted import Plant
from topo.operators.state.handles import Ageing
from topo.operators.state.keyed_state import KeyedState
from topo.streams.components import WindowResults
from topo.streams.process_bolts import FirstBolt


def a_restore_renews_values(patch: pytest.MonkeyPatch) -> None:
    """A value with a time to live that is restored is kept for its whole time again."""
    load = KeyedState._load

    def renewed(self: KeyedState, name: str, state: Any, part: Any) -> None:
        ageing = state.ageing
        if ageing is not None and part["kind"] == "value":
            rows = [(key, namespace, ageing.stamp(cell[0])) for key, namespace, cell in part["rows"]]
            part = {**part, "rows": rows}
        load(self, name, state, part)

    patch.setattr(KeyedState, "_load", renewed)


def entries_expire_together(patch: pytest.MonkeyPatch) -> None:
    """The elements of a list, and the entries of a map, have the time of the last write to it."""
    sweep = Ageing.sweep

    def all_stamped(self: Ageing) -> None:
        sweep(self)
        if self._kind.name == "list":
            for namespace, key, cell in list(self._table.items()):
                self._table.put(namespace, key, [(value, max(until for _, until in cell)) for value, _ in cell])

    patch.setattr(Ageing, "sweep", all_stamped)


def first_records_are_not_kept(patch: pytest.MonkeyPatch) -> None:
    """A checkpoint does not have the keys that `dedupe` has seen."""
    open_ = FirstBolt.open

    def forgetful(self: FirstBolt, context: Any) -> None:
        open_(self, context)
        patch.setattr(context.state, "freeze", lambda: dict, raising=False)

    patch.setattr(FirstBolt, "open", forgetful)


def numbers_of_windows_begin_again(patch: pytest.MonkeyPatch) -> None:
    """Windows by number of records do not count those that have fired."""
    emit = WindowResults._emit

    def first(self: WindowResults, key: Any, elements: Any, bounds: Any, context: Any, collector: Any) -> None:
        if self._rows is not None:
            bounds = (0, self._rows[0])
        emit(self, key, elements, bounds, context, collector)

    patch.setattr(WindowResults, "_emit", first)


PLANTS: dict[Plant, tuple[set[int], tuple[int, ...]]] = {
    a_restore_renews_values: ({7}, (9, 27)),
    entries_expire_together: ({7}, (0,)),
    first_records_are_not_kept: ({7}, (8,)),
    numbers_of_windows_begin_again: ({7}, (24, 33)),
}
"""Each planted fault with the oracles that may catch it, and seeds that have: they are tried first, then all the others."""
