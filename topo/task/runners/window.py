"""Windows as a task, in a tracked topology: which input is held by which window, and what a firing's results are anchored on."""

from __future__ import annotations

from topo.api.operator_bolts import WindowBolt
from topo.emission.collectors import Mark, TrackedTuple
from topo.errors import FrameworkBug, TooLate
from topo.ids import TaskId
from topo.operators.base import Operator
from topo.operators.bolt_operators import window_operator_of
from topo.operators.windows.operator import WindowOperator
from topo.task.batch import Batch
from topo.task.environment import TaskEnvironment, TaskSpec
from topo.task.events import RoutesChanged
from topo.task.flow_control import EdgeStatus
from topo.task.runners.inputs import VERDICTS
from topo.task.runners.operator import OperatorTask
from topo.tracking.window_tracking import Firing, WindowTracker
from topo.wire.frames import Anchoring, Frame, FrameKind, pack_words


class WindowTask(OperatorTask):
    """Runs a `WindowBolt` in a tracked topology."""

    ACCEPTS = OperatorTask.ACCEPTS | VERDICTS

    def __init__(self, setup: TaskSpec, ports: TaskEnvironment) -> None:
        self.ledger = WindowTracker(ports.ids, self._on_firing, self._may_fire_again)
        super().__init__(setup, ports)
        self._firing_mark: Mark = self._collector.mark()
        self._tries = 0
        """How often the firing at hand has raised."""
        self._at_hand: dict[int, TrackedTuple] = {}
        self._inits: list[tuple[int, int]] = []
        self._output.side_anchors = self._side_anchors
        self._running: tuple[Batch, int] | None = None

    def _make_operator(self) -> Operator:
        bolt = self.component
        assert isinstance(bolt, WindowBolt)
        operator = window_operator_of(bolt, self._window_inputs, lambda size: self.ports.ids.roots(1)[0] % size)
        operator.scope = self.ledger
        return operator

    def _reset(self, event: RoutesChanged, now: float) -> None:
        super()._reset(event, now)
        self._inits.clear()
        self._renew_operator()

    def _epoch_begins(self, now: float) -> None:
        super()._epoch_begins(now)
        self.ledger.reset(self.epoch)

    def _edges_in(self) -> list[TaskId]:
        return [*super()._edges_in(), *self.plan.ackers]

    def _held_roots(self) -> dict[int, None]:
        # What the ackers say of firings waits behind the input, too.
        told = [frame.root_list() for _, frame in self.inbound.queue if frame.kind in (FrameKind.ACKED, FrameKind.TOUCHED)]
        return self.ledger.held_roots() | self.ledger.touched([root for roots in told for root in roots], self.state.now)

    def _keep_waiting(self, roots: dict[int, None]) -> None:
        # Firings are roots of this task: it need not wait to hear from the ackers that they are kept.
        super()._keep_waiting(roots | self.ledger.touched(list(roots), self.state.now))

    @property
    def _has_ended(self) -> bool:
        return all(edge.status is EdgeStatus.FINISHED for edge in self.inbound.edges.values() if edge.sender not in self._ackers)

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
        self._tries = 0

    def _may_fire_again(self, error: Exception) -> bool:
        """A firing has raised: take back what it has put out, if it may try again. What it has changed in state stays."""
        self._tries += 1
        if self._tries >= self.config.attempts or self.config.on_error == "crash" or isinstance(error, FrameworkBug):
            return False
        self._collector.rewind(self._firing_mark)
        return True

    def _run(self, batch: Batch, first: int, last: int, now: float) -> None:
        begin = first
        operator = self._operator
        assert isinstance(operator, WindowOperator)
        is_single = batch.anchoring is Anchoring.SINGLE
        is_replay = batch.is_replay
        if self._ended_in_epoch:
            operator.goes_on()
        while first < last:
            keys, stamps = self._keys(batch, first, last), self._stamps_of(batch, first, last)
            rows = batch.to_cut(self._rows(batch, first, last))
            if batch.anchoring is Anchoring.NONE:
                roots = edges = [()] * (last - first)
            else:
                roots, edges = batch.roots[first:last], batch.edges[first:last]
            self.ledger.begin(roots, edges, is_single=is_single, are_replays=is_replay)
            self._running = (batch, first)
            error, lost = None, 0
            try:
                operator.process_batch(keys, rows, stamps)
                taken = operator.position + 1
            except FrameworkBug:
                raise
            except Exception as raised:
                taken, error = operator.position, raised
                lost = self._discard_firing(raised)
            self._ack_unheld(batch, first, taken, now)
            first += taken
            if error is not None:
                self._fail(batch.ids_at(first)[0], error)
                # The element at hand may be in the pane that has fired.
                self.counters.failed += max(1, lost)
                first += 1
                self._user_error(error, now)
            if not rows:
                break
        batch.done = first
        self._running = None
        if self._ended_in_epoch:
            self._user_end()
        self._settle(now)
        if self._observer is not None:
            self._observer.inputs_acked(self.id, [batch.ids_at(index) for index in range(begin, batch.done)])

    def _ack_unheld(self, batch: Batch, first: int, taken: int, now: float) -> None:
        """Ack what no window took: late, and dropped or put out on the late stream, or in a gap between windows.

        What has failed before is not dropped: it fails again when it comes too late for a window.
        """
        self._settle(now)
        acks, operator = self._acks, self._operator
        assert isinstance(operator, WindowOperator)
        self.counters.late += operator.late_elements
        self.counters.late_dropped += operator.late_dropped
        operator.late_elements = operator.late_dropped = 0
        missed = {position for position in self.ledger.missed_replays if position < taken and position not in self._at_hand}
        if missed:
            error = TooLate(f"component {self.component_id!r}: a message that had failed came again too late for its window")
            for position in missed:
                self._fail(batch.ids_at(first + position)[0], error)
            self.counters.failed += len(missed)
            self.reports.record(error, now)
        for position in self.ledger.unheld():
            if position < taken and position not in missed:
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
        self.counters.failed += self._discard_firing(error)
        super()._call_raised(error, now)

    def _discard_firing(self, error: Exception) -> int:
        """A call has raised. If it is a firing, what that has put out is discarded, and its inputs fail.

        Returns how many of them are lost, since nobody tracks them.
        """
        if self.ledger.is_firing:
            self._roll_back(self._firing_mark, None, error)
            self.ledger.fail_current()
        if self.ledger.fails:
            self.reports.causes.note(self.ledger.fails, error)
        return 0 if self._ackers else self.ledger.take_lost()

    def _user_end(self) -> None:
        self._fire_timers(self._operator.end_of_input, self.state.now)
        self.ledger.release_all()

    def _settle(self, now: float) -> None:
        super()._settle(now)
        self._output.anchors = ()
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
        if timeout is not None and not self.inbound.queue and self.ledger.oldest_firing() is not None:
            self.counters.timed_out += self.ledger.expire(now, timeout)

    def _flush_when_due(self, now: float) -> None:
        super()._flush_when_due(now)
        if self._inits and self._owing_since is None:
            self._owing_since = now

    def _flush_ids(self) -> None:
        if self._inits and self._ackers:
            roots, values = zip(*self._inits, strict=True)
            self._inits = []
            self._acker_routes.send(FrameKind.INIT, pack_words(roots), pack_words(values))
        super()._flush_ids()

    def _process_verdicts(self, frame: Frame, now: float) -> None:
        if frame.kind is FrameKind.ACKED:
            self.ledger.completed(frame.root_list())
        elif frame.kind is FrameKind.FAILED:
            self.ledger.failed(frame.root_list())
        else:
            self._touches.update(self.ledger.touched(frame.root_list(), now))
        self._settle(now)

    def validate(self) -> None:
        """Assert the invariants."""
        super().validate()
        self.ledger.validate()

    def _levels(self) -> dict[str, float]:
        return {**super()._levels(), "open_firings": float(self.ledger.open_firings)}
