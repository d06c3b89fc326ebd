"""Names of components: those that users give, else the kind of the operator, numbered where there are several."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import CodeType, UnionType
from typing import Any, Union, get_args, get_origin

from topo.api.durations import duration_ms
from topo.streams.captured import own_function
from topo.streams.graph import KEYED, READER, RUNNING, SOURCES, STATEFUL, Node, keyed_by
from topo.streams.key_types import key_family
from topo.streams.process import First, KeyedMap, KeyedProcess, declared_state
from topo.streams.records import has_fields, layout_of

_SHORT = {
    "from_iterable": "items",
    "from_files": "lines",
    "from_spout": "source",
    "with_event_time": "event-time",
    "async_map": "async-map",
    "interval_join": "interval-join",
    "join_table": "join-table",
}
_HOSTS = STATEFUL | {READER, "broadcast", "rebalance", "through", "sink", *_SHORT}
"""Operators that may be the body of a component, and those whose readers are: a stream is called after its reader."""


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


def identity(node: Node) -> str:
    """Return by which facts an operator with state and without a name is known: "" for one with a name, or without state.

    These are its kind, its key, its records and its function. Where it is written does not matter.
    """
    if node.name is not None or node.kind not in STATEFUL | SOURCES:
        return ""
    parts = [node.kind, node.settings.get("result", ""), _spelled(node.record)]
    if node.kind in KEYED:
        source = node.inputs[0][0]
        parts += [f"of {_spelled(source.record)}", f"by {_spelled(keyed_by(source).function)}"]
    if node.kind not in ("from_files", "from_iterable"):
        parts.append(_spelled(node.function))
    return " ".join(filter(None, parts))


def state_types(node: Node, function: Any) -> dict[str, str]:
    """Return kind and type of the state of an operator by name: what a process declares, records that are kept by position, and
    settings under which no other state can be read.

    Of a record its fields matter, and not its class.
    """
    found = {}
    declared = [function.seen] if isinstance(function, First) else []
    for one in declared_state(function) if isinstance(function, KeyedProcess) else declared:
        if one.method:
            types = (one.keys_of, one.of) if isinstance(one, KeyedMap) else (one.of,)
            spelled = ["records" if has_fields(of) else _type_spelled(of) for of in types]
            found[one.name] = f"{one.method} of {' to '.join(spelled)}"
    by_position: dict[str, Any] = node.settings.get("kept", {})
    if not by_position and (node.kind == "batch" or node.settings.get("result") == "process"):
        source, output = node.inputs[0]
        by_position = {"records": source.record_of(output)}
    for name, record in by_position.items():
        found[name] = f"list of records by position ({', '.join(layout_of(record).attributes) or 'one value'})"
    # No name of a user's state has spaces.
    settings, kind = node.settings, "process" if node.kind == "connect" else node.kind
    if kind == "window":
        kind = f"window with {'a join' if 'kept' in settings else settings['result']}"
    elif kind == "join_table" and settings["event_time"]:
        kind = "join_table with as_of"
    found["kind of operator"] = kind
    if kind in RUNNING:
        found["running result"] = f"result with emit {settings['emit'].kind}"
    if kind == "interval_join":
        # The timers in the state are those of its bounds.
        before, after = (duration_ms(settings[side]) for side in ("before", "after"))
        found["bounds"] = f"distance of {before} ms before to {after} ms after"
    if node.kind in KEYED and (family := key_family(keyed_by(node.inputs[0][0]))) is not None:
        found["key of records"] = f"key of type {family}"
    return found


def _type_spelled(of: Any) -> str:
    """Return one spelling for types that are equal, such as `Optional[int]` and `int | None`."""
    origin, inner = get_origin(of), get_args(of)
    if origin in (Union, UnionType):
        return " | ".join(sorted(map(_type_spelled, inner), key=lambda name: (name == "None", name)))
    if isinstance(origin, type) and inner:
        return f"{origin.__name__}[{', '.join(map(_type_spelled, inner))}]"
    if inner:
        return re.sub(r"\w+\.", "", str(of))
    return {type(None): "None", ...: "..."}.get(of) or _spelled(of)


def _spelled(value: Any) -> str:
    """Return the name of a type or function; for a lambda the names and constants in it."""
    own = own_function(value)
    if own is not None and own.__name__ == "<lambda>":
        return f"lambda({', '.join(_words(own.__code__))})"
    if own is None and not hasattr(value, "__name__"):
        return "" if value is None else re.sub(r"\w+\.", "", str(value)) if hasattr(value, "__args__") else type(value).__name__
    return str(getattr(value, "__name__", type(value).__name__))


def _words(code: CodeType) -> list[str]:
    found = list(code.co_names)
    for one in code.co_consts:
        if isinstance(one, CodeType):
            found += _words(one)
        elif one is not None:
            # The order of a set is another one in each process.
            found.append(str(sorted(map(repr, one))) if isinstance(one, frozenset) else repr(one))
    return found
