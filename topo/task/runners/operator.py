"""The base of bolts that run an operator: windows, process functions, asynchronous calls, batches.

The operator knows elements, watermarks and timers; the task knows frames, anchors and ackers, and keeps the two in step. In a
tracked topology:

| bolt    | its output is anchored on          | its input is acked                                                  |
| ------- | ---------------------------------- | ------------------------------------------------------------------- |
| window  | its firing, which is a root        | when every pane that holds it is released and its firings are done  |
| process | the current tuple; timers: none    | when `process` returns                                              |
| async   | the tuple whose call it is         | when its results have been emitted                                  |

Everything that is not input (clock timers, async completions) comes as a mail, between slices of input. In a new epoch they
start with a new operator, because all inputs that it held are replayed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any

from topo.api.operator_bolts import OperatorBolt
from topo.checkpoint.alignment import Snapshot
from topo.errors import TopoInternalError
from topo.hot import Row
from topo.operators.base import KeyedOperator, Operator, OperatorContext, OperatorSnapshot
from topo.operators.mailbox.executor import CALL_PRIORITY, MailboxExecutor
from topo.operators.state.handles import KeyContext
from topo.operators.time.clock import TaskProcessingTime
from topo.operators.time.firing import fire_all
from topo.operators.time.timers import Brake
from topo.operators.time.watermarks import InputStatus
from topo.operators.windows.rows import source_name
from topo.task.batch import Batch
from topo.task.guarantees.inputs import InputGuarantee
from topo.task.operator_output import OperatorOutput
from topo.task.parts import TaskParts
from topo.task.runners.calls import AnchoredCalls


class OperatorKind(ABC):
    """Base of the kinds of bolts that run an operator.

    Args:
        parts: of the task.
        guarantee: of its inputs.
        output: of the operator.
        renews: whether an epoch without a checkpoint begins with a new operator: the inputs that the old one held are replayed.
    """

    holds_inputs = False

    def __init__(self, parts: TaskParts, guarantee: InputGuarantee, output: OperatorOutput, *, renews: bool) -> None:
        component, state, env = parts.spec.component, parts.state, parts.env
        assert isinstance(component, OperatorBolt)
        self.calls = AnchoredCalls(output.collector, guarantee, state)
        self._parts = parts
        self._state = state
        self._plan = state.plan
        self._config = state.config
        self._reports = parts.reports
        self._env = env
        self._guarantee = guarantee
        self._collector = output.collector
        self._renews = renews
        self._began_ms = env.wall_ms()
        self._began = env.clock()
        self._output = output
        self._key_indexes: dict[tuple[str, ...], tuple[int, ...]] = {}
        self._bolt_key = component.key
        self._keeps_sources = getattr(component, "sources", False)
        self._own_key = self._key_of_this_task() if getattr(component, "per_task", False) else None
        """The key of all elements where the user has given none."""
        self._clock = TaskProcessingTime(self._processing_ms, parts.executor.execute)
        self._brake = Brake()
        parts.cuts.append(self._pull_brake)
        self._news: list[int | InputStatus] = []
        """Event time of the current frame, from the watermark on whose timers have not all fired."""
        self._mails_have_run = False
        """Whether what mails have emitted, acked and failed is not settled yet."""
        self._operator = self._make_operator()
        self._is_set_up = False
        """Whether the operator has its state and timers."""

    # -- for the kinds ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def _make_operator(self) -> Operator:
        """Return a new operator, not set up yet."""

    @abstractmethod
    def run(self, batch: Batch, first: int, last: int, now: float) -> None:
        """Give the operator some tuples of the batch, and settle."""

    # -- life ------------------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Start the operator, and restore it."""
        self._start_operator()
        if self._state.restored:
            self.restore(self._state.restored)

    def begin_again(self, parts: list[Snapshot] | None, now: float) -> None:
        """Restore the operator where checkpoints have it; else make a new one, if it has held inputs."""
        self._news.clear()
        self._operator.is_behind = False
        self._collector.clear()
        if parts is not None:
            self.restore(parts)
        elif self._renews:
            self._renew_operator()

    def close(self) -> None:
        self._operator.close()

    def restore(self, parts: list[Snapshot]) -> None:
        """Replace the operator by a new one, which continues from a checkpoint; without parts, from the beginning."""
        self._replace_operator()
        whole = OperatorSnapshot.merged(OperatorSnapshot(dict(part.keyed()), list(part.values.get("own", ()))) for part in parts)
        self._start_operator(whole if parts else None)

    def snapshot(self, checkpoint: int) -> Snapshot:
        """Return the state of the operator."""
        return Snapshot(self._operator.freeze(), {"own": self._operator.own()})

    def _start_operator(self, snapshot: OperatorSnapshot | None = None) -> None:
        executor = MailboxExecutor(self._parts.mailbox, CALL_PRIORITY, partial(self._run_mail, self._operator))
        self._clock = TaskProcessingTime(self._processing_ms, executor.execute)
        self._operator.setup(
            OperatorContext(
                output=self._output,
                clock=self._clock,
                executor=executor,
                max_parallelism=self._plan.component(self._state.component_id).max_parallelism,
                key_groups=self._plan.key_groups(self._state.id),
                undo_log=self._guarantee.undo_log,
                brake=self._brake,
                metrics=self._parts.spec.context.metrics,
            )
        )
        self._is_set_up = True
        if snapshot is not None:
            self._operator.restore(snapshot)
        self._operator.open()

    def _replace_operator(self) -> None:
        """Close the operator and make a new one, not set up yet."""
        self._operator.close()
        self._operator = self._make_operator()
        self._is_set_up = False

    def _renew_operator(self) -> None:
        self._replace_operator()
        self._start_operator()

    # -- mails -----------------------------------------------------------------------------------------------------------

    def _run_mail(self, operator: Operator, action: Callable[[], object]) -> None:
        """Run a mail of an operator, unless another has taken its place."""
        if operator is self._operator:
            self._mails_have_run = True
            try:
                action()
            except TopoInternalError:
                raise
            except Exception as error:
                self._call_raised(error, self._state.now)

    def settle_mails(self, now: float) -> None:
        """Route the results of mails."""
        if self._mails_have_run:
            self._mails_have_run = False
            self.calls.settle(now)

    def _call_raised(self, error: Exception, now: float) -> None:
        """A timer or a firing has raised."""
        self._reports.user_error(error, now)

    # -- time ------------------------------------------------------------------------------------------------------------

    def _processing_ms(self) -> int:
        # Wall time at the start plus the time since: a wall clock that is set meanwhile moves no timer. A microsecond
        # more, so that a deadline that floats have rounded down is reached.
        return self._began_ms + int((self._env.clock() - self._began) * 1000 + 0.001)

    def deadlines(self) -> list[float | None]:
        """Return when the next timer of processing time is due."""
        due_ms = self._clock.next_due_ms
        return [None if due_ms is None else self._began + (due_ms - self._began_ms) / 1000]

    def on_time(self, now: float) -> None:
        """Make mails of the processing-time timers that are due."""
        self._brake.is_on = False
        self._clock.fire(self._processing_ms())

    def _pull_brake(self) -> None:
        """End the firing of timers soon; any thread may call it."""
        self._brake.is_on = True

    def pass_time(self, news: list[int | InputStatus], now: float) -> bool:
        """Give event time to the operator; False if the brake has left timers that are due: to be called again."""
        self._brake.is_on = False
        self._news += news
        while self._news:
            one = self._news[0]
            if isinstance(one, InputStatus):
                self._operator.process_idle(one is InputStatus.IDLE)
            else:
                self._take_watermark(one, now)
            if self._operator.is_behind:
                return False
            del self._news[0]
        return True

    def _take_watermark(self, watermark: int, now: float) -> None:
        self._fire_timers(lambda: self._operator.process_watermark(watermark), now)

    def _fire_timers(self, fire: Callable[[], object], now: float) -> None:
        """Have the operator fire all timers that are due; a timer that raises is not fired again."""
        fire_all(fire, lambda error: self._call_raised(error, now), self._fired)
        self.calls.settle(now)

    def _fired(self) -> int:
        """Return how many timers have begun to fire that raise here."""
        return 0

    # -- watching --------------------------------------------------------------------------------------------------------

    def levels(self) -> dict[str, float]:
        """Return the number of timers, and of entries of the state."""
        operator = self._operator
        if not self._is_set_up or not isinstance(operator, KeyedOperator):
            return {}
        return {"timers": float(operator.pending_timers), "state_entries": float(operator.state.entries)}

    # -- keys ------------------------------------------------------------------------------------------------------------

    def _keys(self, batch: Batch, first: int, last: int) -> Sequence[Any]:
        names = self._bolt_key
        rows = batch.rows[first:last]
        if not names:
            return [self._own_key] * len(rows)
        indexes = self._key_indexes.get(batch.origin.fields)
        if indexes is None:
            indexes = self._key_indexes[batch.origin.fields] = tuple(batch.origin.fields.index(name) for name in names)
        if len(indexes) == 1:
            (index,) = indexes
            return [row[index] for row in rows]
        return [tuple([row[i] for i in indexes]) for row in rows]

    def _key_of_this_task(self) -> int:
        """Return a key of this task's own key groups, so that its state is restored here."""
        groups = self._plan.key_groups(self._state.id)
        group_of = KeyContext(self._plan.component(self._state.component_id).max_parallelism).group_of
        return next(key for key in count() if group_of[key] in groups)

    def _rows(self, batch: Batch, first: int, last: int) -> list[Row]:
        """Return the rows of a slice as a window keeps them: with their source behind them, where the bolt asks for it."""
        rows = batch.rows[first:last]
        if not self._keeps_sources:
            return rows
        source = source_name(batch.origin.component, batch.origin.stream)
        return [(*row, source) for row in rows]
