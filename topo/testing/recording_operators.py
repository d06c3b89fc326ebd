"""Operator bolts under observation: the tasks that run them, which write down what leaves the operator for good."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topo.api.batch_bolt import BatchBolt
from topo.api.operator_bolts import AsyncBolt, OperatorBolt, WindowBolt
from topo.errors import ValueNotCarried
from topo.task.environment import TaskEnvironment, TaskSpec
from topo.task.guarantees.checkpointed_window import CheckpointedWindowTask
from topo.task.runners.async_calls import AsyncTask
from topo.task.runners.batch import BatchTask
from topo.task.runners.operator import OperatorTask
from topo.task.runners.process import ProcessTask
from topo.task.runners.window import WindowTask

if TYPE_CHECKING:
    from topo.testing.recording import Watch


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


class _NotingAsyncTask(_Noting, AsyncTask):
    """Runs an async bolt."""


def watched_task(bolt: OperatorBolt, setup: TaskSpec, ports: TaskEnvironment, watch: Watch) -> OperatorTask:
    """Return the task that runs a bolt."""
    kind: type[_Noting] = _NotingProcessTask
    if isinstance(bolt, AsyncBolt):
        kind = _NotingAsyncTask
    elif isinstance(bolt, BatchBolt):
        kind = _NotingBatchTask
    elif isinstance(bolt, WindowBolt):
        kind = _NotingCheckpointedWindowTask if setup.plan.config.delivery == "exactly_once" else _NotingWindowTask
    task = kind(setup, ports)
    task.watch = watch
    return task
