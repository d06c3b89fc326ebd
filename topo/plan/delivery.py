"""Resolves `delivery="auto"`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from topo.api.bolt import StatefulBolt
from topo.api.operator_bolts import ProcessBolt, WindowBolt
from topo.api.topology import ComponentSpec
from topo.config import TopologyConfig

KEEPS_STATE = (WindowBolt, ProcessBolt, StatefulBolt)
"""Bolts whose state the engine can keep."""


def settled(config: TopologyConfig, components: Sequence[ComponentSpec]) -> TopologyConfig:
    """Return the settings with a mode: `exactly_once` where the engine keeps state, else `at_least_once`."""
    if config.delivery != "auto":
        return config
    keeps_state = any(issubclass(spec.type, KEEPS_STATE) for spec in components)
    return dataclasses.replace(config, delivery="exactly_once" if keeps_state else "at_least_once")
