"""Mistakes in a program that show before it runs: all at once, each with file and line of the operator, and the fix."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from topo.api.async_io import RetryStrategy
from topo.api.bolt import BasicBolt, Bolt, StatefulBolt
from topo.api.durations import duration_ms
from topo.api.operator_bolts import OperatorBolt
from topo.api.spout import Spout
from topo.api.two_phase import TwoPhaseSink
from topo.errors import UserError
from topo.streams import aggregates
from topo.streams.aggregates import Aggregate
from topo.streams.captured import own_function, rebound
from topo.streams.chain import opener
from topo.streams.functions import problem_of, result_type
from topo.streams.graph import KEYED, MAIN, REST, RUNNING, SIDE, SOURCES, Graph, Node, readers_of
from topo.streams.naming import derived_ids
from topo.streams.process import KeyedDeclaration, KeyedMap, KeyedProcess, declared_state
from topo.streams.records import layout_of
from topo.streams.results import EmitWhen, SideOutput
from topo.streams.windows import TimeWindows

_BOLTS = (Bolt, BasicBolt, OperatorBolt)
_WITH_STATE = (StatefulBolt, TwoPhaseSink, OperatorBolt)
_CALLED_WITH = {
    "map": (1, "record"), "flat_map": (1, "record"), "filter": (1, "record"), "branch": (1, "record"), "tap": (1, "record"),
    "with_event_time": (1, "record"), "key_by": (1, "record"), "call": (1, "record"), "map_keyed": (2, "key, record"),
    "reduce": (2, "so_far, record"), "fold": (2, "so_far, record"),
}  # fmt: skip
_WINDOW_CALLS = {"reduce": (2, "so_far, record"), "top_n": (1, "record"), "process": (2, "key, window")}
_VALUES = (str, bytes, int, float, list, dict, set)
"""An instance of these is no type, where one is wanted. (Types in quotes could not be resolved.)"""
_TIMER = "register_event_time_timer"


def problems_of(graph: Graph) -> list[str]:
    """Return all mistakes of a program: one sentence each, with the fix."""
    found = [*_names(graph), *_unread(graph), *_captured(graph), *_event_time(graph)]
    for node in graph.nodes:
        found += [f"{node}: {problem}" for problem in (*_function(node), *_open(node), *_settings(node), *_record(node))]
    return found + list(_processes(graph))


def _names(graph: Graph) -> Iterator[str]:
    given: dict[str, Node] = {}
    unnamed: dict[str, Node] = {}
    for node in graph.nodes:
        if node.name is not None:
            if (first := given.setdefault(node.name, node)) is not node:
                yield (
                    f"the name {node.name!r} is given to {first.kind} at {first.site} and to {node.kind} at {node.site}; "
                    "names are unique"
                )
        elif (kind := _kind_with_state(node)) is not None and (first := unnamed.setdefault(kind, node)) is not node:
            what = "positions" if node.kind in SOURCES else "state"
            yield f"{first} and {node} have {what} and no name, so a savepoint could not distinguish them; give each a name="
    for taken, node in derived_ids(graph.nodes).items():
        if (other := given.get(taken)) is not None:
            yield f"{other}: the name {taken!r} is that of a component behind {node}; give another"


def _kind_with_state(node: Node) -> str | None:
    """Return the kind by which an unnamed operator is called whose state or positions are in savepoints."""
    if node.kind in ("sink", "through"):
        return type(node.function).__name__ if isinstance(node.function, _WITH_STATE) else None
    return node.kind if node.kind in KEYED | SOURCES else None


def _unread(graph: Graph) -> Iterator[str]:
    readers = readers_of(graph.nodes)
    if not graph.nodes:
        yield f"the program {graph.name!r} has no source; begin with from_files, from_iterable or from_spout"
    for node in graph.nodes:
        if node.kind in ("sink", "call"):
            continue
        outputs = [MAIN, *([REST] if node.kind == "branch" else [])]
        outputs += [f"{SIDE}{tag.name}" for tag in node.settings.get("sides") or ()]
        if node.kind == "process" and any(id_ == id(node) for id_, _output in readers):
            continue  # a process may have side outputs alone
        for output in outputs:
            if (id(node), output) in readers:
                continue
            if output == MAIN:
                yield f"no operator reads the results of {node}; end them with .to(...)"
            elif output == REST:
                yield f"no operator reads the second stream of {node}; end it with .to(...), or use filter"
            else:
                name = output.removeprefix(SIDE)
                yield f"no operator reads the side output {name!r} of {node}; read it with .side(...), or leave the tag out"


def _captured(graph: Graph) -> Iterator[str]:
    for node, captured in graph.captured:
        if node.kind in SOURCES:
            continue
        for name in rebound(node.function, captured):
            yield (
                f"{node}: its function uses {name!r}, which has another value by now, as the variable of a loop has; bind it: "
                f"lambda record, {name}={name}: ..."
            )


def _function(node: Node) -> Iterator[str]:
    function = node.function
    if node.kind == "call" and isinstance(function, type) and issubclass(function, _BOLTS):
        yield f"the class {function.__name__} was given; give an instance, {function.__name__}(...)"
        return
    if node.kind == "through" and not isinstance(function, _BOLTS):
        yield f"through takes a bolt; got {function!r:.60} ({type(function).__name__})"
    if node.kind == "from_spout" and not isinstance(function, Spout):
        yield f"from_spout takes a spout, an instance; got {function!r:.60} ({type(function).__name__})"
    if node.kind == "only" and not callable(function):
        yield f"only takes a class or a type guard; got {function!r:.60}"
    if node.kind == "async_map":
        yield from _async_function(node)
    calls = _WINDOW_CALLS.get(node.settings["result"]) if node.kind == "window" else _CALLED_WITH.get(node.kind)
    if calls is None or (node.kind == "window" and node.settings["result"] not in _WINDOW_CALLS):
        return
    method = "to" if node.kind == "call" else node.settings.get("result", node.kind)
    if (problem := problem_of(function, method, *calls)) is not None:
        yield problem
    elif node.kind == "key_by" and isinstance(returned := result_type(function), type) and returned in (list, dict, set):
        yield f"key_by was given a function that returns {returned.__name__}, which cannot be a key; return a tuple"


def _open(node: Node) -> Iterator[str]:
    """Refuse an `open` that would not run, or whose coroutine nothing would await."""
    function = node.function
    begin = opener(function) if node.kind not in SOURCES | {"through", "sink"} else None
    if isinstance(function, KeyedProcess):
        for name in ("open", "process", "on_timer", "close"):
            if inspect.iscoroutinefunction(getattr(function, name)):
                yield f"{type(function).__name__}.{name} is an async def, and nothing would await it; make it a def"
    elif begin is not None and node.kind == "window" and node.settings["result"] not in _WINDOW_CALLS:
        what = f"{node.settings['result']} does not call the open() of {type(function).__name__}"
        yield f"{what}; call it in a map before the window"
    elif begin is not None and node.kind != "async_map" and inspect.iscoroutinefunction(begin):
        yield f"{type(function).__name__}.open is an async def, and nothing would await it; make it a def"


def _async_function(node: Node) -> Iterator[str]:
    function = node.function
    own = own_function(function)
    if own is None or not inspect.iscoroutinefunction(own):
        yield f"async_map takes an async def; got {function!r:.60}. Give it to map, or call it by asyncio.to_thread"
    capacity = node.settings["capacity"]
    if type(capacity) is not int or capacity < 1:
        yield f"capacity={capacity!r} must be a whole number, 1 or more"


def _settings(node: Node) -> Iterator[str]:
    settings = node.settings
    parallelism = settings.get("parallelism")
    if node.kind == "call":
        if parallelism is not None or settings.get("fields") is not None:
            given = "parallelism" if parallelism is not None else "fields"
            yield f"a function is called where the record was made, so {given}= has no effect; leave it out, or give a bolt"
    elif parallelism is not None and (type(parallelism) is not int or parallelism < 1):
        yield f"parallelism={parallelism!r} must be a whole number, 1 or more"
    fields = settings.get("fields") or ()
    if node.kind in ("sink", "through") and not (
        isinstance(fields, list | tuple) and all(isinstance(one, str) for one in fields)
    ):
        yield f"fields={fields!r} must be a tuple of names, such as ('at', 'url')"
    if node.kind == "parse_json" and node.record is not None and isinstance(node.record, _VALUES):
        yield f"parse_json takes a type, such as Click; got {node.record!r:.60}"
    for tag in settings.get("sides") or ():
        if not isinstance(tag, SideOutput):
            yield f"a side output is a SideOutput('name', type); got {tag!r:.60}"
        elif not tag.name or not isinstance(tag.name, str):
            yield f"a SideOutput was given the name {tag.name!r}; give it a text that is not empty"
    if node.kind == "async_map":
        yield from _async_settings(node)
    if node.kind == "window":
        yield from _window_settings(node)
    if node.kind in RUNNING and not isinstance(settings["emit"], EmitWhen):
        yield f"emit={settings['emit']!r}: give EACH, AT_END or every('1s')"
    if node.kind == "window" and not isinstance(settings["window"], TimeWindows):
        kind = type(settings["window"]).__name__
        yield f"window takes Tumbling, Sliding or Session; got a {kind}. For other windows give a WindowBolt to through(...)"


def _async_settings(node: Node) -> Iterator[str]:
    settings = node.settings
    timeout, retry = settings["timeout"], settings["retry"]
    yield from _duration("timeout", timeout)
    if retry is not None and not isinstance(retry, RetryStrategy):
        yield f"retry={retry!r}: give a strategy, such as ExponentialBackoffRetry(...), or None"
    if settings["on_timeout"] is not None:
        if timeout is None:
            yield "on_timeout= has no effect without timeout=; give both"
        if (problem := problem_of(settings["on_timeout"], "on_timeout", 1, "record")) is not None:
            yield problem


def _window_settings(node: Node) -> Iterator[str]:
    settings = node.settings
    yield from _duration("lateness", settings["lateness"])
    if settings["result"] == "top_n" and (type(n := settings["n"]) is not int or n < 1):
        yield f"top_n({n!r}) must have a whole number, 1 or more"
    if settings["result"] == "aggregate":
        if not settings["parts"]:
            yield "aggregate takes one to three aggregates, such as agg.count()"
        for part in settings["parts"]:
            if not isinstance(part, Aggregate):
                name = getattr(part, "__name__", "")
                fix = f"; call it: agg.{name}(...)" if callable(getattr(aggregates, name, None)) else ""
                yield f"aggregate takes aggregates, such as agg.count(); got {part!r:.60}{fix}"
        if settings["into"] is not None:
            count = len(settings["parts"])
            if (problem := problem_of(settings["into"], "into", count, "the results")) is not None:
                yield problem


def _duration(name: str, value: Any) -> Iterator[str]:
    if value is None:
        return
    try:
        if duration_ms(value) < 0:
            yield f"{name}={value!r} must not be negative"
    except UserError as error:
        yield f"{name}={value!r}: {error}"


def _state(declared: KeyedDeclaration) -> Iterator[str]:
    types = [declared.of, *([declared.keys_of] if isinstance(declared, KeyedMap) else [])]
    for of in types:
        if isinstance(of, _VALUES):
            yield f"the state {declared.name!r} takes a type, such as int; got {of!r:.60}"
    yield from (f"the state {declared.name!r}: {problem}" for problem in _duration("ttl", declared.ttl))


def _record(node: Node) -> Iterator[str]:
    for record in (node.record, *node.side_records.values()):
        if isinstance(record, _VALUES):
            if node.kind != "parse_json":
                yield f"of={record!r:.60} must be a type, such as str"
            continue
        try:
            layout_of(record)
        except UserError as error:
            yield str(error)
    if node.kind == "parse_json" and not node.settings["sides"] and node.record is None:
        yield "parse_json needs the type to read: parse_json(Click)"


def _processes(graph: Graph) -> Iterator[str]:
    seen: dict[int, Node] = {}
    for node in graph.nodes:
        process = node.function
        if node.kind != "process":
            continue
        if isinstance(process, type):
            yield f"{node}: the class {process.__name__} was given; give an instance, process({process.__name__}())"
        elif not isinstance(process, KeyedProcess):
            yield f"{node}: process takes a KeyedProcess; got {process!r:.60} ({type(process).__name__})"
        elif (first := seen.setdefault(id(process), node)) is not node:
            yield f"{first} and {node} share one instance, and with it its state; give each its own"
        else:
            yield from (f"{node}: {problem}" for declared in declared_state(process) for problem in _state(declared))
            for name, value in vars(process).items():
                if isinstance(value, KeyedDeclaration):
                    yield f"{node}: the state {name!r} is declared in __init__; declare it on the class {type(process).__name__}"


def _event_time(graph: Graph) -> Iterator[str]:
    for node in graph.nodes:
        if not _goes_by_event_time(node):
            continue
        for without in _without_event_time(node, set()):
            what = f"{node} goes by event time, but the records of {without} have none"
            if without.kind in RUNNING:
                yield f"{what}: it emits them by the clock or at the end; use emit=EACH, or windows with clock='processing'"
            else:
                yield (
                    f"{what}; put .with_event_time(lambda record: ..., disorder='5s') behind it, or use "
                    + ("clock='processing'" if node.kind == "window" else "processing-time timers")
                )


def _goes_by_event_time(node: Node) -> bool:
    if node.kind == "window":
        return getattr(node.settings["window"], "is_event_time", False) is True
    if node.kind != "process":
        return False
    cls = node.function if isinstance(node.function, type) else type(node.function)
    methods: list[Any] = [one for base in cls.__mro__ for one in vars(base).values()]
    return any(_TIMER in getattr(getattr(one, "__code__", None), "co_names", ()) for one in methods)


def _without_event_time(node: Node, seen: set[int]) -> Iterator[Node]:
    """Return the operators above whose records have no timestamps. A spout or bolt of the user's own may give them."""
    for source, _output in node.inputs:
        if id(source) in seen or source.kind in ("with_event_time", "from_spout", "through"):
            continue
        seen.add(id(source))
        is_untimed = source.kind in RUNNING and source.settings["emit"] != EmitWhen("each")
        if source.kind in SOURCES or is_untimed:
            yield source
        else:
            yield from _without_event_time(source, seen)
