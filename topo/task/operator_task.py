"""Bolts that the operator core runs: windows, process functions and asynchronous calls, in a tracked topology.

The operator knows elements, watermarks and timers; this task knows frames, anchors and ackers, and keeps the two in step:

| bolt    | what its output is anchored on     | when its input is acked                                             |
| ------- | ---------------------------------- | ------------------------------------------------------------------- |
| window  | the firing's own root (see panes)  | when every pane that holds it is released and its firings are done  |
| process | the tuple in hand; timers: nothing | when `process` returns                                              |
| async   | the tuple whose call it is         | when its results have been emitted                                  |

Everything that is not input (clock timers, async completions) comes as a mail, between slices of input. At a new epoch a window
bolt and an async bolt begin anew, since every input that they held comes again.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from topo.api.operator_bolts import AsyncBolt, OperatorBolt, ProcessBolt, WindowBolt
from topo.api.tuples import Origin, Tuple
from topo.errors import FrameworkBug
from topo.ids import TaskId
from topo.operators.async_wait import AsyncWaitOperator, joined_inputs
from topo.operators.base import Operator, OperatorContext, OperatorSnapshot
from topo.operators.bolt_operators import BoltCalls, window_operator_of
from topo.operators.clock import TaskProcessingTime
from topo.operators.mailbox import RejectedExecution
from topo.operators.process import ProcessOperator
from topo.operators.windowing import WindowOperator
from topo.task.base import AsyncDone, Ports, TaskSetup
from topo.task.batch import Batch
from topo.task.collectors import BoltCollector, Mark, TrackedTuple, TupleState
from topo.task.events import RoutesChanged
from topo.task.executor import TaskExecutor
from topo.task.flow_control import EdgeStatus, InEdge
from topo.task.panes import Firing, PaneLedger
from topo.task.snapshots import Snapshot
from topo.task.tracking_bolt_task import AnchoringTask
from topo.wire.frames import Anchoring, Frame, FrameKind, pack_words

_LOG = logging.getLogger("topo.task")


class _Output:
    """Takes what the operator puts out: rows with the anchors of the moment, and event time behind them."""

    def __init__(self, collector: BoltCollector, tell: Callable[[int | None, bool | None], None]) -> None:
        self._collector = collector
        self._tell = tell
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
        self._tell(timestamp, None)

    def mark_idle(self) -> None:
        """Pass idleness on."""
        self._tell(None, True)

    def mark_active(self) -> None:
        """Take it back."""
        self._tell(None, False)


class OperatorTask(AnchoringTask):
    """What the three kinds share."""

    def __init__(self, setup: TaskSetup, ports: Ports) -> None:
        if not isinstance(setup.component, OperatorBolt):
            raise FrameworkBug(f"{setup.component!r} is not an operator bolt")
        super().__init__(setup, ports)
        self.component = setup.component
        self._began_ms = ports.wall_ms()
        self._began = ports.clock()
        self._output = _Output(self._collector, self._put_out_time)
        inputs = self.plan.inputs_of(self.component_id)
        self.input_fields = self.plan.fields(inputs[0].source, inputs[0].stream)
        self._key_indexes: dict[tuple[str, ...], tuple[int, ...]] = {}
        self._bolt_key = setup.component.key
        self._clock = TaskProcessingTime(self._processing_ms, self.processor.executor().execute)
        self._operator = self._make_operator()

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
        executor = TaskExecutor(self.mailbox, partial(self._run_mail, self._operator))
        self._clock = TaskProcessingTime(self._processing_ms, executor.execute)
        self._operator.setup(
            OperatorContext(
                output=self._output,
                clock=self._clock,
                executor=executor,
                max_parallelism=component.max_parallelism,
                key_groups=self.plan.key_groups(self.id),
                can_undo=self.is_checkpointed,
                on_call=self._on_call,
            )
        )
        if snapshot is not None:
            self._operator.restore(snapshot)
        self._operator.open()

    def _on_call(self) -> None:
        """The operator calls user code for one element or timer; told only where what it changes can be undone."""

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
                self._call_raised(error, self._now)

    def _user_prepare(self) -> None:
        self._start_operator()

    def _reset(self, event: RoutesChanged, now: float) -> None:
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
        if self._is_open and not self.is_closed:
            self._clock.fire(self._processing_ms())
            super()._turn(now)
            self._settle(now)
            self._flush_when_due(now)

    def _on_watermark(self, watermark: int, now: float) -> None:
        while True:
            try:
                self._operator.process_watermark(watermark)
                break
            except FrameworkBug:
                raise
            except Exception as error:
                # The timer that raised is gone; go on with the others.
                self._call_raised(error, now)
        self._settle(now)

    def _on_input_idle(self, idle: bool, now: float) -> None:
        self._operator.process_idle(idle)

    def _put_out_time(self, watermark: int | None, idle: bool | None) -> None:
        self._settle(self._now)
        if self._emission_time.is_used:
            return
        if watermark is not None:
            self._emission_time.watermark(watermark)
        if idle is not None:
            self._emission_time.is_idle = idle
        self._tell_time()

    def _call_raised(self, error: Exception, now: float) -> None:
        """A timer or a firing has raised."""
        self._user_error(error, now)

    # -- keys ------------------------------------------------------------------------------------------------------------

    def _keys(self, batch: Batch, first: int, last: int) -> Sequence[Any]:
        names = self._bolt_key
        rows = batch.rows[first:last]
        if not names:
            return [None] * len(rows)
        indexes = self._key_indexes.get(batch.origin.fields)
        if indexes is None:
            indexes = self._key_indexes[batch.origin.fields] = tuple(batch.origin.fields.index(name) for name in names)
        if len(indexes) == 1:
            (index,) = indexes
            return [row[index] for row in rows]
        return [tuple([row[i] for i in indexes]) for row in rows]

    def _stamps_of(self, batch: Batch, first: int, last: int) -> Sequence[int | None]:
        return [None] * (last - first) if batch.stamps is None else batch.stamps[first:last]


class _TimersApart:
    """The user's process function with another way to call `on_timer`."""

    def __init__(self, bolt: ProcessBolt, call: Callable[[Callable[[], None]], None]) -> None:
        self.open = bolt.open
        self.process = bolt.process
        self.close = bolt.close
        self._on_timer = bolt.on_timer
        self._call = call

    def on_timer(self, timestamp: int, context: Any, collector: Any) -> None:
        """Call the user for one timer."""
        self._call(lambda: self._on_timer(timestamp, context, collector))


