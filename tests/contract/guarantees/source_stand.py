"""A guarantee of messages without a runner: the test admits messages as a spout would have emitted them."""

from __future__ import annotations

from typing import Any

from tests.tasks.components import CHECKPOINTED, TRACKED, Scripted, Sink
from tests.tasks.solo import Solo, xor_by_root
from topo.builder import TopologyBuilder
from topo.emission.emitter import StreamRows
from topo.task.guarantees.source import SourceCheckpoints, SourceGuarantee
from topo.task.task import Task
from topo.wire.control import BarrierAcked
from topo.wire.frames import FrameKind


class SourceStand:
    """The guarantee of a spout before a sink, in a topology that never gets its Go.

    Attributes:
        guarantee: under test.
        spout: its `ack` and `fail` are noted.
    """

    def __init__(
        self, mode: str, kind: type[Scripted] = Scripted, *, sinks: int = 1, committed: bytes | None = None, **settings: Any
    ) -> None:
        self.mode = mode
        self.spout = kind([], ends=False)
        builder = TopologyBuilder("contract").config(delivery=mode, **settings)
        builder.set_spout("a", self.spout)
        builder.set_bolt("sink", Sink, parallelism=sinks).fields_grouping("a", "value")
        self.solo = Solo(builder.build(), "a", is_open=False)
        assert isinstance(self.solo.task, Task) and isinstance(self.solo.task.guarantee, SourceGuarantee)
        self.task = self.solo.task
        self.guarantee = self.solo.task.guarantee
        self.counters = self.task.counters
        self.checkpoint = 0
        self.solo.adopt(1, committed=committed)
        self.solo.open_inputs()
        self.solo.out.clear()

    @property
    def now(self) -> float:
        return self.solo.clock.now

    def _rows(self, *values: Any) -> StreamRows:
        stream = StreamRows(0, self.solo.plan.streams("a")[0])
        stream.rows += [(value,) for value in values]
        return stream

    def admit(self, *values: Any) -> None:
        """Admit messages whose values are their ids."""
        self.admit_as({value: value for value in values})

    def admit_as(self, values: dict[Any, Any]) -> None:
        """Admit messages, given by their ids."""
        if self.guarantee.is_retrying:
            self.guarantee.note_order(list(values))
        self.guarantee.admit(self._rows(*values.values()), list(values), first_time=True, now=self.now)

    def admit_untracked(self, *values: Any) -> None:
        self.guarantee.admit_untracked(self._rows(*values))

    def flush(self) -> None:
        """Send all rows and ids."""
        self.solo.run()
        self.solo.confirm_all()

    @property
    def checkpoints(self) -> SourceCheckpoints:
        assert self.guarantee.checkpoints is not None
        return self.guarantee.checkpoints

    def begin_checkpoint(self) -> None:
        self.checkpoint += 1
        self.checkpoints.begin_checkpoint(self.checkpoint, has_ended=False)
        self.flush()

    def complete(self, checkpoint: int = 0) -> None:
        self.solo.complete(checkpoint or self.checkpoint)
        self.solo.run()

    def finish(self) -> None:
        """Have all admitted messages done, as far as it lies with others."""
        self.flush()
        if self.mode == CHECKPOINTED:
            self.begin_checkpoint()
            self.complete()
        elif self.mode == TRACKED:
            self.solo.feed_ids(FrameKind.ACKED, self.solo.roots(FrameKind.INIT))
        self.solo.run()

    def new_epoch(self, epoch: int = 2, *, ended: bool = False, values: dict[str, Any] | None = None) -> None:
        """Begin an epoch, at the checkpoint if its `values` are given."""
        if values is not None:
            self.solo.restore(epoch, self.checkpoint, values, ended=[self.solo.id] if ended else [])
            return
        self.solo.adopt(epoch)
        self.solo.open_inputs()
        self.solo.out.clear()

    def kept(self) -> dict[str, Any]:
        """The values of the last snapshot."""
        return dict(self.solo.store.kept[self.checkpoint].values)

    @property
    def barriers_acked(self) -> list[int]:
        return [message.checkpoint for message in self.solo.messages(BarrierAcked)]

    def are_trees_whole(self) -> bool:
        """Whether the ackers were given, for each root, the XOR of the edges that were sent under it."""
        failed = set(self.solo.roots(FrameKind.FAIL))
        owed = xor_by_root(self.solo.frames(FrameKind.INIT))
        sent = xor_by_root(self.solo.frames(FrameKind.DATA))
        return {root: value for root, value in owed.items() if root not in failed} == sent
