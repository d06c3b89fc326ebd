"""State that the last run under a name has left, and whether another run may continue from it.

Positions belong to tasks by number, so they move to the numbers that the same tasks have in the new plan; positions by partition
move to the tasks that read the partitions now. Checkpoints are checked by their manifests.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from shlex import quote
from typing import Any

import msgspec

from topo.api.partition_values import joined, owned
from topo.api.topology import Topology
from topo.checkpoint.manifest import Manifest
from topo.errors import CheckpointRefusedError, TopoError, UserError
from topo.ids import TaskId
from topo.master_process.job import Job
from topo.master_process.restore_point import checkpoint_to_restore, moment
from topo.plan.parallelism import unsplittable
from topo.plan.physical import PhysicalPlan
from topo.plan.state_kinds import BY_PARTITION
from topo.storage.checkpoint_store import open_store
from topo.storage.state_folder import TopologyFolder, write_atomically
from topo.storage.submitted import FIRST, last_run
from topo.tracking.partition_positions import PartitionPositions
from topo.wire.codec import Codec

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
            return f"starts from the beginning; `--from {quote(checkpoints)}` continues from the last run's {what} instead"
    elif not is_known:
        return "starts from the beginning: topology.json of the last run is damaged, so it cannot be continued"
    elif any(position for position, _ in _positions(folder).values()):
        lost = f"the last run's positions of {moment(int(folder.positions.stat().st_mtime * 1000))} are discarded"
        return f"starts from the beginning; {lost} (`--resume-or-start` continues from them)"
    return "starts from the beginning; the last run has stored nothing to continue from"


def check_restore(job: Job, topology: Topology, *, goes_on: bool) -> Manifest | None:
    """Check that a job can begin from its start state, before anything is removed; return the manifest of that, if any.

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
        return None
    if not job.submitted.start_from and not goes_on:
        return None
    store = open_store(job.checkpoints, job.plan.name)
    manifest = checkpoint_to_restore(store, job.plan, start_from=job.submitted.start_from, drop=job.submitted.drop_state).manifest
    before = {} if manifest is None else {name: shape.parallelism for name, shape in manifest.components.items()}
    now = {component.id: component.parallelism for component in job.plan.components}
    if problems := unsplittable(topology, {name: tasks for name, tasks in before.items() if now.get(name, tasks) != tasks}):
        raise CheckpointRefusedError("; ".join(problems))
    return manifest


def go_on_from_positions(folder: TopologyFolder, last: PhysicalPlan, plan: PhysicalPlan) -> str:
    """Give the positions that the last run has stored to the tasks of another plan.

    Returns:
        `moved` of the submission that has the plan.

    Raises:
        UserError: they belong to other tasks than the plan has, or the run had another mode of delivery.
    """
    fresh = "submitted without --resume-or-start it starts from the beginning"
    if last.config.delivery != plan.config.delivery:
        modes = f"with delivery={last.config.delivery} and cannot continue with delivery={plan.config.delivery}"
        raise UserError(f"{folder.name} ran {modes}; {fresh}")
    rows = _positions(folder)
    moved: StoredPositions = {}
    known_components = {known.id: known for known in plan.components}
    by_partition: set[str] = set()
    for number, row in rows.items():
        task = last.task(TaskId(number))
        known = known_components.get(task.component)
        tasks = plan.tasks_of(task.component) if known is not None else ()
        if known is not None and known.state == last.component(task.component).state == BY_PARTITION:
            by_partition.add(task.component)
            continue
        was = last.component(task.component).state
        if known is not None and any(row) and known.state != was:
            raise UserError(f"spout {task.component!r} has stored {was} and now keeps {known.state}; {fresh}")
        if len(tasks) != len(last.tasks_of(task.component)):
            raise UserError(
                f"spout {task.component!r} had {len(last.tasks_of(task.component))} tasks with a position each, and now has "
                f"{len(tasks)}: it cannot continue; {fresh}"
            )
        moved[tasks[task.index]] = row
    for component in by_partition:
        tasks = plan.tasks_of(component)
        old = [rows.get(task, (b"", b"")) for task in last.tasks_of(component)]
        moved |= dict(zip(tasks, split_by_partition(old, len(tasks)), strict=True))
    if moved == rows:
        return ""
    for leftover in folder.path.glob("positions.*.msgpack"):
        leftover.unlink(missing_ok=True)
    name = f"positions.{os.urandom(4).hex()}.msgpack"
    write_atomically(folder.path / name, msgspec.msgpack.encode(moved))
    return name


def split_by_partition(rows: Iterable[tuple[bytes, bytes]], parallelism: int) -> list[tuple[bytes, bytes]]:
    """Return the rows of `parallelism` tasks, made of those of the tasks that have stored positions by partition.

    A row has, packed, the positions by partition, and kills of messages, whose ids begin with their partition. It is of one task
    of those before, by index; nothing in it: the task had not found its partitions.
    """
    codec = Codec()
    parts: list[dict[str, Any] | None] = []
    kills: list[tuple[Any, int]] = []
    for positions, attempts in rows:
        parts.append(codec.unpack_value(positions) if positions else None)
        kills += codec.unpack_value(attempts) if attempts else []
    stored = joined(parts)
    found = []
    for index in range(parallelism):
        mine = owned(stored, index, parallelism)
        own_kills = [(message, count) for message, count in kills if message[0] in mine]
        positions = codec.pack_value(PartitionPositions(mine).record()) if any(parts) else b""
        found.append((positions, codec.pack_value(own_kills) if own_kills else b""))
    return found


def _positions(folder: TopologyFolder) -> StoredPositions:
    try:
        return msgspec.msgpack.decode(folder.positions.read_bytes(), type=StoredPositions)
    except (OSError, msgspec.MsgspecError):
        # The master reports the damage.
        return {}
