"""What the tasks share that the operator core runs: windows, process functions and asynchronous calls.

The operator knows elements, watermarks and timers; the task knows frames, anchors and ackers, and keeps the two in step. In a
tracked topology:

| bolt    | what its output is anchored on     | when its input is acked                                             |
| ------- | ---------------------------------- | ------------------------------------------------------------------- |
| window  | the firing's own root (see panes)  | when every pane that holds it is released and its firings are done  |
| process | the tuple in hand; timers: nothing | when `process` returns                                              |
| async   | the tuple whose call it is         | when its results have been emitted                                  |

Everything that is not input (clock timers, async completions) comes as a mail, between slices of input. At a new epoch a window
bolt and an async bolt begin anew, since every input that they held comes again.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any

from topo.api.operator_bolts import OperatorBolt
from topo.api.tuples import Origin, Tuple
from topo.checkpoint.alignment import Snapshot
from topo.emission.collectors import BoltCollector, TrackedTuple
from topo.errors import FrameworkBug
from topo.ids import TaskId
from topo.operators.base import KeyedOperator, Operator, OperatorContext, OperatorSnapshot
from topo.operators.mailbox.executor import CALL_PRIORITY, MailboxExecutor
from topo.operators.state.undo_log import UndoLog
from topo.operators.time.clock import TaskProcessingTime
from topo.operators.time.timers import Brake
from topo.operators.time.watermarks import InputStatus
from topo.operators.windows.operator import WindowOperator
from topo.operators.windows.rows import source_name
from topo.task.batch import Batch, Row
from topo.task.environment import TaskEnvironment, TaskSpec
from topo.task.events import RoutesChanged
from topo.task.flow_control import InEdge
from topo.task.runners.bolt import AnchoringTask
from topo.task.time_units import SuspiciousTimestamps, suspicion
from topo.wire.frames import Frame


class _Output:
    """Takes what the operator puts out: rows with the anchors of the moment, and event time behind them."""

    def __init__(self, collector: BoltCollector, tell: Callable[[int | None, bool | None], None]) -> None:
        self._collector = collector
        self._report_to_master = tell
        self.anchors: tuple[TrackedTuple, ...] = ()
        self.side_anchors: Callable[[str], tuple[TrackedTuple, ...]] = lambda _stream: self.anchors

    def emit(self, value: Any, timestamp: int | None) -> None:
        """Put out one element."""
        self._collector.emit_stamped(value, self.anchors, timestamp)

    def side(self, stream: str, value: Any, timestamp: int | None) -> None:
        """Put out one element on another stream."""
        self._collector.emit(value, self.side_anchors(stream), stream, timestamp)

    def watermark(self, timestamp: int) -> None:
        """Pass a watermark on."""
        self._report_to_master(timestamp, None)

    def mark_idle(self) -> None:
        """Pass idleness on."""
        self._report_to_master(None, True)

    def mark_active(self) -> None:
        """Take it back."""
        self._report_to_master(None, False)


class OperatorTask(AnchoringTask):
    """What the three kinds share."""

    def __init__(self, setup: TaskSpec, ports: TaskEnvironment) -> None:
        if not isinstance(setup.component, OperatorBolt):
            raise FrameworkBug(f"{setup.component!r} is not an operator bolt")
        super().__init__(setup, ports)
        # What it emits belongs to the call at hand.
        self._collector.takes_calls = False
        self.component = setup.component
        self._began_ms = ports.wall_ms()
        self._began = ports.clock()
        self._output = _Output(self._collector, self._put_out_time)
        self._window_inputs = [
            Origin(one.source, 0, one.stream, self.plan.fields(one.source, one.stream))
            for one in self.plan.inputs_of(self.component_id)
        ]
        self._key_indexes: dict[tuple[str, ...], tuple[int, ...]] = {}
        self._bolt_key = setup.component.key
        self._keeps_sources = getattr(setup.component, "sources", False)
        self._own_key = self._key_of_this_task() if getattr(setup.component, "per_task", False) else None
        """The key of all elements where the user has given none."""
        self._clock = TaskProcessingTime(self._processing_ms, self.executor.execute)
        self._brake = Brake()
        self._news: list[int | InputStatus] = []
        """What the frame at hand says of event time, from the watermark on whose timers have not all fired."""
        self._undo_log = UndoLog() if self.is_checkpointed else None
        self._operator = self._make_operator()
        self._looks_at_time = True

    # -- for the kinds ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def _make_operator(self) -> Operator:
        """Return a new operator, not set up yet."""

    # -- life ------------------------------------------------------------------------------------------------------------

    def _processing_ms(self) -> int:
        # Wall time at the start plus what has passed since: a wall clock that is set meanwhile moves no timer. A microsecond
        # more, so that a deadline that floats have rounded down is reached when it is there.
        return self._began_ms + int((self.ports.clock() - self._began) * 1000 + 0.001)

    def _start_operator(self, snapshot: OperatorSnapshot | None = None) -> None:
        component = self.plan.component(self.component_id)
        executor = MailboxExecutor(self.mailbox, CALL_PRIORITY, partial(self._run_mail, self._operator))
        self._clock = TaskProcessingTime(self._processing_ms, executor.execute)
        self._operator.setup(
            OperatorContext(
                output=self._output,
                clock=self._clock,
                executor=executor,
                max_parallelism=component.max_parallelism,
                key_groups=self.plan.key_groups(self.id),
                undo_log=self._undo_log,
                brake=self._brake,
            )
        )
        if snapshot is not None:
            self._operator.restore(snapshot)
        self._operator.open()

    def _renew_operator(self) -> None:
        """Begin anew: what the operator held comes again."""
        self._operator.close()
        self._operator = self._make_operator()
        self._start_operator()

    def _run_mail(self, operator: Operator, action: Callable[[], object]) -> None:
        """Run a mail of an operator, unless another has taken its place."""
        if operator is self._operator:
            try:
                action()
            except FrameworkBug:
                raise
            except Exception as error:
                self._call_raised(error, self.state.now)

    def _user_prepare(self) -> None:
        self._start_operator()

    def _reset(self, event: RoutesChanged, now: float) -> None:
        self._news.clear()
        self._operator.is_behind = False
        self._collector.clear()
        super()._reset(event, now)

    def _snapshot(self, checkpoint: int) -> Snapshot:
        snapshot = super()._snapshot(checkpoint)
        return Snapshot(self._operator.freeze(), {**snapshot.values, "own": self._operator.own()})

    def _restore_user(self, parts: list[Snapshot]) -> None:
        self._operator.close()
        self._operator = self._make_operator()
        whole = OperatorSnapshot.merged(OperatorSnapshot(dict(part.keyed()), list(part.values.get("own", ()))) for part in parts)
        self._start_operator(whole if parts else None)

    @property
    def _user(self) -> Any:
        return self

    def on_reset(self) -> None:
        """Nothing that is the user's is told."""

    def cleanup(self) -> None:
        """Close the operator at an orderly end."""
        self._operator.close()

    def _user_tick(self, tup: Tuple) -> None:
        """Nothing: these bolts have timers."""

    def _user_end(self) -> None:
        self._operator.end_of_input()

    # -- time ------------------------------------------------------------------------------------------------------------

    def _deadlines(self, now: float) -> list[float | None]:
        due_ms = self._clock.next_deadline_ms()
        timers = None if due_ms is None else self._began + (due_ms - self._began_ms) / 1000
        return [*super()._deadlines(now), timers]

    def _turn(self, now: float) -> None:
        if self.state.is_working:
            self._brake.is_on = False
            self._clock.fire(self._processing_ms())
            super()._turn(now)
            self._settle(now)
            self._flush_when_due(now)

    def cut_short(self) -> None:
        """End the slice of input or the firing of timers at hand soon; any thread may call it."""
        super().cut_short()
        self._brake.is_on = True

    @property
    def _is_held_up(self) -> bool:
        return super()._is_held_up or bool(self.inbound.queue)

    def _process(self, edge: InEdge, frame: Frame, now: float) -> bool:
        if self._news:
            # The frame was processed but for its timers. To process it once more says nothing new of event time.
            self._pass_time([], now)
        return not self._news and super()._process(edge, frame, now) and not self._operator.is_behind

    def _pass_time(self, news: list[int | InputStatus], now: float) -> None:
        self._brake.is_on = False
        self._news += news
        while self._news:
            super()._pass_time(self._news[:1], now)
            if self._operator.is_behind:
                return
            del self._news[0]

    def _input_ended(self, now: float) -> None:
        if self._news:
            return
        if self._has_ended and not self._has_passed_end and isinstance(self._operator, WindowOperator):
            self._brake.is_on = False
            self._fire_timers(self._operator.end_clock, now)
            if self._operator.is_behind:
                return
        super()._input_ended(now)

    def _on_watermark(self, watermark: int, now: float) -> None:
        self._fire_timers(lambda: self._operator.process_watermark(watermark), now)

    def _fire_timers(self, fire: Callable[[], object], now: float) -> None:
        """Have the operator fire what is due, again after each timer that raises: that one is gone, the others are not."""
        while True:
            try:
                fire()
                break
            except FrameworkBug:
                raise
            except Exception as error:
                self._call_raised(error, now)
        self._settle(now)

    def _on_input_idle(self, idle: bool, now: float) -> None:
        self._operator.process_idle(idle)

    def _put_out_time(self, watermark: int | None, idle: bool | None) -> None:
        self._settle(self.state.now)
        if self._output_watermarks.is_used:
            return
        if watermark is not None:
            self._output_watermarks.watermark(watermark)
        if idle is not None:
            self._output_watermarks.is_idle = idle
        self._send_event_time()

    def _call_raised(self, error: Exception, now: float) -> None:
        """A timer or a firing has raised."""
        self._user_error(error, now)

    def _levels(self) -> dict[str, float]:
        levels, operator = super()._levels(), self._operator
        if self._is_open and isinstance(operator, KeyedOperator):
            levels |= {"timers": float(operator.timers.pending), "state_entries": float(operator.state.entries)}
            if isinstance(operator, WindowOperator):
                levels["open_windows"] = float(operator.open_panes)
        return levels

    def _process_data(self, frame: Frame, now: float) -> bool:
        if self._looks_at_time and frame.timestamps and self._batch is None:
            self._look_at_time(frame, now)
        return super()._process_data(frame, now)

    def _look_at_time(self, frame: Frame, now: float) -> None:
        """Say once that timestamps are no milliseconds, by the first of a frame."""
        why = suspicion(int.from_bytes(frame.timestamps[:8], "little", signed=True))
        if why is not None:
            self._looks_at_time = False
            source = self.plan.task(TaskId(frame.sender)).component
            where = f"component {self.component_id!r}: a tuple of {source!r} has a timestamp in another unit"
            self.reports.record(SuspiciousTimestamps(f"{where}: {why}"), now)

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
        groups = self.plan.key_groups(self.id)
        return next(key for key in count() if self._key_groups[key] in groups)

    def _rows(self, batch: Batch, first: int, last: int) -> list[Row]:
        """Return the rows of a slice as a window keeps them: with their source behind them, where the bolt asks for it."""
        rows = batch.rows[first:last]
        if not self._keeps_sources:
            return rows
        source = source_name(batch.origin.component, batch.origin.stream)
        return [(*row, source) for row in rows]

    def _stamps_of(self, batch: Batch, first: int, last: int) -> Sequence[int | None]:
        return [None] * (last - first) if batch.stamps is None else batch.stamps[first:last]
