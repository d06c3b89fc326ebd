"""The graph that a program of streams draws: one node for each call, with the user's file and line."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from topo.streams.captured import captured_by
from topo.streams.collecting import Collected
from topo.streams.filling import filled_by
from topo.user_errors import is_engine_frame, shown_file

MAIN: Final = "main"
"""The output of every operator: its results."""
REST: Final = "rest"
"""Output of `branch`: the records for which the test does not hold."""
SIDE: Final = "side:"
"""Begins the name of each side output; the name of its tag follows."""

READER = "reader"
"""A component of `flow.topology_builder` that reads a stream by its `id`."""
SOURCES = frozenset({"from_iterable", "from_files", "from_spout"})
STEPS = frozenset({
    "map", "flat_map", "filter", "only", "branch", "tap", "parse_json", "with_event_time", "merge", "key_by", "gather", "entries",
    "values", "map_keyed", "call",
})  # fmt: skip
"""Operators of one record at a time. They run in the task that has made the record, as one generated function."""
RUNNING = frozenset({"count", "reduce", "fold"})
"""Operators with a running result for each key."""
PROCESSES = frozenset({"process", "connect", "interval_join", "join_table", "changes"})
"""Operators that run a `KeyedProcess`, of the user's or their own."""
KEYED = RUNNING | PROCESSES | {"window", "dedupe"}
"""Operators with state by key: records of a key meet in one task."""
STATEFUL = KEYED | {"enrich", "batch"}
"""Operators with state."""
SAME_RECORDS = frozenset({
    "filter", "only", "branch", "tap", "with_event_time", "merge", "key_by", "gather", "values", "rebalance", "dedupe",
})  # fmt: skip
"""Operators whose results are the records that they read."""


@dataclass(frozen=True, slots=True)
class Site:
    """A place in the user's code."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line}"


def calling_site() -> Site:
    """Return the line of the user's code that has called into this package, or into the test kit."""
    frame = inspect.currentframe()
    while frame is not None and is_engine_frame(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
    return Site(shown_file(frame.f_code.co_filename), frame.f_lineno) if frame is not None else Site("unknown", 0)


@dataclass(eq=False, slots=True)
class Node:
    """One call of the API.

    Attributes:
        kind: the name of the method.
        inputs: the nodes that it reads, each with the output that is read.
        site: where the user has written it.
        name: as the user has given it.
        function: the user's function, or object.
        record: type of its results; None where it is not known.
        settings: the other arguments of the call.
        keyed: whether its results have a key.
        side_records: types of the side outputs that are read, by name.
    """

    kind: str
    inputs: tuple[tuple[Node, str], ...]
    site: Site
    name: str | None = None
    function: Any = None
    record: Any = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    keyed: bool = False
    side_records: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # An empty name, such as that of a variable that is not set, names nothing.
        self.name = self.name or None

    def record_of(self, output: str) -> Any:
        """Return the type of the records of one of its outputs."""
        return self.side_records[output] if output.startswith(SIDE) else self.record

    def functions(self) -> Iterator[tuple[str, Any]]:
        """Return the user's functions, each with how messages call it."""
        for part in self.settings.get("parts", ()):
            yield "an aggregate", getattr(part, "of", None)
        for name in ("deleted", "on_timeout"):
            yield f"{name}=", self.settings.get(name)
        yield "its function", self.settings.get("call", (self.function,))[0]

    def __str__(self) -> str:
        return f"{self.kind}{f' {self.name!r}' if self.name else ''} at {self.site}"


@dataclass(eq=False)
class Graph:
    """A program as it has been drawn.

    Attributes:
        name: of the topology.
        site: where its builder was made.
        nodes: in the order of their calls.
        captured: for each function of a node its argument, and which variables it had captured when it was given.
        collected: for each `collect` its sink and its results.
    """

    name: str
    site: Site
    nodes: list[Node] = field(default_factory=list)
    captured: list[tuple[Node, str, Any, dict[str, Any]]] = field(default_factory=list)
    collected: list[tuple[Node, Collected]] = field(default_factory=list)

    def add(self, node: Node) -> Node:
        """Take a node."""
        self.nodes.append(node)
        functions = {id(function): (argument, function) for argument, function in node.functions() if function is not None}
        self.captured += [(node, argument, function, captured_by(function)) for argument, function in functions.values()]
        return node


def above(node: Node) -> list[Node]:
    """Return the operators from which the input of one comes, each once."""
    found: dict[int, Node] = {}
    waiting = [node]
    while waiting:
        new = {id(source): source for source, _output in waiting.pop().inputs if id(source) not in found}
        found |= new
        waiting += new.values()
    return list(found.values())


def keyed_by(node: Node) -> Node:
    """Return the `key_by` or `gather` that has given the results of an operator their key."""
    while node.kind not in ("key_by", "gather"):
        node = node.inputs[0][0]
    return node


def merges_types(node: Node) -> bool:
    """Return whether the type of an operator's records is not known because a merge takes streams of several types."""
    while node.kind in SAME_RECORDS:
        if node.kind == "merge" and any(source.record_of(output) is not None for source, output in node.inputs):
            return True
        node = node.inputs[0][0]
    return False


def maker_of(node: Node) -> Node:
    """Return the operator that has made the records of an operator, which may pass on those of others; a merge has several."""
    while node.kind in SAME_RECORDS and node.kind != "merge":
        node = node.inputs[0][0]
    return node


Readers = Mapping[tuple[int, str], list[Node]]
"""Who reads an output, by the id of its node and its name, in the order of declaration."""


def readers_of(nodes: list[Node]) -> Readers:
    """Return who reads each output."""
    found: dict[tuple[int, str], list[Node]] = {}
    for node in nodes:
        for source, output in node.inputs:
            found.setdefault((id(source), output), []).append(node)
    return found


def filled_here(graph: Graph) -> list[str]:
    """Return a mistake for each sink that puts records into a container of this process, of which each worker has a copy."""
    found = []
    for node in graph.nodes:
        container = filled_by(node.function) if node.kind == "call" else None
        if container is not None:
            given = "a function that only fills" if inspect.isfunction(node.function) else f"{node.function.__name__} of"
            what = f"to at {node.site} was given {given} a {type(container).__name__}, of which each worker has its"
            found.append(f"{what} own; use collect() with flow.run(), or a sink such as JsonLinesSink")
    return found
