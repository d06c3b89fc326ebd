"""The reason why a drain was not done in time, in words."""

from __future__ import annotations

from topo.checkpoint.coordinator import CheckpointCoordinator
from topo.ids import TaskId
from topo.master.epochs import EpochState
from topo.master.quiescence import Quiescence
from topo.master.recovery import Recovery
from topo.plan.physical import PhysicalPlan


def why_not_drained(
    plan: PhysicalPlan,
    recovery: Recovery,
    quiescence: Quiescence,
    checkpoints: CheckpointCoordinator | None,
    *,
    unstored: int,
    replays: int,
) -> str:
    """Return what a drain still waits for, and how many messages are pending.

    Args:
        unstored: dead letters that are not on disk.
        replays: dead letters that are emitted again.
    """

    def who(task: TaskId) -> str:
        return f"task {task} ({plan.task(task).component})"

    epochs, silent, reason = recovery.epochs, quiescence.silent(), quiescence.why_not()
    if epochs.state is EpochState.FORMING:
        why = "a worker was being replaced"
    elif epochs.state is EpochState.OPENING:
        why = f"not open again after a recovery: {', '.join(map(who, epochs.waiting_for()))}"
    elif unstored:
        why = f"{_counted(unstored, 'dead letter')} not stored, see `topo errors`"
    elif replays:
        why = f"{_counted(replays, 'dead letter')} that `topo dead-letters replay` emits again"
    elif silent and not quiescence.refusal:
        busy_in = recovery.membership.slots[plan.worker_of(silent[0])].busy_in
        why = f"{who(silent[0])} did not answer{f', its worker was in a call of {busy_in}' if busy_in else ''}"
    elif reason is not None:
        why = f"{who(reason[0])}: {reason[1]}"
    else:
        why = (checkpoints.unfinished if checkpoints is not None else "") or "tuples were still moving"
    pending = quiescence.pending()
    return f"{_counted(pending, 'message')} {'was' if pending == 1 else 'were'} pending ({why})" if pending else why


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' if count > 1 else ''}"
