"""Components for the tasks of a test: one instance for each life of each task, as in processes of their own."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from topo.api.bolt import BasicBolt, Bolt, StatefulBolt
from topo.api.component import Component
from topo.api.partitions import PartitionedSpout
from topo.api.spout import BlockingSpout, RetryingSpout, Spout
from topo.api.topology import Topology, TopologySource
from topo.api.two_phase import TwoPhaseSink
from topo.errors import UserError
from topo.plan.physical import PlannedTask
from topo.testing.recording import Watch, WatchedBasicBolt, WatchedBolt, WatchedStatefulBolt, WatchedTwoPhaseSink
from topo.testing.recording_spouts import SpoutWatch, WatchedPartitionedSpout, WatchedRetryingSpout, WatchedSpout
from topo.user_code.load import checked

TopologyLike = Topology | TopologySource | Callable[[], Topology | TopologySource]
"""A topology, what makes one, or the function that gives either."""


def built(given: TopologyLike) -> Topology:
    """Return the topology; of a function that of this call."""
    value = given() if callable(given) else given
    return checked(
        value.build() if isinstance(value, TopologySource) else value,
        "the function gave" if callable(given) else "the test was given",
    )


class Instances:
    """Where instances come from.

    Args:
        topology: the topology, or the function that builds it, which is then called for every life of every task. Of an instance
            that each call gives again, as a function does that builds from one shared builder, and of those of a topology, the
            first life of the first task takes the very instance; the others take copies of it as it was.
    """

    def __init__(self, topology: TopologyLike) -> None:
        self.source: Callable[[], Topology] = lambda: built(topology)
        """Returns the topology that the next life is made of."""
        self.topology = self.source()
        again = {spec.id: spec.component for spec in self.source().components}
        self._used: set[str] = set()
        self._copies: dict[str, Component | Exception] = {
            spec.id: _copied(spec.component)
            for spec in self.topology.components
            if not isinstance(spec.component, type) and again.get(spec.id) is spec.component
        }
        self._chains = {spec.id: (spec.chain, _copied(spec.chain)) for spec in self.topology.components}

    def make(self, source: Topology, task: PlannedTask) -> Component:
        """Return the component of a task.

        Raises:
            UserError: it would have to be copied and cannot be.
        """
        spec = source.component(task.component)
        if spec.id not in self._copies:
            return spec.make()
        if spec.id not in self._used and task.index == 0:
            self._used.add(spec.id)
            return spec.make()
        copy: Component = _again(spec.id, self._copies[spec.id])
        return copy

    def chain(self, source: Topology, task: PlannedTask) -> Any:
        """Return the chain that the task of a spout runs on its rows; None for nothing. Raises UserError as `make`."""
        spec = source.component(task.component)
        given, copy = self._chains[spec.id]
        return spec.chain if spec.chain is not given else _again(spec.id, copy)


def _copied(component: Any) -> Any:
    try:
        return deepcopy(component)
    except Exception as error:
        return error


def _again(component_id: str, copy: Any) -> Any:
    if isinstance(copy, Exception):
        raise UserError(
            f"component {component_id!r} is needed again, for a further task or after a crash, and cannot be copied "
            f"({type(copy).__name__}: {copy}); give TopologyTest a function that makes the component and builds the topology"
        ) from copy
    return deepcopy(copy)


def watched(component: Component, watch: Watch) -> WatchedBolt | WatchedBasicBolt | SpoutWatch:
    """Put a component under observation. Its errors have the line that adds it, as without.

    Raises:
        UserError: it cannot run on a manual clock.
    """
    under_watch = _watched(component, watch)
    vars(under_watch)["declared_at"] = getattr(component, "declared_at", None)
    return under_watch


def _watched(component: Component, watch: Watch) -> WatchedBolt | WatchedBasicBolt | SpoutWatch:
    if isinstance(component, BlockingSpout):
        raise UserError(
            f"spout {watch.component!r} runs in a separate thread, which a manual clock cannot hold; "
            f"give TopologyTest a script for it: sources={{{watch.component!r}: [...]}}"
        )
    if isinstance(component, PartitionedSpout):
        return WatchedPartitionedSpout(component, watch)
    if isinstance(component, RetryingSpout):
        return WatchedRetryingSpout(component, watch)
    if isinstance(component, Spout):
        return WatchedSpout(component, watch)
    if isinstance(component, StatefulBolt):
        return WatchedStatefulBolt(component, watch)
    if isinstance(component, BasicBolt):
        return WatchedBasicBolt(component, watch)
    if isinstance(component, TwoPhaseSink):
        return WatchedTwoPhaseSink(component, watch)
    if isinstance(component, Bolt):
        return WatchedBolt(component, watch)
    raise UserError(f"component {watch.component!r} is a {type(component).__name__}, which the test kit cannot run")
