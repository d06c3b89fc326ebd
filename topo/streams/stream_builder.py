"""The builder of programs of streams: sources, settings, and the topology that comes of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, overload

from topo.api.spout import Spout
from topo.api.topology import Topology, TopologySource
from topo.api.watermarks import WatermarkStrategy
from topo.builder import TopologyBuilder
from topo.connectors.text_file_spout import TextFileSpout
from topo.errors import TopologyError, UserError
from topo.streams.checks import problems_of, unnamed
from topo.streams.collecting import collected_file
from topo.streams.explaining import Explanation, explanation
from topo.streams.graph import Graph, Node, calling_site, filled_here
from topo.streams.lowering import Lowering
from topo.streams.records import known_type
from topo.streams.running import run_here
from topo.streams.stream import Stream

if TYPE_CHECKING:
    from topo.observability.status import StatusReport

T = TypeVar("T")


class StreamBuilder(TopologySource):
    """Builds a program of streams. `topo run` takes a function that returns one.

    Nothing is checked before `build`, which reports all mistakes, each with file and line.

    Args:
        name: of the topology.
        require_names: `build` refuses operators without a name whose state or positions are in savepoints.

    Attributes:
        topology_builder: the builder beneath, for spouts, bolts, hooks and carried types beside the program:
            `flow.topology_builder.set_bolt("pairs", Pairs()).shuffle_grouping(left.id).shuffle_grouping(right.id)`.
    """

    def __init__(self, name: str, *, require_names: bool = False) -> None:
        self._graph = Graph(name, calling_site())
        self.topology_builder = TopologyBuilder(name)
        self._require_names = require_names

    def config(self, **settings: Any) -> StreamBuilder:
        """Change settings of the whole topology, such as `workers=2`; docs/settings.md lists them."""
        self.topology_builder.config(**settings)
        return self

    @overload
    def from_iterable(
        self, items: Iterable[T], *, of: type[T] | None = None, parallelism: int = 1, name: str | None = None
    ) -> Stream[T]: ...
    @overload
    def from_iterable(
        self, items: Callable[[], Iterable[T]], *, of: type[T] | None = None, parallelism: int = 1, name: str | None = None
    ) -> Stream[T]: ...
    def from_iterable(self, items: Any, *, of: Any = None, parallelism: int = 1, name: str | None = None) -> Stream[Any]:
        """Read the items of an iterable, or of what a function returns; see `IterableSpout`.

        Args:
            items: they must be the same each time, in one order; an iterator, which can be read only once, and a set are refused.
            of: the type of the items; needed for records, unless `items` is a list of them.
        """
        record = of
        if record is None and isinstance(items, list | tuple) and len({type(item) for item in items}) == 1:
            record = known_type(items[0])
        return self._source("from_iterable", items, record, parallelism, name)

    def from_files(
        self, path: str | os.PathLike[str], *, pattern: str = "*", parallelism: int = 1, name: str | None = None, **options: Any
    ) -> Stream[str]:
        """Read the lines of a file, or of all files of a folder; `options` are those of `TextFileSpout`."""
        return self._source("from_files", TextFileSpout(path, pattern=pattern, **options), str, parallelism, name)

    @overload
    def from_spout(
        self, spout: Spout, *, of: type[T], watermarks: WatermarkStrategy | None = None, parallelism: int = 1,
        name: str | None = None,
    ) -> Stream[T]: ...  # fmt: skip
    @overload
    def from_spout(
        self, spout: Spout, *, watermarks: WatermarkStrategy | None = None, parallelism: int = 1, name: str | None = None
    ) -> Stream[tuple[Any, ...]]: ...
    def from_spout(
        self, spout: Spout, *, of: Any = None, watermarks: WatermarkStrategy | None = None, parallelism: int = 1,
        name: str | None = None,
    ) -> Stream[Any]:  # fmt: skip
        """Read any spout.

        Args:
            spout: an instance.
            of: the type of the records: its fields are read by name; a plain type stands for the one field of the spout.
                Without it a record is the tuple of a row's values.
            watermarks: the event-time strategy of its rows, for each partition of a spout that has some, in place of
                `with_event_time`.
        """
        return self._source("from_spout", spout, of, parallelism, name, watermarks)

    def _source(
        self, kind: str, given: Any, record: Any, parallelism: int, name: str | None, watermarks: WatermarkStrategy | None = None
    ) -> Stream[Any]:
        site = calling_site()
        if kind == "from_files":
            given.declared_at = (site.file, site.line)
        node = Node(kind, (), site, name, given, record, {"parallelism": parallelism, "watermarks": watermarks})
        return Stream(self._graph, self._graph.add(node))

    def build(self) -> Topology:
        """Return the topology.

        Raises:
            TopologyError: something is wrong; `problems` has all of it, each with file and line.
        """
        return self._lowered()[0]

    def build_for_workers(self) -> Topology:
        """Return the topology. Raises TopologyError also for a list of this process as a sink, which no worker could fill."""
        topology = self.build()
        if problems := filled_here(self._graph):
            raise TopologyError(problems)
        return topology

    def explain(self) -> Explanation:
        """Return the program as text: the components, the operators fused into each, and where records move.

        A notebook draws it as a diagram.

        Raises:
            TopologyError: as `build`.
        """
        return explanation(self._graph.name, self._lowered()[1].components)

    def run(self) -> StatusReport:
        """Run the program in processes of this machine until its input has ended, fill what `collect` has returned, and return
        the summary; see `topo.streams.run`. In a script call it below `if __name__ == "__main__":`.

        Raises:
            TopoError: the program cannot run, or a record was not processed.
            KeyboardInterrupt: it was interrupted.
        """
        summary, folder = run_here(self, {})
        for sink, collected in self._graph.collected:
            collected.read(collected_file(folder, sink.name or ""))
        return summary

    def held_values(self) -> Iterator[tuple[str, object]]:
        """Return the variables that functions of the program capture, each with operator, place and name."""
        for node, _argument, _function, captured in self._graph.captured:
            for name, value in captured.items():
                yield f"{node} captures {name!r}, a {type(value).__name__}", value

    def _lowered(self) -> tuple[Topology, Lowering]:
        problems = problems_of(self._graph)
        if self._require_names:
            problems += unnamed(self._graph)
        if problems:
            raise TopologyError(problems)
        lowering = Lowering(self._graph, self.topology_builder.copied())
        try:
            return lowering.topology(), lowering
        except TopologyError:
            raise
        except UserError as error:
            raise TopologyError(str(error)) from error
