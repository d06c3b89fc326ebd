"""The builder of topologies, and the declaration of a bolt's inputs. It stands above the plan, which checks the result."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from msgspec.structs import replace

from topo.api.bolt import BasicBolt, Bolt
from topo.api.component import Component
from topo.api.groupings import (
    All,
    Custom,
    CustomGrouping,
    Direct,
    Fields,
    Global,
    Grouping,
    LocalOrShuffle,
    NoneGrouping,
    PartialKey,
    Shuffle,
)
from topo.api.hooks import Hook
from topo.api.operator_bolts import OperatorBolt, bind_inputs
from topo.api.spout import Spout
from topo.api.streams import DEFAULT_STREAM
from topo.api.topology import CarriedType, ComponentKind, ComponentSpec, Input, Topology
from topo.api.watermarks import WatermarkStrategy
from topo.config import TopologyConfig, current_names
from topo.errors import TopologyError
from topo.user_errors import is_engine_frame, shown_file

T = TypeVar("T")
_WHOLE, _SETTINGS = "the topology", "settings of the topology"


class BoltDeclarer:
    """Declares the inputs of a bolt. `TopologyBuilder.set_bolt` returns it, and so does every method: calls can be chained."""

    def __init__(self) -> None:
        self._inputs: list[Input] = []

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The declared inputs so far."""
        return tuple(self._inputs)

    def grouping(self, source: str, grouping: Grouping, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Read a stream of `source` with any grouping object."""
        self._inputs.append(Input(source, stream, grouping))
        return self

    def shuffle_grouping(self, source: str, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Spread the tuples evenly over the tasks, rather to those that have room."""
        return self.grouping(source, Shuffle(), stream)

    def local_or_shuffle_grouping(self, source: str, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Keep tuples in the worker they come from if the bolt has a task there, else shuffle."""
        return self.grouping(source, LocalOrShuffle(), stream)

    def fields_grouping(self, source: str, *fields: str, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Send tuples with equal values of these fields to the same task."""
        return self.grouping(source, Fields(fields), stream)

    def partial_key_grouping(self, source: str, *fields: str, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Send each key to the less used of its two tasks: for skewed keys, where partial results are joined later."""
        return self.grouping(source, PartialKey(fields), stream)

    def all_grouping(self, source: str, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Send each tuple to every task."""
        return self.grouping(source, All(), stream)

    def global_grouping(self, source: str, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Send everything to the first task."""
        return self.grouping(source, Global(), stream)

    def none_grouping(self, source: str, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Leave it to topo, which shuffles."""
        return self.grouping(source, NoneGrouping(), stream)

    def direct_grouping(self, source: str, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Read a direct stream, whose emitter names the task that gets each tuple."""
        return self.grouping(source, Direct(), stream)

    def custom_grouping(self, source: str, grouping: CustomGrouping, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Let an object of the user's own choose the tasks."""
        return self.grouping(source, Custom(grouping), stream)


class TopologyBuilder:
    """Puts a topology together. Nothing is checked before `build`, which then reports everything that is wrong."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._settings: dict[str, Any] = {}
        self._declared: list[tuple[ComponentSpec, BoltDeclarer]] = []
        self._places: dict[str, dict[str, None]] = {}
        """By component, or `_WHOLE` or `_SETTINGS` of the topology: the lines of the user's code that declare it."""
        self._carried_types: list[CarriedType] = []
        self._hooks: list[Hook] = []
        self._note_place(_WHOLE, sys._getframe(1))

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings that were changed, as they were given."""
        return self._settings

    def config(self, **settings: Any) -> TopologyBuilder:
        """Change settings of the whole topology, such as `message_timeout="10s"`; docs/settings.md lists them."""
        self._settings.update(current_names(settings))
        self._note_place(_SETTINGS, sys._getframe(1))
        return self

    def add_hook(self, hook: Hook) -> TopologyBuilder:
        """Add an object whose methods are called when workers and tasks begin and end, and for each error."""
        self._hooks.append(hook)
        return self

    def register_type(
        self, cls: type[T], code: int, encode: Callable[[T], bytes], decode: Callable[[bytes], T]
    ) -> TopologyBuilder:
        """Let tuples carry values of a class.

        What needs no registration: None, bool, int, float, str, bytes, tuples, lists, dicts, sets, `datetime` and its kin,
        `Decimal`, `UUID`, dataclasses and enums of an imported module, and numpy's arrays and scalars. A class that is
        registered travels as its serializer encodes it.

        Args:
            cls: matched exactly; a subclass is registered on its own.
            code: a number from 32 to 65535, one for each class.
            encode: makes bytes of a value.
            decode: makes the value of the bytes.
        """
        self._carried_types.append(CarriedType(cls, code, encode, decode))
        return self

    def set_spout(
        self,
        id: str,
        component: Spout | type[Spout],
        parallelism: int = 1,
        *,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        watermarks: WatermarkStrategy | None = None,
        **settings: Any,
    ) -> None:
        """Add a spout.

        Args:
            id: its name, unique in the topology.
            component: an instance, or a class that is made with `args` and `kwargs` only where it runs.
            parallelism: its number of tasks, each in a separate process unless the setting `workers` packs them.
            args: positional arguments of the class.
            kwargs: keyword arguments of the class.
            watermarks: the event-time strategy of its output.
            settings: settings for this component alone, such as `max_spout_pending=100`.
        """
        self._add(ComponentKind.SPOUT, id, component, parallelism, args, kwargs, settings, watermarks)

    def set_bolt(
        self,
        id: str,
        component: Bolt | BasicBolt | OperatorBolt | type[Bolt] | type[BasicBolt] | type[OperatorBolt],
        parallelism: int = 1,
        *,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        watermarks: WatermarkStrategy | None = None,
        **settings: Any,
    ) -> BoltDeclarer:
        """Add a bolt, and declare its inputs on the result: `set_bolt("count", Count()).fields_grouping("split", "word")`.

        The arguments are those of `set_spout`; a setting that bolts often have is `tick_interval="1s"`.
        """
        return self._add(ComponentKind.BOLT, id, component, parallelism, args, kwargs, settings, watermarks)

    def _add(
        self,
        kind: ComponentKind,
        component_id: str,
        component: Component | type[Component],
        parallelism: int,
        args: Sequence[Any],
        kwargs: Mapping[str, Any] | None,
        settings: Mapping[str, Any],
        watermarks: WatermarkStrategy | None,
    ) -> BoltDeclarer:
        declarer = BoltDeclarer()
        # The argument may be no component at all; `build` reports that.
        wanted = component.component_settings if hasattr(component, "component_settings") else {}
        settings = {**current_names(wanted), **current_names(settings)}
        given = (tuple(args), dict(kwargs or {}), settings)
        spec = ComponentSpec(component_id, kind, component, parallelism, *given, watermarks=watermarks)
        self._declared.append((spec, declarer))
        place = self._note_place(repr(component_id), sys._getframe(2))
        cls = type(component)
        # It may be no component, and without attributes.
        is_ready_made = "declared_at" in vars(cls) or is_engine_frame(cls.__module__)
        if place is not None and is_ready_made and hasattr(component, "__dict__"):
            vars(component)["declared_at"] = place
        return declarer

    def _note_place(self, component: str, caller: FrameType | None) -> tuple[str, int] | None:
        """Note the line of the user's code that declares a component, unless the engine does, and return it with its file."""
        while caller is not None and caller.f_locals.get("self") is self:
            caller = caller.f_back  # a method of a subclass
        if caller is not None and not is_engine_frame(caller.f_globals.get("__name__", "")):
            place = f"{Path(shown_file(caller.f_code.co_filename)).name}:{caller.f_lineno}"
            self._places.setdefault(component, {})[place] = None
            return shown_file(caller.f_code.co_filename), caller.f_lineno
        return None

    def copied(self) -> TopologyBuilder:
        """Return a builder of the same declarations; additions to it leave this one as it is."""
        other = copy(self)
        other._settings, other._declared = dict(self._settings), list(self._declared)
        other._places = {component: dict(places) for component, places in self._places.items()}
        other._carried_types, other._hooks = list(self._carried_types), list(self._hooks)
        return other

    @property
    def sources(self) -> set[str]:
        """The components that the bolts read which are declared so far."""
        return {one.source for _, declarer in self._declared for one in declarer.inputs}

    def build(
        self, aliases: Mapping[str, Sequence[tuple[str, str]]] | None = None, chains: Mapping[str, BasicBolt] | None = None
    ) -> Topology:
        """Return the topology.

        Args:
            aliases: for a source that inputs name, in place of a component, the streams that it stands for: component and stream.
            chains: by spout: the bolt that its tasks run on its rows before they leave.

        Raises:
            TopologyError: something is wrong; `problems` has all of it, each with what to do about it.
        """
        # Imported here so that `import topo` stays light.
        from topo.plan.batch_windows import choose_outputs
        from topo.plan.validation import problems_of, unusable_names

        if unusable := list(unusable_names((spec.id, declarer.inputs) for spec, declarer in self._declared)):
            raise TopologyError([self._placed(problem) for problem in unusable])
        config, problems = TopologyConfig().changed(self._settings)
        components = tuple(
            replace(spec, inputs=tuple(_resolved(declarer.inputs, aliases or {})), chain=(chains or {}).get(spec.id))
            for spec, declarer in self._declared
        )
        bind_inputs({spec.id: spec.chain or spec.component for spec in components}, {spec.id: spec.inputs for spec in components})
        choose_outputs(components)
        topology = Topology(self.name, components, config, tuple(self._carried_types), tuple(self._hooks))
        problems = [f"{_SETTINGS}: {problem}" for problem in problems]
        problems += problems_of(topology)
        if problems:
            raise TopologyError([self._placed(problem) for problem in problems])
        return topology

    def _placed(self, problem: str) -> str:
        """Return a problem with the lines that declare its component, those in a cycle, or the topology."""
        from topo.plan.validation import CYCLE

        cycle = problem.removeprefix(CYCLE).partition(";")[0].split(" -> ") if problem.startswith(CYCLE) else []
        subjects = [repr(component) for component in dict.fromkeys(cycle)] or [
            component
            for component in self._places
            if problem.startswith((f"component {component}", f"component id {component}", f"bolt {component}"))
        ]
        subjects = subjects or [_SETTINGS if problem.startswith(_SETTINGS) and _SETTINGS in self._places else _WHOLE]
        places = [place for subject in subjects for place in self._places.get(subject, ())]
        return f"{problem} ({', '.join(places)})" if places else problem


def _resolved(inputs: Sequence[Input], aliases: Mapping[str, Sequence[tuple[str, str]]]) -> Iterator[Input]:
    for one in inputs:
        for source, stream in aliases.get(one.source, [(one.source, one.stream)]):
            yield replace(one, source=source, stream=stream)
