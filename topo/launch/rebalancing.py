"""Another number of tasks or workers for a topology that runs: what would move, whether it can, and the change itself.

With checkpoints it ends with a savepoint and begins again from it. Without them it drains, and its spouts continue behind their
stored positions. Either way with the code and parameters that it was submitted with. Between the two nothing runs; if the process
that rebalances dies there, `topo resume` continues as before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from topo.errors import TopologyError
from topo.launch.resuming import NOTHING_STORED, go_on_from_positions
from topo.launch.submission import load_submitted, reset_run
from topo.plan.parallelism import Move, moves, unsplittable, with_overrides
from topo.plan.physical import PhysicalPlan, physical_plan
from topo.plan.state_kinds import forgotten_without_checkpoints, plain_spouts
from topo.plan.validation import problems_of
from topo.storage.state_folder import TopologyFolder
from topo.storage.submitted import SubmittedTopology
from topo.user_code.load import load_topology


class Rebalancing(Struct, frozen=True):
    """A change of parallelism or workers that can be carried out.

    Attributes:
        moves: what becomes of each component that changes.
        workers: worker processes before and after.
        takes_savepoint: it continues from a savepoint; else behind the stored positions.
        plain_spouts: spouts without positions, which begin where their own code begins.
        parallelism: tasks by component to store, with those set before.
        settings: to store.
        plan: the tasks afterwards.
        was_foreground: the topology ends with the process that started it.
    """

    moves: tuple[Move, ...]
    workers: tuple[int, int]
    takes_savepoint: bool
    plain_spouts: tuple[str, ...]
    parallelism: Mapping[str, int]
    settings: Mapping[str, Any]
    plan: PhysicalPlan
    was_foreground: bool

    @property
    def changes_something(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.moves) or self.workers[0] != self.workers[1]


def rebalancing_of(folder: TopologyFolder, parallelism: Mapping[str, int], workers: int | None = None) -> Rebalancing:
    """Return what other numbers of tasks and workers mean for a topology. Changes nothing.

    Args:
        parallelism: tasks by component, of those that change.
        workers: processes for all tasks; None: as the settings say now.

    Raises:
        NotFoundError: there is no such component.
        TopologyError: a spout, state that cannot move, or more tasks than key groups; has all that is wrong.
    """
    submitted = load_submitted(folder)
    topology = load_topology(submitted.reference, submitted.parameters).topology
    before = physical_plan(with_overrides(topology, submitted.settings, submitted.parallelism, folder.name), submitted.cores)
    wanted = {**submitted.parallelism, **parallelism}
    settings = dict(submitted.settings) if workers is None else {**submitted.settings, "workers": workers}
    varied = with_overrides(topology, settings, wanted, folder.name)
    if problems := problems_of(varied):
        raise TopologyError(problems)
    after = physical_plan(varied, submitted.cores)
    changes = moves(before, after)
    counts = len(before.workers), len(after.workers)
    takes_savepoint = before.config.delivery == "exactly_once"
    problems = unsplittable(topology, {move.component: move.before for move in changes})
    if not takes_savepoint and (changes or counts[0] != counts[1]):
        problems += forgotten_without_checkpoints(topology, before.config.delivery)
    if problems:
        raise TopologyError(problems)
    plain = () if takes_savepoint else tuple(plain_spouts(topology))
    return Rebalancing(tuple(changes), counts, takes_savepoint, plain, wanted, settings, after, submitted.foreground)


def write_down(folder: TopologyFolder, change: Rebalancing, savepoint: str) -> None:
    """Have the next master begin with other numbers, from a savepoint or, with "", behind the stored positions."""
    if savepoint:
        reset_run(folder, parallelism=dict(change.parallelism), plan=change.plan, start_from=savepoint, settings=change.settings)
        return
    with folder.lock():
        submitted = SubmittedTopology.read(folder)
        moved = go_on_from_positions(folder, submitted.plan, change.plan)
        changed = {"parallelism": dict(change.parallelism), "settings": dict(change.settings), "plan": change.plan}
        replace(submitted, **changed, moved=moved, otherwise=NOTHING_STORED).save(folder)
