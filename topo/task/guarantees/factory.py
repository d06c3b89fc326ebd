"""Chooses the guarantee of a task by the delivery mode of its topology."""

from __future__ import annotations

from topo.api.groupings import GroupingKind
from topo.api.spout import Spout
from topo.api.two_phase import TwoPhaseSink
from topo.checkpoint.held_inputs import HeldInputs
from topo.checkpoint.staged_output import StagedOutput
from topo.task.bolt_output import BoltOutput
from topo.task.guarantees.checkpointed import CheckpointedInputs, ErrorOf
from topo.task.guarantees.checkpointed_source import CheckpointedSource
from topo.task.guarantees.inputs import InputGuarantee
from topo.task.guarantees.source import SourceGuarantee
from topo.task.guarantees.tracked import TrackedInputs
from topo.task.guarantees.tracked_source import TrackedSource
from topo.task.guarantees.untracked import UntrackedInputs
from topo.task.guarantees.verdict_delivery import VerdictDelivery
from topo.task.parts import TaskParts
from topo.task.runners.spout_output import SpoutOutput
from topo.tracking.retries import Trials
from topo.tracking.source_messages import SourceMessages

_ANY_TASK = (GroupingKind.SHUFFLE, GroupingKind.LOCAL_OR_SHUFFLE, GroupingKind.GLOBAL, GroupingKind.NONE)
"""Groupings by which an input may as well have come to another task."""
WINDOWED = Trials(patience_s=0.05, second_death=True)
"""How suspects are tried whose verdict may take as long as a window."""


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
    held = held_inputs(parts)
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
    trials = WINDOWED if state.plan.has_tracked_windows else None
    messages = SourceMessages(spout, state, parts.reports, parts.env.codec, trials)
    output = SpoutOutput(parts, spout, messages.least_waiting_stamp)
    return TrackedSource(parts, spout, output.emission, messages), output


def make_verdict_delivery(parts: TaskParts) -> VerdictDelivery:
    """Return the guarantee of an acker. Trees of barriers end with their epoch, those of messages after their timeout."""
    # Not `state.is_checkpointed`, which is False for an acker: it has no part in a checkpoint.
    follows_barriers = parts.state.config.delivery == "exactly_once"
    return VerdictDelivery(parts, None if follows_barriers else parts.state.plan.longest_message_timeout_s)


def held_inputs(parts: TaskParts) -> HeldInputs:
    """Return the table of inputs that a task with input holds back."""
    plan, component = parts.state.plan, parts.state.component_id
    is_any_task = all(one.grouping in _ANY_TASK for one in plan.inputs_of(component))
    first_sweep = parts.spec.limits.held_inputs
    return HeldInputs(component, len(plan.tasks_of(component)), moves=is_any_task, first_sweep=first_sweep)
