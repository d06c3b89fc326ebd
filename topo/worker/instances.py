"""The user's components and groupings as the tasks of one worker take them: each instance for one task alone."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any, NamedTuple

from topo.api.component import Component
from topo.api.groupings import CustomGrouping
from topo.api.spout import BlockingSpout
from topo.api.topology import Topology
from topo.api.watermarks import WatermarkStrategy
from topo.errors import UserError
from topo.task.router_factory import custom_groupings
from topo.user_errors import kind_and_message
from topo.worker.blocking import BlockingSpoutRunner


class Given(NamedTuple):
    """What one task takes: its component, the strategy of its event time, the user's own groupings of its output, its chain."""

    component: Component | None
    watermarks: WatermarkStrategy | None
    groupings: dict[tuple[str, int], CustomGrouping]
    chain: Any = None


NOTHING_GIVEN = Given(None, None, {})


class TaskInstances:
    """The instances of one topology.

    The first task takes an instance that is given with the topology; for each further one the code runs again. A component that
    this code does not make, but imports, is copied.

    Args:
        topology: has the first instances.
        rebuild: runs the user's code again.
    """

    def __init__(self, topology: Topology, rebuild: Callable[[], Topology]) -> None:
        self._topology = topology
        self._rebuild = rebuild
        self._used: set[int] = set()

    def take(self, component_id: str) -> Given:
        """Return instances for one more task of a component.

        Raises:
            UserError: a component that two tasks need cannot be copied.
        """
        source, used = self._topology, self._used
        component: Any = source.component(component_id).make()
        if id(component) in used:
            source = self._rebuild()
            component = source.component(component_id).make()
        if id(component) in used:
            component = _copy(component, component_id)
        used.add(id(component))
        groupings = custom_groupings(source, component_id)
        if not used.isdisjoint(map(id, groupings.values())):
            groupings = custom_groupings(self._rebuild(), component_id)
        used.update(map(id, groupings.values()))
        if isinstance(component, BlockingSpout):
            component = BlockingSpoutRunner(component)
        chain = source.component(component_id).chain
        if id(chain) in used:
            chain = _copy(chain, component_id)
        if chain is not None:
            used.add(id(chain))
        return Given(component, source.component(component_id).watermarks, groupings, chain)


def _copy(component: Any, component_id: str) -> Any:
    try:
        return deepcopy(component)
    except Exception as error:
        raise UserError(
            f"component {component_id!r} has several tasks in this worker, and its one instance cannot be copied "
            f"({kind_and_message(error)}); make the instance in the function that builds the topology, not in an imported "
            "module"
        ) from error
