"""What spouts and bolts have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from topo.api.streams import Outputs


class Component:
    """Base of everything that a topology is built of.

    Attributes:
        outputs: its output streams: a tuple of field names, or `{stream: fields}`. Set on the class or in `__init__`; read once,
            when the topology is built.
        component_settings: its own settings, which those of `set_spout` or `set_bolt` override, such as
            `{"tick_interval": "1s"}`. Set and read as `outputs`.
    """

    outputs: Outputs = ()
    component_settings: Mapping[str, Any] = {}
