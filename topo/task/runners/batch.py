"""Batching bolts as a task: inputs are gathered, a batch is one call, and each call is a turn of its own.

| moment                          | what becomes of the batches                                                             |
| ------------------------------- | --------------------------------------------------------------------------------------- |
| a batch is full, or `wait` old  | it is ready; the task takes no input before its call                                    |
| a barrier or the end arrives    | open batches are ready; the frame is processed when nothing is held                     |
| a call raises                   | each half is called for, until a tuple is alone: see `topo.operators.batching`          |
| a new epoch                     | all are dropped, since their inputs come again                                          |

So a checkpoint has no input of a batching bolt: they are processed in front of it or come behind it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from topo.api.batch_bolt import BatchBolt
from topo.api.metrics import Histogram
from topo.emission.collectors import TrackedTuple
from topo.errors import FrameworkBug
from topo.operators.base import Operator
from topo.operators.batching import BatchOperator
from topo.task.batch import Batch
from topo.task.environment import TaskEnvironment, TaskSpec
from topo.task.events import RoutesChanged
from topo.task.flow_control import InEdge
from topo.task.runners.batch_calls import BatchCalls
from topo.task.runners.operator import OperatorTask
from topo.wire.frames import Frame, FrameKind, pack_words


class BatchTask(OperatorTask):
    """Runs a `BatchBolt`."""

    def __init__(self, setup: TaskSpec, ports: TaskEnvironment) -> None:
        if not isinstance(setup.component, BatchBolt):
            raise FrameworkBug(f"{setup.component!r} is not a BatchBolt")
        self._bolt = setup.component
        super().__init__(setup, ports)
        self._calls = BatchCalls(self._bolt, self._collector, self.config.max_task_emit)
        self._call_latency = Histogram()

    def _make_operator(self) -> Operator:
        return BatchOperator(self, self._bolt.settings)

    @property
    def _batches(self) -> BatchOperator:
        assert isinstance(self._operator, BatchOperator)
        return self._operator

    # -- life ------------------------------------------------------------------------------------------------------------

    def _user_prepare(self) -> None:
        self._bolt.prepare(self.context)
        super()._user_prepare()

    def _reset(self, event: RoutesChanged, now: float) -> None:
        super()._reset(event, now)
        if not self.is_checkpointed:
            self._renew_operator()

    def on_reset(self) -> None:
        """Tell the user's bolt."""
        self._bolt.on_reset()

    def cleanup(self) -> None:
        """Close the operator, then the user's bolt."""
        super().cleanup()
        self._bolt.cleanup()

    def _user_end(self) -> None:
        self._bolt.end_of_input(self._calls.collector)

    @property
    def is_quiet(self) -> bool:
        """Whether no input is held for a batch."""
        return super().is_quiet and not self._batches.held

    def _levels(self) -> dict[str, float]:
        return {**super()._levels(), "batched": float(self._batches.held)}

    def _latencies(self) -> dict[str, Any]:
        return {"execute": self._call_latency.snapshot()}

    def _held_roots(self) -> dict[int, None]:
        return {root: None for tup in self._batches.values() for root in tup.roots}

    # -- input -----------------------------------------------------------------------------------------------------------

    def _run(self, batch: Batch, first: int, last: int, now: float) -> None:
        batches, keys = self._batches, self._keys(batch, first, last)
        is_careful = self._single_step_budget > 0
        for index, key in zip(range(first, last), keys, strict=True):
            if batches.has_ready:
                batch.done = index
                break
            stamp = None if batch.stamps is None else batch.stamps[index]
            tup = TrackedTuple.made(batch.rows[index], batch.origin, stamp, self.epoch, *batch.ids_at(index))
            if is_careful:
                # One of these may kill the process: it must not have others in hand with it.
                batches.process_alone(key, tup)
            else:
                batches.process_element(key, tup, stamp)

    def _process(self, edge: InEdge, frame: Frame, now: float) -> bool:
        if frame.kind in (FrameKind.BARRIER, FrameKind.END) and self._batches.held:
            self._batches.close_batches()
            self._run_ready(now)
            return False
        return super()._process(edge, frame, now)

    # -- calls -----------------------------------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Whether a batch waits for its call, or input to be taken in."""
        return super().has_work or (self.state.is_working and self._batches.has_ready and self._may_act)

    def _act(self, now: float) -> None:
        if not self._batches.has_ready:
            super()._act(now)
        elif self._may_act:
            self._run_ready(now)

    def _run_ready(self, now: float) -> None:
        """Call for one batch."""
        hand, began, values = self.ports.in_hand, self.ports.clock(), self._batches.next_values
        hand.hold(self.id, pack_words([root for tup in values for root in tup.roots]))
        # An exception that leaves here ends the process, and then the note says what was in hand.
        self._batches.run_one()
        hand.release()
        self._settle(now)
        seconds = self.ports.clock() - began
        self.counters.busy_s += seconds
        self._call_latency.record(seconds / len(values), len(values))
        self._flush_when_due(now + seconds)

    def call(self, values: list[TrackedTuple]) -> None:
        """Call the user for a batch."""
        self._calls.call(values)
        if not self.is_checkpointed:
            for tup in values:
                if (error := self._calls.error_of(tup)) is not None:
                    self.reports.causes.note(tup.roots, error)

    def split(self, error: Exception) -> None:
        """A call for several inputs has raised."""
        self._user_error(error, self.state.now)

    def failed(self, value: TrackedTuple, error: Exception) -> None:
        """A call for one input has raised."""
        if not self.is_checkpointed:
            self.reports.causes.note(value.roots, error)
            self._collector.fail(value)
            self._user_error(error, self.state.now)
            return
        mark = self._collector.mark()
        final = self._try_tuple_again(partial(self.call, [value]), mark, value, error)
        if final is not None:
            self._user_error(final, self.state.now)

    def _why_failed(self, tup: TrackedTuple) -> str:
        error = self._calls.error_of(tup)
        return super()._why_failed(tup) if error is None else self._cause(error)
