"""From the graph of a program to spouts and bolts.

A component is a body (a source, an operator with state, a bolt of the user's, or nothing behind a `rebalance`) and the chain of
one-record operators behind it, up to the next exchanges. Each exchange reads one stream of the component. Behind a
bolt of the user's the chain is a separate component, and behind a source where it cannot run in the spout's tasks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

from msgspec import structs

from topo.api.bolt import BasicBolt
from topo.api.streams import DEFAULT_STREAM, streams_of
from topo.api.topology import Topology
from topo.api.watermarks import WatermarkStrategy
from topo.builder import BoltDeclarer, TopologyBuilder
from topo.errors import TopologyError, UserError
from topo.streams.async_calls import AsyncCall
from topo.streams.broadcasting import EnrichBolt
from topo.streams.chain import Chain, ChainStep, Leaf, Maker, opener
from topo.streams.components import RunningBolt, SameTask, StepsBolt, spout_of_items
from topo.streams.event_time import watermarks_of
from topo.streams.graph import (
    KEYED,
    MAIN,
    PROCESSES,
    READER,
    RUNNING,
    SIDE,
    SOURCES,
    STATEFUL,
    STEPS,
    Graph,
    Node,
    keyed_by,
    merges_types,
    readers_of,
)
from topo.streams.lowered import LoweredComponent, StreamEdge, explain_missing_fields
from topo.streams.naming import component_ids, identity, state_types
from topo.streams.process import KeyedProcess
from topo.streams.process_bolts import FirstBolt, KeyedProcessBolt
from topo.streams.records import KEY, UNKNOWN, Layout, layout_of
from topo.streams.window_bolts import LATE_STREAM, batch_bolt, window_bolt
from topo.user_errors import kind_and_message

_ONE_TO_ONE = STEPS - {"flat_map", "filter", "only", "branch", "parse_json"}


class _Streams:
    """The output streams of one component: one for each exchange that its chains end at."""

    def __init__(self, ids: dict[int, str]) -> None:
        self._ids = ids
        self.fields: dict[str, tuple[str, ...]] = {}
        self.readers: list[tuple[Leaf, Node]] = []

    def add(self, leaf: Leaf, reader: Node) -> None:
        known = next((one for one, other in self.readers if other is reader), None)
        leaf.stream = known.stream if known is not None else self._ids[id(reader)] if self.fields else DEFAULT_STREAM
        self.readers.append((leaf, reader))
        record = leaf.layout.fields if leaf.with_record else ("records",) if leaf.counted else ()
        self.fields[leaf.stream] = (KEY, *record) if leaf.keyed else record


class Lowering:
    """Makes the topology of a program that has been checked.

    Args:
        builder: takes the components; it may have others.

    Attributes:
        components: in the order of their declaration.
    """

    def __init__(self, graph: Graph, builder: TopologyBuilder) -> None:
        self._nodes, self._site = graph.nodes, graph.site
        self._readers = readers_of(graph.nodes)
        self._ids = component_ids(graph.nodes)
        self._edges: dict[int, list[StreamEdge]] = {}
        self._cut_before: set[int] = set()
        self._behind: dict[int, Node] = {}
        """What reads a `with_event_time` behind which a chain is cut, by its id: the rest of the chain."""
        self._copies: dict[tuple[str, int], Any] = {}
        self._builder = builder
        self._chains: dict[str, BasicBolt] = {}
        self._may_add_up = builder.settings.get("delivery") != "at_least_once"
        self.components: list[LoweredComponent] = []

    def topology(self) -> Topology:
        """Return the topology.

        Raises:
            TopologyError: the core refuses it.
        """
        for node in self._nodes:
            if node.kind in SOURCES:
                self._source(node)
            elif node.kind in STATEFUL:
                self._with_state(node)
            elif node.kind == "rebalance":
                self._steps(node, self._ids[id(node)], self._edges[id(node)], node.settings["parallelism"], [(node, MAIN)])
            elif node.kind in ("through", "async_map"):
                self._in_the_middle(node)
            elif node.kind == "sink":
                explain_missing_fields(node)
                self._bolt(node, node.function)
            elif node.kind == "with_event_time":
                self._cut(node)
        readers = [node for node in self._nodes if node.kind == READER]
        aliases = {node.settings["id"]: [(edge.component, edge.stream) for edge in self._edges[id(node)]] for node in readers}
        try:
            topology = self._builder.build(aliases, self._chains)
        except TopologyError as error:
            raise TopologyError([self._placed(problem) for problem in error.problems]) from None
        specs = {spec.id: spec for spec in topology.components}
        for one in self.components:
            operators = tuple(dict.fromkeys((one.label, *one.labels())))
            specs[one.id] = structs.replace(specs[one.id], operators=operators, identity=one.identity, declared=one.declared)
        return structs.replace(topology, components=tuple(specs.values()))

    def _placed(self, problem: str) -> str:
        """Return a problem with the place of its operator, or of the builder of the program; one with a place as it is."""
        starts = "component {!r}", "component id {!r}", "bolt {!r}"
        found = (one.label for one in self.components if problem.startswith(tuple(start.format(one.id) for start in starts)))
        return problem if re.search(r":\d+\)$", problem) else f"{problem} ({next(found, self._site)})"

    # -- bodies ----------------------------------------------------------------------------------------------------------

    def _source(self, node: Node) -> None:
        name, parallelism = self._ids[id(node)], node.settings["parallelism"]
        layout = layout_of(node.record)
        read: Layout | None = layout
        spout, positions = node.function, None
        if node.kind == "from_iterable":
            spout = _declared(node, spout_of_items(node.function, layout, str(node)))
        elif node.kind == "from_spout":
            read, positions = self._read_fields(node, spout, DEFAULT_STREAM)
        self._builder.set_spout(name, spout, parallelism, watermarks=node.settings["watermarks"])
        self.components.append(LoweredComponent(name, str(node), parallelism, [], identity=identity(node)))
        if self._may_chain(node, name, spout):
            streams = _Streams(self._ids)
            chain, _ = self._chain(name, node, [(node, MAIN)], streams)
            self._chains[name] = StepsBolt(chain, read, node.keyed, streams.fields, positions)
            self.components[-1].chains.append(chain)
            self._lead(name, parallelism, streams)
            return
        edge = StreamEdge(name, DEFAULT_STREAM, parallelism)
        self._steps(node, f"{name}-steps", [edge], parallelism, [(node, MAIN)], (read, positions))

    def _may_chain(self, node: Node, name: str, spout: Any) -> bool:
        """Return whether the operators behind a source can run in its tasks.

        Not where they give event time, which is that of a component's output; nor where they have no output, or others read the
        rows of the spout.
        """
        starts, streams = [(node, MAIN)], streams_of(spout)
        is_plain = len(streams) == 1 and streams[0].name == DEFAULT_STREAM and not streams[0].direct and not streams[0].columnar
        is_read = not self._builder.sources.isdisjoint((name, f"{name}-steps"))
        has_output = any(True for _ in self._paths(node, MAIN, (), None))
        is_plain = is_plain and node.settings["watermarks"] is None
        return is_plain and not is_read and has_output and self._event_time(starts, None, stamps=True)[0] is None

    def _read_fields(self, node: Node, component: Any, stream: str) -> tuple[Layout | None, list[int] | None]:
        """Return how the rows of a user's component become records: their layout, and where its fields are in a row."""
        if node.record is None:
            return None, None
        declared = {one.name: one.fields for one in streams_of(component)}
        fields = declared.get(stream, ())
        layout = layout_of(node.record)
        if not layout.attributes:
            if len(fields) != 1:
                what = f"{type(component).__name__} emits {', '.join(fields) or 'nothing'} on {stream!r}"
                raise UserError(f"{node}: {what}, not one value; leave `of` out, or give a class with these fields")
            return layout, None
        if missing := [name for name in layout.attributes if name not in fields]:
            has = ", ".join(fields) or "none"
            raise UserError(f"{node}: {type(component).__name__} has no field {missing[0]!r} on {stream!r}; its fields are {has}")
        return layout, [fields.index(name) for name in layout.attributes]

    def _in_the_middle(self, node: Node) -> None:
        """Add a bolt of the user's, or that of `async_map`, and the operators behind it."""
        if node.kind == "through":
            bolt, stream = node.function, node.settings["stream"]
            reading = self._read_fields(node, bolt, stream)
        else:
            (source, output), results = node.inputs[0], layout_of(node.record)
            given = node.function, node.settings["on_timeout"]
            function, late = (self._own(self._ids[id(node)], one, str(node)) for one in given)
            settings, layout = {**node.settings, "on_timeout": late}, layout_of(source.record_of(output))
            bolt = _declared(node, AsyncCall(function, layout, results, settings, str(node)))
            stream, reading = DEFAULT_STREAM, (results, None)
        name, parallelism = self._bolt(node, bolt), node.settings["parallelism"]
        self._steps(node, f"{name}-steps", [StreamEdge(name, stream, parallelism)], parallelism, [(node, MAIN)], reading)

    def _bolt(self, node: Node, bolt: Any) -> str:
        name, edges = self._ids[id(node)], self._edges[id(node)]
        self._declare(name, node, bolt, node.settings["parallelism"], edges)
        return name

    def _cut(self, node: Node) -> None:
        """Give the operators of a chain that was cut before a `with_event_time`, behind it, or both, their own components."""
        name, before = self._ids[id(node)], self._edges.get(id(node), [])
        if before:
            self._steps(node, name, before, max(edge.parallelism for edge in before), node.inputs, alone=True)
        behind = self._edges.get(id(self._behind.get(id(node))), [])
        if behind:
            name = f"{name}-steps" if before else name
            self._steps(node, name, behind, max(edge.parallelism for edge in behind), [(node, MAIN)])

    def _steps(
        self,
        node: Node,
        name: str,
        edges: Sequence[StreamEdge],
        parallelism: int,
        starts: Sequence[tuple[Node, str]],
        reading: tuple[Layout | None, Sequence[int] | None] | None = None,
        *,
        alone: bool = False,
    ) -> None:
        """Add the component of a chain.

        Args:
            starts: the outputs that the chain reads.
            reading: layout and positions of its rows, where they are not those of the node.
            alone: the chain consists of the node and what follows it.
        """
        streams = _Streams(self._ids)
        chain, watermarks = self._chain(name, node, starts, streams, only=node if alone else None)
        layout, positions = reading or (layout_of(node.record), None)
        bolt = StepsBolt(chain, layout, node.keyed, streams.fields, positions, stamps=watermarks is not None)
        same = parallelism > 1 and node.kind != "rebalance"
        bolt.stays = same and all(edge.parallelism == parallelism for edge in edges)
        self._declare(name, node, _declared(node, bolt), parallelism, edges, watermarks, same=same, chains=[chain])
        self._lead(name, parallelism, streams)

    def _with_state(self, node: Node) -> None:
        name, streams, place, settings = self._ids[id(node)], _Streams(self._ids), str(node), node.settings
        edges, by_key = self._edges[id(node)], node.kind in KEYED
        parallelism: int = (
            keyed_by(node.inputs[0][0]).settings["parallelism"] if by_key else max(edge.parallelism for edge in edges)
        )
        function = self._own(name, node.function, place)
        chain, _ = self._chain(name, node, [(node, MAIN)], streams, stamps=False)
        chain.bodies = (function,)
        chains, rows = [chain], []
        source, output = node.inputs[0]
        layout, outputs = layout_of(source.record_of(output)), streams.fields
        bolt: Any
        if node.kind in RUNNING:
            state = layout_of(node.record) if node.kind != "count" else layout_of(int)
            parts = (node.kind, function, settings.get("initial"), layout, state, settings["emit"])
            bolt = RunningBolt(chain, *parts, outputs, counted=self._is_counted(node))
        elif node.kind in PROCESSES:
            sides = {}
            for (source_id, side), readers in self._readers.items():
                if source_id == id(node) and side.startswith(SIDE) and readers:
                    sides[side.removeprefix(SIDE)] = self._chain(name, node, [(node, side)], streams, stamps=False)[0]
            chains += sides.values()
            bolt = KeyedProcessBolt(function, chain, sides, layout, outputs)
        elif node.kind == "dedupe":
            bolt = FirstBolt(function, chain, layout, outputs)
        elif node.kind == "enrich":
            table = node.inputs[1][0]
            rows = self._edges[id(table)]
            chain.bodies = (function, *(self._own(name, one, str(table)) for one in (table.function, table.settings["deleted"])))
            bolt = EnrichBolt(chain, layout, node.keyed, table, {(edge.component, edge.stream) for edge in rows}, outputs)
        elif node.kind == "batch":
            bolt = batch_bolt(settings, chain, layout, outputs)
        else:
            owned = [self._own(name, part, place) for part in settings.get("parts", ())]
            bolt = window_bolt(node, function, owned, chain, layout, outputs)
        self._declare(
            name, node, _declared(node, bolt), parallelism, edges, keyed=by_key, same=parallelism > 1, chains=chains, to_all=rows
        )
        self.components[-1].identity = identity(node)
        self.components[-1].declared = state_types(node, function)
        self._lead(name, parallelism, streams)
        if node.kind == "window" and settings["sides"]:
            starts = [(node, f"{SIDE}{tag.name}") for tag in settings["sides"]]
            late = replace(node, record=source.record_of(output))
            edge = StreamEdge(name, LATE_STREAM, parallelism)
            self._steps(late, f"{name}-late", [edge], parallelism, starts, (layout, None))

    def _declare(
        self, name: str, node: Node, bolt: Any, parallelism: int, edges: Sequence[StreamEdge],
        watermarks: WatermarkStrategy | None = None, *, same: bool = False, keyed: bool = False, chains: Sequence[Chain] = (),
        to_all: Sequence[StreamEdge] = (),
    ) -> None:  # fmt: skip
        declarer: BoltDeclarer = self._builder.set_bolt(name, bolt, parallelism, watermarks=watermarks)
        reads = []
        for edge in edges:
            if keyed:
                declarer.fields_grouping(edge.component, KEY, stream=edge.stream)
                how = "by key"
            elif same and edge.parallelism == parallelism:
                declarer.custom_grouping(edge.component, SameTask(), edge.stream)
                how = "in the same task"
            else:
                declarer.shuffle_grouping(edge.component, edge.stream)
                how = "spread" if parallelism > 1 else "to its task"
            reads.append((edge, how))
        for edge in to_all:
            declarer.all_grouping(edge.component, edge.stream)
            reads.append((edge, "each task reads all"))
        self.components.append(LoweredComponent(name, str(node), parallelism, reads, list(chains)))

    def _lead(self, name: str, parallelism: int, streams: _Streams) -> None:
        """Note which exchanges read the streams of a component."""
        for leaf, reader in streams.readers:
            edges = self._edges.setdefault(id(reader), [])
            edge = StreamEdge(name, leaf.stream, parallelism)
            if edge not in edges:
                edges.append(edge)

    def _own(self, component: str, given: Any, place: str) -> Any:
        """Return the object of an operator for one task: what a task opens, or gives state, no other task may have.

        Each task beyond the first of a worker builds the program again, which may find the same object as before.

        Raises:
            UserError: it cannot be copied.
        """
        if not isinstance(given, KeyedProcess) and opener(given) is None:
            return given
        # The steps of a component that share an object share its copy.
        key = (component, id(given))
        if key not in self._copies:
            try:
                self._copies[key] = deepcopy(given)
            except Exception as error:
                what = f"{type(given).__name__} cannot be copied for each task ({kind_and_message(error)})"
                raise UserError(f"{place}: {what}; make its parts in open()") from error
        return self._copies[key]

    # -- chains ----------------------------------------------------------------------------------------------------------

    def _chain(
        self, name: str, node: Node, starts: Sequence[tuple[Node, str]], streams: _Streams, *,
        only: Node | None = None, stamps: bool = True,
    ) -> tuple[Chain, WatermarkStrategy | None]:  # fmt: skip
        """Return the chain behind an output, and the watermarks of its main stream.

        Args:
            only: the one reader of the output that the chain has; None: all.
            stamps: the component may give event time; one with state emits with the time of its input, and its chain is cut.
        """
        clock, first = self._event_time(starts, only, stamps=stamps)
        found: list[tuple[Leaf, Node]] = []
        tree = [part for start in starts for part in self._tree(*start, found, only)]
        # The watermarks of a component see its main stream alone.
        for leaf, reader in sorted(found, key=lambda one: one[1] is not first):
            streams.add(leaf, reader)
        chain = Chain(name, str(node), node.site, tree)
        watermarks = None if clock is None else watermarks_of(chain, clock)
        for step in chain.steps():
            step.function = self._own(name, step.function, step.label)
        chain.compiled("check(k, r, emit)")
        return chain, watermarks

    def _tree(
        self, source: Node, output: str, found: list[tuple[Leaf, Node]], only: Node | None = None
    ) -> list[ChainStep | Leaf]:
        parts: list[ChainStep | Leaf] = []
        for reader in self._readers.get((id(source), output), []):
            if only is not None and reader is not only:
                continue
            if reader.kind not in STEPS or (only is None and id(reader) in self._cut_before):
                leaf = self._leaf(reader, source, output)
                found.append((leaf, reader))
                parts.append(leaf)
                continue
            outputs = [output for id_, output in self._readers if id_ == id(reader)]
            if (behind := self._behind.get(id(reader))) is not None:
                leaf = Leaf(str(reader), reader.site, Maker.of(reader), "", layout_of(reader.record), keyed=False)
                found.append((leaf, behind))
                then: dict[str, list[ChainStep | Leaf]] = {MAIN: [leaf]}
            else:
                then = {one: self._tree(reader, one, found) for one in outputs}
            parts.append(ChainStep(reader.kind, str(reader), reader.site, reader.function, reader.record, then))
        return parts

    def _leaf(self, reader: Node, source: Node, output: str) -> Leaf:
        keyed = source.keyed and output == MAIN
        fields = reader.settings.get("fields")
        layout = replace(UNKNOWN, fields=tuple(fields)) if fields else layout_of(source.record_of(output))
        with_record = reader.kind != "count"
        counted, merged = self._is_counted(reader), merges_types(source)
        return Leaf(str(reader), reader.site, Maker.of(source), "", layout, keyed, with_record, bool(fields), counted, merged)

    def _is_counted(self, node: Node) -> bool:
        """Return whether the rows that an operator reads may be added up on their way to it.

        With `at_least_once` rows are tracked and stay apart; with `emit=EACH` each row has a result.
        """
        return node.kind == "count" and node.settings["emit"].kind != "each" and self._may_add_up

    def _event_time(
        self, starts: Sequence[tuple[Node, str]], only: Node | None, *, stamps: bool
    ) -> tuple[Node | None, Node | None]:
        """Decide where event time begins in a chain.

        The watermarks of a component see the rows of its main stream. So the chain may hold a `with_event_time` if all its rows
        come from there, and its main stream has each record; else the chain is cut before or behind it.

        Returns:
            The call that gives the component its watermarks, and the exchange that reads the main stream; None for none.
        """
        paths = [path for source, output in starts for path in self._paths(source, output, (), only)]
        clocks = [next((node for node in path if node.kind == "with_event_time"), None) for path in paths]
        present = {id(clock): clock for clock in clocks if clock is not None}
        if not present:
            return None, None
        if len(present) > 1 or None in clocks or not stamps or present.keys() & self._cut_before:
            self._cut_before |= present.keys() - ({id(only)} if only is not None else set())
            if only is None:
                return None, None
        (clock,) = [one for one in present.values() if only is None or one is only]
        for path in paths:
            behind = path[path.index(clock) + 1 : -1] if clock in path else ()
            if clock in path and all(node.kind in _ONE_TO_ONE and node.kind != "with_event_time" for node in behind):
                return clock, path[-1]
        rest = self._behind.setdefault(id(clock), replace(clock))
        self._ids[id(rest)] = self._ids[id(clock)]
        return clock, rest

    def _paths(self, source: Node, output: str, above: tuple[Node, ...], only: Node | None) -> Iterator[tuple[Node, ...]]:
        """Return the operators on the way to each exchange, which comes last."""
        for reader in self._readers.get((id(source), output), []):
            if only is not None and reader is not only:
                continue
            if reader.kind not in STEPS:
                yield (*above, reader)
                continue
            for one in {output for id_, output in self._readers if id_ == id(reader)}:
                yield from self._paths(reader, one, (*above, reader), None)


def _declared(node: Node, component: Any) -> Any:
    """Return a component of the engine's with the place of its operator, for errors of which no frame is the user's."""
    component.declared_at = (node.site.file, node.site.line)
    return component
