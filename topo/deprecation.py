"""Old public names: each works for one release, and gives a DeprecationWarning that names the new one.

A module passes on its old names with `old_names`, a function its old parameters with `old_parameters`; an old method calls
`warn_renamed` and the new one. docs/upgrading.md lists all old names.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_ENGINE = f"{Path(__file__).parent}/"
_IMPORT_SYSTEM = "<frozen importlib"


def warn_renamed(old: str, new: str) -> None:
    """Give the warning, at the line of the caller outside of topo."""
    level = 1
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith((_ENGINE, _IMPORT_SYSTEM)):
        # The warnings module leaves the import system's frames out of its count.
        level += not frame.f_code.co_filename.startswith(_IMPORT_SYSTEM)
        frame = frame.f_back
    warnings.warn(f"{old} is now {new}; the old name ends with topo 0.2", DeprecationWarning, stacklevel=level)


def old_names(module: str, renamed: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a `__getattr__` for a module, which gives the values of new names for old ones."""

    def __getattr__(name: str) -> Any:
        if name not in renamed:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warn_renamed(f"{module}.{name}", renamed[name])
        return getattr(sys.modules[module], renamed[name])

    return __getattr__


def with_new_names(given: Mapping[str, R], renamed: Mapping[str, str], kind: str) -> dict[str, R]:
    """Return arguments under their new names, with a warning for each old one.

    An old name beside its new one is returned as it is: the caller refuses it as it refuses unknown names.

    Args:
        given: values by old and new names.
        renamed: new names by old ones.
        kind: what they are names of, for the warning.
    """
    found: dict[str, R] = {}
    for name, value in given.items():
        new = renamed.get(name, name)
        if new != name and new not in given:
            warn_renamed(f"{kind} {name}", new)
            name = new
        found[name] = value
    return found


def old_parameters(**renamed: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function take old keywords, such as `held_for="max_wait"`, for its new ones."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            given: Any = with_new_names(kwargs, renamed, "parameter")
            return function(*args, **given)

        return call

    return decorate
