"""Resolves the settings that depend on the components."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

from topo.api.bolt import StatefulBolt
from topo.api.operator_bolts import ProcessBolt, WindowBolt
from topo.api.topology import ComponentKind, ComponentSpec
from topo.config import DefaultCount, TopologyConfig

KEEPS_STATE = (WindowBolt, ProcessBolt, StatefulBolt)
"""Bolts whose state the engine can keep."""

PENDING_OF_A_TASK = 1250
"""Messages in flight for each task: rows spread over the edges between tasks, and with fewer the frames become small."""
MOST_PENDING = 40_000
"""Where more gave no higher rate, with 64 tasks."""


def settled(config: TopologyConfig, components: Sequence[ComponentSpec]) -> TopologyConfig:
    """Return the settings with a mode, and with the messages that may be in flight."""
    return dataclasses.replace(
        config, delivery=_mode(config, components), max_spout_pending=_pending(config.max_spout_pending, components)
    )


def _mode(
    config: TopologyConfig, components: Sequence[ComponentSpec]
) -> Literal["at_least_once", "at_most_once", "exactly_once"]:
    """`exactly_once` where the engine keeps state, else `at_least_once`."""
    if config.delivery != "auto":
        return config.delivery
    return "exactly_once" if any(issubclass(spec.type, KEEPS_STATE) for spec in components) else "at_least_once"


def _pending(limit: int | None, components: Sequence[ComponentSpec]) -> int | None:
    if not isinstance(limit, DefaultCount):
        return limit
    # Validation reads the settings before it has looked at the numbers of tasks.
    tasks = [(spec.kind, spec.parallelism) for spec in components if isinstance(spec.parallelism, int)]
    spouts = sum(count for kind, count in tasks if kind is ComponentKind.SPOUT)
    wanted = min(MOST_PENDING, PENDING_OF_A_TASK * sum(count for _, count in tasks))
    return max(int(limit), wanted // max(1, spouts))
