"""Facts of a user's function that show before it runs: its parameters, and the type of its result."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, get_args, get_origin, get_type_hints, is_typeddict

from topo.errors import UserError
from topo.streams.captured import own_function
from topo.streams.records import SCALARS, Layout, changes
from topo.streams.type_facts import named

_PARTS: dict[type, str] = {str: "characters", bytes: "numbers", bytearray: "numbers"}
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


def parts_of(record: Any) -> str | None:
    """Return what a record of this type would become where it is taken for a list of records; None where that may be meant."""
    record = named(record)
    cls = get_origin(record) or record
    if not isinstance(cls, type):
        return None
    if cls is dict or is_typeddict(cls):
        return "keys"
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return "fields"
    return next((parts for base, parts in _PARTS.items() if issubclass(cls, base)), None)


def list_problem(given: Any) -> str | None:
    """Return why a value is no list of records, behind its name, and the fix; None where it can be taken for one."""
    cls = type(given)
    if (parts := parts_of(cls)) is not None:
        return f"which would become its {parts}; return a list of records"
    is_list = hasattr(cls, "__iter__") or hasattr(cls, "__getitem__")
    return None if is_list else "which is no list; return a list of records"


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
    if method in ("flat_map", "process") and (parts := parts_of(returned := result_type(function))) is not None:
        shown = getattr(returned, "__name__", returned)
        return f"{method} was given a function that returns {shown}, which would become its {parts}; return a list of records"
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


def row_of(fields: Sequence[str], label: str, record: Any) -> Iterable[Any]:
    """Return the values of a record under the names that a sink is given: of a dict by key, else by place.

    Raises:
        UserError: it has none, or its parts are no values, such as the characters of a text.
    """
    if isinstance(record, Mapping):
        if missing := [name for name in fields if name not in record]:
            has = ", ".join(map(repr, record))
            raise UserError(f"{label} was given a dict without {missing[0]!r}, which fields= names; its keys are {has}")
        return [record[name] for name in fields]
    if isinstance(record, Iterable) and not isinstance(record, (*_PARTS, set, frozenset)):
        return record
    what = f"{label} was given {record!r:.60} ({type(record).__name__})"
    raise UserError(f"{what}, and fields= is for tuples, lists and dicts; make a tuple of it")


def own_copy(value: Any) -> Any:
    """Return a value that the user's function may change: when it, or an operator behind it, raises, the state is as before."""
    cls = type(value)
    return value if cls in SCALARS or (cls is tuple and SCALARS.issuperset(map(type, value))) else deepcopy(value)


def keeps_as_given(layout: Layout) -> bool:
    """Return whether state keeps the records themselves, so that who changes one would change the state."""
    return layout.kinds == (None,) and not layout.attributes and layout.record not in SCALARS


def own_reader(layout: Layout) -> Callable[[Any], Any]:
    """Return the function that makes of what state keeps a record that the user's function may change."""
    return own_copy if keeps_as_given(layout) else layout.unpacker()


class FirstCall:
    """Stands for a function until it has returned once, and checks that result. Later calls cost nothing."""

    def __init__(self, function: Callable[..., Any], check: Callable[[Any], None], done: Callable[[Any], None]) -> None:
        """Keep the function; `done` is called with it to put it in the place of this object."""
        self._function, self._check, self._done = function, check, done

    def __call__(self, *given: Any) -> Any:
        returned = self._function(*given)
        self._check(returned)
        self._done(self._function)
        return returned


def check_runs(method: str, returned: Any) -> None:
    """Refuse a result that nothing would run. A lambda that calls an async function does not show it before."""
    problem = None
    if inspect.iscoroutine(returned):
        returned.close()
        problem = "a coroutine, which nothing awaits; give an async function to async_map, also ahead of a filter or a sink"
    elif inspect.isgenerator(returned) and not method.startswith("map"):
        problem = "a generator, which nothing runs; give it to flat_map"
    if problem is not None:
        raise UserError(f"the function of {method} returned {problem}")
