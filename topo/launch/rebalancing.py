"""Another number of tasks for a topology that runs: what would move, whether it can, and the change itself.

It ends with a savepoint and begins again from it, with the code, parameters and settings that it was submitted with. Between the
two nothing runs; if the process that rebalances dies there, `topo resume` continues as before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from topo.errors import TopologyError, UserError
from topo.launch.submission import load_submitted, reset_run
from topo.plan.parallelism import Move, moves, unsplittable, with_overrides
from topo.plan.physical import PhysicalPlan, physical_plan
from topo.plan.validation import problems_of
from topo.storage.state_folder import TopologyFolder
from topo.user_code.load import load_topology


@dataclass(frozen=True, slots=True)
class Rebalancing:
    """A change of parallelism that can be carried out.

    Attributes:
        moves: what becomes of each component that changes; empty: everything is so already.
        parallelism: tasks by component to store, with those set before.
        plan: the tasks afterwards.
        was_foreground: the topology ends with the process that started it.
    """

    moves: tuple[Move, ...]
    parallelism: Mapping[str, int]
    plan: PhysicalPlan
    was_foreground: bool


def rebalancing_of(folder: TopologyFolder, parallelism: Mapping[str, int]) -> Rebalancing:
    """Return what giving components other numbers of tasks means. Changes nothing.

    Raises:
        NotFoundError: there is no such component.
        TopologyError: a spout, state without keys, or more tasks than key groups; has all that is wrong.
        UserError: the topology takes no checkpoints.
    """
    submitted = load_submitted(folder)
    topology = load_topology(submitted.reference, submitted.parameters).topology
    before = physical_plan(with_overrides(topology, submitted.settings, submitted.parallelism, folder.name), submitted.cores)
    wanted = {**submitted.parallelism, **parallelism}
    varied = with_overrides(topology, submitted.settings, wanted, folder.name)
    if problems := problems_of(varied):
        raise TopologyError(problems)
    after = physical_plan(varied, submitted.cores)
    changes = moves(before, after)
    if problems := unsplittable(topology, {move.component: move.before for move in changes}):
        raise TopologyError(problems)
    if before.config.delivery != "exactly_once":
        raise UserError(f"{folder.name} takes no checkpoints, so its state cannot move; run it with -s delivery=exactly_once")
    return Rebalancing(tuple(changes), wanted, after, submitted.foreground)


def write_down(folder: TopologyFolder, change: Rebalancing, savepoint: str) -> None:
    """Have the next master of a topology begin with other numbers of tasks from a savepoint."""
    reset_run(folder, parallelism=dict(change.parallelism), plan=change.plan, start_from=savepoint)
