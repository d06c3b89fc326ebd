"""The port through which tests, the test kit and traces observe tasks; a worker has an observer while it is traced alone.

Calls come from within the task's turn, once for each batch, frame or checkpoint, never for each tuple. The parts of a task make
them, and name the task by its id. An observer reads its arguments and keeps no reference to lists, which are reused; an
exception that it raises ends the process. Iterables are read within the call or not at all. A *lookout* of a task is an observer
that is called for `frame_taken` and `roots_drawn` alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from topo.emission.collectors import TrackedTuple
from topo.emission.emitter import StreamRows
from topo.hot import Verdicts
from topo.ids import TaskId
from topo.task.batch import Batch
from topo.task.flow_control import Arrival
from topo.tracking.spout_task import MessageObserver
from topo.wire.control import Routes
from topo.wire.frames import Columns, Frame


class TaskObserver(MessageObserver):
    """Watches the tasks of one process. Each method does nothing; subclasses override those that they need."""

    def routes_adopted(self, task: TaskId, routes: Routes) -> None:
        """The task has entered an epoch; nothing has been sent or restored in it."""

    def frame_taken(self, task: TaskId, frame: Frame, arrival: Arrival | None) -> None:
        """A frame has arrived on an in-edge; `arrival` is None for one of a newer epoch, which stays unread."""

    def frame_processed(self, task: TaskId, frame: Frame) -> None:
        """The task is done with a frame of an in-edge."""

    def slice_begins(self, task: TaskId, batch: Batch, first: int, last: int) -> int:
        """A bolt is about to be given a slice of a batch.

        Returns:
            Where the slice ends: `last`, or sooner.
        """
        return last

    def rows_emitted(self, task: TaskId, streams: Sequence[StreamRows]) -> None:
        """A bolt has emitted these rows in calls that have not raised; they are about to be routed."""

    def rows_routed(self, task: TaskId, target: TaskId, stream: int, columns: Columns) -> None:
        """Rows enter the buffer of an out-edge."""

    def rows_anchored(
        self,
        task: TaskId,
        anchors: Sequence[Sequence[TrackedTuple]],
        counts: Sequence[int],
        roots: Sequence[int],
        edges: Sequence[int],
    ) -> None:
        """Rows are about to be routed that name their anchors.

        Args:
            task: that has emitted them.
            anchors: of each row.
            counts: by row, how many of the roots and edges are its own.
            roots: of all rows.
            edges: one for each root.
        """

    def inputs_acked(self, task: TaskId, ids: Iterable[tuple[Sequence[int], Sequence[int]]], stale: int = 0) -> None:
        """User code is done with inputs: roots and edges of each, and how many others are of an earlier epoch.

        The inputs of a window bolt count once they are in their windows.
        """

    def inputs_failed(self, task: TaskId, ids: Iterable[tuple[Sequence[int], Sequence[int]]]) -> None:
        """Inputs have failed: roots and edges of each."""

    def roots_drawn(self, task: TaskId, roots: list[int]) -> None:
        """A spout task has drawn the roots of messages. The observer may set their `TRACED_BIT`, in place."""

    def messages_pending(self, task: TaskId, roots: Sequence[int], message_ids: Sequence[Any], now: float) -> None:
        """A spout task is about to send messages that ackers follow; `now` is when they were emitted."""

    def messages_refused(self, task: TaskId, message_ids: Sequence[Any]) -> None:
        """A spout task does not send messages because their ids cannot be used."""

    def ids_received(self, task: TaskId, frame: Frame) -> None:
        """An acker task is about to process a frame of ids."""

    def verdicts_reached(self, task: TaskId, verdicts: Verdicts) -> None:
        """An acker task sends verdicts to one spout task, or window task."""

    def trees_expired(self, task: TaskId, roots: Sequence[int], now: float) -> None:
        """An acker task has forgotten open trees because it received no ids of them for too long."""

    def checkpoint_begun(self, task: TaskId, checkpoint: int) -> None:
        """A spout task is about to emit a barrier."""

    def barrier_arrived(self, task: TaskId, checkpoint: int, waited_s: float | None) -> None:
        """A barrier has come on one more in-edge.

        `waited_s` is the time since it came on the first one, if this was the last, and None otherwise.
        """

    def snapshot_taken(self, task: TaskId, checkpoint: int) -> None:
        """The task is about to take its snapshot."""

    def checkpoint_published(self, task: TaskId, checkpoint: int) -> None:
        """The task is about to publish the output that waited for a complete checkpoint."""
