"""Mistakes in a program that show before it runs: all at once, each with file and line of the operator, and the fix."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from types import FunctionType, GeneratorType, MethodType
from typing import Any, get_origin

from msgspec import Struct

from topo.api.async_io import RetryStrategy
from topo.api.bolt import BasicBolt, Bolt, StatefulBolt
from topo.api.durations import duration_ms
from topo.api.operator_bolts import OperatorBolt
from topo.api.spout import Spout
from topo.api.two_phase import TwoPhaseSink
from topo.api.windows import CountWindows
from topo.connectors.iterable_spout import items_problem
from topo.errors import UserError
from topo.streams import aggregates
from topo.streams.aggregates import Aggregate
from topo.streams.captured import own_function, rebound
from topo.streams.chain import opener
from topo.streams.functions import problem_of, result_type, signature_problem
from topo.streams.graph import (
    KEYED,
    MAIN,
    PROCESSES,
    READER,
    REST,
    RUNNING,
    SIDE,
    SOURCES,
    STATEFUL,
    Graph,
    Node,
    above,
    keyed_by,
    readers_of,
)
from topo.streams.joins import CoProcess
from topo.streams.key_types import keys_problem
from topo.streams.naming import derived_ids
from topo.streams.process import OUT_EMIT, KeyedDeclaration, KeyedMap, KeyedProcess, declared_state
from topo.streams.records import has_fields, layout_of
from topo.streams.results import AT_END, EmitWhen, SideOutput
from topo.streams.windows import TimeWindows

_BOLTS = (Bolt, BasicBolt, OperatorBolt)
_WITH_STATE = (StatefulBolt, TwoPhaseSink, OperatorBolt)
_CALLED_WITH = {
    "map": (1, "record"), "flat_map": (1, "record"), "filter": (1, "record"), "branch": (1, "record"), "tap": (1, "record"),
    "with_event_time": (1, "record"), "key_by": (1, "record"), "call": (1, "record"), "map_keyed": (2, "key, record"),
    "reduce": (2, "so_far, record"), "fold": (2, "so_far, record"), "enrich": (2, "record, table"), "broadcast": (1, "record"),
}  # fmt: skip
_WINDOW_CALLS = {"reduce": (2, "so_far, record"), "top_n": (1, "record"), "process": (2, "key, window")}
_METHODS = {"open": (), "close": (), "on_timer": ("timestamp", "context", "out")}
_METHODS |= dict.fromkeys(("process", "process_left", "process_right"), ("record", "context", "out"))
_VALUES = (str, bytes, int, float, list, tuple, dict, set, FunctionType, MethodType, GeneratorType, SideOutput)
"""An instance of these is no type, where one is wanted. (Types in quotes could not be resolved.)"""
_NUMBERS = {
    "parallelism": "parallelism={!r} must be",
    "capacity": "capacity={!r} must be",
    "size": "batch({!r}) must have",
    "n": "top_n({!r}) must have",
}
_DURATIONS = ("before", "after", "within", "timeout", "lateness", "early", "disorder", "idle")
_NEEDED = ("before", "after", "lateness", "disorder")
"""Durations that cannot be None."""
_TIMER = "register_event_time_timer"
_INSTEAD_OF_EVENT_TIME = {
    "window": ", or use Tumbling(..., clock='processing'), or Sliding or Session with it",
    "interval_join": "",
    "join_table": ", or leave as_of=True out",
}


def problems_of(graph: Graph) -> list[str]:
    """Return all mistakes of a program: one sentence each, with the fix."""
    given: list[tuple[Node, Any]] = [(node, node.name) for node in graph.nodes]
    if unusable := [(node, name) for node, name in given if not isinstance(name, str | None)]:
        return [f"{node.kind} at {node.site}: name={name!r:.60} must be a text, such as 'words'" for node, name in unusable]
    found = [*_names(graph), *_unread(graph), *_captured(graph), *_event_time(graph), *_ends(graph)]
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


def unnamed(graph: Graph) -> list[str]:
    """Return a mistake for each operator without a name that a savepoint has to find again."""
    nodes = (node for node in graph.nodes if node.name is None and _kind_with_state(node) is not None)
    return [f"{node} has no name, and require_names is set; give it a name=, by which savepoints know it" for node in nodes]


def _kind_with_state(node: Node) -> str | None:
    """Return the kind by which an unnamed operator is called whose state or positions are in savepoints."""
    if node.kind in ("sink", "through"):
        return type(node.function).__name__ if isinstance(node.function, _WITH_STATE) else None
    return node.kind if node.kind in STATEFUL | SOURCES else None


def _unread(graph: Graph) -> Iterator[str]:
    readers = readers_of(graph.nodes)
    if not graph.nodes:
        yield f"the program {graph.name!r} at {graph.site} has no source; begin with from_files, from_iterable or from_spout"
    for node in graph.nodes:
        if node.kind in ("sink", "call", READER):
            continue
        outputs = [MAIN, *([REST] if node.kind == "branch" else [])]
        outputs += [f"{SIDE}{tag.name}" for tag in node.settings.get("sides") or () if isinstance(tag, SideOutput)]
        if node.settings.get("sides", ()) is None and any(id_ == id(node) for id_, _output in readers):
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
    for node, argument, function, captured in graph.captured:
        takes = "" if node.kind in SOURCES else "record, "
        for name in rebound(function, captured):
            yield (
                f"{node}: {argument} uses {name!r}, which has another value by now, as the variable of a loop has; bind it: "
                f"lambda {takes}{name}={name}: ..."
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
    if node.kind == "only" and (not callable(function) or get_origin(function) is not None):
        yield f"only takes a class or a type guard; got {function!r:.60}"
    elif node.kind == "only" and not isinstance(function, type) and (problem := problem_of(function, "only", 1, "record")):
        yield problem
    if node.kind == "async_map":
        yield from _async_function(node)
    if node.kind == "from_iterable":
        if (unreadable := items_problem(function)) is not None:
            yield f"from_iterable was given {unreadable}"
        elif callable(function) and (problem := problem_of(function, "from_iterable", 0, "nothing")) is not None:
            yield problem
    calls = _WINDOW_CALLS.get(node.settings["result"]) if node.kind == "window" else _CALLED_WITH.get(node.kind)
    if calls is None:
        return
    method = "to" if node.kind == "call" else node.settings.get("result", node.kind)
    if (problem := problem_of(function, method, *calls)) is not None:
        yield problem
    elif node.kind == "key_by" and isinstance(returned := result_type(function), type) and returned in (list, dict, set):
        yield f"key_by was given a function that returns {returned.__name__}, which cannot be a key; return a tuple"


def _open(node: Node) -> Iterator[str]:
    """Refuse an `open` whose coroutine nothing would await."""
    function, settings = node.function, node.settings
    if isinstance(function, KeyedProcess):
        yield from _methods(function)
    if node.kind in SOURCES | {"through", "sink", "async_map"}:
        return
    for one in (function, settings.get("deleted"), *settings.get("call", ())[:1], *settings.get("parts", ())):
        if inspect.iscoroutinefunction(opener(one)):
            yield f"{type(one).__name__}.open is an async def, and nothing would await it; make it a def"


def _methods(process: KeyedProcess[Any, Any, Any]) -> Iterator[str]:
    for name, what in _METHODS.items():
        if (method := getattr(process, name, None)) is None:
            continue
        shown = f"{type(process).__name__}.{name}"
        if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
            yield f"{shown} is an async def, and nothing would await it; make it a def"
        elif inspect.isgeneratorfunction(method):
            yield f"{shown} is a generator function, which would not run; {OUT_EMIT if what else 'make it a def without yield'}"
        elif (problem := problem_of(method, shown, len(what), ", ".join(what))) is not None:
            yield problem.replace("calls its function", "is called")


def _async_function(node: Node) -> Iterator[str]:
    function = node.function
    own = own_function(function)
    if own is None or not inspect.iscoroutinefunction(own):
        fix = "Give it to map, or call it by asyncio.to_thread"
        if own is not None and own.__name__ == "<lambda>":
            fix = "Give the async function itself, or one with arguments as functools.partial, or call map"
        yield f"async_map takes an async def; got {function!r:.60}. {fix}"
    elif (problem := signature_problem(function, "async_map", 1, "record")) is not None:
        yield problem


def _settings(node: Node) -> Iterator[str]:
    settings = node.settings
    parallelism = settings.get("parallelism")
    if node.kind == "call" and (parallelism is not None or settings.get("fields") is not None):
        given = "parallelism" if parallelism is not None else "fields"
        yield f"a function is called where the record was made, so {given}= has no effect; leave it out, or give a bolt"
    for name, words in _NUMBERS.items() if node.kind != "call" else ():
        if name in settings and (type(value := settings[name]) is not int or value < 1):
            yield f"{words.format(value)} a whole number, 1 or more"
    for name in _DURATIONS:
        is_needed = name in settings and (name in _NEEDED or node.kind == "batch")
        yield from _duration(name, settings.get(name), is_needed=is_needed, above_zero=name in ("within", "early", "idle"))
    fields = settings.get("fields") or ()
    if node.kind in ("sink", "through") and not (
        isinstance(fields, list | tuple) and all(isinstance(one, str) for one in fields)
    ):
        yield f"fields={fields!r} must be a tuple of names, such as ('at', 'url')"
    if node.kind == "parse_json" and node.record is not None and is_value(node.record):
        yield f"parse_json takes a type, such as Click; got {node.record!r:.60}"
    for tag in settings.get("sides") or ():
        if not isinstance(tag, SideOutput):
            yield f"a side output is a SideOutput('name', type); got {tag!r:.60}"
        elif not tag.name or not isinstance(tag.name, str):
            yield f"a SideOutput was given the name {tag.name!r}; give it a text that is not empty"
    if node.kind == "async_map":
        yield from _async_settings(node)
    deleted = settings.get("deleted")
    if deleted is not None and (problem := problem_of(deleted, "deleted", 1, "record")) is not None:
        yield problem
    if (call := settings.get("call")) is not None and (problem := problem_of(*call)) is not None:
        yield problem
    late = settings.get("late")
    if node.kind == "join_table":
        if late and len(late) != 1:
            yield f"late= takes one tag, for late records of this stream: late={late[0]!r:.60}"
        if settings["sides"] and not settings["event_time"]:
            yield "late= has an effect with as_of=True only; leave it out"
    elif late and len(late) != 2:
        yield f"late= takes two tags, for this stream and for the other: late=({late[0]!r:.60}, ...)"
    yield from _two_sides(node)
    if node.kind in RUNNING and not isinstance(settings["emit"], EmitWhen):
        yield f"emit={settings['emit']!r}: give EACH, AT_END or every('1s')"
    if node.kind == "window":
        yield from _window_kind(settings)
        if settings["result"] == "aggregate":
            yield from _aggregates(settings["parts"], node.function)
        for part in settings.get("parts", ()):
            own = type(part).__module__ == aggregates.__name__
            if own and (problem := problem_of(part.of, "an aggregate", 1, "record")) is not None:
                yield problem


def _window_kind(settings: Mapping[str, Any]) -> Iterator[str]:
    window, is_join = settings["window"], "call" in settings
    if isinstance(window, CountWindows) and not is_join and window.slide_ms is None and window.over_ms is None:
        if duration_is_set := [name for name in ("lateness", "early") if settings[name] not in (None, "0s")]:
            yield f"{duration_is_set[0]}= goes by time, and Rows by the number of records; leave it out"
        if settings["sides"]:
            yield "late= goes by time, and Rows by the number of records; leave it out"
    elif not isinstance(window, TimeWindows):
        kinds = "Tumbling, Sliding or Session" if is_join else "Tumbling, Sliding, Session or Rows"
        what = f"window takes {kinds}; got a {type(window).__name__}"
        yield f"{what}. For other windows give a WindowBolt to through(...)"
    elif not is_join and not window.is_event_time and (settings["lateness"] != "0s" or settings["sides"]):
        name = "late" if settings["sides"] else "lateness"
        yield f"{name}= goes by event time, and no record is late for windows with clock='processing'; leave it out"


def _two_sides(node: Node) -> Iterator[str]:
    """Two keyed streams of one operator: all records of a key have to reach the one task that has it, and to have equal keys."""
    source = node.inputs[0][0] if node.inputs else node
    if node.kind in KEYED and source.kind == "merge":
        left, right = (keyed_by(one) for one, _output in source.inputs)
        mine, other = left.settings["parallelism"], right.settings["parallelism"]
        if mine != other:
            yield f"its parallelism is {mine}, of {left}, but that of {right} is {other}; give both the same"
        if (problem := keys_problem(left, right)) is not None:
            yield problem


def _async_settings(node: Node) -> Iterator[str]:
    settings = node.settings
    timeout, retry = settings["timeout"], settings["retry"]
    if retry is not None and not isinstance(retry, RetryStrategy):
        yield f"retry={retry!r}: give a strategy, such as ExponentialBackoffRetry(...), or None"
    if settings["on_timeout"] is not None:
        if timeout is None:
            yield "on_timeout= has no effect without timeout=; give both"
        if (problem := problem_of(settings["on_timeout"], "on_timeout", 1, "record")) is not None:
            yield problem


def _aggregates(parts: Sequence[Any], into: Any) -> Iterator[str]:
    if not parts:
        yield "aggregate takes one to three aggregates, such as agg.count()"
    for part in parts:
        if not isinstance(part, Aggregate):
            name = getattr(part, "__name__", "")
            fix = f"; call it: agg.{name}(...)" if callable(getattr(aggregates, name, None)) else ""
            yield f"aggregate takes aggregates, such as agg.count(); got {part!r:.60}{fix}"
    if into is not None and (problem := problem_of(into, "into", len(parts), "the results")) is not None:
        yield problem


def _duration(name: str, value: Any, *, is_needed: bool = False, above_zero: bool = False) -> Iterator[str]:
    if value is None and not is_needed:
        return
    try:
        ms = duration_ms(value)
    except UserError as error:
        yield f"{name}={value!r}: {error}"
        return
    if ms < 0 or (above_zero and ms == 0):
        yield f"{name}={value!r} must {'be above zero' if above_zero else 'not be negative'}"


def _state(declared: KeyedDeclaration[Any]) -> Iterator[str]:
    if not declared.name:
        yield "a state has no name; declare it on the class, as in total = KeyedValue(int)"
    keys = [declared.keys_of] if isinstance(declared, KeyedMap) else []
    for key in keys:
        if isinstance(key, type) and issubclass(key, Struct):
            what = f"the state {declared.name!r}: a {key.__name__} as key cannot be stored"
            yield f"{what}; make it a NamedTuple or a frozen dataclass"
    for of in (declared.of, *keys):
        if is_value(of):
            yield f"the state {declared.name!r} takes a type, such as int; got {of!r:.60}"
        else:
            yield from (f"the state {declared.name!r}: {problem}" for problem in _type(of, is_kept=True))
    yield from (f"the state {declared.name!r}: {problem}" for problem in _duration("ttl", declared.ttl, above_zero=True))


def _type(record: Any, *, is_kept: bool) -> Iterator[str]:
    """Refuse a type of records that could not be made again; `is_kept`: they are kept in state."""
    try:
        layout = layout_of(record)
        if is_kept:
            layout.packed("record", {})
    except UserError as error:
        yield str(error)


def is_value(given: Any) -> bool:
    """Return whether something is a value where a type is wanted."""
    return isinstance(given, _VALUES) or (not isinstance(given, type) and has_fields(type(given)))


def _record(node: Node) -> Iterator[str]:
    for record in (node.record, *node.side_records.values()):
        if is_value(record):
            if node.kind != "parse_json":
                yield f"of={record!r:.60} must be a type, such as str"
            continue
        yield from _type(record, is_kept=node.kind in RUNNING)
    if node.kind == "parse_json" and not node.settings["sides"] and node.record is None:
        yield "parse_json needs the type to read: parse_json(Click)"


def _processes(graph: Graph) -> Iterator[str]:
    seen: dict[int, Node] = {}
    for node in graph.nodes:
        process = node.function
        if node.kind not in PROCESSES:
            continue
        if (node.kind == "connect") is not isinstance(process, CoProcess):
            yield f"{node}: connect(...).process takes an instance of a CoProcess, and it alone; got {process!r:.60}"
        elif isinstance(process, type):
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
                instead = _INSTEAD_OF_EVENT_TIME.get(node.kind, ", or use processing-time timers")
                yield f"{what}; put .with_event_time(lambda record: ..., disorder='5s') behind it{instead}"


def _ends(graph: Graph) -> Iterator[str]:
    """Refuse results at the end of an input that is known to have none."""
    for node in graph.nodes:
        if node.kind in RUNNING and node.settings["emit"] == AT_END:
            endless = [source for source in above(node) if isinstance(source.function, Spout) and source.function.is_endless]
            yield from (f"{node} emits at the end (AT_END), and {one} never ends; use emit=every('1s')" for one in endless)


def _goes_by_event_time(node: Node) -> bool:
    if node.kind == "window":
        return getattr(node.settings["window"], "is_event_time", False) is True
    if node.kind not in PROCESSES:
        return False
    if node.settings.get("event_time"):
        return True
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
        is_untimed |= source.kind == "batch" or isinstance(source.settings.get("window"), CountWindows)
        if source.kind in SOURCES or is_untimed:
            yield source
        else:
            yield from _without_event_time(source, seen)
