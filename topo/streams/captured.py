"""Variables that functions capture: a lambda made in a loop sees the last value of the loop's variable."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable
from functools import partial
from types import CodeType, FunctionType
from typing import Any

Captured = dict[str, Any]


def captured_by(function: Callable[..., Any]) -> Captured:
    """Return the variables of enclosing functions that a function reads, and the globals that a lambda reads."""
    own = own_function(function)
    if own is None:
        return {}
    found: Captured = {}
    for name, cell in zip(own.__code__.co_freevars, own.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:
            continue  # assigned later, as a function that calls itself
    if own.__name__ == "<lambda>":
        found |= {name: own.__globals__[name] for name in _names(own.__code__) if name in own.__globals__}
    return found


def rebound(function: Callable[..., Any], before: Captured) -> list[str]:
    """Return the captured variables that have another value by now: the variable of a loop, as a rule."""
    now = captured_by(function)
    return [name for name, value in before.items() if name in now and now[name] is not value]


def _names(code: CodeType) -> set[str]:
    """Return the globals that the code reads; `co_names` has the attributes too."""
    names = {one.argval for one in dis.get_instructions(code) if one.opname == "LOAD_GLOBAL"}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _names(constant)
    return names


def own_function(value: Any) -> FunctionType | None:
    """Return the Python function behind a callable: itself, that of a partial, or the `__call__` of an object; or None."""
    while isinstance(value, partial):
        value = value.func
    if inspect.isfunction(value):
        return value
    if inspect.ismethod(value):
        return own_function(value.__func__)
    call = inspect.getattr_static(type(value), "__call__", None)
    return call if inspect.isfunction(call) and not isinstance(value, type) else None
