"""A guarantee of inputs without a runner: the test makes the calls of user code, and leaves rows and acks in a collector."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.tasks.components import TRACKED, Manual, Scripted, Sink
from tests.tasks.environment import CODEC
from tests.tasks.solo import RowIds, Solo
from topo.api.tuples import Origin
from topo.builder import TopologyBuilder
from topo.checkpoint.alignment import Aligned, Snapshot
from topo.emission.collectors import BoltCollector, TrackedTuple, anchoring_collector
from topo.task.batch import Batch, read_batch
from topo.task.guarantees.checkpointed import CheckpointedInputs
from topo.task.guarantees.inputs import InputGuarantee
from topo.task.guarantees.output_state import OutputState
from topo.wire.control import ComponentError, DeadLetter, DeadLettersStored
from topo.wire.frames import Frame, data_frame

ORIGIN = Origin("a", 0, "default", ("value",))


class Stand:
    """The guarantee of a bolt between a spout and a sink.

    Attributes:
        guarantee: under test.
        calls: collects the rows and acks of calls that name their anchors.
        slices: collects the rows of calls whose inputs the engine acks.
    """

    def __init__(self, mode: str, **settings: Any) -> None:
        self.mode = mode
        builder = TopologyBuilder("contract").config(delivery=mode, batch_size=1_000, **settings)
        builder.set_spout("a", Scripted())
        builder.set_bolt("b", Manual()).shuffle_grouping("a")
        builder.set_bolt("sink", Sink()).shuffle_grouping("b")
        self.solo = Solo(builder.build(), "b")
        task: Any = self.solo.task
        self.task = task
        self.guarantee: InputGuarantee = task.guarantee
        streams = self.solo.plan.streams("b")
        self.calls = BoltCollector("b", streams, self._refuse, CODEC)
        self.slices = anchoring_collector("b", streams, self._refuse, CODEC)

    def _refuse(self, error: BaseException) -> None:
        raise error

    @property
    def now(self) -> float:
        return self.solo.clock.now

    # -- inputs

    def ids(self, count: int) -> RowIds:
        """Roots and edges of inputs, which are there in a tracked topology alone."""
        return self.solo.fresh(count) if self.mode == TRACKED else RowIds([], [])

    def inputs(self, *values: Any, epoch: int | None = None) -> list[TrackedTuple]:
        """Inputs for calls that name their anchors."""
        ids = self.ids(len(values))
        made = []
        for place, value in enumerate(values):
            roots, edges = ((ids.roots[place],), (ids.edges[place],)) if ids.roots else ((), ())
            made.append(TrackedTuple.made((value,), ORIGIN, None, self.solo.epoch if epoch is None else epoch, roots, edges))
        return made

    def frame(self, *values: Any) -> Frame:
        rows, sender = [(value,) for value in values], self.solo.senders()[0]
        columns = self.ids(len(rows)).columns(rows)
        return data_frame(self.solo.stamp(sender), self.solo.id, 1, 0, columns, CODEC.pack_rows(rows))

    def batch(self, *values: Any) -> Batch:
        """Inputs for calls whose inputs the engine acks."""
        return read_batch(self.frame(*values), CODEC, ORIGIN, "b")[0]

    def settle_slice(self, batch: Batch, emitted: Sequence[Sequence[Any]], failures: dict[int, Exception] | None = None) -> None:
        """Settle a whole batch, of whose inputs each has emitted some values."""
        (stream,) = self.slices.streams
        for values in emitted:
            for value in values:
                self.slices.emit((value,))
            stream.ends.append(len(stream.rows))
        self.guarantee.settle_slice(self.slices.streams, batch, 0, batch.count, failures or {}, self.now)

    @property
    def is_quiet(self) -> bool:
        """Whether no id is owed; without ackers none ever is."""
        return self.guarantee.id_sender is None or self.guarantee.id_sender.is_quiet

    @property
    def output(self) -> OutputState:
        """The state of the output in checkpoints."""
        assert isinstance(self.guarantee, CheckpointedInputs)
        return self.guarantee.output

    def barrier(
        self,
        checkpoint: int,
        roots: dict[int, int],
        snapshot: Callable[[], Snapshot] = Snapshot,
        waited_s: float = 0.0,
        has_ended: bool = False,
    ) -> None:
        """A barrier has come on all edges."""
        assert self.guarantee.barriers is not None
        self.guarantee.barriers.on_barrier(Aligned(checkpoint, roots, waited_s), snapshot, has_ended=has_ended)

    def settle(self, undecided: list[TrackedTuple] | None = None) -> None:
        self.guarantee.settle_calls(self.calls, self.now, undecided)

    def flush(self) -> None:
        """Have all that is buffered sent."""
        self.solo.run()

    def new_epoch(self, **more: Any) -> None:
        self.solo.begin_epoch(self.solo.epoch + 1, **more)

    def restore(self, checkpoint: int, values: dict[str, Any]) -> None:
        """Begin an epoch with a checkpoint that has these values of the guarantee."""
        self.solo.restore(self.solo.epoch + 1, checkpoint, values)

    # -- results

    @property
    def counts(self) -> tuple[int, int]:
        """The numbers of inputs acked and failed."""
        return self.task.counters.acked, self.task.counters.failed

    def errors(self) -> list[str]:
        return [error.message for error in self.solo.messages(ComponentError)]

    def dead_letters(self, checkpoint: int = 1) -> list[tuple[Any, int]]:
        """Take a checkpoint, and return values and attempts of the dead letters that it has stored."""
        self.output.snapshot(checkpoint)
        return self.complete(checkpoint)

    def complete(self, checkpoint: int) -> list[tuple[Any, int]]:
        """Complete a checkpoint, and return values and attempts of the dead letters that it has stored."""
        before = len(self.solo.messages(DeadLetter))
        self.solo.complete(checkpoint)
        self.solo.handle(DeadLettersStored(self.solo.id, [one.id for one in self.solo.messages(DeadLetter)[before:]]))
        return self.solo.dead_letters()[before:]
