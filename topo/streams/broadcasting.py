"""The bolt of `enrich`: each record with a table that all tasks have."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from topo.api.bolt import BasicCollector, StatefulBolt
from topo.api.context import TaskContext
from topo.api.tuples import Tuple
from topo.errors import TopoInternalError
from topo.streams.chain import Chain
from topo.streams.components import OUTPUT, OutputFields, reading
from topo.streams.graph import Node
from topo.streams.records import Layout, layout_of
from topo.streams.value_checks import check_key


class EnrichBolt(StatefulBolt):
    """Calls a function with each record and a table, whose rows come to all tasks. A checkpoint has one copy of the table.

    Args:
        chain: its bodies are the user's function, that of the key of a row, and that of `deleted`, or None.
        keyed: the rows of the records begin with a key.
        table: the `broadcast` that makes the table.
        rows: the streams that have its rows: component and name of each.
    """

    is_broadcast = True
    component_settings = {"tick_interval": None}

    def __init__(
        self, chain: Chain, layout: Layout, keyed: bool, table: Node, rows: set[tuple[str, str]], outputs: OutputFields
    ) -> None:
        self.chain, self._layout, self._keyed, self._tables = chain, layout, keyed, rows
        self._function, self._key, self._deleted = chain.bodies
        self._rows = layout_of(table.record)
        self.outputs = dict(outputs)
        self._table: dict[Any, Any] = {}

    def prepare(self, context: TaskContext) -> None:
        """Compile the chain."""
        self._row = self._rows.unpacker(0)
        self._pack, self._unpack = self._rows.keeper(self.chain.label)
        self.chain.open(context)
        table = MappingProxyType(self._table)
        space: dict[str, Any] = {"TABLES": self._tables, "learn": self._learn, "function": self._function, "table": table}
        before = ["if (tup.origin.component, tup.origin.stream) in TABLES: learn(tup.values); return", *OUTPUT]
        before += ["values = tup.values", *reading(self._layout, self._keyed, space), "r = function(r, table)"]
        self.execute = self.chain.compiled("execute(tup, collector)", before, (), space, adds=True)  # type: ignore[method-assign]

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        """Replaced by the compiled chain."""
        raise TopoInternalError("the chain has not been compiled")

    def snapshot(self) -> Any:
        """Return the rows by key."""
        return [(key, self._pack(row)) for key, row in self._table.items()]

    def restore(self, state: Any) -> None:
        """Take the rows of a checkpoint."""
        self._table.clear()
        self._table.update((key, self._unpack(row)) for key, row in state or ())

    def _learn(self, values: tuple[Any, ...]) -> None:
        row = self._row(values)
        key = self._key(row)
        check_key(key)
        if self._deleted is not None and self._deleted(row):
            self._table.pop(key, None)
        else:
            self._table[key] = row
