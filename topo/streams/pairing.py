"""Drawing a node of a program, and putting two keyed streams before one operator."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from topo.errors import UserError
from topo.streams.collecting import Collected, CollectSink
from topo.streams.functions import first_type, generic, result_type
from topo.streams.graph import MAIN, READER, SIDE, Graph, Node, calling_site, merges_types
from topo.streams.joins import (
    AsOfJoin,
    CoProcess,
    IntervalJoin,
    JoinFunction,
    LateRecords,
    Sided,
    TableChanges,
    TableJoin,
    Tag,
    WindowJoin,
)
from topo.streams.results import Change, SideOutput
from topo.streams.type_facts import substituted
from topo.streams.type_names import K, T_co

_OF_RECORD = ("map", "flat_map", "async_map", "enrich")
"""Operators whose function is given the record first."""

_MADE_BY = {
    "WindowedStream": "choose the result of its windows before, such as count(), top_n(...) or process(f)",
    "ConnectedStreams": "put process(CoProcess()) before it",
    "Table": "give the table to join_table(...), or put changes() before it",
    "BroadcastTable": "give the table to enrich(table, f) of the stream that reads it",
}
"""How a stream is made of an object that is none yet, by class."""


class NoStream:
    """Names the missing call where an object that is no stream yet is taken for one."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            fix = "" if name.startswith("_") else f"; {_MADE_BY[type(self).__name__]}"
            raise AttributeError(f"a {type(self).__name__} has no {name!r}{fix}", name=name, obj=self)


class Drawn:
    """What all streams have: the graph, and the output of a node that they stand for."""

    def __init__(self, graph: Graph, node: Node, output: str = MAIN) -> None:
        self._graph, self._node, self._output = graph, node, output
        self._record = node.record_of(output)
        self._id = ""

    @property
    def id(self) -> str:
        """Stands for the stream where a bolt of `flow.topology_builder` reads it, as in `shuffle_grouping(stream.id)`."""
        if not self._id:
            self._id = f"stream {len(self._graph.nodes)}"
            self._add(READER, id=self._id)
        return self._id

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            kinds = [kind for base in Drawn.__subclasses__() for kind in base.__subclasses__()]
            fix = ""
            if any(name in vars(kind) for kind in kinds) and not name.startswith("_"):
                fix = f"; put {'values() or entries()' if hasattr(type(self), 'values') else 'key_by(...)'} before it"
            raise AttributeError(f"a {type(self).__name__} has no {name!r}{fix}", name=name, obj=self)

    def _side(self, tag: SideOutput[Any]) -> tuple[Node, str]:
        """Return a side output of the node: the node that has it, and its name.

        Raises:
            UserError: the node has no side output of that tag, or another one of its name.
        """
        if not isinstance(tag, SideOutput):
            raise UserError(f"side at {calling_site()} takes a tag, a SideOutput; got {tag!r:.60}")
        settings, output = self._node.settings, f"{SIDE}{tag.name}"
        sides = settings.get("sides", ())
        if sides is not None and tag not in sides:
            has = ", ".join(repr(getattr(one, "name", one)) for one in sides) or "none"
            what = f"{self._node} has no side output {tag.name!r}"
            if (mine := next((one.of for one in sides if getattr(one, "name", None) == tag.name), None)) is not None:
                raise UserError(f"{what} of {tag.of}; that of the name is of {mine}: give the tag that it has ({calling_site()})")
            raise UserError(f"{what}; it has {has} ({calling_site()})")
        same = [one.of for one in sides or () if getattr(one, "name", None) == tag.name]
        known = [self._node.side_records.get(output, tag.of)] if sides is None else same
        if any(of != tag.of for of in known):
            raise UserError(f"{self._node} has two side outputs {tag.name!r}; give each tag its own name ({calling_site()})")
        reader = settings.get("late_reader")
        self._node.side_records[output] = tag.of if reader is None else Sided
        if reader is None:
            return self._node, output
        return Drawn(self._graph, self._node, output)._add("flat_map", reader(tag), record=tag.of), MAIN

    def _add(
        self,
        kind: str,
        function: Any = None,
        *,
        record: Any = None,
        name: str | None = None,
        also: Sequence[Drawn] = (),
        keyed: bool = False,
        **settings: Any,
    ) -> Node:
        for one in also:
            if not isinstance(one, Drawn):
                raise UserError(f"{kind} at {calling_site()} takes a stream; got {one!r:.60} ({type(one).__name__})")
        inputs = tuple((one._node, one._output) for one in (self, *also))
        if others := {one._graph.name for one in also if one._graph is not self._graph}:
            mine = self._graph.name
            what = f"{kind} at {calling_site()}: streams of {mine!r} and {sorted(others)[0]!r}"
            raise UserError(f"{what}; draw them with one StreamBuilder")
        if isinstance(record, TypeVar) or getattr(record, "__parameters__", None):
            # A function such as `def pair(record: T) -> tuple[T, int]` gives a type that depends on that of its argument.
            given = {first_type(function): self._record} if kind in _OF_RECORD and self._record is not None else {}
            record = substituted(record, given)
            record = None if isinstance(record, TypeVar) else record
        return self._graph.add(Node(kind, inputs, calling_site(), name, function, record, settings, keyed))

    def _collected(self, name: str | None) -> list[Any]:
        collected = Collected(self._record, f"collect at {calling_site()}", merged=merges_types(self._node))
        packed = Drawn(self._graph, self._add("map", collected, record=str))
        sink = packed._add(
            "sink", CollectSink(), name=name or f"collect-{len(self._graph.collected) + 1}", parallelism=1, fields=None
        )
        self._graph.collected.append((sink, collected))
        return collected.results


