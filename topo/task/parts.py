"""The parts that every task has, with any runner and any guarantee."""

from __future__ import annotations

from collections.abc import Callable, Collection

from topo.ids import TaskId
from topo.operators.mailbox.executor import CALL_PRIORITY, MailboxExecutor
from topo.operators.mailbox.mailbox import TaskMailbox
from topo.plan.physical import PhysicalPlan
from topo.task.environment import TaskEnvironment, TaskSpec
from topo.task.error_reports import Reports
from topo.task.inbound import Inbound
from topo.task.outbound import Outbound, RejectNamed
from topo.task.snapshot_taker import SnapshotTaker
from topo.task.state import TaskState
from topo.task.taps import Taps
from topo.wire.frames import FrameKind

RunUserMail = Callable[[Callable[[], object]], None]
RootsWaiting = Callable[[dict[int, None], float], dict[int, None]]


class TaskParts:
    """The parts of one task, which its runner and its guarantee use.

    Args:
        spec: which task it is.
        env: its connections to the outside.
        accepts: kinds of frames that may come on its in-edges.
        reject: takes a row that cannot be packed, and its roots, which are to fail.
        run_user_mail: runs a mail that user code has posted; None in a task without user code.

    Attributes:
        state: facts that all parts read.
        reports: to the master and to the user's hooks.
        outbound: all edges that leave the task.
        inbound: all edges that lead to it.
        snapshots: takes and reads its part of a checkpoint.
        taps: where operators watch its tuples.
        mailbox: actions to run on the task's thread between two actions.
        executor: for the task's own mails; an error in one ends the process.
        cuts: called, on any thread, when the action at hand is to end soon.
        waiting: return the roots of inputs that wait within the task, given those of rows that wait on its out-edges.
        checks: assert invariants.
    """

    def __init__(
        self,
        spec: TaskSpec,
        env: TaskEnvironment,
        accepts: Collection[FrameKind],
        reject: RejectNamed,
        run_user_mail: RunUserMail | None = None,
    ) -> None:
        self.spec = spec
        self.env = env
        state = self.state = TaskState(spec, env)
        self.taps = Taps()
        self.mailbox = TaskMailbox(wake=env.wake, wait=env.wait)
        self.executor = MailboxExecutor(self.mailbox)
        if run_user_mail is not None:
            user_executor = MailboxExecutor(self.mailbox, CALL_PRIORITY, run_user_mail)
            object.__setattr__(spec.context, "executor", user_executor)
        object.__setattr__(spec.context, "clock", env.clock)
        if env.run_beside is not None:
            object.__setattr__(spec.context, "run_beside", env.run_beside)
        if env.snapshots is not None:
            object.__setattr__(spec.context, "check_state", env.snapshots.pack)
        declared = getattr(spec.component, "declared_at", None)
        self.reports = Reports(state, spec.context, spec.hooks, spec.limits.causes, lambda: env.is_memory_short(), declared)
        targets = _targets(spec.plan, state.id)
        self.outbound = Outbound(state, self.reports, env.codec, targets, reject)
        receivers = [target for target, _ in targets]
        confirmed = self.outbound.outbox.confirm
        self.inbound = Inbound(state, self.reports, _senders(spec.plan, state.id), receivers, accepts, confirmed)
        keeper = getattr(spec.component, "process", None) or getattr(spec.component, "snapshot", None)
        self.snapshots = SnapshotTaker(state, self.reports, env, self.executor.execute, keeper)
        self.cuts: list[Callable[[], None]] = []
        self.waiting: list[RootsWaiting] = []
        self.checks: list[Callable[[], None]] = []


def _senders(plan: PhysicalPlan, task: TaskId) -> list[TaskId]:
    """Return the tasks that send to a task; all ackers send verdicts to those that draw roots."""
    return [*plan.upstream_tasks(task), *(plan.ackers if task in plan.origins else ())]


def _targets(plan: PhysicalPlan, task: TaskId) -> list[tuple[TaskId, bool]]:
    """Return the tasks that a task sends to, and whether it sends them verdicts."""
    if task in plan.ackers:
        return [(origin, True) for origin in plan.origins]
    return [(target, False) for target in plan.downstream_tasks(task)]
