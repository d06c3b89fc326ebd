"""Process functions as a task: each tuple and each timer is a call whose effects can be taken back."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from topo.api.operator_bolts import ProcessBolt
from topo.emission.collectors import Mark, TrackedTuple
from topo.operators.base import Operator
from topo.operators.process import ProcessOperator
from topo.task.batch import Batch
from topo.task.runners.operator import OperatorTask
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


class ProcessTask(OperatorTask):
    """Runs a `ProcessBolt`."""

    def _make_operator(self) -> Operator:
        assert isinstance(self.component, ProcessBolt)
        return ProcessOperator(TimersApart(self.component, self._on_timer))

    def _on_timer(self, timestamp: int, call: Callable[[], object]) -> None:
        """Call the user for one timer. If it raises, what it has emitted is discarded."""
        operator = self._operator
        assert isinstance(operator, ProcessOperator)
        mark = self._collector.mark()

        def undo() -> None:
            operator.undo()
            self._collector.roll_back(mark, None)

        function = self.component.on_timer  # type: ignore[attr-defined]
        limited = partial(self._limited, call, mark, function)
        try:
            limited()
        except Exception as error:
            if not self.is_checkpointed:
                self._roll_back(mark, None, error)
                self._lose_call(error, self.state.now)
                return
            undo()
            final = self._try_again(limited, undo, error)
            if final is not None:
                self.counters.failed += 1
                self._give_up((operator.keys.key, timestamp), final)
                self._user_error(final, self.state.now)

    def _limited(self, call: Callable[[], object], mark: Mark, function: Callable[..., object]) -> None:
        """Make one call of a user's function. Raises when it has emitted too much since the mark, or has returned a value."""
        if (value := call()) is not None:
            raise returned(function, value)
        self._collector.check_emitted(self._collector.count() - mark.emitted, self.config.max_task_emit)

    def _run(self, batch: Batch, first: int, last: int, now: float) -> None:
        collector, operator, output = self._collector, self._operator, self._output
        assert isinstance(operator, ProcessOperator)
        keys = self._keys(batch, first, last)
        errors: list[Exception] = []
        function = self.component.process  # type: ignore[attr-defined]
        index = first - 1
        for (index, values, stamp), key in zip(batch.inputs(first, last), keys):  # noqa: B905
            tup = TrackedTuple.made(values, batch.origin, stamp, self.epoch, *batch.ids_at(index))
            mark = collector.mark()
            output.anchors = (tup,)
            call = partial(operator.process_element, key, tup, stamp)
            try:
                self._limited(call, mark, function)
            except Exception as error:
                if not self.is_checkpointed:
                    self._roll_back(mark, tup, error)
                    errors.append(error)
                    continue
                again = partial(self._limited, call, mark, function)
                arrived = partial(batch.unchanged, index, self.ports.codec)
                final = self._try_tuple_again(again, mark, tup, error, operator.undo, arrived)
                if final is not None:
                    errors.append(final)
                    continue
            collector.ack(tup)
        batch.done = index + 1
        output.anchors = ()
        self._settle(now)
        for raised in errors:
            self._user_error(raised, now)
