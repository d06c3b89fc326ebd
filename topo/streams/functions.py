"""Facts of a user's function that show before it runs: its parameters, and the type of its result."""

from __future__ import annotations

import inspect
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any, get_args, get_origin, get_type_hints

from topo.streams.captured import own_function
from topo.streams.records import changes
from topo.streams.type_facts import named

_ITEMS = (Iterable, Iterator, Sequence, Generator, list, tuple, set, frozenset)


def result_type(function: Any) -> Any:
    """Return the type that a function returns: a class itself, or its annotation; None where it is not known."""
    if isinstance(function, type):
        return function
    if (own := own_function(function)) is None:
        return None
    try:
        return get_type_hints(own).get("return")
    except (NameError, TypeError):
        return None


def first_type(function: Any) -> Any:
    """Return the annotation of a function's first parameter; None where there is none."""
    try:
        return next((one.annotation for one in inspect.signature(function, eval_str=True).parameters.values()), None)
    except (NameError, TypeError, ValueError):
        return None


def guarded_type(guard: Any) -> Any:
    """Return the type of the records that `only` keeps: a class itself, or that of a type guard; None where it is not known."""
    if isinstance(guard, type):
        return guard
    arguments = get_args(result_type(guard))
    return arguments[0] if arguments else None


def item_type(returned: Any) -> Any:
    """Return the type of the items of what `flat_map` was given; None where it is not known."""
    returned = named(returned)
    origin, arguments = get_origin(returned), get_args(returned)
    if origin is tuple:
        return arguments[0] if len(arguments) == 2 and arguments[1] is ... else None
    return arguments[0] if origin in _ITEMS and arguments else None


def aggregated_type(parts: Sequence[Any], into: Any) -> Any:
    """Return the type of the results that aggregates give, as functions declare it; Any where they do not."""
    if into is not None:
        return result_type(into) or Any
    # Of aggregates a type matters where a value would not arrive as it is.
    kinds = [result_type(getattr(part, "result", None)) for part in parts]
    if not any(changes(kind) for kind in kinds):
        return Any
    return kinds[0] if len(kinds) == 1 else generic(tuple, *[kind if changes(kind) else Any for kind in kinds])


def generic(origin: Any, *arguments: Any) -> Any:
    """Return a generic type of arguments that are known when the program is built."""
    return origin[arguments if len(arguments) > 1 else arguments[0]]


def problem_of(function: Any, method: str, arguments: int, what: str) -> str | None:
    """Return the mistake in a user's function; None when it can be called.

    Args:
        method: of the stream, such as "map".
        arguments: how many it is called with.
        what: these are, such as "record".
    """
    if not callable(function):
        return f"{method} takes a function of {what}; got {function!r:.60} ({type(function).__name__})"
    own = own_function(function)
    if own is not None and (inspect.iscoroutinefunction(own) or inspect.isasyncgenfunction(own)):
        return f"{method} was given an async function, and nothing would await it; give it to async_map"
    if own is not None and inspect.isgeneratorfunction(own) and method not in ("flat_map", "process", "from_iterable"):
        return f"{method} was given a generator function, which would not run; give it to flat_map"
    if method == "flat_map" and own is not None and result_type(function) is str:
        return "flat_map was given a function that returns str, which would become its characters; return a list"
    return signature_problem(function, method, arguments, what)


def signature_problem(function: Any, method: str, arguments: int, what: str) -> str | None:
    """Return the mistake of a function that takes other arguments than it is called with. See `problem_of`."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    try:
        signature.bind(*[None] * arguments)
    except TypeError:
        given = f"with {arguments} ({what})" if arguments else "without arguments"
        return f"{method} calls its function {given}, but it takes {signature}"
    return None
