"""What spouts and bolts have in common."""

from __future__ import annotations

from topo.api.streams import Outputs


class Component:
    """Base of everything that a topology is built of.

    Attributes:
        outputs: what it emits: a tuple of field names, or `{stream: fields}`. Set on the class or in `__init__`; read once,
            when the topology is built.
    """

    outputs: Outputs = ()
