"""Chooses the guarantee of a task by the delivery mode of its topology."""

from __future__ import annotations

from typing import NamedTuple

from topo.api.groupings import GroupingKind
from topo.api.spout import Spout
from topo.api.two_phase import TwoPhaseSink
from topo.checkpoint.held_inputs import HeldInputs
from topo.checkpoint.staged_output import StagedOutput
from topo.emission.collectors import BoltCollector
from topo.operators.state.undo_log import UndoLog
from topo.task.bolt_output import BoltOutput
from topo.task.guarantees.checkpointed import CheckpointedInputs, ErrorOf
from topo.task.guarantees.checkpointed_source import CheckpointedSource
from topo.task.guarantees.checkpointed_windows import CheckpointedWindows
from topo.task.guarantees.inputs import InputGuarantee
from topo.task.guarantees.source import SourceGuarantee
from topo.task.guarantees.tracked import TrackedInputs
from topo.task.guarantees.tracked_source import TrackedSource
from topo.task.guarantees.tracked_windows import TrackedWindows
from topo.task.guarantees.untracked import UntrackedInputs
from topo.task.guarantees.verdict_delivery import VerdictDelivery
from topo.task.guarantees.window_firings import WindowFirings
from topo.task.operator_output import OperatorOutput
from topo.task.parts import TaskParts
from topo.task.runners.kind import Firings
from topo.task.runners.spout_output import SpoutOutput
from topo.task.window_calls import WindowCalls
from topo.tracking.source_messages import SourceMessages
from topo.tracking.window_tracking import WindowTracker

_ANY_TASK = (GroupingKind.SHUFFLE, GroupingKind.LOCAL_OR_SHUFFLE, GroupingKind.GLOBAL, GroupingKind.NONE)
"""Groupings by which an input may as well have come to another task."""
TRIAL_S = 0.05
"""How long a suspect is watched whose verdict may take as long as a window."""


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


def make_input_guarantee(
    parts: TaskParts, out: BoltOutput, *, error_of: ErrorOf | None = None, staged: StagedOutput | None = None
) -> InputGuarantee:
    """Return the guarantee of a task with input that has no windows.

    Args:
        parts: of the task.
        out: its output.
        error_of: returns the error with which user code has failed an input; None if it gave none.
        staged: output of a two-phase sink, as `make_staged_output` returns it.
    """
    held = _held_inputs(parts)
    if parts.state.is_checkpointed:
        return CheckpointedInputs(parts, out, held, error_of, staged)
    return TrackedInputs(parts, out, held) if parts.state.plan.ackers else UntrackedInputs(parts, out, held)


def make_staged_output(parts: TaskParts, component: object) -> StagedOutput | None:
    """Return the output of a sink that is published with checkpoints; None where a sink writes at once."""
    return StagedOutput(component) if parts.state.is_checkpointed and isinstance(component, TwoPhaseSink) else None


def make_source_guarantee(parts: TaskParts, spout: Spout) -> tuple[SourceGuarantee, SpoutOutput]:
    """Return the guarantee of a spout, and its output."""
    state = parts.state
    if state.is_checkpointed:
        output = SpoutOutput(parts, spout)
        return CheckpointedSource(parts, spout, output.emission, output.watermarks), output
    trial_s = TRIAL_S if state.plan.has_tracked_windows else None
    messages = SourceMessages(spout, state, parts.reports, parts.env.codec, trial_s)
    output = SpoutOutput(parts, spout, messages.least_waiting_stamp)
    return TrackedSource(parts, spout, output.emission, messages), output


def make_verdict_delivery(parts: TaskParts) -> VerdictDelivery:
    """Return the guarantee of an acker. Trees of barriers end with their epoch, those of messages after their timeout."""
    # Not `state.is_checkpointed`, which is False for an acker: it has no part in a checkpoint.
    follows_barriers = parts.state.config.delivery == "exactly_once"
    return VerdictDelivery(parts, None if follows_barriers else parts.state.plan.longest_message_timeout_s)


def make_windows(
    parts: TaskParts, out: BoltOutput, collector: BoltCollector, late_stream: str | None, *, takes_columns: bool
) -> WindowParts:
    """Return the guarantee of a task with windows, and what goes with it. `takes_columns`: they take batches whole."""
    held, state = _held_inputs(parts), parts.state
    if state.is_checkpointed:
        covered = CheckpointedInputs(parts, out, held, undo_log=UndoLog(collector))
        output = OperatorOutput(state, collector, out, covered)
        return WindowParts(covered, CheckpointedWindows(parts, covered, collector), output)
    tracker = WindowTracker(parts.env.ids)
    inputs = TrackedInputs(parts, out, held, WindowFirings(tracker, state, parts.reports, collector))
    calls = TrackedWindows(parts, out, inputs, tracker, collector, late_stream, takes_columns=takes_columns)
    return WindowParts(inputs, calls, OperatorOutput(state, collector, out, inputs, calls.side_anchors), firings=calls)


def _held_inputs(parts: TaskParts) -> HeldInputs:
    plan, component = parts.state.plan, parts.state.component_id
    is_any_task = all(one.grouping in _ANY_TASK for one in plan.inputs_of(component))
    first_sweep = parts.spec.limits.held_inputs
    return HeldInputs(component, len(plan.tasks_of(component)), moves=is_any_task, first_sweep=first_sweep)