class ProcessTask(OperatorTask):
    """Runs a `ProcessBolt`."""

    def _make_operator(self) -> Operator:
        assert isinstance(self.component, ProcessBolt)
        return ProcessOperator(_TimersApart(self.component, self._on_timer))

    def _on_timer(self, call: Callable[[], None]) -> None:
        """Call the user for one timer. If it raises, what it has emitted is discarded."""
        operator = self._operator
        assert isinstance(operator, ProcessOperator)
        mark = self._collector.mark()

        def undo() -> None:
            operator.undo()
            self._collector.roll_back(mark, None)

        try:
            call()
        except Exception as error:
            if not self.is_checkpointed:
                self._roll_back(mark, None, error)
                self._user_error(error, self._now)
                return
            undo()
            final = self._try_again(call, undo, error)
            if final is not None:
                self._user_error(final, self._now)

    def _run(self, batch: Batch, first: int, last: int, now: float) -> None:
        collector, operator, output = self._collector, self._operator, self._output
        assert isinstance(operator, ProcessOperator)
        keys = self._keys(batch, first, last)
        errors: list[Exception] = []
        for index, key in zip(range(first, last), keys, strict=True):
            stamp = None if batch.stamps is None else batch.stamps[index]
            tup = TrackedTuple.made(batch.rows[index], batch.origin, stamp, self.epoch, *batch.ids_at(index))
            mark = collector.mark()
            output.anchors = (tup,)
            try:
                operator.process_element(key, tup, stamp)
            except Exception as error:
                if not self.is_checkpointed:
                    self._roll_back(mark, tup, error)
                    errors.append(error)
                    continue
                final = self._try_tuple_again(partial(operator.process_element, key, tup, stamp), mark, tup, error, operator.undo)
                if final is not None:
                    errors.append(final)
                    continue
            collector.ack(tup)
        output.anchors = ()
        self._settle(now)
        for raised in errors:
            self._user_error(raised, now)

    def _levels(self) -> dict[str, float]:
        operator = self._operator
        assert isinstance(operator, ProcessOperator)
        if not self._is_open:
            return super()._levels()
        return {
            **super()._levels(),
            "timers": float(operator.timers.pending),
            "state_entries": float(operator.state.entries),
        }