class BroadcastTable(NoStream, Generic[K, T_co]):
    """The latest record of each key, in every task. Made by `broadcast`."""

    def __init__(self, rows: Drawn) -> None:
        self._rows = rows


def connected(left: Drawn, right: Drawn, process: Any, of: Any, name: str | None) -> Node:
    """Draw a `CoProcess` behind two streams."""
    both = _both(left, right)
    if isinstance(process, CoProcess):
        process.sides = (left._record, right._record)
    return both._add("connect", process, record=of, name=name, keyed=True, sides=None)


def window_joined(
    left: Drawn, right: Drawn, function: Any, window: Any, late: Any, of: Any, name: str | None, *outer: bool
) -> Node:
    """Draw a join by window; `outer`: for each side, whether records without a partner count, too."""
    both = _both(left, right)
    sides, tags = (left._record, right._record), _tags(late)
    join = WindowJoin(function, sides, left=outer[0], right=outer[1])
    settings: dict[str, Any] = {"window": window, "lateness": "0s", "result": "process", "kept": _kept(left, right)}
    settings |= {"late": tags, "late_reader": partial(LateRecords, sides, tags)}
    return _joined(both, "window", join, function, tags, of, name, **settings)


def interval_joined(
    left: Drawn, right: Drawn, function: Any, before: Any, after: Any, late: Any, of: Any, name: str | None, *, outer: bool
) -> Node:
    """Draw a join by distance in time."""
    both, tags = _both(left, right), _tags(late)
    process = IntervalJoin(JoinFunction(function, (left._record, right._record), tags, outer=outer), before, after)
    settings = {"before": before, "after": after, "event_time": True, "late": tags, "kept": _kept(left, right)}
    return _joined(both, "interval_join", process, function, tags, of, name, **settings)


def table_joined(
    left: Drawn, table: Any, function: Any, as_of: bool, late: Any, of: Any, name: str | None, *, outer: bool
) -> Node:
    """Draw a join with the latest row, or with the row that held at the time of the record."""
    tags = _tags(late)
    if not isinstance(getattr(table, "_stream", None), Drawn):
        what = f"a join with a table at {calling_site()} takes a table"
        raise UserError(f"{what}; got a {type(table).__name__}: make one by key_by(...).latest()")
    pairs = JoinFunction(function, (left._record, table._stream._record), tags, outer=outer)
    process = AsOfJoin(pairs) if as_of else TableJoin(pairs)
    both = _both(left, table._stream, table._deleted)
    kept = _kept(left, table._stream) if as_of else {"rows": table._stream._record}
    return _joined(both, "join_table", process, function, tags, of, name, event_time=as_of, late=tags, kept=kept)


def table_changes(table: Any, name: str | None) -> Node:
    """Draw the changes of a table."""
    record = table._stream._record
    rows = tagged(table._stream, table._deleted)
    kind = generic(Change, Any if record is None else record)
    return rows._add("changes", TableChanges(record), record=kind, name=name, keyed=True, kept={"rows": record})


def enriched(stream: Drawn, table: Any, function: Any, of: Any, name: str | None, *, keyed: bool) -> Node:
    """Draw a function of each record and a table that all tasks have."""
    if not isinstance(table, BroadcastTable):
        raise UserError(f"enrich at {calling_site()} takes a table; got a {type(table).__name__}: make one by broadcast(key)")
    record = of or result_type(function)
    return stream._add("enrich", function, record=record, name=name, also=(table._rows,), keyed=keyed)


def _joined(
    both: Drawn, kind: str, operator: Any, function: Any, tags: tuple[Any, ...], of: Any, name: str | None, **settings: Any
) -> Node:
    settings |= {
        "call": (function, kind, 2, "left, right"),
        "sides": tuple(tag for place, tag in enumerate(tags) if tag not in tags[:place]),
    }
    return both._add(kind, operator, record=of or result_type(function), name=name, keyed=True, **settings)


def _kept(left: Drawn, right: Drawn) -> dict[str, Any]:
    """Return the types of the records in the state of a join, by what they are. They are there by position."""
    return {"left records": left._record, "right records": right._record}


def _tags(late: Any) -> tuple[Any, ...]:
    """Return the tags that were given, left and right, as a tuple; `build` reports mistakes in them."""
    return tuple(late) if isinstance(late, tuple | list) else () if late is None else (late,)


def tagged(stream: Drawn, deleted: Any = None, *, left: bool = False) -> Drawn:
    """Return the records of a stream with the side that they are on.

    Raises:
        UserError: it is no stream with a key.
    """
    if not isinstance(stream, Drawn) or stream._output != MAIN or not stream._node.keyed:
        raise UserError(f"two streams meet by key at {calling_site()}; got a {type(stream).__name__}: put key_by(...) behind it")
    merged = merges_types(stream._node)
    tag = Tag(stream._record, f"the input at {calling_site()}", left=left, merged=merged, deleted=deleted)
    return Drawn(stream._graph, stream._add("map", tag, record=Sided, keyed=True, deleted=deleted))


def _both(left: Drawn, right: Drawn, deleted: Any = None) -> Drawn:
    rows = tagged(right, deleted)
    return Drawn(left._graph, tagged(left, left=True)._add("merge", record=Sided, also=(rows,), keyed=True))
