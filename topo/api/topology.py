"""Topologies as data: components, their inputs and settings. `topo.builder` makes them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct, field

from topo.api.bolt import BasicBolt
from topo.api.component import Component
from topo.api.groupings import Grouping
from topo.api.hooks import Hook
from topo.api.streams import StreamDeclaration, streams_of
from topo.api.watermarks import WatermarkStrategy
from topo.config import TopologyConfig
from topo.errors import TopologyError

TYPE_CODES = range(32, 65_536)
"""The codes of types that users register."""


class ComponentKind(StrEnum):
    """What a component is in the plan."""

    SPOUT = "spout"
    BOLT = "bolt"
    ACKER = "acker"


class Input(Struct, frozen=True):
    """One subscription of a bolt: the stream of a source, and how it is grouped."""

    source: str
    stream: str
    grouping: Grouping


class ComponentSpec(Struct, frozen=True):
    """One component as it was declared.

    Attributes:
        id: its name in the topology.
        kind: spout or bolt.
        component: an instance, or a class that is made where it runs.
        parallelism: how many tasks it has.
        args: positional arguments of the class.
        kwargs: keyword arguments of the class.
        settings: its own settings by public name, as it wants them or as they were given.
        inputs: what a bolt reads.
        watermarks: the event-time strategy of its output; None where it emits watermarks itself, or passes on its inputs'.
        operators: of a program of streams that run in it, its body first, each with the place where it is written.
        identity: facts by which its state is known, as the user has given it no name; "" where the id is enough.
        declared: the state that its class declares, of a program of streams: kind and type by name.
        chain: a `BasicBolt` that a spout's tasks run on its rows before they leave; None for none.
    """

    id: str
    kind: ComponentKind
    component: Component | type[Component]
    parallelism: int = 1
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    inputs: tuple[Input, ...] = ()
    watermarks: WatermarkStrategy | None = None
    operators: tuple[str, ...] = ()
    identity: str = ""
    declared: Mapping[str, str] = field(default_factory=dict)
    chain: BasicBolt | None = None

    @property
    def streams(self) -> tuple[StreamDeclaration, ...]:
        """The streams that others can read. Raises ConfigError as `declared_streams` does."""
        return streams_of(self.chain or self.component)

    @property
    def type(self) -> type[Component]:
        """The component's class."""
        return self.component if isinstance(self.component, type) else type(self.component)

    def make(self) -> Component:
        """Return the component to run: the instance itself, or a new one of the class.

        Raises:
            TopologyError: the new one declares other outputs than its class, which the plan was made from.
        """
        if not isinstance(self.component, type):
            return self.component
        made = self.component(*self.args, **self.kwargs)
        if streams_of(made) != streams_of(self.component):
            raise TopologyError(
                f"component {self.id!r}: __init__ of {self.type.__qualname__} changes outputs, but as a class was given, the "
                f"topology was planned with those of the class; give set_{self.kind}() an instance"
            )
        return made


class CarriedType(Struct, frozen=True):
    """A type of the user's own that tuples may carry; see `TopologyBuilder.register_type`."""

    cls: type[Any]
    code: int
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]


class Topology(Struct, frozen=True):
    """A topology that has been built and checked: `topo run`, `topo submit` and the test kit take it.

    Attributes:
        name: its name.
        components: in the order of their declaration.
        config: its settings.
        carried_types: what its tuples carry besides the types that topo knows.
        hooks: observers of its workers and tasks.
    """

    name: str
    components: tuple[ComponentSpec, ...]
    config: TopologyConfig = field(default_factory=TopologyConfig)
    carried_types: tuple[CarriedType, ...] = ()
    hooks: tuple[Hook, ...] = ()

    def component(self, component_id: str) -> ComponentSpec:
        """Return the component of that id.

        Raises:
            KeyError: there is none.
        """
        for spec in self.components:
            if spec.id == component_id:
                return spec
        raise KeyError(component_id)


class TopologySource(ABC):
    """What `topo run` and the test kit take in place of a topology: its `build` makes one. A program of streams is one."""

    @abstractmethod
    def build(self) -> Topology:
        """Return the topology, as `TopologyBuilder.build` does."""

    def build_for_workers(self) -> Topology:
        """Return the topology; refuse a program that works in one process alone, as a test does."""
        return self.build()

    def held_values(self) -> Iterable[tuple[str, object]]:
        """Return values that the topology takes along to its workers, each with the words for it, for errors."""
        return ()
