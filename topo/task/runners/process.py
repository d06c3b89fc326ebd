"""Process functions as a task: each tuple and each timer is a call whose effects can be undone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from topo.api.operator_bolts import ProcessBolt
from topo.emission.collectors import Mark, TrackedTuple
from topo.hot import Row
from topo.operators.process import ProcessOperator
from topo.task.batch import Batch, EventTime
from topo.task.guarantees.inputs import InputGuarantee
from topo.task.operator_output import OperatorOutput
from topo.task.parts import TaskParts
from topo.task.runners.operator import OperatorKind
from topo.user_errors import returned


class TimersApart:
    """The user's process function with another way to call `on_timer`."""

    def __init__(self, bolt: ProcessBolt, on_timer: Callable[[int, Any, Any], None]) -> None:
        self.open = bolt.open
        self.process = bolt.process
        self.close = bolt.close
        self.on_timer = on_timer


class ProcessKind(OperatorKind):
    """A `ProcessBolt`. It holds no inputs, so its state may live on in a new epoch without a checkpoint."""

    _operator: ProcessOperator

    def __init__(self, parts: TaskParts, bolt: ProcessBolt, guarantee: InputGuarantee, output: OperatorOutput) -> None:
        self.bolt = bolt
        super().__init__(parts, guarantee, output, renews=bolt.forgets_at_a_loss and bool(parts.state.plan.ackers))

    def _make_operator(self) -> ProcessOperator:
        return ProcessOperator(TimersApart(self.bolt, self._on_timer))

    def end_of_input(self) -> None:
        self._operator.end_of_input()

    def _on_timer(self, timestamp: int, context: Any, collector: Any) -> None:
        """Call the user for one timer. If it raises, its rows are discarded."""
        mark, function = self._collector.mark(), self.bolt.on_timer
        try:
            self._check_call(function, function(timestamp, context, collector), mark)
        except Exception as error:
            self._timer_raised(error, mark, timestamp, lambda: function(timestamp, context, collector))

    def _timer_raised(self, error: Exception, mark: Mark, timestamp: int, call: Callable[[], object]) -> None:
        operator = self._operator

        def discard() -> bool:
            self._collector.rewind(mark)
            return True

        def undo() -> None:
            operator.undo()
            self._collector.rewind(mark)

        def again() -> None:
            self._check_call(self.bolt.on_timer, call(), mark)

        self._guarantee.call_raised(error, (operator.keys.key, timestamp), again, undo, discard)

    def _check_call(self, function: Callable[..., object], value: object, mark: Mark) -> None:
        """Raise when a call of a user's function has returned a value, or has emitted too much since the mark."""
        if value is not None:
            raise returned(function, value)
        self._collector.check_emitted(self._collector.count() - mark.emitted, self._config.max_task_emit)

    def _undo(self, tup: TrackedTuple, mark: Mark, arrived: Callable[[], Row]) -> None:
        """Undo a call of `process`: state, timers, rows, and changes of the input in place."""
        self._operator.undo()
        self._collector.rewind(mark)
        tup.values = arrived()

    def _repeat(self, key: Any, tup: TrackedTuple, stamp: EventTime, mark: Mark) -> None:
        self._check_call(self.bolt.process, self._operator.process_element(key, tup, stamp), mark)

    def run(self, batch: Batch, first: int, last: int, now: float) -> None:
        """Call `process` for each tuple, and settle."""
        collector, process, count = self._collector, self._operator.process_element, self._collector.count
        keys, epoch, origin = self._keys(batch, first, last), self._state.epoch, batch.origin
        errors: list[Exception] = []
        function = self.bolt.process
        index, mark = first - 1, collector.mark()
        for (index, values, stamp), key in zip(batch.inputs(first, last), keys):  # noqa: B905
            tup = TrackedTuple.made(values, origin, stamp, epoch, *batch.ids_at(index))
            collector.current = (tup,)
            try:
                value = process(key, tup, stamp)
                if value is not None or count() != mark.emitted:
                    self._check_call(function, value, mark)
                    mark = collector.mark()
            except Exception as error:
                # The mark is that of the last call with rows: no call acks or fails.
                mark = mark._replace(acked=len(collector.acked), failed=len(collector.failed))
                again = partial(self._repeat, key, tup, stamp, mark)
                undo = partial(self._undo, tup, mark, partial(batch.unchanged, index, self._env.codec))
                final = self._guarantee.input_raised(collector, mark, tup, error, again, undo)
                mark = collector.mark()
                if final is not None:
                    errors.append(final)
                    continue
            collector.ack(tup)
        batch.done = index + 1
        collector.current = ()
        self.calls.settle(now)
        for raised in errors:
            self._reports.user_error(raised, now)
