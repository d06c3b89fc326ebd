"""Bolts that name their anchors and ack by themselves: they may hold inputs, join them, and decide on them later.

With checkpoints what a bolt holds back is in the snapshot (`HeldInputs`). Restored inputs are executed at the next call, not at
once: a recovery that begins meanwhile finds a bolt that holds nothing. Event time waits for them from the recovery on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from topo.api.bolt import Bolt
from topo.api.tuples import Tuple
from topo.checkpoint.alignment import Snapshot
from topo.checkpoint.staged_output import StagedOutput, merged
from topo.emission.collectors import BoltCollector, Mark, TrackedTuple, TupleState
from topo.errors import SinkBlockedError, UserError
from topo.hot import Row
from topo.operators.state.deep_copy import independent
from topo.task.batch import Batch
from topo.task.guarantees.inputs import InputGuarantee
from topo.task.parts import TaskParts
from topo.task.runners.calls import AnchoredCalls
from topo.task.runners.held_watch import HeldInputsWatch
from topo.task.runners.input_end import InputEnd
from topo.user_errors import call_for_effect, returned


class BoltKind:
    """A `Bolt`, which names its anchors and acks its inputs.

    Args:
        parts: of the task.
        bolt: the user's component.
        guarantee: of its inputs.
        collector: takes its rows, acks and fails.
        watch: of the inputs that it holds back.
        end: of the input.
        staged: output of a two-phase sink that is published with checkpoints.
    """

    holds_inputs = True

    def __init__(
        self,
        parts: TaskParts,
        bolt: Bolt,
        guarantee: InputGuarantee,
        collector: BoltCollector,
        watch: HeldInputsWatch,
        end: InputEnd,
        staged: StagedOutput | None,
    ) -> None:
        self.bolt = bolt
        self.calls = AnchoredCalls(collector, guarantee, parts.state, self._is_replayed, self._execute_restored)
        self._state = parts.state
        self._reports = parts.reports
        self._context = parts.spec.context
        self._codec = parts.env.codec
        self._max_emit = parts.state.config.max_task_emit
        self._guarantee = guarantee
        self._collector = collector
        self._staged = staged
        self._withheld = guarantee.held
        self._watch = watch
        self._end = end

    # -- life ------------------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Prepare the bolt, and restore the inputs that it held and the output that it had staged."""
        self.bolt.prepare(self._context, self._collector)
        self.restore(self._state.restored)

    def begin_again(self, parts: list[Snapshot] | None, now: float) -> None:
        """Have the bolt let go of the inputs of the epoch before; only those are kept that nothing replays."""
        stale = self._watch.reset()
        if parts is not None:
            self.restore(parts)
        self._reports.guard(self.bolt.on_reset, now)
        self._guarantee.keep_stale(stale)

    def restore(self, parts: list[Snapshot]) -> None:
        """Take over the inputs that the bolt held in a checkpoint, and the output that it had staged."""
        self._withheld.restore([part.values["held"] for part in parts if "held" in part.values], self._state.now)
        if self._staged is not None:
            states = [part.values["staged"] for part in parts if "staged" in part.values]
            self._staged.restore(merged(states) if parts else None)

    def snapshot(self, checkpoint: int) -> Snapshot:
        """Return the output that the bolt has staged, or the inputs that it holds back."""
        if self._staged is not None:
            staged = self._staged.snapshot(checkpoint)
            # Rows that the sink has refused while it staged are given up in this checkpoint.
            self.calls.settle(self._state.now)
            return Snapshot(values={"staged": staged})
        held = self._withheld.snapshot()
        if not held["inputs"]:
            return Snapshot()
        if self._end.is_reached:
            count, component = len(held["inputs"]), self._state.component_id
            raise UserError(f"component {component!r} still holds {count} inputs back behind the end of its input")
        return Snapshot(values={"held": held, **self._watch.watermark_held_back()})

    def close(self) -> None:
        self.bolt.cleanup()

    def unfinished(self) -> str:
        """Describe the inputs that the bolt holds back behind the end of its input."""
        held = len(self._withheld.now()) if self._end.is_reached and self._withheld.has_held() else 0
        return f"{held} inputs that the bolt has neither acked nor failed" if held else ""

    # -- calls -----------------------------------------------------------------------------------------------------------

    def tick(self, tup: Tuple) -> None:
        """Call the bolt for a tick."""
        call_for_effect(self.bolt.execute, tup)

    def end_of_input(self) -> None:
        call_for_effect(self.bolt.end_of_input)

    def run(self, batch: Batch, first: int, last: int, now: float) -> None:
        """Make the calls of a slice, behind those of restored inputs, and settle."""
        self._execute_restored(now)
        collector, execute, epoch, origin = self._collector, self.bolt.execute, self._state.epoch, batch.origin
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
                collector.check_emitted(collector.count() - mark.emitted, self._max_emit)
            except Exception as error:
                self._execute_raised(error, tup, mark, errors, partial(batch.unchanged, index, self._codec))
            if tup.state == TupleState.OPEN:
                self._left_undecided(tup, mark, undecided)
        del tup
        batch.done = index + 1
        self._finish_run(undecided, errors, now)

    def _execute_restored(self, now: float) -> None:
        """Execute the inputs again that the bolt held back at the checkpoint, before any other call of this process."""
        if not self._withheld.restored:
            return
        errors: list[Exception] = []
        undecided: list[TrackedTuple] = []
        for tup in self._withheld.take_restored(self._state.epoch):
            arrived = partial(independent, independent(tup.values))
            mark = self._collector.mark()
            try:
                self._execute(tup, mark)
            except Exception as error:
                self._execute_raised(error, tup, mark, errors, arrived)
            if tup.state == TupleState.OPEN:
                self._left_undecided(tup, mark, undecided)
            del tup
        self._finish_run(undecided, errors, now)

    def _execute(self, tup: TrackedTuple, mark: Mark) -> None:
        """Make the call for one input, as the loop of `run` does."""
        call_for_effect(self.bolt.execute, tup)
        self._collector.check_emitted(self._collector.count() - mark.emitted, self._max_emit)

    def _execute_raised(
        self, error: Exception, tup: TrackedTuple, mark: Mark, errors: list[Exception], arrived: Callable[[], Row]
    ) -> None:
        if self._staged is not None and isinstance(error, SinkBlockedError):
            raise error
        collector = self._collector

        def undo() -> None:
            collector.rewind(mark)
            tup.values = arrived()

        again = partial(self._execute, tup, mark)
        errors.extend(filter(None, (self._guarantee.input_raised(collector, mark, tup, error, again, undo),)))

    def _left_undecided(self, tup: TrackedTuple, mark: Mark, undecided: list[TrackedTuple]) -> None:
        tup.has_emitted = self._collector.count() > mark.emitted
        self._watch.note(tup)
        undecided.append(tup)

    def _finish_run(self, undecided: list[TrackedTuple], errors: list[Exception], now: float) -> None:
        self._guarantee.settle_calls(self._collector, now, undecided)
        for raised in errors:
            self._reports.user_error(raised, now)
        # Their frames refer to the list: in a cycle they would keep inputs alive that user code holds no longer.
        errors.clear()

    def _is_replayed(self, mark: Mark) -> bool:
        """Whether the rows since a mark are anchored, so that their inputs, which are not acked, come with them once more."""
        rows = zip(self._collector.anchors, mark.rows, strict=True)
        return all(on for anchors, first in rows for on in anchors[first:])
