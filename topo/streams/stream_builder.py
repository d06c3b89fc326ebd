"""The builder of programs of streams: sources, settings, and the topology that comes of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, overload

from topo.api.spout import Spout
from topo.api.topology import Topology, TopologySource
from topo.connectors.text_file_spout import TextFileSpout
from topo.errors import TopologyError, UserError
from topo.streams.checks import problems_of
from topo.streams.explaining import explained
from topo.streams.graph import Graph, Node, calling_site
from topo.streams.lowering import Lowering
from topo.streams.records import known_type
from topo.streams.stream import Stream

T = TypeVar("T")


class StreamBuilder(TopologySource):
    """Draws a program of streams. `topo run` takes a function that returns one, as it takes a topology.

    Nothing is checked before `build`, which then reports everything that is wrong, each with file and line.
    """

    def __init__(self, name: str) -> None:
        self._graph = Graph(name)

    def config(self, **settings: Any) -> StreamBuilder:
        """Change settings of the whole topology, such as `workers=2`; docs/settings.md lists them."""
        self._graph.settings.update(settings)
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
            items: they must be the same each time.
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
    def from_spout(self, spout: Spout, *, of: type[T], parallelism: int = 1, name: str | None = None) -> Stream[T]: ...
    @overload
    def from_spout(self, spout: Spout, *, parallelism: int = 1, name: str | None = None) -> Stream[tuple[Any, ...]]: ...
    def from_spout(self, spout: Spout, *, of: Any = None, parallelism: int = 1, name: str | None = None) -> Stream[Any]:
        """Read any spout.

        Args:
            spout: an instance.
            of: the type of the records: its fields are read by name; a plain type stands for the one field of the spout.
                Without it a record is the tuple of a row's values.
        """
        return self._source("from_spout", spout, of, parallelism, name)

    def _source(self, kind: str, given: Any, record: Any, parallelism: int, name: str | None) -> Stream[Any]:
        node = Node(kind, (), calling_site(), name, given, record, {"parallelism": parallelism})
        return Stream(self._graph, self._graph.add(node))

    def build(self) -> Topology:
        """Return the topology.

        Raises:
            TopologyError: something is wrong; `problems` has all of it, each with file and line.
        """
        return self._lowered()[0]

    def explain(self) -> str:
        """Return the program as text: the components, the operators fused into each, and where records move.

        Raises:
            TopologyError: as `build`.
        """
        return explained(self._graph.name, self._lowered()[1].components)

    def _lowered(self) -> tuple[Topology, Lowering]:
        if problems := problems_of(self._graph):
            raise TopologyError(problems)
        lowering = Lowering(self._graph)
        try:
            return lowering.topology(), lowering
        except TopologyError:
            raise
        except UserError as error:
            raise TopologyError(str(error)) from error
