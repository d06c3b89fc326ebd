"""Sinks that do nothing but fill a container of their process: each worker would fill a copy, which nothing reads."""

from __future__ import annotations

import dis
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from types import BuiltinMethodType, FunctionType
from typing import Any

_CONTAINERS = (list, set, dict, deque, Counter, defaultdict)
_FILLING = frozenset({"append", "appendleft", "extend", "insert", "add", "update"})
_NO_STEPS = frozenset({"RESUME", "COPY_FREE_VARS", "PUSH_NULL", "PRECALL", "CACHE", "NOP", "POP_TOP", "NOT_TAKEN"})


def filled_by(function: Callable[..., Any]) -> Any:
    """Return the container that a sink only fills with its argument; None for all other sinks.

    That is a bound method, as `results.append`, or a function of one statement: `results.append(...)` without another call,
    or `results[...] = ...`. A function that does more, such as to write its list to a file at times, is none.
    """
    if isinstance(function, BuiltinMethodType):
        return function.__self__ if isinstance(function.__self__, list | set | dict | deque) else None
    if not isinstance(function, FunctionType):
        return None
    steps = [one for one in dis.get_instructions(function.__code__) if one.opname not in _NO_STEPS]
    names = [one.opname for one in steps]
    outer = {one.argval for one in steps if one.opname in ("LOAD_GLOBAL", "LOAD_DEREF")}
    is_straight = not any("JUMP" in name or name.startswith(("FOR_", "SEND", "STORE_FAST", "STORE_ATTR")) for name in names)
    if len(outer) != 1 or not is_straight:
        return None
    container = _value_of(function, outer.pop())
    if type(container) not in _CONTAINERS:
        return None
    calls = sum(name.startswith("CALL") for name in names)
    stores = [name for name in names if name.startswith(("STORE_", "DELETE_"))]
    if stores:
        return container if stores == ["STORE_SUBSCR"] and not calls else None
    starts = names[0] in ("LOAD_GLOBAL", "LOAD_DEREF") and steps[1].argval in _FILLING
    ends = [name for name in names if not name.startswith(("RETURN_", "LOAD_CONST"))][-1:]
    return container if starts and calls == 1 and ends[0].startswith("CALL") else None


def _value_of(function: FunctionType, name: str) -> Any:
    if name in function.__code__.co_freevars:
        cell = (function.__closure__ or ())[function.__code__.co_freevars.index(name)]
        try:
            return cell.cell_contents
        except ValueError:
            return None
    return function.__globals__.get(name)
