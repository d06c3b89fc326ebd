"""Chooses the guarantee of a task with windows by the delivery mode of its topology."""

from __future__ import annotations

from typing import NamedTuple

from topo.emission.collectors import BoltCollector
from topo.operators.state.undo_log import UndoLog
from topo.task.bolt_output import BoltOutput
from topo.task.guarantees.checkpointed import CheckpointedInputs
from topo.task.guarantees.checkpointed_windows import CheckpointedWindows
from topo.task.guarantees.factory import held_inputs
from topo.task.guarantees.inputs import InputGuarantee
from topo.task.guarantees.tracked import TrackedInputs
from topo.task.guarantees.tracked_windows import TrackedWindows
from topo.task.guarantees.window_firings import WindowFirings
from topo.task.operator_output import OperatorOutput
from topo.task.parts import TaskParts
from topo.task.runners.kind import Firings
from topo.task.window_calls import WindowCalls
from topo.tracking.window_tracking import WindowTracker


class WindowParts(NamedTuple):
    """The delivery of the windows of one task.

    Attributes:
        guarantee: of its inputs.
        calls: decide the consequences of a call that raises.
        output: of the operator.
        firings: trees that begin at the task; None where no input is tracked.
    """

    guarantee: InputGuarantee
    calls: WindowCalls
    output: OperatorOutput
    firings: Firings | None = None


def make_windows(
    parts: TaskParts, out: BoltOutput, collector: BoltCollector, late_stream: str | None, *, takes_columns: bool
) -> WindowParts:
    """Return the guarantee of a task with windows, and what goes with it. `takes_columns`: they take batches whole."""
    held, state = held_inputs(parts), parts.state
    if state.is_checkpointed:
        covered = CheckpointedInputs(parts, out, held, undo_log=UndoLog(collector))
        output = OperatorOutput(state, collector, out, covered)
        return WindowParts(covered, CheckpointedWindows(parts, covered, collector), output)
    tracker = WindowTracker(parts.env.ids)
    inputs = TrackedInputs(parts, out, held, WindowFirings(tracker, state, parts.reports, collector))
    calls = TrackedWindows(parts, out, inputs, tracker, collector, late_stream, takes_columns=takes_columns)
    return WindowParts(inputs, calls, OperatorOutput(state, collector, out, inputs, calls.side_anchors), firings=calls)
