"""Process functions as a task: each tuple and each timer is a call whose effects can be undone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from topo.api.operator_bolts import ProcessBolt
from topo.emission.collectors import Mark, TrackedTuple
from topo.hot import Row
from topo.operators.process import ProcessOperator
from topo.task.batch import Batch
from topo.task.guarantees.inputs import InputGuarantee
from topo.task.operator_output import OperatorOutput
from topo.task.parts import TaskParts
from topo.task.runners.operator import OperatorKind
from topo.user_errors import returned


class TimersApart:
    """The user's process function with another way to call `on_timer`."""

    def __init__(self, bolt: ProcessBolt, call: Callable[[int, Callable[[], object]], None]) -> None:
        self.open = bolt.open
        self.process = bolt.process
        self.close = bolt.close
        self._on_timer = bolt.on_timer
        self._call = call

    def on_timer(self, timestamp: int, context: Any, collector: Any) -> None:
        """Call the user for one timer."""
        self._call(timestamp, lambda: self._on_timer(timestamp, context, collector))


class ProcessKind(OperatorKind):
    """A `ProcessBolt`. It holds no inputs, so its state lives on in a new epoch without a checkpoint."""

    _operator: ProcessOperator

    def __init__(self, parts: TaskParts, bolt: ProcessBolt, guarantee: InputGuarantee, output: OperatorOutput) -> None:
        self.bolt = bolt
        super().__init__(parts, guarantee, output, renews=False)

    def _make_operator(self) -> ProcessOperator:
        return ProcessOperator(TimersApart(self.bolt, self._on_timer))

    def end_of_input(self) -> None:
        self._operator.end_of_input()

    def _on_timer(self, timestamp: int, call: Callable[[], object]) -> None:
        """Call the user for one timer. If it raises, its rows are discarded."""
        operator, mark = self._operator, self._collector.mark()

        def discard() -> bool:
            self._collector.rewind(mark)
            return True

        def undo() -> None:
            operator.undo()
            self._collector.rewind(mark)

        limited = partial(self._limited, call, mark, self.bolt.on_timer)
        try:
            limited()
        except Exception as error:
            self._guarantee.call_raised(error, (operator.keys.key, timestamp), limited, undo, discard)

    def _limited(self, call: Callable[[], object], mark: Mark, function: Callable[..., object]) -> None:
        """Make one call of a user's function. Raises when it has emitted too much since the mark, or has returned a value."""
        if (value := call()) is not None:
            raise returned(function, value)
        self._collector.check_emitted(self._collector.count() - mark.emitted, self._config.max_task_emit)

    def _undo(self, tup: TrackedTuple, mark: Mark, arrived: Callable[[], Row]) -> None:
        """Undo a call of `process`: state, timers, rows, and changes of the input in place."""
        self._operator.undo()
        self._collector.rewind(mark)
        tup.values = arrived()

    def run(self, batch: Batch, first: int, last: int, now: float) -> None:
        """Call `process` for each tuple, and settle."""
        collector, operator = self._collector, self._operator
        keys = self._keys(batch, first, last)
        errors: list[Exception] = []
        function = self.bolt.process
        index = first - 1
        for (index, values, stamp), key in zip(batch.inputs(first, last), keys):  # noqa: B905
            tup = TrackedTuple.made(values, batch.origin, stamp, self._state.epoch, *batch.ids_at(index))
            mark = collector.mark()
            collector.current = (tup,)
            call = partial(operator.process_element, key, tup, stamp)
            try:
                self._limited(call, mark, function)
            except Exception as error:
                again = partial(self._limited, call, mark, function)
                undo = partial(self._undo, tup, mark, partial(batch.unchanged, index, self._env.codec))
                final = self._guarantee.input_raised(collector, mark, tup, error, again, undo)
                if final is not None:
                    errors.append(final)
                    continue
            collector.ack(tup)
        batch.done = index + 1
        collector.current = ()
        self.calls.settle(now)
        for raised in errors:
            self._reports.user_error(raised, now)
