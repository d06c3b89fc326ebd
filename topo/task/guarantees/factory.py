"""Chooses the guarantee of a task by the delivery mode of its topology."""

from __future__ import annotations

from topo.api.groupings import GroupingKind
from topo.api.operator_bolts import WindowBolt
from topo.api.spout import Spout
from topo.api.two_phase import TwoPhaseSink
from topo.checkpoint.held_inputs import HeldInputs
from topo.checkpoint.staged_output import StagedOutput
from topo.emission.collectors import BoltCollector
from topo.task.bolt_output import BoltOutput
from topo.task.guarantees.checkpointed import CheckpointedInputs, ErrorOf
from topo.task.guarantees.checkpointed_source import CheckpointedSource
from topo.task.guarantees.checkpointed_windows import CheckpointedWindowInputs
from topo.task.guarantees.inputs import InputGuarantee
from topo.task.guarantees.source import SourceGuarantee
from topo.task.guarantees.tracked import AlsoWaiting, TrackedInputs
from topo.task.guarantees.tracked_source import TrackedSource
from topo.task.guarantees.tracked_windows import TrackedWindowInputs
from topo.task.guarantees.untracked import UntrackedInputs
from topo.task.guarantees.verdict_delivery import VerdictDelivery
from topo.task.operator_output import OperatorOutput
from topo.task.output import TaskOutput
from topo.task.parts import TaskParts

_ANY_TASK = (GroupingKind.SHUFFLE, GroupingKind.LOCAL_OR_SHUFFLE, GroupingKind.GLOBAL, GroupingKind.NONE)
"""Groupings by which an input may as well have come to another task."""


def make_input_guarantee(
    parts: TaskParts,
    out: BoltOutput,
    *,
    also_waiting: AlsoWaiting | None = None,
    error_of: ErrorOf | None = None,
    staged: StagedOutput | None = None,
) -> InputGuarantee:
    """Return the guarantee of a task with input that has no windows.

    Args:
        parts: of the task.
        out: its output.
        also_waiting: returns the roots of inputs that wait within the task.
        error_of: returns the error with which user code has failed an input; None if it gave none.
        staged: output of a two-phase sink, as `make_staged_output` returns it.
    """
    held = _held_inputs(parts)
    if parts.state.is_checkpointed:
        return CheckpointedInputs(parts, out, held, error_of, staged)
    return TrackedInputs(parts, out, held, also_waiting) if parts.state.plan.ackers else UntrackedInputs(parts, out, held)


def make_staged_output(parts: TaskParts, component: object) -> StagedOutput | None:
    """Return the output of a sink that is published with checkpoints; None where a sink writes at once."""
    return StagedOutput(component) if parts.state.is_checkpointed and isinstance(component, TwoPhaseSink) else None


def make_source_guarantee(parts: TaskParts, spout: Spout, output: TaskOutput) -> SourceGuarantee:
    """Return the guarantee of a spout."""
    if parts.state.is_checkpointed:
        return CheckpointedSource(parts, spout, output.emission, output.watermarks)
    return TrackedSource(parts, spout, output.emission)


def make_verdict_delivery(parts: TaskParts) -> VerdictDelivery:
    """Return the guarantee of an acker. Trees of barriers end with their epoch, those of messages after their timeout."""
    # Not `state.is_checkpointed`, which is False for an acker: it has no part in a checkpoint.
    follows_barriers = parts.state.config.delivery == "exactly_once"
    return VerdictDelivery(parts, None if follows_barriers else parts.state.plan.longest_message_timeout_s)


def make_window_guarantee(
    parts: TaskParts, out: BoltOutput, collector: BoltCollector, bolt: WindowBolt
) -> tuple[TrackedWindowInputs | CheckpointedWindowInputs, OperatorOutput]:
    """Return the guarantee of a task with windows, and the output of its operator."""
    held, state = _held_inputs(parts), parts.state
    if state.is_checkpointed:
        covered = CheckpointedWindowInputs(parts, out, held, collector)
        return covered, OperatorOutput(state, collector, out, covered)
    tracked = TrackedWindowInputs(parts, out, held, collector, bolt.late_stream)
    return tracked, tracked.operator_output


def _held_inputs(parts: TaskParts) -> HeldInputs:
    plan, component = parts.state.plan, parts.state.component_id
    is_any_task = all(one.grouping in _ANY_TASK for one in plan.inputs_of(component))
    first_sweep = parts.spec.limits.held_inputs
    return HeldInputs(component, len(plan.tasks_of(component)), moves=is_any_task, first_sweep=first_sweep)