class CheckpointedWindowTask(OperatorTask):
    """Runs a `WindowBolt` whose windows are in the checkpoints: no input is tracked."""

    _call: tuple[int, Mark] | None = None
    """Which element of the batch the last call was for, and what had been emitted before it."""

    def _on_call(self) -> None:
        operator = self._operator
        assert isinstance(operator, WindowOperator)
        self._call = operator.position, self._collector.mark()

    def _undo_call(self, place: int) -> None:
        """Take back what the call for an element has done before it raised."""
        operator = self._operator
        assert isinstance(operator, WindowOperator)
        operator.undo()
        # Without a call for it, the element has been taken the short way, which changes nothing when it raises.
        if self._call is not None and self._call[0] == place:
            self._collector.rewind(self._call[1])

    def _make_operator(self) -> Operator:
        bolt = self.component
        assert isinstance(bolt, WindowBolt)
        return window_operator_of(bolt, self.input_fields, lambda size: self.ports.ids.roots(1)[0] % size)

    def _run(self, batch: Batch, first: int, last: int, now: float) -> None:
        operator = self._operator
        assert isinstance(operator, WindowOperator)
        errors: list[Exception] = []
        count = last - first
        while first < last:
            keys, stamps, rows = self._keys(batch, first, last), self._stamps_of(batch, first, last), batch.rows[first:last]
            self._call = None
            try:
                operator.process_batch(keys, rows, stamps)
                taken = last - first
            except FrameworkBug:
                raise
            except Exception as error:
                place = operator.position
                one = slice(place, place + 1)
                undo = partial(self._undo_call, place)
                undo()
                final = self._try_again(partial(operator.process_batch, keys[one], rows[one], stamps[one]), undo, error)
                if final is not None:
                    errors.append(final)
                    self.counters.failed += 1
                    self._give_up(rows[place], final)
                taken = place + 1
            first += taken
        self.counters.acked += count - len(errors)
        self.counters.late += operator.late_elements
        self.counters.late_dropped += operator.late_dropped
        operator.late_elements = operator.late_dropped = 0
        self._settle(now)
        for raised in errors:
            self._user_error(raised, now)

    def _levels(self) -> dict[str, float]:
        operator = self._operator
        assert isinstance(operator, WindowOperator)
        if not self._is_open:
            return super()._levels()
        return {
            **super()._levels(),
            "open_windows": float(operator.open_panes),
            "timers": float(operator.timers.pending),
            "state_entries": float(operator.state.entries),
        }


