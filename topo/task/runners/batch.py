"""Batching bolts as a task: inputs are gathered, a batch is one call, and each call is one turn.

| moment                          | what becomes of the batches                                                             |
| ------------------------------- | --------------------------------------------------------------------------------------- |
| a batch is full, or `wait` old  | it is ready; the task takes no input before its call                                    |
| a barrier or the end arrives    | open batches are ready; the frame is processed when nothing is held                     |
| a call raises                   | each half is called for, until a tuple is alone: see `topo.operators.batching`          |
| a new epoch                     | all are dropped, because their inputs are replayed                                      |

So a checkpoint has no input of a batching bolt: they are processed in front of it or come behind it.
"""

from __future__ import annotations

from functools import partial

from topo.api.batch_bolt import BatchBolt
from topo.api.columns import ColumnBolt
from topo.api.metrics import Histogram
from topo.checkpoint.alignment import Snapshot
from topo.emission.collectors import TrackedTuple
from topo.hot import pack_words
from topo.operators.batching import BatchOperator
from topo.task.batch import Batch
from topo.task.guarantees.inputs import InputGuarantee
from topo.task.operator_output import OperatorOutput
from topo.task.parts import TaskParts
from topo.task.runners.batch_calls import GatheredCalls
from topo.task.runners.operator import OperatorKind


class BatchKind(OperatorKind):
    """A `BatchBolt`."""

    _operator: BatchOperator

    def __init__(
        self,
        parts: TaskParts,
        bolt: BatchBolt | ColumnBolt,
        guarantee: InputGuarantee,
        output: OperatorOutput,
        calls: GatheredCalls,
    ) -> None:
        self.bolt = bolt
        self._batch_calls = calls
        super().__init__(parts, guarantee, output, renews=True)
        parts.waiting.append(self._waiting_roots)
        self.latency = Histogram()

    def _make_operator(self) -> BatchOperator:
        return BatchOperator(self, self.bolt.settings)

    # -- life ------------------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Prepare the bolt, then start the operator."""
        self.bolt.prepare(self._parts.spec.context)
        super().open()

    def begin_again(self, parts: list[Snapshot] | None, now: float) -> None:
        """Begin with a new operator, then call `on_reset` of the bolt."""
        super().begin_again(parts, now)
        self._reports.guard(self.bolt.on_reset, now)

    def close(self) -> None:
        """Close the operator, then the bolt."""
        self._operator.close()
        self.bolt.cleanup()

    def end_of_input(self) -> None:
        self.bolt.end_of_input(self._batch_calls.collector)

    def unfinished(self) -> str:
        """Describe the inputs that are held for a batch."""
        return f"{self.held} inputs that wait for their batch" if self.held else ""

    def levels(self) -> dict[str, float]:
        """Return the number of inputs that are held."""
        return {"batched": float(self.held)}

    def _waiting_roots(self, _waiting: dict[int, None], _now: float) -> dict[int, None]:
        """Return the roots of inputs that wait for a call while the task takes no input, or has input before it."""
        if not self._parts.outbound.outbox.is_full and not self._parts.inbound.queue:
            return {}
        return {root: None for tup in self._operator.values() for root in tup.roots}

    # -- input -----------------------------------------------------------------------------------------------------------

    def run(self, batch: Batch, first: int, last: int, now: float) -> None:
        """Gather inputs until a batch is ready."""
        batches, keys = self._operator, self._keys(batch, first, last)
        for index, key in zip(range(first, last), keys, strict=True):
            if batches.has_ready:
                batch.done = index
                break
            stamp = None if batch.stamps is None else batch.stamps[index]
            tup = TrackedTuple.made(batch.rows[index], batch.origin, stamp, self._state.epoch, *batch.ids_at(index))
            if batch.runs_singly:
                # One of these may kill the process: no others may be in flight with it.
                batches.process_alone(key, tup)
            else:
                batches.process_element(key, tup, stamp)

    # -- calls -----------------------------------------------------------------------------------------------------------

    @property
    def has_ready(self) -> bool:
        """Whether a batch waits for its call."""
        return self._operator.has_ready

    @property
    def held(self) -> int:
        """How many inputs wait for a call."""
        return self._operator.held

    def close_batches(self) -> None:
        """Make all open batches ready."""
        self._operator.close_batches()

    def run_ready(self, now: float) -> float:
        """Call for one batch, and settle; return when it has ended."""
        marker, clock, values = self._env.marker, self._env.clock, self._operator.next_values
        began = clock()
        marker.hold(self._state.id, pack_words([root for tup in values for root in tup.roots]))
        # An exception that leaves here ends the process, and then the mark names the tuples in flight.
        self._operator.run_one()
        marker.release()
        self.calls.settle(now)
        seconds = clock() - began
        self._state.counters.busy_s += seconds
        self.latency.record(seconds / len(values), len(values))
        return now + seconds

    def call(self, values: list[TrackedTuple]) -> None:
        """Call the user for a batch."""
        self._batch_calls.call(values)
        for tup in values:
            if (error := self._batch_calls.error_of(tup)) is not None:
                self._reports.causes.note(tup.roots, error)

    def split(self, error: Exception) -> None:
        """A call for several inputs has raised."""
        self._reports.user_error(error, self._state.now)

    def failed(self, value: TrackedTuple, error: Exception) -> None:
        """A call for one input has raised."""
        collector, mark = self._collector, self._collector.mark()
        again, undo = partial(self.call, [value]), partial(collector.rewind, mark)
        final = self._guarantee.input_raised(collector, mark, value, error, again, undo)
        if final is not None:
            self._reports.user_error(final, self._state.now)
