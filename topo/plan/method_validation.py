"""Finds mistakes in the methods of users' components: methods that the engine could not call, or never calls.

The base classes define the methods and their numbers of arguments; a user's method has to take as many, and to be of the
same kind: a generator or a coroutine function is called and never run. The `__init__` of a base class has to be called.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Iterator
from typing import Any

from topo.api.aggregates import AggregateFunction
from topo.api.component import Component
from topo.api.operator_bolts import AsyncBolt, WindowBolt
from topo.api.partitions import PartitionedSpout
from topo.api.topology import ComponentSpec
from topo.api.windows import ProcessWindowFunction, ReduceFunction
from topo.user_errors import forgets_result, shown_file

_OURS = "topo."
_API = "topo.api."


def method_problems(spec: ComponentSpec) -> Iterator[str]:
    """Yield the mistakes in the methods of one component, which is of a class that its kind allows."""
    missing = _unprepared(spec)
    if missing is not None:
        yield (
            f"component {spec.id!r}: {spec.type.__name__}.__init__ does not call super().__init__(...), so {missing.__name__} is "
            f"not set up; call it first, with the arguments of {missing.__name__}{_shown(vars(missing)['__init__'])}"
        )
    wanted = getattr(spec.component, "wants_values", False) is True
    yield from _of_class(spec, spec.type, wanted)
    if isinstance(spec.component, WindowBolt) and missing is None:
        for part in _parts(spec.component):
            yield from _of_class(spec, type(part), wanted)
        reduce = spec.component.reduce
        if inspect.isfunction(reduce) and (problem := _no_result("reduce", reduce)):
            yield _placed(spec, reduce.__qualname__, problem, reduce)


def _parts(bolt: WindowBolt) -> Iterator[Any]:
    """Yield what users write for a window: its functions, and the triggers within its trigger."""
    yield from (bolt.process, bolt.aggregate, *getattr(bolt.aggregate, "parts", ()), bolt.reduce, bolt.evictor)
    trigger = bolt.trigger
    while trigger is not None:
        yield trigger
        trigger = getattr(trigger, "inner", None)


def _of_class(spec: ComponentSpec, cls: type, wanted: bool) -> Iterator[str]:
    for name, base in _called(cls).items():
        own = inspect.getattr_static(cls, name)
        function = getattr(own, "__func__", own)
        if not inspect.isfunction(function) or function.__module__.startswith(_OURS):
            continue
        problem = _kind_problem(name, base, function, cls) or _signature_problem(name, base, own, function, wanted)
        if problem := problem or (_no_result(name, function) if issubclass(cls, AggregateFunction | ReduceFunction) else ""):
            yield _placed(spec, f"{cls.__name__}.{name}", problem, function)


def _placed(spec: ComponentSpec, name: str, problem: str, function: Any) -> str:
    code = inspect.unwrap(function).__code__
    return f"component {spec.id!r}: {name} {problem} ({shown_file(code.co_filename)}:{code.co_firstlineno})"


_ACCUMULATOR = "the accumulator"
_RESULTS = {"add": _ACCUMULATOR, "add_columns": _ACCUMULATOR, "merge": _ACCUMULATOR, "reduce": "the combination of both"}


def _no_result(name: str, function: Any) -> str:
    """Say that a function forgets its result, of those whose None is taken for an empty window."""
    if name not in _RESULTS:
        return ""
    return f"returns nothing; return {_RESULTS[name]}" if forgets_result(inspect.unwrap(function).__code__) else ""


def _called(cls: type) -> dict[str, Any]:
    """Return the methods of the base classes that the engine calls, the most special declaration of each."""
    found: dict[str, Any] = {}
    for base in cls.__mro__:
        if base.__module__.startswith(_API):
            for name, method in vars(base).items():
                if inspect.isfunction(method) and not name.startswith("_"):
                    found.setdefault(name, method)
    return found


def _kind_problem(name: str, base: Any, function: Any, cls: type) -> str:
    is_call = issubclass(cls, AsyncBolt) and name == "call"
    if inspect.iscoroutinefunction(base) and not inspect.iscoroutinefunction(function):
        return "is awaited on the event loop; make it async def"
    if inspect.iscoroutinefunction(function) and not (inspect.iscoroutinefunction(base) or is_call):
        return "is async def, and nothing would await it; make it def, or take an AsyncBolt for asynchronous calls"
    if issubclass(cls, PartitionedSpout) and name in ("read", "partitions") and inspect.isgeneratorfunction(function):
        return ""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        emits = issubclass(cls, Component | ProcessWindowFunction)
        fix = (
            "return a list of tuples"
            if is_call
            else "call collector.emit(...) instead of yield"
            if emits
            else "return its result"
        )
        return f"is a generator, which nothing would run; {fix}"
    return ""


def _signature_problem(name: str, base: Any, own: Any, function: Any, wants_values: bool) -> str:
    """Say how a method is called, where it cannot be called like that."""
    arguments = list(inspect.signature(base).parameters)[1:]
    if wants_values and name in ("ack", "fail"):
        arguments.append("values")
    is_bound = isinstance(own, staticmethod)
    mismatch = f"is defined as {name}{_shown(function)}, but it is called as {name}({', '.join(arguments)})"
    own_names = list(inspect.signature(function).parameters)[0 if is_bound else 1 :]
    try:
        inspect.signature(function).bind(*([] if is_bound else [None]), *arguments)
    except TypeError:
        return mismatch
    # Flink calls a window function with the context before the elements.
    return mismatch if own_names != arguments and sorted(own_names) == sorted(arguments) else ""


def _shown(function: Any) -> str:
    """Return a function's parameters without annotations, such as `(self, tup)`."""
    signature = inspect.signature(function)
    bare = [one.replace(annotation=inspect.Parameter.empty) for one in signature.parameters.values()]
    return str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))


def _unprepared(spec: ComponentSpec) -> type | None:
    """Return the base class of ours whose `__init__` has not been run, or of a class will not be; None when all is well."""
    mro = spec.type.__mro__
    for place, base in enumerate(mro):
        if not base.__module__.startswith(_OURS) or "__init__" not in vars(base):
            continue
        stored = _stored_by(vars(base)["__init__"])
        names = {name for name in stored if not any(name in vars(cls) for cls in mro[: place + 1])}
        if not names:
            continue
        if isinstance(spec.component, type):
            first: Any = inspect.getattr_static(spec.type, "__init__")
            code = getattr(first, "__code__", None)
            if first.__module__.startswith(_OURS) or code is None or "__init__" in code.co_names:
                continue
        elif any(name in vars(spec.component) for name in names):
            continue
        return base
    return None


def _stored_by(function: Any) -> set[str]:
    return {one.argval for one in dis.get_instructions(inspect.unwrap(function)) if one.opname == "STORE_ATTR"}
