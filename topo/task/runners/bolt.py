"""Bolts that name their anchors and ack by themselves: they may hold inputs, join them, and decide on them later.

With checkpoints what a bolt holds back is in the snapshot (`HeldInputs`). Restored inputs are executed at the next call, not at
once: a recovery that begins meanwhile finds a bolt that holds nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf

from topo.api.bolt import Bolt
from topo.api.groupings import GroupingKind
from topo.api.streams import DEFAULT_STREAM
from topo.api.tuples import Tuple
from topo.api.two_phase import TwoPhaseSink
from topo.checkpoint.alignment import Aligned, Snapshot
from topo.checkpoint.held_inputs import HeldInputs, still_held
from topo.checkpoint.staged_output import StagedOutput, merged
from topo.emission.collectors import BoltCollector, Mark, TrackedTuple, TupleState
from topo.emission.emitter import Emitter, StreamRows
from topo.errors import FrameworkBug, SinkStuck, TupleStateError, UserError
from topo.operators.state.deep_copy import independent
from topo.task.batch import Batch, Row
from topo.task.environment import TaskEnvironment, TaskSpec
from topo.task.events import RoutesChanged
from topo.task.runners.inputs import END_OF_INPUT, BoltTask
from topo.user_errors import call_for_effect, returned

_FORGOTTEN = "execute() has neither acked nor failed its input, and kept no reference to it; it fails after message_timeout"
_NEVER_DECIDED = (
    "component {component!r} held an input back and has neither acked nor failed it {timeout:g} s (message_timeout) after the "
    "end of its input; emit in end_of_input what is still held, and ack it"
)


_ANY_TASK = (GroupingKind.SHUFFLE, GroupingKind.LOCAL_OR_SHUFFLE, GroupingKind.GLOBAL, GroupingKind.NONE)
"""Groupings by which an input may as well have come to another task."""


class AnchoringTask(BoltTask):
    """A bolt whose output names its anchors."""

    def __init__(self, setup: TaskSpec, ports: TaskEnvironment) -> None:
        self._collector = BoltCollector(
            setup.context.component,
            setup.plan.streams(setup.context.component),
            lambda error: self.reports.record_misuse(error),
            ports.codec,
        )
        super().__init__(setup, ports)

    def _emitter(self) -> Emitter:
        return self._collector

    def _run_untracked(self, call: Callable[[], object], now: float, what: str, most: float) -> None:
        collector, mark = self._collector, self._collector.mark()

        def checked() -> None:
            call()
            collector.check_emitted(collector.count() - mark.emitted, most)

        try:
            checked()
        except Exception as error:
            if self.is_checkpointed:
                collector.rewind(mark)
                self._try_call_again(checked, lambda: collector.rewind(mark), error, what)
                self._settle(now)
                return
            is_replay = what != END_OF_INPUT and self._is_owed_again(mark)
            self._roll_back(mark, None, error)
            self._settle(now)
            if is_replay:
                self._user_error(error, now)
            else:
                self._lose_call(error, now)
            return
        self._settle(now)

    def _is_owed_again(self, mark: Mark) -> bool:
        """Whether the results of a call without input, which has raised, are still owed by inputs that are not acked."""
        return False

    def _roll_back(self, mark: Mark, culprit: TrackedTuple | None, error: Exception) -> None:
        """A call has raised: discard what it emitted, and fail the inputs it acked together with its own input."""
        failed = self._collector.failed
        before = len(failed)
        self._collector.roll_back(mark, culprit)
        for tup in failed[before:]:
            self.reports.causes.note(tup.roots, error)

    def _try_tuple_again(
        self,
        call: Callable[[], object],
        mark: Mark,
        tup: TrackedTuple,
        error: Exception,
        undo_state: Callable[[], object] = lambda: None,
        arrived: Callable[[], Row] | None = None,
    ) -> Exception | None:
        """Repeat a call for a tuple that has raised, from where it began, and give the tuple up if that does not help.

        Args:
            arrived: returns the values of the tuple as they arrived; None: the call has not changed them.
        """

        def undo() -> None:
            undo_state()
            self._collector.rewind(mark)
            if arrived is not None:
                tup.values = arrived()

        undo()
        final = self._try_again(call, undo, error)
        if final is not None:
            tup.state = TupleState.FAILED
            self.counters.failed += 1
            self._give_up(tup.values, final)
        return final

    def _pass_barrier(self, aligned: Aligned, now: float) -> None:
        # What a mail before this frame has emitted is in no snapshot any more.
        self._settle(now)
        super()._pass_barrier(aligned, now)

    def _settle(self, now: float) -> None:
        """Route what was emitted, then fold what was acked."""
        collector = self._collector
        if self._observer is not None:
            self._observer.rows_emitted(self.id, collector.streams)
            acked = [(tup.roots, tup.edges) for tup in collector.acked if tup.epoch == self.epoch]
            self._observer.inputs_acked(self.id, acked, len(collector.acked) - len(acked))
        refused = self._emission.begin(collector.streams)
        for stream, anchors in zip(collector.streams, collector.anchors, strict=True):
            if refused and stream.declaration.name == DEFAULT_STREAM:
                coming_again = {row for row, error in refused.items() if self._fail_anchors(anchors[row], error)}
                anchors[:] = [on for row, on in enumerate(anchors) if row not in refused]
                self._drop_unstamped(stream, refused, now, coming_again)
            if stream.rows:

                def reject(
                    row: int, error: Exception, stream: StreamRows = stream, anchors: list[tuple[TrackedTuple, ...]] = anchors
                ) -> None:
                    comes_again = self._fail_anchors(anchors[row], error)
                    self.reports.record(error, now)
                    self._lose_row(stream.rows[row], error, comes_again=comes_again)

                if self.is_checkpointed:
                    self._emission.untracked(stream, self._reject_untracked(stream))
                else:
                    self._emission.anchored(stream, anchors, self.epoch, reject)
        self._emission.finish()
        acks, epoch = self._acks, self.epoch
        for tup in collector.acked:
            if tup.epoch != epoch:
                self.counters.stale_tuples += 1
                continue
            self.counters.acked += 1
            for root, edge in zip(tup.roots, tup.edges, strict=True):
                acks[root] = acks.get(root, 0) ^ edge ^ tup.out
        for tup in collector.failed:
            if tup.epoch != epoch:
                self.counters.stale_tuples += 1
                continue
            assert tup.state == TupleState.FAILED
            self.counters.failed += 1
            self._fails.update(dict.fromkeys(tup.roots))
            self.reports.causes.note(tup.roots, None)
            if self.is_checkpointed:
                self._letters.add(tup.values, self._why_failed(tup), 1)
        for tup in collector.touched:
            if tup.epoch == epoch:
                self._touches.update(dict.fromkeys(tup.roots))
        collector.clear()

    def _why_failed(self, tup: TrackedTuple) -> str:
        """Return why the bolt has failed an input, for its dead letter."""
        return "the bolt called fail"

    def _fail_anchors(self, anchors: tuple[TrackedTuple, ...], error: Exception) -> bool:
        """Fail what a row is anchored on. Returns whether that is any message."""
        for anchor in anchors:
            if anchor.epoch == self.epoch:
                self._fail(anchor.roots, error)
        return any(anchor.roots for anchor in anchors)


class TrackingBoltTask(AnchoringTask):
    """A bolt that names its anchors and acks by itself."""

    def __init__(self, setup: TaskSpec, ports: TaskEnvironment) -> None:
        if not isinstance(setup.component, Bolt):
            raise FrameworkBug(f"{setup.component!r} is not a Bolt")
        self._bolt = setup.component
        super().__init__(setup, ports)
        is_staged = self.is_checkpointed and isinstance(self._bolt, TwoPhaseSink)
        self._staged = StagedOutput(self._bolt) if is_staged else None  # type: ignore[arg-type]
        inputs = self.plan.inputs_of(self.component_id)
        moves = all(one.grouping in _ANY_TASK for one in inputs)
        self._withheld = HeldInputs(
            self.component_id, len(self.plan.tasks_of(self.component_id)), moves=moves, first_sweep=setup.limits.held_inputs
        )
        self._ended_at: float | None = None
        """When the input had ended in this epoch."""
        self._end_waits = False
        self._look_at = -inf
        """When to look again which inputs are held: a bolt may hold thousands, and each look goes through all."""
        self._least: int | None = None
        """The least timestamp of the inputs that are held, as of the last look."""

    @property
    def _user(self) -> Bolt:
        return self._bolt

    def _user_prepare(self) -> None:
        self._bolt.prepare(self.context, self._collector)

    def _snapshot(self, checkpoint: int) -> Snapshot:
        if self._staged is None:
            held = self._withheld.snapshot()
            if held["inputs"] and self._ended_in_epoch:
                count = len(held["inputs"])
                raise UserError(f"component {self.component_id!r} still holds {count} inputs back behind the end of its input")
            snapshot = super()._snapshot(checkpoint)
            if held["inputs"]:
                snapshot.values["held"] = held
                self._look_at = self.state.now
                if (floor := self._time_floor()) is not None:
                    snapshot.values["watermark"] = min(snapshot.values["watermark"], floor - 1)
            return snapshot
        staged = self._staged.snapshot(checkpoint)
        # What the sink has refused while it staged is given up in this checkpoint.
        self._settle(self.state.now)
        snapshot = super()._snapshot(checkpoint)
        snapshot.values["staged"] = staged
        return snapshot

    def _begin_user(self) -> None:
        if self._staged is not None:
            self._staged.restore(None)

    def _restore_user(self, parts: list[Snapshot]) -> None:
        super()._restore_user(parts)
        self._withheld.restore([part.values["held"] for part in parts if "held" in part.values])
        if self._staged is not None:
            states = [part.values["staged"] for part in parts if "staged" in part.values]
            self._staged.restore(merged(states) if parts else None)

    def _publish(self, checkpoint: int, now: float) -> None:
        super()._publish(checkpoint, now)
        if self._staged is not None:
            self._staged.complete(checkpoint)

    def _is_owed_again(self, mark: Mark) -> bool:
        # It acks what it has done: inputs that it holds come again, and rows without an anchor do not.
        rows = zip(self._collector.anchors, mark.rows, strict=True)
        return all(on for anchors, first in rows for on in anchors[first:])

    def _edges_are_open(self, now: float) -> None:
        # What prepare or on_reset has emitted.
        self._settle(now)

    def _user_tick(self, tup: Tuple) -> None:
        call_for_effect(self._bolt.execute, tup)

    def _user_end(self) -> None:
        call_for_effect(self._bolt.end_of_input)

    def _run(self, batch: Batch, first: int, last: int, now: float) -> None:
        if self._withheld.restored:
            self._execute_restored(now)
        collector, execute, epoch, origin = self._collector, self._bolt.execute, self.epoch, batch.origin
        errors: list[Exception] = []
        undecided: list[TrackedTuple] = []
        tup: TrackedTuple | None = None
        index = first - 1
        for index, values, stamp in batch.inputs(first, last):
            tup = TrackedTuple.made(values, origin, stamp, epoch, *batch.ids_at(index))
            mark = collector.mark()
            try:
                if (value := execute(tup)) is not None:
                    raise returned(execute, value)
                collector.check_emitted(collector.count() - mark.emitted, self.config.max_task_emit)
            except Exception as error:
                self._execute_raised(error, tup, mark, errors, partial(batch.unchanged, index, self.ports.codec))
            if tup.state == TupleState.OPEN:
                self._left_undecided(tup, mark, undecided)
        del tup
        batch.done = index + 1
        self._finish_run(undecided, errors, now)

    def _execute_restored(self, now: float) -> None:
        """Execute the inputs again that the bolt held back at the checkpoint, before any other call of this process."""
        errors: list[Exception] = []
        undecided: list[TrackedTuple] = []
        for tup in self._withheld.take_restored(self.epoch):
            arrived = partial(independent, independent(tup.values))
            mark = self._collector.mark()
            try:
                call_for_effect(self._bolt.execute, tup)
            except Exception as error:
                self._execute_raised(error, tup, mark, errors, arrived)
            if tup.state == TupleState.OPEN:
                self._left_undecided(tup, mark, undecided)
            del tup
        self._finish_run(undecided, errors, now)

    def _execute_raised(
        self, error: Exception, tup: TrackedTuple, mark: Mark, errors: list[Exception], arrived: Callable[[], Row]
    ) -> None:
        if self._staged is not None and isinstance(error, SinkStuck):
            raise error
        if not self.is_checkpointed:
            self._roll_back(mark, tup, error)
            errors.append(error)
            return
        again = partial(call_for_effect, self._bolt.execute, tup)
        final = self._try_tuple_again(again, mark, tup, error, arrived=arrived)
        if final is not None:
            errors.append(final)

    def _left_undecided(self, tup: TrackedTuple, mark: Mark, undecided: list[TrackedTuple]) -> None:
        if self.is_checkpointed:
            tup.out = int(self._collector.count() > mark.emitted)
        tup.since = self.state.now
        if tup.timestamp is not None and (self._least is None or tup.timestamp < self._least):
            self._least = tup.timestamp
        undecided.append(tup)

    def _finish_run(self, undecided: list[TrackedTuple], errors: list[Exception], now: float) -> None:
        if self.is_checkpointed and undecided:
            self._note_anchors()
        self._settle(now)
        if self.is_checkpointed:
            self._withheld.add(undecided)
        else:
            self._look_for_forgotten(undecided, now)
        for raised in errors:
            self._user_error(raised, now)

    def _look_for_forgotten(self, undecided: list[TrackedTuple], now: float) -> None:
        """Report inputs that user code holds no longer, so that it can neither ack nor fail them. Empties the list."""
        # One that was held and acked by a later call of the batch was not forgotten.
        undecided[:] = [tup for tup in undecided if tup.state == TupleState.OPEN]
        tracked = sum([bool(tup.roots) for tup in undecided])
        held = still_held(undecided)
        for _ in range(tracked - sum([bool(tup.roots) for tup in held])):
            self.reports.record(TupleStateError(_FORGOTTEN), now)
        # An input that is tracked is waited for by its spout, too: only those downstream have to know that it is held.
        self._withheld.keep(held if self.outbound.consumers else [tup for tup in held if not tup.roots])

    def _held_roots(self) -> dict[int, None]:
        # A bolt that is given no input, since its output waits, may have no other occasion to ack what it holds.
        return {root: None for tup in self._withheld.now() for root in tup.roots}

    # -- inputs that the bolt holds back ----------------------------------------------------------------------------------

    def _settle(self, now: float) -> None:
        if self.is_checkpointed and self._withheld:
            self._note_anchors()
        super()._settle(now)

    def _note_anchors(self) -> None:
        for anchors in self._collector.anchors:
            self._withheld.note_anchors(anchors)

    def _run_untracked(self, call: Callable[[], object], now: float, what: str, most: float) -> None:
        if self._withheld.restored:
            self._execute_restored(now)
        super()._run_untracked(call, now, what, most)

    def _reset(self, event: RoutesChanged, now: float) -> None:
        stale = self._withheld.clear()
        self._ended_at = self._least = None
        self._end_waits = False
        super()._reset(event, now)
        if not self.is_checkpointed:
            # What was not tracked does not come again.
            self._withheld.keep([tup for tup in stale if not tup.roots])
        elif stale := still_held(stale):
            raise UserError(
                f"component {self.component_id!r} still holds {len(stale)} inputs of before the recovery; drop them in on_reset: "
                "they come again. Its process is replaced, since what it makes of them would be published twice"
            )

    def _input_ended(self, now: float) -> None:
        super()._input_ended(now)
        if self._ended_in_epoch and self._ended_at is None:
            self._ended_at = now

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is in hand; behind the end of the input that goes for what the bolt holds back, too."""
        return super().is_quiet and not (self._ended_in_epoch and self._withheld.has_held())

    def _why_not_quiet(self) -> str:
        held = len(self._withheld.now()) if self._ended_in_epoch else 0
        return super()._why_not_quiet() or (f"{held} inputs that the bolt has neither acked nor failed" if held else "")

    def _time_floor(self) -> int | None:
        # One that is held for longer than message_timeout is late then, so that no input holds up event time for good.
        if self._output_watermarks.is_used or not self._withheld:
            self._least = None
        elif self.state.now >= self._look_at:
            self._look_at = self.state.now + self.config.watermark_interval_s
            timeout_s = self.config.message_timeout_s
            self._least = self._withheld.least_timestamp(-inf if timeout_s is None else self.state.now - timeout_s)
        return self._least

    def _send_end(self, now: float) -> None:
        self._end_waits = self._withheld.has_held()
        if not self._end_waits:
            super()._send_end(now)

    def _turn(self, now: float) -> None:
        super()._turn(now)
        if self._end_waits:
            self._send_end(now)

    def _deadlines(self, now: float) -> list[float | None]:
        return [*super()._deadlines(now), self._give_up_at, self._look_at if self._waits_for_held else None]

    @property
    def _waits_for_held(self) -> bool:
        """Whether a watermark or the end of the input waits for inputs that are held. User code may let go of them unseen."""
        return self._end_waits or (self._least is not None and self._output_watermarks.has_updates and not self._end_sent)

    @property
    def _give_up_at(self) -> float | None:
        timeout_s = self.config.message_timeout_s
        return None if self._ended_at is None or timeout_s is None or not self._withheld else self._ended_at + timeout_s

    def _run_due(self, now: float) -> None:
        super()._run_due(now)
        at = self._give_up_at
        if at is not None and now >= at:
            error = TupleStateError(_NEVER_DECIDED.format(component=self.component_id, timeout=self.config.message_timeout_s))
            for tup in self._withheld.now():
                if tup.roots:
                    continue
                tup.state = TupleState.FAILED
                self.counters.failed += 1
                if self.is_checkpointed:
                    self._letters.add(tup.values, self._cause(error), 1)
                self.reports.record(error, now)
            self._withheld.clear()
        if self._waits_for_held and now >= self._look_at:
            self._send_event_time()
            self._look_at = max(self._look_at, now + self.config.watermark_interval_s)
