"""Sinks of simulated topologies with checkpoints: `Log`, whose state is its input, and `Ledger`, which publishes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.simulator.checkpointed_stages import CheckpointedStage, Row, Stateful
from tests.simulator.external_world import chosen
from tests.simulator.stages import Trouble
from topo.api.bolt import BasicCollector, StatefulBolt
from topo.api.context import TaskContext
from topo.api.tuples import Tuple
from topo.api.two_phase import TwoPhaseSink


class Log(Stateful, StatefulBolt):
    """A sink that remembers every row."""

    outputs: Any = ()
    key = "key"
    grouped_by = "key"

    def prepare(self, context: TaskContext) -> None:
        self.state: dict[str, list[str]] = {}

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        self.meet(tup["id"])
        self.outside.effects[self.name, tup["id"]] = self.outside.effects.get((self.name, tup["id"]), 0) + 1
        self.state.setdefault(tup["key"], []).append(tup["id"])

    def snapshot(self) -> Any:
        return self.state

    def restore(self, state: Any) -> None:
        self.state = {key: list(ids) for key, ids in (state or {}).items()}

    def model(self, inputs: Mapping[str, Sequence[Row]]) -> list[Row]:
        return []

    def final(self, inputs: Mapping[str, Sequence[Row]]) -> Any:
        return sorted((row.key, row.id) for row in self.survivors(inputs))

    @staticmethod
    def together(states: Sequence[Any]) -> Any:
        return sorted((key, one) for state in states for key, ids in state.items() for one in ids)


class Ledger(CheckpointedStage, TwoPhaseSink):
    """A sink whose rows are published when their checkpoint is complete. Publishing goes wrong half way, now and then."""

    outputs: Any = ()

    def open(self, context: TaskContext) -> None:
        self.index, self.parallelism = context.task_index, context.parallelism
        self.rows: list[str] = []

    def begin(self) -> None:
        self.rows = []

    def write(self, tup: Tuple) -> None:
        self.meet(tup["id"])
        self.outside.effects[self.name, tup["id"]] = self.outside.effects.get((self.name, tup["id"]), 0) + 1
        self.rows.append(tup["id"])

    def pre_commit(self) -> Any:
        if not self.rows:
            return None
        number = self.outside.tried(f"{self.name} tokens", "")
        self.stumble(f"stage {number}")
        token = (self.name, self.index, number)
        self.outside.staged[token] = self.rows
        self.outside.on_stage(token)
        return token

    def commit(self, token: Any) -> None:
        rows = self.outside.staged.get(token)
        if rows is None:
            return
        self.outside.on_commit(token)
        published = self.outside.published.setdefault(token, [])
        published[:] = rows[: len(rows) // 2]
        self.stumble(f"publish {token}")
        published[:] = rows
        # Behind those that became visible before it.
        self.outside.published[token] = self.outside.published.pop(token)
        del self.outside.staged[token]

    def stumble(self, what: str) -> None:
        """Go wrong, now and then."""
        if chosen(what, self.mishaps.kills and 4, f"{self.name} kills") and not self.outside.tried(f"{self.name} kills", what):
            self.outside.kill()
        if chosen(what, self.mishaps.fails and 4, f"{self.name} fails") and not self.outside.tried(f"{self.name} fails", what):
            raise Trouble(f"cannot {what}")

    def abort(self, token: Any) -> None:
        if token is None:
            self.rows = []
        else:
            self.outside.staged.pop(token, None)

    def recover(self, tokens: Sequence[Any]) -> None:
        super().recover(tokens)
        for token in list(self.outside.staged):
            if token[0] == self.name and token[1] % self.parallelism == self.index:
                del self.outside.staged[token]

    def model(self, inputs: Mapping[str, Sequence[Row]]) -> list[Row]:
        return []
