"""From a reference on the command line to a plan, without starting anything."""

from __future__ import annotations

import os

from msgspec.structs import replace

from topo.launch.cores import usable_cores
from topo.plan.parallelism import with_overrides
from topo.plan.physical import PhysicalPlan, physical_plan
from topo.plan.validation import validate
from topo.storage.state_folder import check_name
from topo.user_code.load import load_topology
from topo_cli.options import collect_settings


def plan_of(
    reference: str,
    *,
    parameters: tuple[tuple[str, str], ...],
    settings: tuple[tuple[str, str], ...],
    workers: int | None,
    parallelism: tuple[tuple[str, int], ...],
    name: str | None,
) -> PhysicalPlan:
    """Return the plan of a topology as `topo run` with the same options would carry it out; see `topology_options`.

    Raises:
        TopoError: the code cannot be loaded, or something is wrong with the topology, its settings or its name.
    """
    given = collect_settings(settings, workers, os.environ)
    topology = with_overrides(load_topology(reference, dict(parameters)).topology, given, dict(parallelism))
    validate(topology)
    return physical_plan(replace(topology, name=check_name(topology.name if name is None else name)), usable_cores())
