"""Names of components: those that users give, else the kind of the operator, numbered where there are several."""

from __future__ import annotations

import re
from collections.abc import Sequence

from topo.streams.graph import SOURCES, Node

_SHORT = {
    "from_iterable": "items",
    "from_files": "lines",
    "from_spout": "source",
    "with_event_time": "event-time",
    "async_map": "async-map",
}
_HOSTS = frozenset({"count", "reduce", "fold", "process", "window", "rebalance", "through", "sink", *_SHORT})
"""Operators that may be the body of a component."""


def component_ids(nodes: Sequence[Node]) -> dict[int, str]:
    """Return the component id of each operator that hosts a component, by the id of its node."""
    taken = {node.name for node in nodes if node.name}
    found: dict[int, str] = {}
    for node in nodes:
        if node.kind not in _HOSTS:
            continue
        stem = node.name or _stem(node)
        name, number = stem, 2
        while not node.name and (name in taken or f"{name}-steps" in taken):
            name, number = f"{stem}-{number}", number + 1
        taken.add(name)
        found[id(node)] = name
    return found


def derived_ids(nodes: Sequence[Node]) -> dict[str, Node]:
    """Return the ids of the components that an operator has beside its own, and the operator."""
    ids = component_ids(nodes)
    found = {f"{ids[id(node)]}-steps": node for node in nodes if node.kind in SOURCES | {"through", "async_map"}}
    late = [node for node in nodes if node.kind == "window" and node.settings["sides"]]
    return found | {f"{ids[id(node)]}-late": node for node in late}


def _stem(node: Node) -> str:
    if node.kind in ("sink", "through"):
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", type(node.function).__name__.strip("_")).lower()
    return _SHORT.get(node.kind, node.kind)
