"""Windows as a task. The guarantee is in the scope that the operator reports to: tracked, or repeated and checkpointed."""

from __future__ import annotations

from functools import partial

from topo.api.operator_bolts import WindowBolt
from topo.errors import FrameworkBug
from topo.ids import TaskId
from topo.operators.base import Operator, OperatorSnapshot
from topo.operators.bolt_operators import window_operator_of
from topo.operators.windows.operator import WindowOperator
from topo.task.batch import Batch
from topo.task.environment import TaskEnvironment, TaskSpec
from topo.task.events import RoutesChanged
from topo.task.flow_control import EdgeStatus
from topo.task.guarantees.checkpointed_windows import CheckpointedWindowScope
from topo.task.guarantees.tracked_windows import TrackedWindowScope
from topo.task.runners.inputs import VERDICTS
from topo.task.runners.operator import OperatorTask
from topo.wire.frames import Frame


class WindowTask(OperatorTask):
    """Runs a `WindowBolt`."""

    ACCEPTS = OperatorTask.ACCEPTS | VERDICTS

    def __init__(self, setup: TaskSpec, ports: TaskEnvironment) -> None:
        super().__init__(setup, ports)
        log = self._undo_log
        self._scope = TrackedWindowScope(self) if log is None else CheckpointedWindowScope(self, log)

    @property
    def _windows(self) -> WindowOperator:
        assert isinstance(self._operator, WindowOperator)
        return self._operator

    def _make_operator(self) -> Operator:
        bolt = self.component
        assert isinstance(bolt, WindowBolt)
        return window_operator_of(bolt, self._window_inputs, lambda size: self.ports.ids.roots(1)[0] % size)

    def _start_operator(self, snapshot: OperatorSnapshot | None = None) -> None:
        self._windows.scope = self._scope
        super()._start_operator(snapshot)

    def _reset(self, event: RoutesChanged, now: float) -> None:
        super()._reset(event, now)
        if not self.is_checkpointed:
            self._renew_operator()

    def _epoch_begins(self, now: float) -> None:
        super()._epoch_begins(now)
        self._scope.reset(self.epoch)

    # -- input -----------------------------------------------------------------------------------------------------------

    def _edges_in(self) -> list[TaskId]:
        verdicts = self.plan.ackers if self.id in self.plan.origins else ()
        return [*super()._edges_in(), *verdicts]

    @property
    def _has_ended(self) -> bool:
        return all(edge.status is EdgeStatus.FINISHED for edge in self.inbound.edges.values() if edge.sender not in self._ackers)

    def _run(self, batch: Batch, first: int, last: int, now: float) -> None:
        begin, windows, scope = first, self._windows, self._scope
        if self._ended_in_epoch:
            windows.goes_on()
        while first < last:
            keys, stamps = self._keys(batch, first, last), self._stamps_of(batch, first, last)
            rows = batch.to_cut(self._rows(batch, first, last))
            scope.begin_slice(batch, first, last)
            try:
                windows.process_batch(keys, rows, stamps)
                place = windows.position
            except FrameworkBug:
                raise
            except Exception as error:
                place = windows.position
                one = slice(place, place + 1)
                row = self._rows(batch, first + place, first + place + 1)
                scope.element_raised(place, partial(windows.process_batch, keys[one], row, stamps[one]), row[0], error, now)
            else:
                scope.took(place + 1, now)
            self.counters.late += windows.late_elements
            self.counters.late_dropped += windows.late_dropped
            windows.late_elements = windows.late_dropped = 0
            first += place + 1
            if not rows:
                break
        batch.done = first
        scope.end_slices(batch, begin, now)

    def _call_raised(self, error: Exception, now: float) -> None:
        self._scope.call_raised(error, now)

    def _user_end(self) -> None:
        self._fire_timers(self._operator.end_of_input, self.state.now)
        self._scope.end_of_input()

    # -- firings as roots ------------------------------------------------------------------------------------------------

    def _held_roots(self) -> dict[int, None]:
        return self._scope.held_roots()

    def _keep_waiting(self, roots: dict[int, None]) -> None:
        # Firings are roots of this task: the verdict that they are kept need not come from the ackers.
        super()._keep_waiting(roots | self._scope.touched(list(roots), self.state.now))

    @property
    def _pending(self) -> int:
        return self._scope.open_firings

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is in hand and nothing is owed that is due."""
        return super().is_quiet and not self._scope.owes

    def _settle(self, now: float) -> None:
        super()._settle(now)
        self._scope.settle(now)

    def _deadlines(self, now: float) -> list[float | None]:
        return [*super()._deadlines(now), self._scope.deadline()]

    def _run_due(self, now: float) -> None:
        super()._run_due(now)
        self._scope.on_time(now)

    def _flush_when_due(self, now: float) -> None:
        super()._flush_when_due(now)
        if self._owing_since is None and self._scope.flush_is_due():
            self._owing_since = now

    def _flush_ids(self) -> None:
        self._scope.flush()
        super()._flush_ids()

    def _process_verdicts(self, frame: Frame, now: float) -> None:
        self._scope.on_verdicts(frame, now)

    def validate(self) -> None:
        """Assert the invariants."""
        super().validate()
        self._scope.validate()

    def _levels(self) -> dict[str, float]:
        levels = super()._levels()
        return levels if self.is_checkpointed else {**levels, "open_firings": float(self._scope.open_firings)}
