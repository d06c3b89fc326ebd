"""Overrides the numbers of tasks in the code: when a topology starts, or when it is rebalanced."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from topo.api.bolt import StatefulBolt
from topo.api.partitions import PartitionedSpout
from topo.api.topology import ComponentKind, ComponentSpec, Topology
from topo.config import TopologyConfig
from topo.errors import NotFoundError
from topo.keys import default_max_parallelism, owner_of
from topo.plan.physical import PhysicalPlan


class Move(Struct, frozen=True):
    """A component in a rebalance: tasks before and after, its key groups, and how many change their task."""

    component: str
    before: int
    after: int
    key_groups: int
    moved: int


def with_overrides(
    topology: Topology, settings: Mapping[str, Any], parallelism: Mapping[str, int], name: str | None = None
) -> Topology:
    """Return the topology with the settings, numbers of tasks and name that it runs with, in place of those in the code.

    Raises:
        ConfigError: a setting is wrong.
        NotFoundError: as `with_parallelism`.
    """
    config = topology.config.with_settings(settings)
    varied = with_parallelism(topology, parallelism, config)
    return replace(varied, name=name or topology.name, config=config)


def with_parallelism(topology: Topology, parallelism: Mapping[str, int], config: TopologyConfig) -> Topology:
    """Return the topology with other numbers of tasks. Key groups stay what they are by the declaration, so state still fits.

    Args:
        parallelism: tasks by component.
        config: the settings in force.

    Raises:
        NotFoundError: there is no such component; carries near misses.
    """
    names = [spec.id for spec in topology.components]
    for name in parallelism:
        if name not in names:
            raise NotFoundError(
                f"{topology.name} has no component {name!r}; it has {', '.join(names)}.",
                tuple(get_close_matches(name, names, n=3)),
            )
    changed = (_changed(spec, parallelism.get(spec.id, spec.parallelism), config) for spec in topology.components)
    return replace(topology, components=tuple(changed))


def moves(before: PhysicalPlan, after: PhysicalPlan) -> list[Move]:
    """Return what moves between two plans that differ in the parallelism of components."""
    found = []
    for new in after.components:
        old = before.component(new.id)
        if old.parallelism != new.parallelism:
            groups = new.max_parallelism
            moved = sum(
                owner_of(group, groups, old.parallelism) != owner_of(group, groups, new.parallelism) for group in range(groups)
            )
            found.append(Move(new.id, old.parallelism, new.parallelism, groups, moved))
    return found


def unsplittable(topology: Topology, before: Mapping[str, int]) -> list[str]:
    """Return why components cannot have another number of tasks and keep their state: one sentence each.

    Args:
        topology: the topology as the code declares it.
        before: the components whose number of tasks changes, with the number that they had.
    """
    found = []
    for name, tasks in before.items():
        spec = topology.component(name)
        if issubclass(spec.type, PartitionedSpout):
            continue
        if spec.kind is ComponentKind.SPOUT:
            found.append(
                f"{spec.id!r} is a spout: what each of its tasks has read cannot be split, so its parallelism stays "
                f"{tasks}; give the bolts behind it more tasks, or make it a PartitionedSpout"
            )
        elif issubclass(spec.type, StatefulBolt) and spec.type.key is None and not spec.type.is_broadcast:
            found.append(
                f"{spec.id!r}: the state of {spec.type.__name__} goes by no key, so it cannot be split and its parallelism stays "
                f"{tasks}; with a `key`, and a snapshot() that returns a dict by key, it can, but then it begins with nothing: "
                f"submit it with --from and --drop-state {spec.id}"
            )
    return found


def _changed(spec: ComponentSpec, parallelism: int, config: TopologyConfig) -> ComponentSpec:
    if parallelism == spec.parallelism:
        return spec
    own, _ = config.changed(spec.settings, per_component=True)
    groups = own.max_parallelism or default_max_parallelism(spec.parallelism)
    return replace(spec, parallelism=parallelism, settings={**spec.settings, "max_parallelism": groups})
