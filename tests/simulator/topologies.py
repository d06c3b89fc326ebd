"""The components of simulated topologies, as data, and how a topology is built of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from tests.simulator.checkpointed_sources import Source
from tests.simulator.external_world import ExternalWorld
from tests.simulator.stages import Picky
from topo.api.streams import DEFAULT_STREAM
from topo.api.topology import Topology
from topo.api.watermarks import WatermarkStrategy
from topo.builder import BoltDeclarer, TopologyBuilder


@dataclass(frozen=True, slots=True)
class Part:
    """One component.

    Attributes:
        make: makes it, given the outside world.
        inputs: for each input (source, stream, grouping), or (source, grouping) of the default stream.
        source: the rows of a spout in a topology with checkpoints.
    """

    name: str
    make: Callable[[Any], Any]
    parallelism: int = 1
    inputs: tuple[tuple[str, ...], ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    source: Source | None = None


def build(
    name: str,
    parts: Sequence[Part],
    settings: Mapping[str, Any],
    outside: ExternalWorld,
    watermarks: WatermarkStrategy | None = None,
    chains: Mapping[str, Callable[[Any], Any]] | None = None,
) -> Topology:
    """Build a topology, as every process does.

    Args:
        watermarks: of all spouts.
        chains: by spout: makes the bolt that its tasks run on its rows.
    """
    builder = TopologyBuilder(name).config(**settings)
    for part in parts:
        made = part.make(outside)
        if not part.inputs:
            builder.set_spout(part.name, made, part.parallelism, watermarks=watermarks, **part.settings)
            continue
        declarer = builder.set_bolt(part.name, made, part.parallelism, **part.settings)
        for source, *stream, grouping in part.inputs:
            _declare(declarer, source, stream[0] if stream else DEFAULT_STREAM, grouping, outside)
    return builder.build(None, {spout: make(outside) for spout, make in (chains or {}).items()})


def copies_of(topology: Topology, outside: ExternalWorld) -> Callable[[], Topology]:
    """Return what copies a topology for one more process, so that it is built and checked once. `outside` is shared."""
    return lambda: deepcopy(topology, {id(outside): outside, id(topology.config): topology.config})


def _declare(declarer: BoltDeclarer, source: str, stream: str, grouping: str, outside: ExternalWorld) -> None:
    if grouping in ("fields", "key", "root"):
        declarer.fields_grouping(source, "key" if grouping == "fields" else grouping, stream=stream)
    elif grouping == "partial-key":
        declarer.partial_key_grouping(source, "key", stream=stream)
    elif grouping == "custom":
        declarer.custom_grouping(source, Picky(outside, f"{source} {stream}", 40), stream=stream)
    else:
        getattr(declarer, grouping.replace("-", "_") + "_grouping")(source, stream=stream)
