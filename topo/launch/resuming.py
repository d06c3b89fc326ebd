"""State that the last run under a name has left, and whether another run may continue from it.

Positions belong to tasks by number, so they move to the numbers that the same tasks have in the new plan. Checkpoints are checked
by their manifests.
"""

from __future__ import annotations

import msgspec

from topo.api.topology import Topology
from topo.errors import CheckpointRefusedError, TopoError, UserError
from topo.ids import TaskId
from topo.master_process.job import Job
from topo.master_process.restore_point import checkpoint_to_restore, moment
from topo.plan.parallelism import unsplittable
from topo.plan.physical import PhysicalPlan
from topo.storage.checkpoint_store import open_store
from topo.storage.state_folder import TopologyFolder, write_atomically
from topo.storage.submitted import FIRST, last_run

StoredPositions = dict[int, tuple[bytes, bytes]]

NOTHING_STORED = "starts from the beginning: the last run has stored nothing to continue from"


def text_of_beginning(folder: TopologyFolder, checkpoints: str) -> str:
    """Return the text of a run without a start state: what becomes of the last run's state, and how to continue from it.

    Args:
        folder: as the last run has left it.
        checkpoints: the last run's own folder of checkpoints, which is kept; "" when it took none.
    """
    is_known = last_run(folder) is not None
    if not is_known and not folder.topology.exists() and not checkpoints:
        return FIRST
    if checkpoints:
        try:
            manifest = open_store(checkpoints, folder.name).latest().manifest
        except TopoError:
            manifest = None
        if manifest is not None:
            what = f"checkpoint {manifest.checkpoint} of {moment(manifest.created_ms)}"
            return f"starts from the beginning; `--from {checkpoints}` continues from the last run's {what} instead"
    elif not is_known:
        return "starts from the beginning: topology.json of the last run is damaged, so it cannot be continued"
    elif any(position for position, _ in _positions(folder).values()):
        lost = f"the last run's positions of {moment(int(folder.positions.stat().st_mtime * 1000))} are discarded"
        return f"starts from the beginning; {lost} (`--resume-or-start` continues from them)"
    return "starts from the beginning; the last run has stored nothing to continue from"


def check_restore(job: Job, topology: Topology, *, goes_on: bool) -> None:
    """Check that a job can begin from its start state, before anything is removed.

    Args:
        job: names the savepoint that it begins from, if any.
        topology: as it was loaded for the job.
        goes_on: whether it continues from the last run's checkpoints, if that has any.

    Raises:
        UserError: the job takes no checkpoints.
        CheckpointRefusedError: the state does not fit.
    """
    if not job.checkpoints:
        if job.submitted.start_from:
            raise UserError(f"{job.plan.name} takes no checkpoints, so it cannot continue from one; set delivery=exactly_once")
        return
    if not job.submitted.start_from and not goes_on:
        return
    store = open_store(job.checkpoints, job.plan.name)
    manifest = checkpoint_to_restore(store, job.plan, start_from=job.submitted.start_from, drop=job.submitted.drop_state).manifest
    before = {} if manifest is None else {name: shape.parallelism for name, shape in manifest.components.items()}
    now = {component.id: component.parallelism for component in job.plan.components}
    if problems := unsplittable(topology, {name: tasks for name, tasks in before.items() if now.get(name, tasks) != tasks}):
        raise CheckpointRefusedError("; ".join(problems))


def go_on_from_positions(folder: TopologyFolder, last: PhysicalPlan, plan: PhysicalPlan) -> None:
    """Give the positions that the last run has stored to the tasks of another plan.

    Raises:
        UserError: they belong to other tasks than the plan has, or the run had another mode of delivery.
    """
    fresh = "submitted without --resume-or-start it starts from the beginning"
    if last.config.delivery != plan.config.delivery:
        modes = f"with delivery={last.config.delivery} and cannot continue with delivery={plan.config.delivery}"
        raise UserError(f"{folder.name} ran {modes}; {fresh}")
    rows = _positions(folder)
    moved: StoredPositions = {}
    for number, row in rows.items():
        task = last.task(TaskId(number))
        tasks = plan.tasks_of(task.component) if any(task.component == known.id for known in plan.components) else ()
        if len(tasks) != len(last.tasks_of(task.component)):
            raise UserError(
                f"spout {task.component!r} had {len(last.tasks_of(task.component))} tasks with a position each, and now has "
                f"{len(tasks)}: it cannot continue; {fresh}"
            )
        moved[tasks[task.index]] = row
    if moved != rows:
        write_atomically(folder.positions, msgspec.msgpack.encode(moved))


def _positions(folder: TopologyFolder) -> StoredPositions:
    try:
        return msgspec.msgpack.decode(folder.positions.read_bytes(), type=StoredPositions)
    except (OSError, msgspec.MsgspecError):
        # The master reports the damage.
        return {}
