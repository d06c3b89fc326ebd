"""Runs a `BasicBolt`, whose inputs the engine anchors and acks. The fast path of most topologies.

A slice of input is run without ids. Its rows are routed afterwards, column by column, with the number of rows after each input;
so one XOR of the ends of a run of edges folds all rows of an input.
"""

from __future__ import annotations

from collections.abc import Set
from functools import partial
from typing import Any

from topo.api.bolt import BasicBolt, StatefulBolt
from topo.api.tuples import Tuple
from topo.checkpoint.alignment import Snapshot
from topo.emission.collectors import AnchoringCollector
from topo.emission.counted_rows import add_up, spell_out
from topo.errors import EmitError
from topo.hot import run_inputs, run_loop
from topo.operators.state.handles import KeyContext
from topo.task.batch import Batch
from topo.task.guarantees.inputs import InputGuarantee
from topo.task.parts import TaskParts
from topo.task.runners.calls import BasicCalls
from topo.task.user_state import restore_user, snapshot_user
from topo.user_errors import call_for_effect, returned


class BasicBoltKind:
    """A bolt whose inputs the engine anchors and acks. The fast path of most topologies.

    Args:
        parts: of the task.
        bolt: the user's component.
        guarantee: of its inputs.
        collector: takes its rows.
    """

    holds_inputs = False

    def __init__(self, parts: TaskParts, bolt: BasicBolt, guarantee: InputGuarantee, collector: AnchoringCollector) -> None:
        self.bolt = bolt
        self.calls = BasicCalls(collector, guarantee)
        self._parts = parts
        self._state = parts.state
        self._codec = parts.env.codec
        self._max_emit = parts.state.config.max_task_emit
        self._guarantee = guarantee
        self._collector = collector
        # Tracked rows stay apart.
        self._add_up = spell_out if parts.state.config.delivery == "at_least_once" else add_up
        counted: Set[str] = getattr(bolt, "counted_streams", frozenset())
        self._counted = [stream for stream in collector.streams if stream.declaration.name in counted]
        self._key_groups = KeyContext(parts.state.plan.component(parts.state.component_id).max_parallelism).group_of

    def open(self) -> None:
        """Prepare the bolt, and restore its state."""
        self.bolt.prepare(self._parts.spec.context)
        if self._state.restored:
            self.restore(self._state.restored)

    def begin_again(self, parts: list[Snapshot] | None, now: float) -> None:
        """Restore the state of the bolt where checkpoints have it, and call its `on_reset`."""
        if parts is not None:
            self.restore(parts)
        self._parts.reports.guard(self.bolt.on_reset, now)

    def restore(self, parts: list[Snapshot]) -> None:
        """Give a stateful bolt the state of a checkpoint; without parts, that of the beginning."""
        if isinstance(self.bolt, StatefulBolt):
            restore_user(self._state.component_id, self.bolt, self._parts.snapshots.store, parts)

    def snapshot(self, checkpoint: int) -> Snapshot:
        """Return the state of a stateful bolt."""
        bolt = self.bolt
        if not isinstance(bolt, StatefulBolt) or (bolt.is_broadcast and self._parts.spec.context.task_index):
            return Snapshot()
        return snapshot_user(self._state.component_id, bolt, self._parts.snapshots.store, self._key_groups)

    def tick(self, tup: Tuple) -> None:
        """Call the bolt for a tick."""
        call_for_effect(self.bolt.execute, tup, self._collector)

    def end_of_input(self) -> None:
        call_for_effect(self.bolt.end_of_input, self._collector)

    def close(self) -> None:
        self.bolt.cleanup()

    def run(self, batch: Batch, first: int, last: int, now: float) -> None:
        """Make the calls of a slice, and settle."""
        failures = self._execute(batch, first, last)
        for stream in self._counted:
            self._add_up(stream)
        self._guarantee.settle_slice(self._collector.streams, batch, first, batch.done, failures, now)

    def _execute(self, batch: Batch, first: int, last: int) -> dict[int, Exception]:
        """Call `execute` for each tuple. Returns the exceptions raised, by the tuple's index from `first`."""
        collector, most = self._collector, self._max_emit
        execute, streams = self.bolt.execute, collector.streams
        # A chain of streams takes all rows in one call; no method of a user has that name.
        loop: Any = getattr(self.bolt, "__run_rows__", None)
        emitted = [(stream.rows, stream.ends) for stream in streams]
        failures: dict[int, Exception] = {}
        rows, index, limit = batch.to_cut(batch.rows[first:last]), first, most
        while True:
            stamps = batch.stamps_of(index, last)
            if loop is not None:
                done, tup, error, value = run_loop(loop, collector, Tuple, batch.origin, rows, stamps, emitted, limit)
            else:
                done, tup, error, value = run_inputs(execute, collector, Tuple, batch.origin, rows, stamps, emitted, limit)
            index += done
            if tup is None:
                break
            if value is not None:
                error = returned(execute, value)
            if error is not None:
                again = partial(self._execute_again, tup, batch, index - 1)
                if (failure := self._guarantee.raised(error, again, collector.truncate)) is not None:
                    failures[index - 1 - first] = failure
            if streams:
                self._note_ends(index - 1 - first, failures)
            # No call can have emitted too much before the batch has; from here on look again after as much.
            limit = collector.count() + most
            rest = batch.to_cut(rows[done:])
            if not rows:
                # Another thread has cut the slice short before it knew of the rest.
                rest.clear()
            rows = rest
        batch.done = index
        return failures

    def _execute_again(self, tup: Tuple, batch: Batch, index: int) -> None:
        tup.values = batch.unchanged(index, self._codec)
        call_for_effect(self.bolt.execute, tup, self._collector)

    def _note_ends(self, index: int, failures: dict[int, Exception]) -> None:
        """Record how far each stream has come with an input, and discard the input's rows if they are too many."""
        collector = self._collector
        before = sum([stream.ends[-1] for stream in collector.streams if stream.ends])
        try:
            collector.check_emitted(collector.count() - before, self._max_emit)
        except EmitError as error:
            failures[index] = error
            collector.truncate()
        for stream in collector.streams:
            stream.ends.append(len(stream.rows))
