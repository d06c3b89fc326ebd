"""Window and process bolts under observation: the tasks that run them, which write down what leaves the operator for good."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topo.api.batch_bolt import BatchBolt
from topo.api.operator_bolts import AsyncBolt, OperatorBolt, WindowBolt
from topo.errors import UserError, ValueNotCarried
from topo.task.batch_task import BatchTask
from topo.task.checkpointed_window_task import CheckpointedWindowTask
from topo.task.operator_task import OperatorTask
from topo.task.process_task import ProcessTask
from topo.task.setup import Ports, TaskSetup
from topo.task.window_task import WindowTask

if TYPE_CHECKING:
    from topo.testing.watched import Watch


class _Noting(OperatorTask):
    watch: Watch

    def _settle(self, now: float) -> None:
        # What a call has emitted that raised was taken back before.
        for stream in self._collector.streams:
            for row in stream.rows:
                try:
                    self.watch.note(self.watch.carrier.carried(row, stream.declaration.name), stream.declaration.name)
                except ValueNotCarried:
                    continue
        super()._settle(now)


class _NotingCheckpointedWindowTask(_Noting, CheckpointedWindowTask):
    """Runs a window bolt in a topology with checkpoints."""


class _NotingWindowTask(_Noting, WindowTask):
    """Runs a window bolt."""


class _NotingProcessTask(_Noting, ProcessTask):
    """Runs a process bolt."""


class _NotingBatchTask(_Noting, BatchTask):
    """Runs a batching bolt."""


def watched_task(bolt: OperatorBolt, setup: TaskSetup, ports: Ports, watch: Watch) -> OperatorTask:
    """Return the task that runs a bolt.

    Raises:
        UserError: its calls need an event loop, which the simulated cluster does not have.
    """
    if isinstance(bolt, AsyncBolt):
        raise UserError(
            f"component {watch.component!r} is an AsyncBolt, whose calls need an event loop; test it with "
            "topo.testing.OperatorHarness, or the whole topology with real processes (LocalCluster)"
        )
    if isinstance(bolt, BatchBolt):
        batch_task = _NotingBatchTask(setup, ports)
        batch_task.watch = watch
        return batch_task
    window_task = _NotingCheckpointedWindowTask if setup.plan.config.delivery == "exactly_once" else _NotingWindowTask
    task = (window_task if isinstance(bolt, WindowBolt) else _NotingProcessTask)(setup, ports)
    task.watch = watch
    return task
