"""What a call costs does not depend on how much a cell holds: copies are counted, not timed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from topo.operators.state import deep_copy as independent
from topo.operators.state import table as state_table
from topo.operators.state import undo_log as undo
from topo.operators.state.keyed_state import KeyContext, KeyedState
from topo.operators.state.undo_log import UndoableTable, UndoLog

MANY = 1_000


class Copies:
    """Counts the values that are copied or looked at in copying."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.seen = 0
        for module in (undo, state_table, independent):
            patch.setattr(module, "independent", self._counted)

    def _counted(self, value: Any) -> Any:
        self.seen += len(value) if isinstance(value, list | dict) else 1
        return value


@pytest.mark.parametrize("ttl", [None, "1d"])
@pytest.mark.parametrize(
    "call",
    [
        lambda state, ttl: state.list("list", ttl=ttl).add(1),
        lambda state, ttl: state.map("map", ttl=ttl).put(MANY + 1, 1),
        lambda state, ttl: state.map("map", ttl=ttl).put(7, 1),
        lambda state, ttl: state.map("map", ttl=ttl).get(7),
        lambda state, ttl: state.map("map", ttl=ttl).remove(0),
        lambda state, ttl: 7 in state.map("map", ttl=ttl),
    ],
    ids=["add", "put", "replace", "get", "remove", "in"],
)
def test_a_call_copies_what_it_changes_and_not_the_cell(
    call: Callable[[KeyedState, Any], Any], ttl: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, log = KeyContext(), UndoLog()
    keys.key = "key"
    state = KeyedState(keys, lambda: 0, lambda _name: UndoableTable(log))
    state.list("list", ttl=ttl).extend(range(MANY))
    state.map("map", ttl=ttl).update({number: number for number in range(MANY)})
    log.begin()
    copies = Copies(monkeypatch)
    call(state, ttl)
    assert copies.seen <= 5