class WindowTask(OperatorTask):
    """Runs a `WindowBolt` in a tracked topology."""

    ACCEPTS = OperatorTask.ACCEPTS | {FrameKind.ACKED, FrameKind.FAILED, FrameKind.TOUCHED}

    def __init__(self, setup: TaskSetup, ports: Ports) -> None:
        self.ledger = PaneLedger(ports.ids, self._on_firing)
        self._firing_mark: Mark | None = None
        super().__init__(setup, ports)
        self._at_hand: dict[int, TrackedTuple] = {}
        self._inits: list[tuple[int, int]] = []
        self._output.side_anchors = self._side_anchors
        self._running: tuple[Batch, int] | None = None

    def _make_operator(self) -> Operator:
        bolt = self.component
        assert isinstance(bolt, WindowBolt)
        return window_operator_of(bolt, self.input_fields, lambda size: self.ports.ids.roots(1)[0] % size, self.ledger)

    def _reset(self, event: RoutesChanged, now: float) -> None:
        super()._reset(event, now)
        self._inits.clear()
        self._renew_operator()

    def _epoch_begins(self, now: float) -> None:
        super()._epoch_begins(now)
        self.ledger.reset(self.epoch)

    def _edges_in(self) -> list[TaskId]:
        return [*super()._edges_in(), *self.plan.ackers]

    @property
    def _has_ended(self) -> bool:
        return all(edge.status is EdgeStatus.FINISHED for edge in self.inputs.values() if edge.sender not in self._ackers)

    @property
    def _pending(self) -> int:
        return self.ledger.open_firings

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is in hand and nothing is owed that is due."""
        return super().is_quiet and not self.ledger.acks and not self.ledger.fails

    def _on_firing(self, firing: Firing | None) -> None:
        """A pane fires: its results are anchored on the firing."""
        self._output.anchors = () if firing is None else (firing.anchor,)
        self._firing_mark = self._collector.mark()

    def _run(self, batch: Batch, first: int, last: int, now: float) -> None:
        operator = self._operator
        assert isinstance(operator, WindowOperator)
        is_single = batch.anchoring is Anchoring.SINGLE
        while first < last:
            keys, stamps, rows = self._keys(batch, first, last), self._stamps_of(batch, first, last), batch.rows[first:last]
            if batch.anchoring is Anchoring.NONE:
                roots = edges = [()] * (last - first)
            else:
                roots, edges = batch.roots[first:last], batch.edges[first:last]
            self.ledger.begin(roots, edges, is_single=is_single)
            self._running = (batch, first)
            self._firing_mark = None
            taken, error = last - first, None
            try:
                operator.process_batch(keys, rows, stamps)
            except FrameworkBug:
                raise
            except Exception as raised:
                taken, error = operator.position, raised
                self._discard_firing(raised)
            self._ack_unheld(batch, first, taken, now)
            first += taken
            if error is not None:
                self._fail(batch.ids_at(first)[0], error)
                self.counters.failed += 1
                first += 1
                self._user_error(error, now)
        self._running = None
        if self._ended_in_epoch:
            self.ledger.release_all()
        self._settle(now)

    def _ack_unheld(self, batch: Batch, first: int, taken: int, now: float) -> None:
        """Ack what no window took: late, and dropped or put out on the late stream, or in a gap between windows."""
        self._settle(now)
        acks, operator = self._acks, self._operator
        assert isinstance(operator, WindowOperator)
        self.counters.late += operator.late_elements
        self.counters.late_dropped += operator.late_dropped
        operator.late_elements = operator.late_dropped = 0
        for position in self.ledger.unheld():
            if position < taken:
                self.counters.acked += 1
                late = self._at_hand.get(position)
                out = 0 if late is None else late.out
                for root, edge in zip(*batch.ids_at(first + position), strict=True):
                    acks[root] = acks.get(root, 0) ^ edge ^ out
        self._at_hand.clear()

    def _side_anchors(self, stream: str) -> tuple[TrackedTuple, ...]:
        """Return what a side output is anchored on: the element at hand where it is a late one, else the firing."""
        bolt, operator = self.component, self._operator
        assert isinstance(bolt, WindowBolt) and isinstance(operator, WindowOperator)
        if stream != bolt.late_stream or self._running is None:
            return self._output.anchors
        batch, first = self._running
        position = operator.position
        late = TrackedTuple.made((), batch.origin, None, self.epoch, *batch.ids_at(first + position))
        self._at_hand[position] = late
        return (late,)

    def _call_raised(self, error: Exception, now: float) -> None:
        self._discard_firing(error)
        super()._call_raised(error, now)

    def _discard_firing(self, error: Exception) -> None:
        """The firing at hand has raised: what it has put out is discarded, and its inputs fail."""
        if self.ledger.current is not None and self._firing_mark is not None:
            self._roll_back(self._firing_mark, None, error)
            self.ledger.fail_current()
            self._causes.note(self.ledger.fails, error)

    def _user_end(self) -> None:
        super()._user_end()
        self._settle(self._now)
        self.ledger.release_all()

    def _settle(self, now: float) -> None:
        super()._settle(now)
        self._output.anchors = ()
        self._firing_mark = None
        ledger = self.ledger
        self._inits += ledger.take_firings(now)
        self.counters.acked += ledger.acked
        ledger.acked = 0
        if not self._acks:
            self._acks, ledger.acks = ledger.acks, self._acks
        elif ledger.acks:
            acks = self._acks
            for root, value in ledger.acks.items():
                acks[root] = acks.get(root, 0) ^ value
            ledger.acks.clear()
        if ledger.fails:
            self._fails.update(ledger.fails)
            ledger.fails.clear()

    def _deadlines(self, now: float) -> list[float | None]:
        oldest, timeout = self.ledger.oldest_firing(), self.plan.longest_message_timeout_s
        expires = None if oldest is None or timeout is None else oldest + timeout
        return [*super()._deadlines(now), expires]

    def _run_due(self, now: float) -> None:
        super()._run_due(now)
        timeout = self.plan.longest_message_timeout_s
        # Verdicts that came while the process was held up count before the timeouts of the same time.
        if timeout is not None and not self.queue and self.ledger.oldest_firing() is not None:
            self.counters.timed_out += self.ledger.expire(now, timeout)

    def _flush_when_due(self, now: float) -> None:
        super()._flush_when_due(now)
        if self._inits and self._owing_since is None:
            self._owing_since = now

    def _flush_ids(self) -> None:
        if self._inits and self._ackers:
            inits, self._inits = self._inits, []
            for share, acker in enumerate(self._ackers):
                mine = [(root, value) for root, value in inits if root % len(self._ackers) == share]
                if mine:
                    roots, values = zip(*mine, strict=True)
                    self.outbox.put_ids(FrameKind.INIT, acker, pack_words(roots), pack_words(values))
        super()._flush_ids()

    def _process_other(self, edge: InEdge, frame: Frame, now: float) -> None:
        if frame.kind is FrameKind.ACKED:
            self.ledger.completed(frame.root_list())
        elif frame.kind is FrameKind.FAILED:
            self.ledger.failed(frame.root_list())
        else:
            self._touches.update(self.ledger.touched(frame.root_list()))
        self._settle(now)

    def validate(self) -> None:
        """Assert the invariants."""
        super().validate()
        self.ledger.validate()

    def _levels(self) -> dict[str, float]:
        operator = self._operator
        assert isinstance(operator, WindowOperator)
        if not self._is_open:
            return super()._levels()
        return {
            **super()._levels(),
            "open_windows": float(operator.open_panes),
            "timers": float(operator.timers.pending),
            "state_entries": float(operator.state.entries),
            "open_firings": float(self.ledger.open_firings),
        }


class AsyncTask(OperatorTask):
    """Runs an `AsyncBolt`. A full queue takes no further input; its mails go on."""

    def __init__(self, setup: TaskSetup, ports: Ports) -> None:
        if not isinstance(setup.component, AsyncBolt) or ports.run_async is None:
            raise FrameworkBug("an async bolt without an event loop")
        self._bolt, self._run_async = setup.component, ports.run_async
        self._is_user_open = False
        self._end_waits = False
        self._mark: Mark | None = None
        self._to_restore: list[dict[str, Any]] = []
        """Inputs of a checkpoint that have not been invoked again yet."""
        super().__init__(setup, ports)

    def _run_call(self, call: Coroutine[Any, Any, Any], done: AsyncDone) -> None:
        self._run_async(call, done, self._on_blocked)

    def _on_blocked(self, error: Exception) -> None:
        """A call holds up the event loop; told on another thread."""
        with suppress(RejectedExecution):
            self.processor.executor().execute(lambda: self._record_error(error, self._now), "a blocking call")

    def _make_operator(self) -> Operator:
        return AsyncWaitOperator(BoltCalls(self._bolt, self._run_call), self._bolt.settings, self)

    def _user_prepare(self) -> None:
        self._run_call(self._bolt.open(self.context), self._on_user_open)
        super()._user_prepare()

    def _on_user_open(self, _result: Any, error: BaseException | None) -> None:
        """`open` has returned or raised; told on the event loop's thread."""

        def note() -> None:
            if error is not None:
                raise error
            self._is_user_open = True
            self._invoke_restored()

        with suppress(RejectedExecution):
            self.processor.executor().execute(note, "the user's open has returned")

    def _snapshot(self, checkpoint: int) -> Snapshot:
        snapshot = super()._snapshot(checkpoint)
        snapshot.values["own"] = [
            one if "watermark" in one else {**one, "value": _stored_tuple(one["value"])}
            for one in [*snapshot.values["own"], *self._to_restore]
        ]
        return snapshot

    def _restore_user(self, parts: list[Snapshot]) -> None:
        """Begin anew; what was in flight is invoked again when the edges and the user's bolt are open."""
        super()._restore_user([])
        self._to_restore = [
            one if "watermark" in one else {**one, "value": self._restored_tuple(one["value"], one["timestamp"])}
            for one in joined_inputs(part.values.get("own", ()) for part in parts)
        ]

    def _restored_tuple(self, stored: tuple[Any, ...], timestamp: int | None) -> TrackedTuple:
        values, *origin = stored
        return TrackedTuple.made(values, Origin(*origin), timestamp, self.epoch, (), ())

    def _edges_are_open(self, now: float) -> None:
        super()._edges_are_open(now)
        self._invoke_restored()

    def _invoke_restored(self) -> None:
        if self._is_user_open and self._to_restore:
            restored, self._to_restore = self._to_restore, []
            self._operator.close()
            self._operator = self._make_operator()
            self._start_operator(OperatorSnapshot(own=restored))

    def cleanup(self) -> None:
        """Close the operator, then the user's bolt; whoever runs the calls lets this one end."""
        super().cleanup()
        if self._is_user_open:
            self._run_call(self._bolt.close(), self._on_user_closed)

    def _on_user_closed(self, _result: Any, error: BaseException | None) -> None:
        if error is not None:
            _LOG.error("close of component %r raised", self.component_id, exc_info=error)

    @property
    def _wait(self) -> AsyncWaitOperator:
        assert isinstance(self._operator, AsyncWaitOperator)
        return self._operator

    def _reset(self, event: RoutesChanged, now: float) -> None:
        self._end_waits = False
        self._mark = None
        super()._reset(event, now)
        if not self.is_checkpointed:
            self._renew_operator()

    @property
    def _may_act(self) -> bool:
        return super()._may_act and self._is_user_open and not self._wait.is_full

    def _run(self, batch: Batch, first: int, last: int, now: float) -> None:
        wait = self._wait
        for index in range(first, last):
            if wait.is_full:
                batch.done = index
                break
            stamp = None if batch.stamps is None else batch.stamps[index]
            tup = TrackedTuple.made(batch.rows[index], batch.origin, stamp, self.epoch, *batch.ids_at(index))
            try:
                wait.process_element(None, tup, stamp)
            except Exception as error:
                self.failed(tup, error)
        self._settle(now)

    def _on_watermark(self, watermark: int, now: float) -> None:
        self._wait.process_watermark(watermark)
        self._settle(now)

    def emitting(self, value: Any) -> None:
        """The results of this input are put out next."""
        self._output.anchors = (value,)
        self._mark = self._collector.mark()

    def emitted(self, value: Any) -> None:
        """They have been."""
        self._output.anchors = ()
        self._mark = None
        if value.epoch == self.epoch:
            self._collector.ack(value)

    def failed(self, value: Any, error: BaseException) -> None:
        """The call for this input has failed."""
        if value.epoch == self.epoch:
            if self.is_checkpointed:
                value.state = TupleState.FAILED
                self.counters.failed += 1
                self._give_up(value.values, error)
            else:
                self._causes.note(value.roots, error)
                self._collector.fail(value)
            if not isinstance(error, Exception):
                raise error
            self._user_error(error, self._now)

    def _call_raised(self, error: Exception, now: float) -> None:
        """A mail has raised: what it was putting out is discarded, and the input fails."""
        if self._mark is not None:
            (value,) = self._output.anchors
            self._roll_back(self._mark, value, error)
            self._output.anchors, self._mark = (), None
        super()._call_raised(error, now)

    def _user_end(self) -> None:
        """Nothing: the calls in flight keep their attempts, and the end is told when the last one is done."""

    def _tell_end(self, now: float) -> None:
        if not self._has_calls:
            super()._tell_end(now)
        else:
            self._end_waits = True

    def _turn(self, now: float) -> None:
        super()._turn(now)
        if self._end_waits and not self._has_calls:
            self._end_waits = False
            super()._tell_end(now)

    @property
    def is_quiet(self) -> bool:
        """Whether no call is under way, and none of a checkpoint has to be made again."""
        return super().is_quiet and not self._has_calls

    @property
    def _has_calls(self) -> bool:
        return bool(self._wait.in_flight or self._to_restore)

    def _levels(self) -> dict[str, float]:
        return {**super()._levels(), "async_in_flight": float(self._wait.in_flight)}


def _stored_tuple(tup: TrackedTuple) -> tuple[Any, ...]:
    origin = tup.origin
    return (tup.values, origin.component, origin.task, origin.stream, origin.fields)


def operator_task_class(component: OperatorBolt, is_checkpointed: bool) -> type[OperatorTask]:
    """Return the class that runs an operator bolt."""
    if isinstance(component, WindowBolt):
        return CheckpointedWindowTask if is_checkpointed else WindowTask
    return ProcessTask if isinstance(component, ProcessBolt) else AsyncTask
